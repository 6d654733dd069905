"""Errors, warnings and the log: one line each, with nothing about this machine, and in the log no text of a user.

Warnings become notes of the answer that they belong to. `warnings.catch_warnings` changes the whole process, so that a
thread would catch the warnings of another; here one hook assigns each warning by the context of its thread.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings
from collections import Counter
from contextlib import contextmanager, redirect_stderr, suppress
from contextvars import ContextVar
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from excite.errors import ExciteError, ImageError, ModelError, one_line, visible
from excite.io.text import for_log
from excite.web.service import BusyError
from excite.web.uploads import GoneError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from fastapi import FastAPI, Request

UNEXPECTED = "something went wrong here that should not have: the server's log says what; try another question"
NOT_UNDERSTOOD = "this request cannot be understood: load the page again, or see /docs"
MOST_LETTERS = 600
RETRY_AFTER = "3"  # seconds; a question takes about one


class RefusedError(ExciteError):
    """A request that cannot be answered, with its HTTP status."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def error_response(status: int, message: str) -> JSONResponse:
    """An error as JSON.

    Example:
        >>> error_response(404, "there is no such page").body
        b'{"error":"there is no such page"}'
    """
    line = visible(" ".join(message.split()))
    line = line if len(line) <= MOST_LETTERS else f"{line[:MOST_LETTERS]}..."
    headers = {"Retry-After": RETRY_AFTER} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
    return JSONResponse({"error": line}, status, headers)


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error of an app in this form."""
    app.add_exception_handler(ExciteError, _expected)
    app.add_exception_handler(ValidationError, _invalid)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _unexpected)


def _expected(_request: Request, error: Exception) -> JSONResponse:
    statuses = {
        GoneError: HTTPStatus.GONE,
        BusyError: HTTPStatus.SERVICE_UNAVAILABLE,
        ImageError: HTTPStatus.UNPROCESSABLE_ENTITY,
        ModelError: HTTPStatus.NOT_FOUND,
    }
    fitting = (status for kind, status in statuses.items() if isinstance(error, kind))
    status = error.status if isinstance(error, RefusedError) else next(fitting, HTTPStatus.BAD_REQUEST)
    return error_response(status, str(error))


def _invalid(_request: Request, error: Exception) -> JSONResponse:
    """The first fault of a request, as one line."""
    assert isinstance(error, ValidationError | RequestValidationError)  # noqa: S101 - how it was registered
    first: Any = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"] if part not in {"body", "query", "path"})[:80] or "the question"
    if first["type"] == "json_invalid":
        return error_response(HTTPStatus.BAD_REQUEST, NOT_UNDERSTOOD)
    if first["type"] == "extra_forbidden":
        return error_response(HTTPStatus.BAD_REQUEST, f"there is no field {name!r}: see /docs for those there are")
    message, given = str(first["msg"]), json.dumps(first.get("input"), default=str)
    value = f", not {given}" if len(given) <= 80 and first["type"] != "missing" else ""
    return error_response(HTTPStatus.BAD_REQUEST, f"{name}: {message[:1].lower()}{message[1:]}{value}; see /docs")


def _refused(request: Request, error: Exception) -> JSONResponse:
    """An error of starlette, of which only the status is of use."""
    assert isinstance(error, HTTPException)  # noqa: S101 - how it was registered
    path = request.url.path[:200]
    messages: dict[int, str] = {
        HTTPStatus.NOT_FOUND: f"there is nothing at {path!r}: see /docs",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.method[:20]} cannot be asked of {path!r}: see /docs",
    }
    answer = error_response(error.status_code, messages.get(error.status_code, NOT_UNDERSTOOD))
    answer.headers.update(error.headers or {})
    return answer


def _unexpected(_request: Request, _error: Exception) -> JSONResponse:
    """The guard around the app logs it."""
    return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, UNEXPECTED)


# Warnings.

_NOTES: ContextVar[list[str] | None] = ContextVar("notes", default=None)


@contextmanager
def collected_notes() -> Iterator[list[str]]:
    """The warnings raised in the block, by this thread or by those with a copy of its context.

    Example:
        >>> with collected_notes() as notes:
        ...     pass
        >>> notes
        []
    """
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

        def note(
            message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
        ) -> None:
            notes = _NOTES.get()
            if notes is None:
                log_warning(message, category, filename, lineno)
            elif (line := " ".join(str(message).split())) not in notes:
                notes.append(line)

        warnings.showwarning = note
        warnings.simplefilter("always", UserWarning)
        yield


# The log: few short lines, with kinds and places of errors but without any text of a user.


LOG = logging.getLogger("excite.web")
CONSTANT = {LOG.name, "uvicorn.error"}  # loggers whose messages hold no values, but for their arguments


def log_warning(message: Warning | str, category: type[Warning], file: str, number: int) -> None:
    """Log a warning that belongs to no request; the message of excite's own, which are about the classifier."""
    said = str(message) if category.__module__.startswith("excite.") else f"{Path(file).name}:{number}"
    LOG.warning(f"{category.__name__}: {said}")


@contextmanager
def bounded_log() -> Iterator[None]:
    """In the block, whatever is logged, or printed as an error, becomes such lines on standard error."""
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
        what = str(record.msg) if record.name in CONSTANT else place
        error = record.exc_info[1] if record.exc_info else None
        why = "" if error is None else f": {for_log(error)}"
        return f"excite: {record.levelname.lower()}: {one_line(what + why)}"


class _Printed(io.TextIOBase):
    """In place of standard error: a package may print a trace there, which quotes what was sent."""

    def write(self, text: str) -> int:
        LOG.warning("a package has printed something, which is left out: it may hold a user's text")
        return len(text)
