"""What the documentation site does beyond mkdocs: pages from files outside of docs/, and links that leave docs/.

The pages must also read well where the repository is shown as files, so they link to each other and to the source by
relative paths. In the site, the files of PAGES are pages, and a link to any other file of the repository is left as its
words: the site is read where there may be no repository.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PAGES = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "MAINTAINING.md": "maintaining.md",
}
NOTEBOOK, TUTORIAL = "docs/tutorial.ipynb", "tutorial.md"  # dev/site_notebook.py makes the one of the other
FILES = {page: file for file, page in PAGES.items()}
CELL = re.compile(r"<td.*?</td>", re.DOTALL)
TOGETHER = re.compile(r"\d[\d.]* (?:\([\d.]+-[\d.]+\)|/ \d[\d.]*)")  # as in 48.0 (40.5-55.7) and in 17.7 / 13.8
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(_root(config) / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_others: object) -> str:
    """Turn the paths of the repository into those of the site."""
    uri = page.file.src_uri
    source = FILES.get(uri, f"docs/{uri}")

    def changed(match: re.Match[str]) -> str:
        picture, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        if ":" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path == NOTEBOOK and uri != TUTORIAL:
            path = f"docs/{TUTORIAL}"
        inside = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if inside is not None:
            return f"{picture}[{words}]({posixpath.relpath(inside, posixpath.dirname(uri) or '.')}{anchor})"
        if not (_root(config) / path).exists():
            raise PluginError(f"{source} links to {target}, which is not there: mend the link")
        return words

    return LINK.sub(changed, markdown)


def on_page_content(html: str, **_others: object) -> str:
    """Keep numbers of tables with their intervals in one line, and the source of the reference out of the search."""
    html = CELL.sub(lambda cell: TOGETHER.sub(r"<span class='together'>\g<0></span>", cell[0]), html)
    return html.replace('class="mkdocstrings-source"', 'class="mkdocstrings-source" data-search-exclude')


def on_post_page(output: str, **_others: object) -> str:
    """Name the search for those who hear the page: the theme does not."""
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )


def _root(config: MkDocsConfig) -> Path:
    return Path(config.docs_dir).parent
