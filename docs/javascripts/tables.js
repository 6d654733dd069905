// Wide tables scroll inside of a box that the theme puts around them: let the keyboard get there too.
new MutationObserver(() => {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    box.tabIndex = 0
    box.role = "region"
    box.ariaLabel = "Table"
  }
}).observe(document, { childList: true, subtree: true })
