"""Errors, warnings and the log: one line each, with nothing about this machine, and in the log no text of a user."""

import io
import json
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from excite.errors import IN_A_SHELL, IN_PYTHON, ExciteError, ImageError, ModelError, one_line, visible, without_clauses
from excite.io.text import for_log

NOT_UNDERSTOOD = "this request cannot be understood: load the page again, or see /docs"
LOG = logging.getLogger("excite.web")
_NOTES: ContextVar[list[str] | None] = ContextVar("notes", default=None)


class RefusedError(HTTPException):
    """A request that cannot be answered: its HTTP status, and one line for its sender."""


class GoneError(ExciteError):
    """The image is no longer kept."""


class BusyError(ExciteError):
    """Too many requests are waiting."""


STATUSES: dict[type[ExciteError], int] = {GoneError: 410, BusyError: 503, ImageError: 422, ModelError: 404}


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error as JSON: one line, printable and not endless."""
    line = for_page(visible(" ".join(message.split())))
    line = line if len(line) <= 600 else f"{line[:600]}..."
    retry = {"Retry-After": "3"} if status == 503 else {}  # seconds; a question takes about one
    return JSONResponse({"error": line}, status, {**retry, **(headers or {})})


def for_page(message: str) -> str:
    """A message without what to type in Python or a shell: a visitor of the page has neither.

    Example:
        >>> for_page("phrases are read with simplemma: pip install 'excite[ground]'")
        'phrases are read with simplemma'
    """
    return without_clauses(message, f"{IN_PYTHON}|{IN_A_SHELL}")


def answer_error(request: Request, error: Exception) -> JSONResponse:
    """The answer to a request that led to this error."""
    match error:
        case ExciteError():
            status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 400)
            return error_response(status, str(error))
        case RefusedError():
            return error_response(error.status_code, error.detail)
        case ValidationError() | RequestValidationError():
            return error_response(400, _fault(error.errors()[0]))
        case HTTPException():  # of starlette: only its status is of use
            path = request.url.path[:200]
            messages = {
                404: f"there is nothing at {path!r}: see /docs",
                405: f"{request.method[:20]} cannot be asked of {path!r}: see /docs",
            }
            headers = dict(error.headers or {})
            return error_response(error.status_code, messages.get(error.status_code, NOT_UNDERSTOOD), headers)
    unexpected = "something went wrong here that should not have: the server's log says what; try another question"
    return error_response(500, unexpected)  # the guard around the app logs it


ERROR_HANDLERS: dict[Any, Any] = dict.fromkeys(
    (ExciteError, ValidationError, RequestValidationError, HTTPException, Exception), answer_error
)


def _fault(first: Any) -> str:
    """The first fault that pydantic has found in a request, as one line."""
    name = ".".join(str(part) for part in first["loc"] if part not in {"body", "query", "path"})[:80] or "the question"
    if first["type"] == "json_invalid":
        return NOT_UNDERSTOOD
    if first["type"] == "extra_forbidden":
        return f"there is no field {name!r}: see /docs for those there are"
    message, given = str(first["msg"]), json.dumps(first.get("input"), default=str)
    value = f", not {given}" if len(given) <= 80 and first["type"] != "missing" else ""
    return f"{name}: {message[:1].lower()}{message[1:]}{value}; see /docs"


@contextmanager
def collected_notes() -> Iterator[list[str]]:
    """The warnings of the block in this context; `warnings.catch_warnings` would catch those of other threads too."""
    notes: list[str] = []
    before = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(before)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """In the block, which lasts as long as the server runs, warnings go to the notes; each time, not only the first."""
    with warnings.catch_warnings():  # entered before any other thread starts
        warnings.showwarning = _note
        warnings.simplefilter("always", UserWarning)
        yield


def _note(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any) -> None:
    """A warning that belongs to no request is logged; the message only of excite's own, about the classifier."""
    notes, line = _NOTES.get(), for_page(" ".join(str(message).split()))
    if notes is None:
        is_own = category.__module__.startswith("excite.")
        LOG.warning(f"{category.__name__}: {message if is_own else f'{Path(filename).name}:{lineno}'}")
    elif line not in notes:
        notes.append(line)


@contextmanager
def bounded_log() -> Iterator[None]:
    """In the block, what is logged or printed as an error becomes short lines, with no text of a user in them."""
    root = logging.getLogger()
    before, root.handlers[:] = root.handlers[:], [_Handler()]
    try:
        with redirect_stderr(_Printed()):
            yield
    finally:
        root.handlers[:] = before


class _Handler(logging.Handler):
    """Writes a line when it comes for the first, the tenth, the hundredth time, and so on."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._stream = sys.stderr
        self._times: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        self._times[line] += 1
        times = str(self._times[line])
        if times.strip("0") == "1":
            with suppress(OSError):  # nobody reads it any more
                self._stream.write(f"{line}\n" if times == "1" else f"{line} ({times} times)\n")
                self._stream.flush()

    def format(self, record: logging.LogRecord) -> str:
        place = f"{record.name} at {Path(record.pathname).name}:{record.lineno}"
        # messages of these loggers hold no values, but for their arguments
        what = str(record.msg) if record.name in {LOG.name, "uvicorn.error"} else place
        error = record.exc_info[1] if record.exc_info else None
        why = "" if error is None else f": {for_log(error)}"
        return f"excite: {record.levelname.lower()}: {one_line(what + why)}"


class _Printed(io.TextIOBase):
    """In place of standard error: a package may print a trace there, which quotes what was sent."""

    def write(self, text: str) -> int:
        LOG.warning("a package has printed something, which is left out: it may hold a user's text")
        return len(text)
