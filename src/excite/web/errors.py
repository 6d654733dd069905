"""Errors over HTTP: always one line of JSON that says what to do, and never anything about this machine."""

from __future__ import annotations

import json
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from http import HTTPStatus
from typing import TYPE_CHECKING

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from excite.errors import ExciteError, ImageError, ModelError
from excite.web.service import BusyError
from excite.web.uploads import GoneError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from fastapi import FastAPI, Request


UNFORESEEN = "something went wrong here that should not have: the server's log says what; try another question"
MOST_LETTERS = 600
RETRY_AFTER = "3"  # seconds; a question takes about one


class RefusedError(ExciteError):
    """What was sent cannot be taken.

    Args:
        status: the HTTP code that fits.
        message: what is wrong, and what to do.
    """

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def problem(status: int, message: str) -> JSONResponse:
    """An error as it is told to a program.

    Example:
        >>> problem(404, "there is no such page").body
        b'{"error":"there is no such page"}'
    """
    line = " ".join(message.split())
    line = line if len(line) <= MOST_LETTERS else f"{line[:MOST_LETTERS]}..."
    line = line.encode("utf-8", "backslashreplace").decode()  # half a letter may be asked for, but not answered
    headers = {"Retry-After": RETRY_AFTER} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
    return JSONResponse({"error": line}, status, headers)


def add_error_answers(app: FastAPI) -> None:
    """Let every error of the app be answered in the one form."""
    app.add_exception_handler(ExciteError, _foreseen)
    app.add_exception_handler(ValidationError, _invalid)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _unforeseen)


def _foreseen(_request: Request, error: Exception) -> JSONResponse:
    return problem(_status_of(error), str(error))


def _status_of(error: Exception) -> HTTPStatus:
    if isinstance(error, RefusedError):
        return error.status
    fitting = {
        GoneError: HTTPStatus.GONE,
        BusyError: HTTPStatus.SERVICE_UNAVAILABLE,
        ImageError: HTTPStatus.UNPROCESSABLE_ENTITY,
        ModelError: HTTPStatus.NOT_FOUND,
    }
    return next((status for kind, status in fitting.items() if isinstance(error, kind)), HTTPStatus.BAD_REQUEST)


def _invalid(_request: Request, error: Exception) -> JSONResponse:
    """The first fault is enough: whoever mends it sees the next."""
    assert isinstance(error, ValidationError | RequestValidationError)  # noqa: S101 - how it was registered
    return problem(HTTPStatus.BAD_REQUEST, _one_line(error.errors()))


def _one_line(faults: Sequence[Any]) -> str:
    first = faults[0]
    name = ".".join(str(part) for part in first["loc"] if part not in {"body", "query", "path"})[:80] or "the question"
    if first["type"] == "extra_forbidden":
        return f"there is no field {name!r}: see /docs for those there are"
    said = str(first["msg"])
    given = json.dumps(first.get("input"), default=str)
    told = f", not {given}" if len(given) <= 80 and first["type"] != "missing" else ""
    return f"{name}: {said[:1].lower()}{said[1:]}{told}; see /docs"


def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - how it was registered
    path = request.url.path[:200]
    told = {
        HTTPStatus.NOT_FOUND: f"there is nothing at {path!r}: see /docs",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.method[:20]} cannot be asked of {path!r}: see /docs",
    }
    answer = problem(error.status_code, told.get(HTTPStatus(error.status_code), str(error.detail)))
    answer.headers.update(error.headers or {})
    return answer


def _unforeseen(_request: Request, error: Exception) -> JSONResponse:
    """The guard around the app writes the trace into the log: it sees all errors, also those of the page."""
    del error
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, UNFORESEEN)


# Warnings as notes of the answer that they belong to, though many threads answer at the same time.
#
# `warnings.catch_warnings` changes the whole process, so that a thread would catch the warnings of another. Here the
# one place that shows warnings is told once to look whose they are: the thread knows it from its context.

_NOTES: ContextVar[list[str] | None] = ContextVar("notes", default=None)


@contextmanager
def noting() -> Iterator[list[str]]:
    """The warnings of what is done in the block, by this thread or those that it hands its context to.

    Example:
        >>> with noting() as notes:
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
def tell_warnings_in_answers() -> Iterator[None]:
    """As long as the block lasts, which is as long as the server runs, warnings go where they belong.

    A warning is shown each time and not only the first: the next person has not seen the first.
    """
    with warnings.catch_warnings():  # one thread, before any other begins and after they have ended
        show = warnings.showwarning

        def told(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            notes = _NOTES.get()
            if notes is None:
                show(message, category, *where, **more)
            elif (line := " ".join(str(message).split())) not in notes:
                notes.append(line)

        warnings.showwarning = told
        warnings.simplefilter("always", UserWarning)
        yield
