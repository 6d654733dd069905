"""The HTTP interface for programs: the questions of the page, and a description of them at /openapi.json and /docs."""

from __future__ import annotations

import base64
import binascii
import json
import threading
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from excite.methods import METHODS
from excite.web.api_docs import docs_page, question_body
from excite.web.errors import RefusedError, add_error_answers
from excite.web.responses import attend_answer, ground_answer, labels_answer, models_answer, picture_answer, small_jpeg
from excite.web.schemas import (
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
    Question,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fastapi import Request

    from excite.web.service import Service
    from excite.web.uploads import Limits, Sheet


# What programs send, however they send it: a form with a file, JSON, or the bytes of an image alone.
#
# Everything stays in memory: a large file of a form would otherwise be written to the disk by starlette.

LISTED = frozenset({"concept", "against", "phrase"})
"""The fields that may be given several times."""

OTHER_FIELDS = 20
CUT_OFF = "the form is cut off or broken: send multipart/form-data as a browser or curl -F does"


@dataclass(frozen=True)
class Sent:
    """A question as it came: the image, if there is one, and all other fields, which are not checked yet."""

    image: bytes | None
    fields: dict[str, Any] = field(default_factory=dict)


class _InMemory(MultiPartParser):
    """Keeps files in memory, and knows whether the form came to its end."""

    spool_max_size = 2**40  # bytes: never written to the disk
    ended = False

    def on_end(self) -> None:
        self.ended = True


async def read_picture(request: Request, limits: Limits) -> bytes:
    """The bytes of an image, alone or in a form.

    Raises:
        RefusedError: there is no image.
    """
    if _kind(request) != "multipart/form-data":
        return _checked_size(await request.body(), limits)
    sent = await _from_form(request, limits)
    if sent.image is None:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "there is no image in the form: send it as the file `image`")
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
    """An image in JSON; a page's data: address is welcome too."""
    said = "`image` is not base64: encode the whole image file, see /docs"
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
            f"the image has more than {limits.upload:,} bytes: send a smaller one",
        )
    return image


# The HTTP interface for programs: the questions of the page, and a description of them at /openapi.json and /docs.

ABOUT = (
    "Where in this image is the evidence for that concept? Send an image once to `POST /pictures` and ask for it by "
    "its key as often as you like, or send it along with each question. Errors are one line of JSON in `error`. If the "
    "server was started with a token, send the header `Authorization: Bearer TOKEN` with each call."
)
KEPT = "private, max-age=86400, immutable"  # the key is made of the pixels
SPARE_THREADS = 4

Asked = TypeVar("Asked", bound=Question)
Result = TypeVar("Result")


def create_api(service: Service) -> FastAPI:
    """The app that answers programs. Neither who asks nor how much they send is looked at here: see ``guard``.

    Example:
        >>> from excite.models import Choice
        >>> from excite.web.service import Service
        >>> sorted(create_api(Service({"words": Choice("words")})).openapi()["paths"])[:3]
        ['/attend', '/ground', '/health']
    """
    app = FastAPI(
        title="excite",
        version=_version(),
        summary="Where in this image is the evidence for that concept?",
        description=ABOUT,
        docs_url=None,  # Swagger's page loads scripts from elsewhere
        redoc_url=None,
    )
    add_error_answers(app)
    hands = _Hands(service)
    app.include_router(_questions(hands))
    app.include_router(_facts(hands))

    @app.get("/docs", include_in_schema=False)
    def docs(request: Request) -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi(), str(request.base_url).rstrip("/")))

    return app


def _version() -> str:
    from excite import __version__

    return __version__


class _Hands:
    """Does the work in threads, so that the loop stays free for whoever comes next.

    Images are decoded when it is their turn: a file that is small may be an image that is not.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        limits = service.limits
        self._threads = CapacityLimiter(limits.at_once + limits.waiting + SPARE_THREADS)  # whoever waits has a thread
        self._pens = threading.Semaphore(limits.at_once)  # drawing takes as much as answering

    async def do(self, work: Callable[[], Result]) -> Result:
        return await to_thread.run_sync(work, limiter=self._threads)

    def draw(self, work: Callable[[], Result]) -> Result:
        with self._pens:
            return work()

    def take(self, image: bytes) -> Sheet:
        with self.service.gate.passed():
            return self.service.desk.take(image)

    def sheet(self, image: bytes | None, key: str | None) -> Sheet:
        """The image of a question."""
        if (image is None) == (key is None):
            raise RefusedError(
                HTTPStatus.BAD_REQUEST, "send the image as `image`, or the key of one sent before as `picture`"
            )
        return self.find(key) if image is None else self.take(image)

    def find(self, key: str | None) -> Sheet:
        if key is None or len(key) != 32 or not key.isascii() or not key.isalnum():
            raise RefusedError(HTTPStatus.NOT_FOUND, "this is no image's key: send the image to POST /pictures first")
        return self.service.desk.find(key)


def _problems(*codes: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """The errors of a call for its description."""
    about = {
        HTTPStatus.BAD_REQUEST: "The question is wrong.",
        HTTPStatus.NOT_FOUND: "There is no such classifier or image.",
        HTTPStatus.GONE: "The image is no longer kept: send it again.",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Too many bytes.",
        HTTPStatus.UNPROCESSABLE_ENTITY: "The file is not an image, broken, or has too many pixels.",
        HTTPStatus.SERVICE_UNAVAILABLE: "Too many are asking: try again after the seconds in Retry-After.",
    }
    return {int(code): {"model": Problem, "description": about[code]} for code in codes or about}


def _questions(hands: _Hands) -> APIRouter:
    """What is asked of images."""
    router, limits = APIRouter(tags=["questions"]), hands.service.limits

    @router.post(
        "/pictures",
        summary="Send an image once, to ask for it often.",
        description="The body is the image file itself, or a form with the file `image`. It is kept in memory only.",
        response_model=PictureAnswer,
        responses=_problems(*map(HTTPStatus, (400, 413, 422, 503))),
        openapi_extra=question_body(None),
    )
    async def pictures(request: Request) -> JSONResponse:
        content = await read_picture(request, limits)
        return JSONResponse(await hands.do(partial(picture_answer, hands, content)))

    @router.get(
        "/pictures/{key}",
        summary="An image that is kept.",
        response_class=Response,
        responses={200: {"content": {"image/jpeg": {}}}, **_problems(*map(HTTPStatus, (400, 404, 410, 422)))},
    )
    async def picture(
        key: str,
        side: Annotated[int, Query(ge=1, le=2048, description="At most so many pixels on its longer side.")] = 1024,
    ) -> Response:
        found = hands.find(key)
        content = await hands.do(partial(hands.draw, partial(small_jpeg, found.picture, side)))
        return Response(content, media_type="image/jpeg", headers={"Cache-Control": KEPT})

    @router.post(
        "/attend",
        summary="Where is the evidence for these concepts?",
        response_model=AttendAnswer,
        response_model_exclude_none=True,
        responses=_problems(),
        openapi_extra=question_body(AttendQuestion),
    )
    async def attend(request: Request) -> JSONResponse:
        sent = await read_question(request, limits)
        return JSONResponse(await hands.do(partial(_answered, sent, AttendQuestion, partial(attend_answer, hands))))

    @router.post(
        "/ground",
        summary="Which regions do these phrases refer to?",
        response_model=GroundAnswer,
        responses=_problems(),
        openapi_extra=question_body(GroundQuestion),
    )
    async def ground(request: Request) -> JSONResponse:
        sent = await read_question(request, limits)
        return JSONResponse(await hands.do(partial(_answered, sent, GroundQuestion, partial(ground_answer, hands))))

    return router


def _answered(sent: Sent, kind: type[Asked], answer: Callable[[bytes | None, Asked], dict[str, Any]]) -> dict[str, Any]:
    """Check the question, then answer it."""
    return answer(sent.image, kind.model_validate(sent.fields))


def _facts(hands: _Hands) -> APIRouter:
    """What there is to choose from."""
    router, service = APIRouter(tags=["facts"]), hands.service

    @router.get(
        "/models",
        summary="The classifiers that can be asked.",
        response_model=ModelsAnswer,
        responses=_problems(HTTPStatus.SERVICE_UNAVAILABLE),
    )
    async def models() -> JSONResponse:
        return JSONResponse(await hands.do(partial(models_answer, service)))

    @router.get("/methods", summary="The ways to make a map.", response_model=list[MethodAnswer])
    async def methods() -> JSONResponse:
        return JSONResponse([{"name": one.name, "description": one.description} for one in METHODS.values()])

    @router.get(
        "/labels",
        summary="What a classifier can be asked for.",
        response_model=LabelsAnswer,
        responses=_problems(*map(HTTPStatus, (400, 404, 422))),
    )
    async def labels(
        model: Annotated[str | None, Query(max_length=200, description="One of GET /models.")] = None,
        search: Annotated[str, Query(max_length=200, description="Only those with a word that contains this.")] = "",
    ) -> JSONResponse:
        return JSONResponse(await hands.do(partial(labels_answer, service, model, search)))

    @router.get("/health", summary="Whether the server is there.", response_model=Health)
    async def health() -> JSONResponse:
        return JSONResponse({"status": "ok", "version": _version()})

    return router
