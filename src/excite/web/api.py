"""The HTTP interface for programs, described at /openapi.json and /docs.

A request is a form with a file, JSON, or the bytes of an image. Everything stays in memory: starlette itself would
write a large file of a form to the disk.
"""

from __future__ import annotations

import base64
import json
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl

from anyio import to_thread
from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.responses import HTMLResponse
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from excite import __version__
from excite.methods import METHODS
from excite.web.answers import (
    AsciiJSON,
    AttendAnswer,
    AttendQuestion,
    GroundAnswer,
    GroundQuestion,
    Health,
    LabelsAnswer,
    MethodAnswer,
    ModelsAnswer,
    PictureAnswer,
    Problem,
    attend_answer,
    find_image,
    ground_answer,
    labels_answer,
    models_answer,
    picture_answer,
    small_jpeg,
)
from excite.web.assets import filled_in, static_routes
from excite.web.errors import RefusedError, add_error_handlers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from excite.web.answers import Question
    from excite.web.service import Service
    from excite.web.uploads import Limits

ABOUT = (
    "Where in this image is the evidence for that concept? Send an image once to `POST /pictures` and ask for it by "
    "its key as often as you like, or send it along with each question. Errors are one line of JSON in `error`. If the "
    "server was started with a token, send the header `Authorization: Bearer TOKEN` with each call."
)
KEPT = "private, max-age=86400, immutable"  # the key is a hash of the pixels
LISTED = frozenset({"concept", "against", "phrase"})
"""The fields that may be given several times."""

OTHER_FIELDS = 20
BROKEN_FORM = (
    "the form is cut off or broken, or has other parts than the file `image` and at most {} fields: "
    "send multipart/form-data as a browser or curl -F does"
)


# Reading requests.


class _InMemory(MultiPartParser):
    """Keeps files in memory."""

    spool_max_size = 2**40  # bytes: never written to the disk


async def read_request(request: Request, limits: Limits) -> tuple[bytes | None, dict[str, Any]]:
    """The image of a form or of JSON, if there is one, and all other fields, not validated yet.

    Raises:
        RefusedError: it is neither a form nor JSON, or broken.
    """
    kind, image = _kind(request), None
    if kind == FORM:
        image, fields = await _from_form(request, limits)
    elif kind == "application/x-www-form-urlencoded":
        fields = _fields(_pairs(await request.body(), limits))
    elif kind == "application/json":
        image, fields = await to_thread.run_sync(_from_json, await request.body())
    else:
        message = "a question is sent as multipart/form-data or application/json: see /docs"
        raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
    return image if image is None else _checked_size(image, limits), fields


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _from_form(request: Request, limits: Limits) -> tuple[bytes | None, dict[str, Any]]:
    most, letters = 2 * limits.concepts + OTHER_FIELDS, 64 + 4 * limits.letters
    try:
        form = await _InMemory(
            request.headers, request.stream(), max_files=1, max_fields=most, max_part_size=letters
        ).parse()
    except MultiPartException as error:
        raise _refused(BROKEN_FORM.format(most)) from error
    files = {name: await content.read() for name, content in form.multi_items() if isinstance(content, UploadFile)}
    await form.close()
    if not form or not files.keys() <= {"image"}:
        raise _refused(BROKEN_FORM.format(most))
    fields = _fields((name, value) for name, value in form.multi_items() if isinstance(value, str))
    if "image" in fields:
        raise _refused("`image` is a text: send it as a file, as curl -F image=@photo.jpg does")
    return files.get("image"), fields


def _pairs(body: bytes, limits: Limits) -> list[tuple[str, str]]:
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=2 * limits.concepts + OTHER_FIELDS)
    except ValueError as error:
        raise _refused("the form has too many fields, or is no text") from error


def _fields(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The fields of a form, without empty ones, which a browser sends for controls that were not used."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in LISTED:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise _refused(f"the field {name[:80]!r} is there twice: give it once")
        elif value:
            found[name] = value
    return found


def _from_json(body: bytes) -> tuple[bytes | None, dict[str, Any]]:
    try:
        fields = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise _refused("the body is not JSON: send an object such as {...}, see /docs") from error
    if not isinstance(fields, dict):
        raise _refused("the body is no JSON object: send one such as {...}, see /docs")
    image = fields.pop("image", None)
    return None if image is None else _from_base64(image), fields


def _no_number(name: str) -> float:
    raise ValueError(name)


def _from_base64(text: object) -> bytes:
    """An image in JSON; a data: URL is accepted too."""
    try:
        content = text.rpartition(",")[2] if isinstance(text, str) and text.startswith("data:") else text
        return base64.b64decode(content, validate=True)  # type: ignore[arg-type]  # a TypeError if it is no text
    except (TypeError, ValueError) as error:
        raise _refused("`image` is not base64: encode the whole image file, see /docs") from error


def _checked_size(image: bytes, limits: Limits) -> bytes:
    if len(image) > limits.upload:
        message = f"the image has more than {limits.upload:,} bytes: send a smaller one"
        raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
    return image


def _refused(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.BAD_REQUEST, message)


# The calls.


def create_api(service: Service) -> FastAPI:
    """The app of the HTTP interface. Access and the size of requests are checked before, in ``guard``.

    Example:
        >>> from excite.models import Choice
        >>> from excite.web.service import Service
        >>> sorted(create_api(Service({"words": Choice("words")})).openapi()["paths"])[:3]
        ['/attend', '/ground', '/health']
    """
    app = FastAPI(
        title="excite",
        version=__version__,
        summary="Where in this image is the evidence for that concept?",
        description=ABOUT,
        docs_url=None,  # Swagger's page loads scripts from elsewhere
        redoc_url=None,
    )
    app.router.redirect_slashes = False
    add_error_handlers(app)
    app.include_router(_questions(service))
    app.include_router(_facts(service))
    app.include_router(static_routes())

    @app.get("/docs", include_in_schema=False)
    def docs(request: Request) -> HTMLResponse:
        has_tls = request.headers.get("x-forwarded-proto") == "https"  # of a proxy; no other such header is heeded
        address = request.base_url.replace(scheme="https") if has_tls else request.base_url
        return HTMLResponse(docs_page(app.openapi(), str(address).rstrip("/")))

    return app


def _problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a call, for its description."""
    about = {
        400: "The question is wrong.",
        404: "There is no such classifier or image.",
        410: "The image is no longer kept: send it again.",
        413: "Too many bytes.",
        422: "The file is not an image, broken, or has too many pixels.",
        503: "Too many are asking: try again after the seconds in Retry-After.",
    }
    return {code: {"model": Problem, "description": about[code]} for code in codes or about}


def _questions(service: Service) -> APIRouter:
    """The calls with an image."""
    router, limits, concurrency = APIRouter(tags=["questions"]), service.limits, service.concurrency

    @router.post(
        "/pictures",
        summary="Send an image once, to ask for it often.",
        description="The body is the image file itself, or a form with the file `image`. It is kept in memory only.",
        response_model=PictureAnswer,
        responses=_problems(400, 413, 422, 503),
        openapi_extra=question_body(None),
    )
    async def pictures(request: Request) -> AsciiJSON:
        if _kind(request) == FORM:
            image, _ = await read_request(request, limits)
        else:
            image = _checked_size(await request.body(), limits)
        if image is None:
            raise _refused("there is no image in the form: send it as the file `image`")
        return AsciiJSON(await concurrency.run(partial(picture_answer, service, image)))

    @router.get(
        "/pictures/{key}",
        summary="An image that is kept.",
        response_class=Response,
        responses={200: {"content": {"image/jpeg": {}}}, **_problems(400, 404, 410, 422)},
    )
    async def picture(
        key: str,
        side: Annotated[int, Query(ge=1, le=2048, description="At most so many pixels on its longer side.")] = 1024,
    ) -> Response:
        content = await concurrency.run_short(partial(small_jpeg, find_image(service, key).picture, side))
        return Response(content, media_type="image/jpeg", headers={"Cache-Control": KEPT})

    @router.post(
        "/attend",
        summary="Where is the evidence for these concepts?",
        response_model=AttendAnswer,
        response_model_exclude_none=True,
        responses=_problems(),
        openapi_extra=question_body(AttendQuestion),
    )
    async def attend(request: Request) -> AsciiJSON:
        work = partial(attend_answer, service, *await read_request(request, limits))
        return AsciiJSON(await concurrency.run(work))

    @router.post(
        "/ground",
        summary="Which regions do these phrases refer to?",
        response_model=GroundAnswer,
        responses=_problems(),
        openapi_extra=question_body(GroundQuestion),
    )
    async def ground(request: Request) -> AsciiJSON:
        work = partial(ground_answer, service, *await read_request(request, limits))
        return AsciiJSON(await concurrency.run(work, is_phrase=True))

    return router


def _facts(service: Service) -> APIRouter:
    """The calls without an image."""
    router, concurrency = APIRouter(tags=["facts"]), service.concurrency

    @router.get(
        "/models",
        summary="The classifiers that can be asked.",
        response_model=ModelsAnswer,
        responses=_problems(503),
    )
    async def models() -> AsciiJSON:
        return AsciiJSON(await concurrency.run(partial(models_answer, service)))

    @router.get("/methods", summary="The ways to make a map.", response_model=list[MethodAnswer])
    async def methods() -> AsciiJSON:
        return AsciiJSON([{"name": one.name, "description": one.description} for one in METHODS.values()])

    @router.get(
        "/labels",
        summary="What a classifier can be asked for.",
        response_model=LabelsAnswer,
        responses=_problems(400, 404, 422),
    )
    async def labels(
        model: Annotated[str | None, Query(max_length=200, description="One of GET /models.")] = None,
        search: Annotated[str, Query(max_length=200, description="Only those with a word that contains this.")] = "",
    ) -> AsciiJSON:
        return AsciiJSON(await concurrency.run(partial(labels_answer, service, model, search)))

    @router.get("/health", summary="Whether the server is there.", response_model=Health)
    async def health() -> AsciiJSON:
        return AsciiJSON({"status": "ok", "version": __version__})

    return router


# The description at /docs: one page without scripts, made from the OpenAPI document.


FORM, JSON, BYTES = "multipart/form-data", "application/json", "application/octet-stream"
IMAGE = "The image: a JPEG, PNG, WEBP, GIF, TIFF, BMP, AVIF, JPEG 2000 or PPM file."
LEFT_OUT = {"picture", "model"}  # of the examples

Document = dict[str, Any]


def question_body(kind: type[Question] | None) -> Document:
    """The OpenAPI description of a body with these fields, which may be a form or JSON; None: the image alone."""
    file = {"type": "string", "format": "binary", "description": IMAGE}
    if kind is None:
        form = {"type": "object", "properties": {"image": file}, "required": ["image"]}
        content = {BYTES: {"schema": {"type": "string", "format": "binary"}}, FORM: {"schema": form}}
        return {"requestBody": {"required": True, "content": content}}
    schema = kind.model_json_schema()
    text = {"type": "string", "format": "byte", "description": f"{IMAGE} As base64."}
    forms = {
        FORM: {**schema, "properties": {"image": file, **schema["properties"]}},
        JSON: {**schema, "properties": {"image": text, **schema["properties"]}},
    }
    return {"requestBody": {"required": True, "content": {name: {"schema": form} for name, form in forms.items()}}}


def docs_page(document: Document, address: str) -> str:
    """The page for an OpenAPI document; ``address`` is that of the server, for the examples."""
    return filled_in("docs.html", document=document, address=address, examples=_examples)


def _examples(method: str, url: str, content: Document) -> list[str]:
    """A call with curl, and in Python; ``content`` is that of its body."""
    is_image = url.endswith("KEY")
    if method == "get":
        last = ".content" if is_image else ".json()"
        curl, call = f"curl '{url}'{' --output picture.jpg' if is_image else ''}", f'requests.get("{url}"){last}'
    elif BYTES in content:
        curl = f"curl --data-binary @photo.jpg '{url}'"
        call = f'requests.post("{url}", data=open("photo.jpg", "rb")).json()'
    else:
        properties = content[FORM]["schema"]["properties"].items()
        fields = {name: one["examples"][0] for name, one in properties if "examples" in one and name not in LEFT_OUT}
        curl = f"curl -F image=@photo.jpg {''.join(f'-F {name}={value!r} ' for name, value in fields.items())}'{url}'"
        call = f'requests.post("{url}", files={{"image": open("photo.jpg", "rb")}}, data={json.dumps(fields)}).json()'
    return [curl, f"import requests\n\nanswer = {call}"]
