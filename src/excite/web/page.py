"""The page: its HTML, the answers that its script draws at any size (coordinates are shares), examples and reports."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from html import unescape
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from fastapi import APIRouter, Query
from fastapi.responses import FileResponse, HTMLResponse
from PIL import Image
from pydantic import BaseModel, ConfigDict
from torch import Tensor
from torch.nn.functional import interpolate

from excite.attention import AttentionMap
from excite.errors import ConceptError, ExciteError, MethodError, visible
from excite.grounding import Grounded
from excite.grounding.ground import METHOD as PHRASE
from excite.images import find_images, free_photographs, read_image
from excite.io.files import to_numpy
from excite.methods import METHODS
from excite.readouts.figure import percent
from excite.readouts.notebook import data_address, jpeg
from excite.readouts.overlay import TABLES
from excite.search.query import evidence
from excite.vocabulary import read_phrase
from excite.web.answers import filled_in, map_answer, map_readouts, phrase_answer, png, rounded
from excite.web.api import AsciiJSON
from excite.web.errors import GoneError, RefusedError, collected_notes, for_page
from excite.web.service import Service, Upload

USUAL, WORD = "usual", "c-mwp"  # the default methods of the commands
SIDE_BY_SIDE = ("mwp", "c-mwp")
MOST_CELLS = 24
SIDE = 420  # pixels of a map as it is sent: it is smooth, and the browser enlarges it

PAGES = ("pointing.html", "localization.html", "grounding.html")  # the names that `excite bench` gives them
KINDS = {".html", ".png", ".jpg", ".svg", ".csv", ".json", ".md", ".txt"}
MOST_REPORTS = 50
ALONE = (  # a report holds no scripts and fetches nothing; whatever a file there holds, it can do neither
    "sandbox allow-popups; default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'self'"
)

View = dict[str, Any]


class Selection(BaseModel):
    """The image and the classifier that are chosen: a key of an upload, the name of an example, a photo's number."""

    model_config = ConfigDict(extra="forbid")

    model: str
    picture: str = ""
    example: str = ""
    photo: int | None = None


class EvidenceQuestion(BaseModel):
    """A photo that was found, and the words."""

    model_config = ConfigDict(extra="forbid")

    photo: int
    words: str


class LookQuestion(Selection):
    """The values of the controls."""

    question: str = ""  # a concept or a phrase; blank for the classifier's most probable finding
    against: str = ""  # concepts to contrast with, separated by commas
    method: str = USUAL  # the default of `excite attend` for a word, of `excite ground` for a phrase
    layer: int | None = None  # the index of the layer among those of the classifier; None for the default
    findings: bool = False  # whether the findings and their maps are wanted too: the image or a setting has changed

    def method_for(self, usual: str) -> str:
        """The method, or the usual one."""
        return usual if self.method == USUAL else self.method


class CompareQuestion(Selection):
    """Maps side by side: of concepts, separated by commas, by methods, at layers given by their indices."""

    concepts: str = ""
    methods: list[str] = []
    layers: list[int] = []


def page_routes(service: Service, reports: Sequence[Report], examples: Mapping[str, Example]) -> APIRouter:
    """The page at ``/``, and what its script asks for."""
    router, concurrency = APIRouter(include_in_schema=False), service.concurrency
    answers, html = PageAnswers(service, examples), page_html(service, reports, examples)

    @router.api_route("/", methods=["GET", "HEAD"])
    async def page() -> HTMLResponse:
        return HTMLResponse(html, headers={"Cache-Control": "no-cache"})

    @router.get("/page/layers")
    async def layers(model: Annotated[str, Query(max_length=1000)]) -> AsciiJSON:
        return AsciiJSON(await concurrency.run(partial(answers.layers, model)))

    @router.post("/page/look")
    async def look(asked: LookQuestion) -> AsciiJSON:
        is_phrase = await concurrency.run_short(partial(answers.is_phrase, asked))
        return AsciiJSON(await concurrency.run(partial(answers.look, asked), is_phrase=is_phrase))

    @router.post("/page/compare")
    async def compare(asked: CompareQuestion) -> AsciiJSON:
        return AsciiJSON(await concurrency.run(partial(answers.compare, asked)))

    @router.post("/page/evidence")
    async def evidence(asked: EvidenceQuestion) -> AsciiJSON:
        return AsciiJSON(await concurrency.run(partial(answers.evidence, asked), is_phrase=True))

    return router


def page_html(service: Service, reports: Sequence[Report], examples: Mapping[str, Example]) -> str:
    """The page. The names in it may hold anything: they are texts there."""
    methods = {USUAL: f"{WORD} for a word, {PHRASE} for a phrase"} | {m.name: m.description for m in METHODS.values()}
    return filled_in(
        "page.html",
        models=list(service.models),
        methods=methods,
        for_comparison=[method.name for method in METHODS.values() if not method.main],
        side_by_side=[*SIDE_BY_SIDE, *(name for name in METHODS if name not in SIDE_BY_SIDE)],
        compared=SIDE_BY_SIDE,
        tables={name: table().ravel().tolist() for name, table in TABLES.items()},
        reports=reports,
        photos=service.photos,
        examples=[(one.name, one.title, one.thumbnail()) for one in examples.values()],
    )


class PageAnswers:
    """The answers to the page, without HTTP. An error is a sentence beside what could be answered."""

    def __init__(self, service: Service, examples: Mapping[str, Example]) -> None:
        self.service, self.examples = service, examples
        self._keys: dict[Path, str] = {}  # of examples and photos that were read

    def layers(self, model: str) -> View:
        """The layers of a classifier, and the index of the usual one."""
        served_model = self.service.served_model(model)
        return {"layers": list(served_model.layers), "usual": served_model.layers.index(served_model.layer)}

    def look(self, asked: LookQuestion) -> View:
        """The image with the map of the question, and the findings if they are wanted."""
        shown: View = {"picture": None, "view": None, "error": None, "findings": []}
        try:
            upload = self.find_upload(asked)
            shown["picture"] = _picture_view(upload)
            if asked.findings:
                shown["findings"] = self.findings(upload, asked)
            with collected_notes() as notes:
                view = self.view(upload, asked)
        except ExciteError as error:
            return {**shown, "error": sentence(error)}
        return {**shown, "view": {**view, "notes": [*view["notes"], *map(sentence, notes)]}}

    def compare(self, asked: CompareQuestion) -> View:
        """Maps side by side: a row for each concept, a column for each method and layer."""
        try:
            upload = self.find_upload(asked)
            with collected_notes() as notes:
                rows = self._rows(upload, asked)
        except ExciteError as error:
            return {"picture": None, "rows": [], "error": sentence(error)}
        return {"picture": _picture_view(upload), "rows": rows, "error": " ".join(map(sentence, notes)) or None}

    def find_upload(self, asked: Selection) -> Upload:
        """The image that was dropped or picked; a `GoneError` if it is no longer kept."""
        uploads, example = self.service.uploads, self.examples.get(asked.example)
        if example is not None:
            path = example.path
        elif asked.photo is not None:
            path = self.service.index().path(asked.photo)
        else:
            return uploads.find(asked.picture)
        try:
            return uploads.find(self._keys.get(path, ""))
        except GoneError:
            upload = uploads.put(read_image(path))
        self._keys[path] = upload.key
        return upload

    def evidence(self, asked: EvidenceQuestion) -> View:
        """The map of the evidence in a photo that was found, for a small drawing."""
        index = self.service.index(asked.words)
        question = index.read(asked.words)
        picture, found = evidence(index, question, index.path(asked.photo), hints=True)
        point = found.point and [(at + 0.5) / side for at, side in zip(found.point, picture.size, strict=True)]
        strength = _strength(torch.from_numpy(found.plane))
        return {"title": question.text, "strength": strength, "point": point, "boxes": [], "regions": []}

    def findings(self, upload: Upload, asked: LookQuestion) -> list[View]:
        """The classifier's findings, each with its map; without maps where there are none at this layer."""
        method = asked.method_for(WORD)
        with collected_notes():  # the answer has the notes of its own map
            found = self.service.findings(upload, asked.model, 8, method)
            views: list[View | None] = [None] * len(found)
            concepts, layer = [concept for concept, _ in found], self.layer(asked)
            with suppress(ExciteError):
                maps = self.service.attend(upload, concepts, model=asked.model, method=method, layer=layer)
                views = [map_view(upload, one) for one in maps]
        return [
            {"concept": concept, "probability": probability, "sure": percent(probability), "view": view}
            for (concept, probability), view in zip(found, views, strict=True)
        ]

    def view(self, upload: Upload, asked: LookQuestion) -> View:
        """The map of a concept or of a phrase."""
        question, rivals, layer = asked.question.strip(), listed(asked.against), self.layer(asked)
        if self.is_phrase(asked):
            if rivals:
                raise ConceptError("a phrase has no contrast: ask for a single concept, or leave `but not` blank")
            method = asked.method_for(PHRASE)
            (found,) = self.service.ground(upload, [question], model=asked.model, method=method, layer=layer)
            return phrase_view(upload, found, asked.model)
        method = asked.method_for(WORD)
        concept = question or self.service.findings(upload, asked.model, 1, method)[0][0]
        (one,) = self.service.attend(upload, [concept], model=asked.model, method=method, layer=layer, against=rivals)
        return map_view(upload, one)

    def is_phrase(self, asked: LookQuestion) -> bool:
        """Whether the question is no concept but has words of some, such as "umpire": a phrase, which takes longer."""
        question, served_model = asked.question.strip(), self.service.models.get(asked.model)
        labels = served_model.classifier.labels if served_model is not None else None
        if labels is None or not question or len(question) > self.service.limits.letters:
            return False
        try:
            labels.find(question)
        except ConceptError:
            return bool(read_phrase(question, labels).words)
        return False

    def layer(self, asked: LookQuestion) -> str | None:
        """The name of the layer; None for the default one."""
        served_model = self.service.served_model(asked.model)
        if asked.layer is None or not 0 <= asked.layer < len(served_model.layers):
            return None
        name = served_model.layers[asked.layer]
        return None if name == served_model.layer else name

    def _rows(self, upload: Upload, asked: CompareQuestion) -> list[list[View]]:
        concepts = listed(asked.concepts) or [concept for concept, _ in self.service.findings(upload, asked.model, 2)]
        known = self.service.served_model(asked.model).layers
        layers: list[str | None] = [known[k] for k in asked.layers if 0 <= k < len(known)]
        ways = [(method, layer) for method in asked.methods for layer in layers or [None]]
        if not ways:
            raise MethodError("choose at least one method")
        if len(concepts) * len(ways) > MOST_CELLS:
            raise ConceptError(f"these are {len(concepts) * len(ways)} maps: choose fewer, at most {MOST_CELLS}")
        attend = partial(self.service.attend, upload, concepts, model=asked.model)
        columns = [attend(method=method, layer=layer) for method, layer in ways]
        return [[map_view(upload, one) for one in row] for row in zip(*columns, strict=True)]


def listed(text: str) -> list[str]:
    """Concepts, separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def sentence(error: Exception | str) -> str:
    """An error or a note as a sentence."""
    text = for_page(str(error).strip())
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _picture_view(upload: Upload) -> View:
    return {"key": upload.key, "url": f"pictures/{upload.key}", "width": upload.size[0], "height": upload.size[1]}


def map_view(upload: Upload, found: AttentionMap) -> View:
    """The map of a concept: drawing, text, and files to download."""
    plane, point, boxes = map_readouts(found)
    told = map_answer(upload, found, point, boxes).model_dump(exclude_unset=True)
    loadable = {"units": list(found.units), "image_size": list(upload.size), "dtype": "float32"}  # by AttentionMap.load
    sure = [] if found.probability is None else [f"the classifier says {percent(found.probability)}"]
    return {
        "title": found.concept,
        "about": [*sure, f"layer {found.layer}", found.method],
        "strength": _strength(plane),
        "point": _shares(point, upload, middle=0.5),
        "boxes": [_shares(box, upload) for box in boxes],
        "regions": [],
        "words": [],
        "notes": [] if point else ["There is no evidence for it at this layer."],
        "json": json.dumps({**told, **loadable, "values": rounded(found.values)}),
        "npy": _npy(found.values),
    }


def phrase_view(upload: Upload, found: Grounded, model: str) -> View:
    """The map of a phrase with its regions, best first, and the map of each of its words."""
    reading, notes = found.map.reading, []
    if not found.map.known:
        notes.append(f"{model} knows no word of this: the map shows whatever it finds.")
    elif reading.skipped:
        notes.append(f"Words that {model} does not know: {', '.join(reading.skipped)}.")
    if found.map.hints:
        notes.append(f"Words that weigh the map: {', '.join(word.text for word in found.map.hints)}.")
    plane = torch.from_numpy(np.asarray(found.map.plane, dtype=np.float32))
    told, first = phrase_answer(upload, found).model_dump(exclude_unset=True), found.map.words[0]
    return {
        "title": found.phrase,
        "about": ["phrase", f"layer {first.layer}", first.method],
        "strength": _strength(plane),
        "point": _shares(found.point or found.map.point, upload, middle=0.5),
        "boxes": [],
        "regions": [{"box": _shares(region.box, upload), "score": region.score} for region in found.regions[:5]],
        "words": [
            {"word": word.text, "strength": _strength(one.upsample())}
            for word, one in zip(reading.words, found.map.words, strict=found.map.known)
        ],
        "notes": notes,
        "json": json.dumps({**told, "image_size": list(upload.size)}),
        "npy": _npy(plane),
    }


def _shares(places: Sequence[float] | None, upload: Upload, middle: float = 0) -> list[float] | None:
    """Pixels of the kept image, x and y in turn, as shares of its sides."""
    if places is None:
        return None
    return [round((float(at) + middle) / upload.picture.size[k % 2], 5) for k, at in enumerate(places)]


def _strength(stretched: Tensor) -> str:
    """An upsampled map, divided by its maximum, as a small grey PNG in a data: URL."""
    height, width = stretched.shape
    share = min(1, SIDE / max(width, height))
    plane = stretched.float().clamp(min=0)[None, None]
    small = interpolate(plane, (max(1, round(height * share)), max(1, round(width * share))), mode="area")[0, 0]
    largest = small.max()
    grey = to_numpy((small / largest if largest > 0 else small).mul(255).round()).astype(np.uint8)
    return data_address("image/png", png(Image.fromarray(grey), level=1))


def _npy(values: Tensor) -> str:
    file = io.BytesIO()
    np.save(file, to_numpy(values), allow_pickle=False)
    return data_address("application/octet-stream", file.getvalue())


# The examples, and the pages of experiments with their own files.


class Example(NamedTuple):
    """An image to try, with its name in links and its title."""

    name: str
    title: str
    path: Path

    def thumbnail(self) -> str:
        """The image, small, as a data: URL."""
        picture = read_image(self.path)
        picture.thumbnail((256, 128))
        return data_address("image/jpeg", jpeg(picture, quality=80))


def find_examples(folder: Path | None = None) -> Mapping[str, Example]:
    """The examples by unique, visible names: the images in a folder, or those of scikit-image if that is installed."""
    titles = free_photographs() if folder is None else dict.fromkeys(find_images(str(folder))[:12], "")
    found: dict[str, Example] = {}
    for path, title in titles.items():
        stem = name = visible(path.stem)
        number = 1
        while name in found:
            number += 1
            name = f"{stem} ({number})"
        found[name] = Example(name, title or name, path)
    return found


class Report(NamedTuple):
    """A page of an experiment at /reports/NAME/FILE; the files beside it belong to it."""

    name: str
    title: str
    path: Path

    @property
    def url(self) -> str:
        """Where the page is served."""
        return f"/reports/{self.name}/{self.path.name}"


def find_reports(folder: Path) -> list[Report]:
    """The pages of experiments in a folder and a few folders deep, by their names."""
    found: list[Report] = []
    for seen, (place, folders, files) in enumerate(os.walk(folder)):
        inside = Path(place).relative_to(folder).parts
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if len(inside) < 3 else []
        for path in [Path(place, name) for name in PAGES if name in files]:
            readable = "-".join(re.sub(r"[^A-Za-z0-9.-]+", "-", part).strip(".-") for part in (*inside, path.stem))
            found.append(Report(f"{len(found) + 1}-{readable.strip('-') or 'report'}"[:120], _title(path), path))
        if len(found) >= MOST_REPORTS or seen >= 2000:
            break
    return found[:MOST_REPORTS]


def _title(path: Path) -> str:
    """The title of a page, or its file name."""
    named = None
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        named = re.search(r"<title>([^<]{1,200})</title>", file.read(4096), re.IGNORECASE)
    return visible(unescape(named[1]).strip() if named else path.stem)


def report_routes(reports: Sequence[Report]) -> APIRouter:
    """The routes of these reports."""
    folders = {report.name: report.path.parent for report in reports}
    router = APIRouter(include_in_schema=False)

    @router.get("/reports/{name}/{file:path}")
    def report(name: str, file: str) -> FileResponse:
        path = _file_of(folders.get(name), file)
        headers = {"Content-Security-Policy": ALONE, "Cache-Control": "no-cache"}
        kind = "text/plain" if path.suffix.lower() == ".md" else None  # the others are guessed
        return FileResponse(path, media_type=kind, headers=headers)

    return router


def _file_of(folder: Path | None, file: str) -> Path:
    """A file of a report, inside of its folder after all links are resolved."""
    if folder is not None and Path(file).suffix.lower() in KINDS:
        with suppress(OSError, RuntimeError, ValueError):  # for example a circle of links, or a zero in the name
            path = (folder / file).resolve(strict=True)
            if path.is_relative_to(folder.resolve()) and path.is_file() and path.suffix.lower() in KINDS:
                return path
    raise RefusedError(404, "there is no such file of a report")
