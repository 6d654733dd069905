"""Shows docs/tutorial.ipynb in the documentation site, with what its cells give: it is run once for each build.

The notebook is committed without outputs, so that the site always shows what the code of today gives. With
EXCITE_DOCS_NOTEBOOK=as-is its cells are shown and not run, for builds that only check the pages.
"""

from __future__ import annotations

import base64
import os
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

NOTEBOOK, PAGE = "tutorial.ipynb", "tutorial.md"
PICTURES = {"image/png": "png", "image/jpeg": "jpg"}
SECONDS = 120  # for a cell that never ends; all cells together take a fraction of it

shown: dict[str, str] = {}  # what stands in the page for an output, until its text has become HTML


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the notebook as a page, and its images as files."""
    path = Path(config.docs_dir) / NOTEBOOK
    shown.clear()
    if not path.is_file():
        return files
    cells = _read(path)
    parts = [f"This page is [a notebook]({NOTEBOOK}), shown with what its cells gave when the site was built."]
    for k, cell in enumerate(cells):
        if cell["cell_type"] == "markdown":
            parts.append(cell["source"])
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{cell['source']}\n```")
            parts += [_output(output, f"{k}-{n}", files, config) for n, output in enumerate(cell["outputs"])]
    title, parts[1:] = parts[1], parts[2:]  # the page's title first, then that line
    files.append(File.generated(config, PAGE, content="\n\n".join([title, *parts])))
    return files


def on_page_content(html: str, page: Page, **_others: object) -> str:
    """Put the outputs in their places."""
    if page.file.src_uri == PAGE:
        for place, output in shown.items():
            html = html.replace(place, output)
    return html


def _read(path: Path) -> list[dict[str, Any]]:
    """The cells, run from top to bottom unless told otherwise."""
    try:
        import nbformat
        from jupyter_client.kernelspec import NoSuchKernel
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError
    except ImportError as missing:
        raise PluginError(f"the tutorial needs {missing.name}: pip install nbclient ipykernel") from missing
    notebook = nbformat.read(path, as_version=4)
    if os.environ.get("EXCITE_DOCS_NOTEBOOK") == "as-is":
        return list(notebook.cells)
    try:
        with TemporaryDirectory() as folder:  # what its cells save does not end up beside the pages
            NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": folder}}).execute()
    except NoSuchKernel as error:
        raise PluginError(f"there is no kernel {error.name!r} to run {NOTEBOOK} with: pip install ipykernel") from error
    except CellExecutionError as error:
        raise PluginError(f"a cell of {NOTEBOOK} fails:\n{error}") from error
    return list(notebook.cells)


def _output(output: dict[str, Any], name: str, files: Files, config: MkDocsConfig) -> str:
    """One output of a cell as a part of the page, in the richest form that it has."""
    place = f"<div data-output='{name}'></div>"
    data = output.get("data", {})
    kind = next((kind for kind in PICTURES if kind in data), None)
    if "text/html" in data:
        shown[place] = f"<div class='output' tabindex='0'>{data['text/html']}</div>"
    elif kind is not None:
        file = f"pictures/tutorial-{name}.{PICTURES[kind]}"
        files.append(File.generated(config, file, content=base64.b64decode(data[kind])))
        shown[place] = f"<div class='output'><img src='{file}' alt='what the cell above shows'></div>"
    else:
        text = output.get("text") or data.get("text/plain", "")
        shown[place] = f"<pre class='output' tabindex='0'>{escape(text)}</pre>"
    return place
