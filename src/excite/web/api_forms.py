"""What programs send, however they send it: a form with a file, JSON, or the bytes of a picture alone.

Everything stays in memory: a large file of a form would otherwise be written to the disk by starlette.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from anyio import to_thread
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from excite.web.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request

    from excite.web.limits import Limits

__all__ = ["Sent", "read_picture", "read_question"]

LISTED = frozenset({"concept", "against", "phrase"})
"""The fields that may be given several times."""

OTHER_FIELDS = 20
CUT_OFF = "the form is cut off or broken: send multipart/form-data as a browser or curl -F does"


@dataclass(frozen=True)
class Sent:
    """A question as it came: the picture, if there is one, and all other fields, which are not checked yet."""

    image: bytes | None
    fields: dict[str, Any] = field(default_factory=dict)


class _InMemory(MultiPartParser):
    """Keeps files in memory, and knows whether the form came to its end."""

    spool_max_size = 2**40  # bytes: never written to the disk
    ended = False

    def on_end(self) -> None:
        self.ended = True


async def read_picture(request: Request, limits: Limits) -> bytes:
    """The bytes of a picture, alone or in a form.

    Raises:
        RefusedError: there is no picture.
    """
    if _kind(request) != "multipart/form-data":
        return _checked_size(await request.body(), limits)
    sent = await _from_form(request, limits)
    if sent.image is None:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "there is no picture in the form: send it as the file `image`")
    return sent.image


async def read_question(request: Request, limits: Limits) -> Sent:
    """A question with all that belongs to it.

    Raises:
        RefusedError: it is neither a form nor JSON, or broken.
    """
    kind = _kind(request)
    if kind == "multipart/form-data":
        return await _from_form(request, limits)
    if kind == "application/x-www-form-urlencoded":
        return Sent(None, _fields(_pairs(await request.body(), limits)))
    if kind == "application/json":
        return await to_thread.run_sync(_from_json, await request.body(), limits)
    raise RefusedError(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a question is sent as multipart/form-data or application/json: see /docs"
    )


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _from_form(request: Request, limits: Limits) -> Sent:
    most = 2 * limits.concepts + OTHER_FIELDS
    parser = _InMemory(
        request.headers, request.stream(), max_files=1, max_fields=most, max_part_size=64 + 4 * limits.letters
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        said = {"Too": f"the form has too many parts: send one file and at most {most} fields"}
        raise RefusedError(HTTPStatus.BAD_REQUEST, said.get(error.message.split()[0], CUT_OFF)) from error
    files = [(name, content) for name, content in form.multi_items() if isinstance(content, UploadFile)]
    try:
        if not parser.ended:
            raise RefusedError(HTTPStatus.BAD_REQUEST, CUT_OFF)
        if any(name != "image" for name, _ in files):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "there is a file that is not called `image`: see /docs")
        image = await files[0][1].read() if files else None
    finally:
        await form.close()
    fields = _fields((name, value) for name, value in form.multi_items() if isinstance(value, str))
    if "image" in fields:
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, "`image` is a text: send it as a file, as curl -F image=@photo.jpg does"
        )
    return Sent(None if image is None else _checked_size(image, limits), fields)


def _pairs(body: bytes, limits: Limits) -> list[tuple[str, str]]:
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=2 * limits.concepts + OTHER_FIELDS)
    except ValueError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "the form has too many fields, or is no text") from error


def _fields(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The fields of a form; one that is left empty was not given, as a browser sends it."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in LISTED:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"the field {name[:80]!r} is there twice: give it once")
        elif value:
            found[name] = value
    return found


def _from_json(body: bytes, limits: Limits) -> Sent:
    try:
        fields = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, "the body is not JSON: send an object such as {...}, see /docs"
        ) from error
    if not isinstance(fields, dict):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "the body is no JSON object: send one such as {...}, see /docs")
    image = fields.pop("image", None)
    return Sent(None if image is None else _checked_size(_from_base64(image), limits), fields)


def _no_number(name: str) -> float:
    raise ValueError(name)


def _from_base64(text: object) -> bytes:
    """A picture in JSON; a page's data: address is welcome too."""
    said = "`image` is not base64: encode the whole picture file, see /docs"
    if not isinstance(text, str):
        raise RefusedError(HTTPStatus.BAD_REQUEST, said)
    try:
        return base64.b64decode(text.rpartition(",")[2] if text.startswith("data:") else text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, said) from error


def _checked_size(image: bytes, limits: Limits) -> bytes:
    if len(image) > limits.upload:
        raise RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the picture has more than {limits.upload:,} bytes: send a smaller one",
        )
    return image
