"""Which paths are served: a list of those that are needed, so that nothing else is served by mistake.

gradio can do much more than this page needs. It serves files of the machine, takes files, fetches addresses for others
and edits its own program; each of these has a path, new ones come with new versions, and none of them is here.
"""

from __future__ import annotations

import re

__all__ = ["is_for_programs", "is_served", "is_small"]

PROGRAMS = frozenset(
    "/attend /ground /pictures /models /methods /labels /health /openapi.json /docs".split()  # see ``api``
)
PICTURE = re.compile(r"/pictures/[0-9A-Za-z]{1,64}")
REPORT = re.compile(r"/reports/[\w.-]{1,200}/[\w .()-]{1,200}(/[\w .()-]{1,200}){0,3}")
PAGE = frozenset(
    (
        "/ /config /theme.css /favicon.ico /robots.txt "
        "/gradio_api/queue/join /gradio_api/queue/data /gradio_api/cancel /gradio_api/reset /gradio_api/app_id"
    ).split()
)
PARTS_OF_PAGE = re.compile(
    r"/(assets|static)/[\w./@+-]{1,300}"  # gradio's own scripts, styles and fonts
    r"|/gradio_api/heartbeat/\w{1,64}"  # whether the page is still open
)


def is_served(path: str) -> bool:
    """Whether there may be anything at a path.

    Example:
        >>> is_served("/attend"), is_served("/assets/index.js"), is_served("/gradio_api/file=/etc/passwd")
        (True, True, False)
    """
    if ".." in path or "//" in path or not path.isprintable():
        return False
    return is_for_programs(path) or path in PAGE or bool(PARTS_OF_PAGE.fullmatch(path) or REPORT.fullmatch(path))


def is_for_programs(path: str) -> bool:
    """Whether errors there are told in JSON.

    Example:
        >>> is_for_programs("/pictures/1a2b"), is_for_programs("/")
        (True, False)
    """
    return path in PROGRAMS or PICTURE.fullmatch(path) is not None


def is_small(path: str) -> bool:
    """Whether only little is ever sent there: pictures go elsewhere.

    Example:
        >>> is_small("/gradio_api/queue/join"), is_small("/pictures")
        (True, False)
    """
    return not is_for_programs(path)
