r"""Text of users and files in Markdown, in HTML and in a log: it stays text, and on one line.

For terminals there is `excite.errors.visible`, and every command prints through `excite.cli.console`.
"""

from __future__ import annotations

import re
import traceback
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from excite.errors import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jinja2 import Environment

MARKUP = re.compile(r"[\\`\[\]#]|\*(?=\S)|(?<![^\W_])_|_(?![^\W_])")  # but no * behind, nor _ within a word
ENTITIES = str.maketrans({"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;", "~": "&#126;"})
LINK = re.compile(r"(?<=[a-z]):(?=//)|(?<=\bwww)\.", re.IGNORECASE)
PLACES = 3  # of the program, in a line of a log


def for_markdown(text: str) -> str:
    r"""The text in Markdown, also in a table: no markup, no HTML, no links.

    Example:
        >>> print(for_markdown("<b>a_b</b> *c* [d](e) | http://f"))
        &lt;b&gt;a_b&lt;/b&gt; \*c* \[d\](e) &#124; http&#58;//f
    """
    marked = MARKUP.sub(r"\\\g<0>", visible(text)).translate(ENTITIES)
    return LINK.sub(lambda found: f"&#{ord(found[0])};", marked)


def markdown_code(text: str) -> str:
    """The text as code in Markdown."""
    shown = visible(text)
    return f"<code>{for_markdown(text)}</code>" if re.search("[`<>&|]", shown) else f"`{shown}`"


def markdown_list(lines: Iterable[str]) -> str:
    """Texts as a list in Markdown."""
    return "\n".join(f"- {for_markdown(line)}" for line in lines)


def for_html(text: str) -> str:
    """The text in HTML, between tags or in quotes."""
    return escape(visible(text))


@cache
def templates_of(package: str, folder: str = "templates") -> Environment:
    """The jinja2 templates in a folder of a package; what is put into them is text, and visible."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    settings: Any = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined, "finalize": _shown}
    environment = Environment(loader=PackageLoader(package, folder), autoescape=True, **settings)
    environment.filters["fmt"] = format
    return environment


def _shown(value: Any) -> Any:
    """A value as a template shows it: what is HTML already (it has ``__html__``) stays."""
    return value if hasattr(value, "__html__") else visible(str(value))


def for_log(error: BaseException) -> str:
    """An error in a log: its kind, and where it arose. Its message may quote a user and is left out."""
    frames = reversed(traceback.extract_tb(error.__traceback__)[-PLACES:])
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return " < ".join([type(error).__name__, *places])
