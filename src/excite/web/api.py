"""The HTTP interface for programs, described at /openapi.json and /docs."""

import base64
import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartParser

from excite import __version__
from excite.methods import METHODS
from excite.readouts.notebook import jpeg
from excite.web import answers
from excite.web.errors import ERROR_HANDLERS, RefusedError, collected_notes
from excite.web.service import Limits, Service

ABOUT = (
    "Where in this image is the evidence for that concept? Send an image once to `POST /pictures` and ask for it by "
    "its key as often as you like, or send it along with each question. Errors are one line of JSON in `error`. If the "
    "server was started with a token, send the header `Authorization: Bearer TOKEN` with each call."
)
PROBLEMS = {
    400: "The question is wrong.",
    404: "There is no such classifier or image.",
    410: "The image is no longer kept: send it again.",
    413: "Too many bytes.",
    422: "The file is not an image, broken, or has too many pixels.",
    503: "Too many are asking: try again after the seconds in Retry-After.",
}
IMAGE = "The image: a JPEG, PNG, WEBP, GIF, TIFF, BMP, AVIF, JPEG 2000 or PPM file."
FORM, FIELDS, JSON = "multipart/form-data", "application/x-www-form-urlencoded", "application/json"
BYTES = "application/octet-stream"
Sent = tuple[bytes | None, dict[str, Any]]  # the image, and the fields

MultiPartParser.spool_max_size = 2**40  # bytes: a file of a form is never written to the disk


class AsciiJSON(JSONResponse):
    """JSON in ASCII: its escapes keep every text exact, also one that is no UTF-8, and act on no terminal."""

    def render(self, content: Any) -> bytes:
        """The bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


async def read_request(request: Request, limits: Limits, *, is_file: bool = False) -> Sent:
    """The image, if there is one, and the fields of a form or of JSON, not validated yet; ``is_file``: or a file."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == FORM or (kind == FIELDS and not is_file):
        image, fields = await _from_form(request, limits)
    elif is_file:
        image, fields = await request.body(), {}
    elif kind == JSON:
        image, fields = await to_thread.run_sync(_from_json, await request.body())
    else:
        raise RefusedError(415, "a question is sent as multipart/form-data or application/json: see /docs")
    if image is not None and len(image) > limits.upload:
        raise RefusedError(413, f"the image has more than {limits.upload:,} bytes: send a smaller one")
    return image, fields


async def _from_form(request: Request, limits: Limits) -> Sent:
    """Empty fields are left out: a browser sends them for controls that were not used."""
    most, letters = 2 * limits.concepts + 20, 64 + 4 * limits.letters
    parts = f"the file `image` and at most {most} fields: send multipart/form-data as a browser or curl -F does"
    broken = RefusedError(400, f"the form is cut off or broken, or has other parts than {parts}")
    try:
        async with request.form(max_files=1, max_fields=most, max_part_size=letters) as form:
            files = {name: await part.read() for name, part in form.multi_items() if isinstance(part, UploadFile)}
    except HTTPException as error:
        raise broken from error
    if not form or not files.keys() <= {"image"}:
        raise broken
    fields: dict[str, Any] = {}
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            continue
        if name == "image":
            raise RefusedError(400, "`image` is a text: send it as a file, as curl -F image=@photo.jpg does")
        if name in {"concept", "against", "phrase"}:
            fields.setdefault(name, []).append(value)
        elif name in fields:
            raise RefusedError(400, f"the field {name[:80]!r} is there twice: give it once")
        elif value:
            fields[name] = value
    return files.get("image"), fields


def _from_json(body: bytes) -> Sent:
    try:
        fields = json.loads(body, parse_constant=int)  # a ValueError for NaN and Infinity
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "the body is not JSON: send an object such as {...}, see /docs") from error
    if not isinstance(fields, dict):
        raise RefusedError(400, "the body is no JSON object: send one such as {...}, see /docs")
    image = fields.pop("image", None)
    if isinstance(image, str) and image.startswith("data:"):
        image = image.rpartition(",")[2]
    try:
        return None if image is None else base64.b64decode(image, validate=True), fields
    except (TypeError, ValueError) as error:
        raise RefusedError(400, "`image` is not base64: encode the whole image file, see /docs") from error


def create_api(service: Service) -> FastAPI:
    """The app of the HTTP interface. Access and the size of requests are checked before, in ``guard``."""
    app = FastAPI(
        title="excite",
        version=__version__,
        summary="Where in this image is the evidence for that concept?",
        description=ABOUT,
        docs_url=None,  # Swagger's page loads scripts from elsewhere
        redoc_url=None,
        default_response_class=AsciiJSON,
        redirect_slashes=False,
        exception_handlers=ERROR_HANDLERS,
    )
    for router in (*_routers(service), *([_find_router(service)] if service.photos is not None else [])):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "assets"))  # the page's script, style and icon

    @app.get("/docs", include_in_schema=False)
    def docs(request: Request) -> HTMLResponse:
        has_tls = request.headers.get("x-forwarded-proto") == "https"  # of a proxy; no other such header is heeded
        address = request.base_url.replace(scheme="https") if has_tls else request.base_url
        return HTMLResponse(answers.filled_in("docs.html", document=app.openapi(), address=str(address).rstrip("/")))

    return app


def _problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a call, for its description; all if none is named."""
    return {code: {"model": answers.Problem, "description": PROBLEMS[code]} for code in codes or PROBLEMS}


def _find_router(service: Service) -> APIRouter:
    """The calls about the photos of a folder."""
    router, concurrency = APIRouter(tags=["photos"]), service.concurrency

    @router.get("/find", summary="Which photos show this?", responses=_problems(400, 410, 422, 503))
    async def find(
        words: Annotated[str, Query(max_length=1000, description='Such as "a dog on a sofa" or "dog -cat".')],
        most: Annotated[int, Query(ge=1, le=200, description="The largest number of photos.")] = 24,
        at_least: Annotated[float, Query(ge=0, le=1, description="Leave out less probable ones.")] = 0,
    ) -> answers.FindAnswer:
        work = partial(answers.find_answer, service, words, most, at_least)
        return await concurrency.run(work, is_phrase=True)

    @router.get(
        "/find/{number}",
        summary="A photo, small.",
        response_class=Response,
        responses={200: {"content": {"image/jpeg": {}}}, **_problems(410, 422)},
    )
    async def photo(
        number: int, side: Annotated[int, Query(ge=1, le=2048, description="At most so many pixels a side.")] = 240
    ) -> Response:
        content = await concurrency.run_short(lambda: service.index().thumbnail(number, side))
        return Response(content, media_type="image/jpeg", headers={"Cache-Control": "private, no-cache"})

    return router


def _routers(service: Service) -> tuple[APIRouter, APIRouter]:
    """The calls with an image, and those without."""
    questions, facts = APIRouter(tags=["questions"]), APIRouter(tags=["facts"])
    limits, concurrency = service.limits, service.concurrency

    @questions.post(
        "/pictures",
        summary="Send an image once, to ask for it often.",
        description="The body is the image file itself, or a form with the file `image`. It is kept in memory only.",
        responses=_problems(400, 413, 422, 503),
        openapi_extra=_body(None),
    )
    async def pictures(request: Request) -> answers.PictureAnswer:
        image, _ = await read_request(request, limits, is_file=True)
        if image is None:
            raise RefusedError(400, "there is no image in the form: send it as the file `image`")
        with collected_notes() as notes:
            upload = await concurrency.run(partial(service.uploads.take, image))
        return answers.PictureAnswer(**answers.about(upload, notes))

    @questions.get(
        "/pictures/{key}",
        summary="An image that is kept.",
        response_class=Response,
        responses={200: {"content": {"image/jpeg": {}}}, **_problems(400, 404, 410, 422)},
    )
    async def picture(
        key: str,
        side: Annotated[int, Query(ge=1, le=2048, description="At most so many pixels on its longer side.")] = 1024,
    ) -> Response:
        upload = answers.find_image(service, key)
        content = await concurrency.run_short(lambda: jpeg(upload.smaller(side), quality=90))
        headers = {"Cache-Control": "private, max-age=86400, immutable"}  # the key is a hash of the pixels
        return Response(content, media_type="image/jpeg", headers=headers)

    @questions.post(
        "/attend",
        summary="Where is the evidence for these concepts?",
        response_model_exclude_unset=True,
        responses=_problems(),
        openapi_extra=_body(answers.AttendQuestion),
    )
    async def attend(request: Request) -> answers.AttendAnswer:
        return await concurrency.run(partial(answers.attend_answer, service, *await read_request(request, limits)))

    @questions.post(
        "/ground",
        summary="Which regions do these phrases refer to?",
        response_model_exclude_unset=True,
        responses=_problems(),
        openapi_extra=_body(answers.GroundQuestion),
    )
    async def ground(request: Request) -> answers.GroundAnswer:
        work = partial(answers.ground_answer, service, *await read_request(request, limits))
        return await concurrency.run(work, is_phrase=True)

    @facts.get("/models", summary="The classifiers that can be asked.", responses=_problems(503))
    async def models() -> answers.ModelsAnswer:
        return await concurrency.run(partial(answers.models_answer, service))

    @facts.get("/methods", summary="The ways to make a map.")
    async def methods() -> list[answers.MethodAnswer]:
        return [
            answers.MethodAnswer(name=one.name, description=one.description, main=one.main) for one in METHODS.values()
        ]

    @facts.get("/labels", summary="What a classifier can be asked for.", responses=_problems(400, 404, 422))
    async def labels(
        model: Annotated[str | None, Query(max_length=200, description="One of GET /models.")] = None,
        search: Annotated[str, Query(max_length=200, description="Only those with a word that contains this.")] = "",
    ) -> answers.LabelsAnswer:
        return await concurrency.run(partial(answers.labels_answer, service, model, search))

    @facts.get("/health", summary="Whether the server is there.")
    async def health() -> answers.Health:
        return answers.Health(status="ok", version=__version__)

    return questions, facts


def _body(kind: type[answers.Question] | None) -> dict[str, Any]:
    """A body with these fields, which may be a form or JSON; None: the image alone."""
    file = {"type": "string", "format": "binary", "description": IMAGE}
    if kind is None:
        form = {"type": "object", "properties": {"image": file}, "required": ["image"]}
        schemas = {BYTES: {"type": "string", "format": "binary"}, FORM: form}
    else:
        schema = kind.model_json_schema()
        text = {"type": "string", "format": "byte", "description": f"{IMAGE} As base64."}
        schemas = {
            name: {**schema, "properties": {"image": image, **schema["properties"]}}
            for name, image in ((FORM, file), (JSON, text))
        }
    return {"requestBody": {"required": True, "content": {name: {"schema": one} for name, one in schemas.items()}}}
