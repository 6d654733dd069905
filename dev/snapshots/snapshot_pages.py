"""The text of a page of HTML: its words and tables, without pictures, style and scripts."""

from html.parser import HTMLParser

__all__ = ["text_of_page"]

BLOCKS = frozenset(
    "html head title body main header footer nav section article aside div figure figcaption details summary table "
    "thead tbody tfoot caption h1 h2 h3 h4 h5 h6 p ul ol li dl dt dd pre blockquote hr br form label select "
    "option".split()
)
NAMED = frozenset("title figcaption caption summary h1 h2 h3 h4 h5 h6 p li dt dd pre".split())
CELLS = frozenset({"td", "th"})
LEFT_OUT = frozenset({"style", "script", "svg"})
AROUND = {"strong": "*", "b": "*", "u": "_", "span": " ", "small": " "}  # what is best stands in bold
CONTROLS = frozenset({"input", "button", "meta"})
STYLE = frozenset({"class", "style"})


def text_of_page(content):
    """A line for each block and each row of a table."""
    page = _Page()
    page.feed(content)
    page.close()
    page.end_line()
    return page.lines


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.lines, self.said, self.kind = [], [], ""
        self.cells = None  # of the row of a table that is being read
        self.left_out = []  # the elements around that are not read

    def handle_starttag(self, tag, attributes):
        if self.left_out or tag in LEFT_OUT:
            self._leave_out(tag)
        elif tag == "tr":
            self.end_line()
            self.cells = []
        elif tag in CELLS:
            self.said = []
        elif tag not in BLOCKS:
            self.said.append(_inline(tag, dict(attributes)))
        elif self.cells is None:
            self.end_line()
            self.kind = tag
            self.lines += ["table"] if tag == "table" else []
        else:
            self.said.append(" ")

    def handle_endtag(self, tag):
        if self.left_out:
            if tag == self.left_out[-1]:
                self.left_out.pop()
        elif tag in CELLS and self.cells is not None:
            self.cells.append(self._words())
        elif tag == "tr":
            self.lines.append(" | ".join(self.cells or []))
            self.cells = None
        elif tag in BLOCKS and self.cells is None:
            self.end_line()
        else:
            self.said.append(AROUND.get(tag, ""))

    def handle_data(self, data):
        if not self.left_out:
            self.said.append(data)

    def _leave_out(self, tag):
        if not self.left_out and tag == "svg":
            self.said.append("[svg]")
        if tag in LEFT_OUT:
            self.left_out.append(tag)

    def _words(self):
        words = " ".join("".join(self.said).split())
        self.said = []
        return words

    def end_line(self):
        words = self._words()
        if words:
            self.lines.append(f"{self.kind}: {words}" if self.kind in NAMED else words)
        self.kind = ""


def _inline(tag, given):
    """What stands for an element within a line."""
    if tag == "img":
        source = given.get("src") or ""
        return f"[image {'' if source.startswith('data:') else source}: {given.get('alt', '')}]"
    if tag == "a" and given.get("href"):
        return f"[to {given['href']}] "
    if tag in CONTROLS:
        return f"[{tag} {' '.join(f'{name}={value}' for name, value in sorted(given.items()) if name not in STYLE)}]"
    return AROUND.get(tag, "")
