"""The queries about an image, for the page and for programs, independent of HTTP; images are kept in memory only."""

from __future__ import annotations

import ctypes
import hashlib
import math
import threading
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from anyio import CapacityLimiter, to_thread
from cachetools.func import ttl_cache
from PIL import Image

from excite.errors import ConceptError, ImageError, LayerError, ModelError
from excite.grounding.ground import GAMMA, METHOD, MOST, GroundingSession
from excite.grounding.proposals import Proposals, find_proposer
from excite.images import decode_image
from excite.io.cache import ByteCache
from excite.methods import find_method
from excite.models.layers import candidate_layers, default_layer, spatial_layers
from excite.session_cache import SessionCache
from excite.web.errors import BusyError, GoneError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from excite.attention import AttentionMap
    from excite.grounding import Grounded
    from excite.models import Choice, Classifier
    from excite.readouts.figure import Box
    from excite.search import PhotoIndex

Result = TypeVar("Result")

LONGEST = 100_000  # pixels of a side
MB = 2**20
LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Limits:
    """The limits of a request and of the caches."""

    upload: int = 25 * MB  # bytes of a request, the image included
    pixels: int = 60_000_000  # of an image, before it is decoded
    kept_pixels: int = 2_000_000  # of an image as it is kept: a larger one is made smaller, no classifier sees more
    pictures: int = 128 * MB  # bytes of all images that are kept
    passes: int = 128 * MB  # bytes of all forward passes that are kept, for each classifier
    at_once: int = 3  # requests that are answered at the same time
    waiting: int = 32  # requests that may wait; further ones are refused
    concepts: int = 50  # of one request
    letters: int = 1000  # of a concept or a phrase


@dataclass(frozen=True, eq=False)
class Upload:
    """An uploaded image."""

    key: str  # a hash of its pixels, which cannot be guessed without the image
    picture: Image.Image  # upright and RGB, made smaller if it was very large
    size: tuple[int, int]  # width and height as it was sent: the coordinates of points and boxes in answers

    def smaller(self, side: int) -> Image.Image:
        """The image with at most so many pixels on its longer side."""
        return shrunk(self.picture, side / max(self.picture.size))

    def point(self, point: tuple[int, int] | None) -> list[int] | None:
        """A point of the kept image in pixels of the one that was sent."""
        if point is None:
            return None
        sides = zip(point, self.size, self.picture.size, strict=True)
        return [min(int((at + 0.5) * sent / kept), sent - 1) for at, sent, kept in sides]

    def box(self, box: Box | None) -> list[float] | None:
        """A box of the kept image in pixels of the one that was sent."""
        if box is None:
            return None
        scales = [sent / kept for sent, kept in zip(self.size, self.picture.size, strict=True)]
        return [round(at * scale, 2) for at, scale in zip(box, scales * 2, strict=True)]


def shrunk(picture: Image.Image, share: float) -> Image.Image:
    """An image with this share of its sides, if that is less than all."""
    width, height = (max(1, round(each * share)) for each in picture.size)
    return picture.resize((width, height), Image.Resampling.LANCZOS) if share < 1 else picture


class UploadStore:
    """Keeps uploaded images by their keys, the oldest dropped first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._uploads: ByteCache[Upload] = ByteCache(limits.pictures)

    def take(self, content: bytes) -> Upload:
        """Decode and keep an image file; an `ImageError` if it is no image, broken, or has too many pixels."""
        if not content:
            raise ImageError("the file is empty: send an image")
        return self.put(decode_image(content, most_pixels=self._limits.pixels))

    def put(self, picture: Image.Image) -> Upload:
        """Keep an image in mode RGB; an `ImageError` if a side is too long."""
        size = picture.size
        if max(size) > LONGEST:  # a resized strip of one pixel by millions would take all memory
            raise ImageError(f"the image has {size[0]} x {size[1]} pixels: no side may have more than {LONGEST:,}")
        picture = shrunk(picture, math.sqrt(self._limits.kept_pixels / (size[0] * size[1])))
        key = hashlib.sha256(f"{size} {picture.size}".encode() + picture.tobytes()).hexdigest()[:32]
        upload = Upload(key, picture, size)
        self._uploads.put(key, upload, picture.width * picture.height * 3)
        return upload

    def find(self, key: str) -> Upload:
        """The image of a key; a `GoneError` if it is no longer there, or never was."""
        upload = self._uploads.get(key)
        if upload is None:
            raise GoneError("this image is no longer kept here: send it again")
        return upload


class ConcurrencyLimit:
    """Runs work in threads, ``at_once`` many; refuses when ``waiting`` more wait. Used in one event loop."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self._most, self._admitted = at_once + waiting, 0
        self._threads = CapacityLimiter(at_once)
        self._phrases = CapacityLimiter(max(1, at_once - 1))  # phrases take long: one thread is free of them
        self._drawing = CapacityLimiter(at_once)

    async def run(self, work: Callable[[], Result], *, is_phrase: bool = False) -> Result:
        """Wait for a thread and run the work there; a `BusyError` if too many wait."""
        if self._admitted >= self._most:
            raise BusyError("too many people are asking at the moment: try again in a few seconds")
        self._admitted += 1
        try:
            async with self._phrases if is_phrase else nullcontext():
                return await to_thread.run_sync(work, limiter=self._threads)
        finally:
            self._admitted -= 1

    async def run_short(self, work: Callable[[], Result]) -> Result:
        """Run work that takes a moment, beside the others: an image that is sent again, a word that is looked up."""
        return await to_thread.run_sync(work, limiter=self._drawing)


@ttl_cache(maxsize=1, ttl=5)  # seconds
def trim_memory() -> None:
    """Return freed memory to the system: after 60 images with phrases, glibc held 700 MB with 200 MB in use."""
    if hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)


class ServedModel:
    """A classifier of the server by its name here, loaded at the first request; ``passes``: bytes of its cache."""

    def __init__(self, name: str, choice: Choice, passes: int) -> None:
        self.name, self._choice, self._passes = name, choice, passes
        self._lock = threading.Lock()
        self._cache: SessionCache | None = None
        self.sessions: ByteCache[GroundingSession] = ByteCache(passes)

    @property
    def cache(self) -> SessionCache:
        """The classifier with a cache of its forward passes."""
        with self._lock:
            if self._cache is None:
                self._cache = SessionCache(self._choice.load(), most_bytes=self._passes)
            return self._cache

    @property
    def classifier(self) -> Classifier:
        """The classifier itself."""
        return self.cache.classifier

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The layers worth reading, from the image up."""
        module, inputs = self.classifier.module, self._square
        worth = {self.layer, *(layer.name for layer in candidate_layers(module, inputs, 24))}
        return tuple(layer.name for layer in spatial_layers(module, inputs) if layer.name in worth)

    @cached_property
    def layer(self) -> str:
        """The default layer."""
        return self.classifier.layer or default_layer(self.classifier.module, self._square)

    @property
    def _square(self) -> Tensor:
        return self.classifier.preprocess(Image.new("RGB", (256, 256)))[None]


class Service:
    """Answers queries about images by classifiers, of which the first is the default; safe for several threads."""

    def __init__(self, choices: Mapping[str, Choice], limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.photos: PhotoIndex | None = None  # the photos that can be searched, by the default classifier
        self.models = {name: ServedModel(name, choice, self.limits.passes) for name, choice in choices.items()}
        self.default = next(iter(self.models))
        self.uploads = UploadStore(self.limits)
        self.concurrency = ConcurrencyLimit(self.limits.at_once, self.limits.waiting)
        self._proposals: ByteCache[Proposals] = ByteCache(self.limits.pictures)
        if hasattr(LIBC, "mallopt"):
            LIBC.mallopt(-8, 2)  # two arenas (M_ARENA_MAX in malloc.h): each thread would have one of its own

    def served_model(self, model: str | None = None) -> ServedModel:
        """The classifier of that name, the default if none is named; a `ModelError` if it is not offered here."""
        name = model or self.default
        if name not in self.models:
            raise ModelError(f"the classifier {name!r} is not offered here: use one of {', '.join(self.models)}")
        return self.models[name]

    def findings(self, upload: Upload, model: str | None, most: int, method: str = "c-mwp") -> list[tuple[str, float]]:
        """The classifier's most probable concepts; the forward pass is the one that `attend` needs for this method."""
        found = self.served_model(model).cache.findings(upload.picture, most, method=method)
        trim_memory()
        return found

    def attend(
        self,
        upload: Upload,
        concepts: Sequence[str] | None = None,
        *,
        model: str | None = None,
        method: str = "c-mwp",
        layer: str | None = None,
        against: Sequence[str] = (),
    ) -> list[AttentionMap]:
        """As `excite.attend`; without concepts, for the classifier's findings."""
        served_model = self._checked_model(model, layer, [*(concepts or ()), *against])
        if concepts is None:
            concepts = [concept for concept, _ in self.findings(upload, model, 5, method)]
        maps = served_model.cache.attend(
            upload.picture, list(concepts), method=method, layer=layer, against=list(against) or None
        )
        for found in maps:
            found.boxes()  # now, not when the answer is written
        trim_memory()
        return maps

    def ground(
        self,
        upload: Upload,
        phrases: Sequence[str],
        *,
        model: str | None = None,
        method: str = METHOD,
        layer: str | None = None,
        gamma: float = GAMMA,
        most: int = MOST,
    ) -> list[Grounded]:
        """As `excite.ground`."""
        served_model, method = self._checked_model(model, layer, phrases), find_method(method).name
        key = upload.key, method, layer
        session = served_model.sessions.get(key)
        if session is None:
            proposals = self._proposals.get(upload.key) or find_proposer("hierarchy").of(upload.picture, "the image")
            self._proposals.put(upload.key, proposals, proposals.nbytes)
            session = GroundingSession(served_model.classifier, upload.picture, proposals, method=method, layer=layer)
        found = session.ground(phrases, gamma=gamma, most=most)
        served_model.sessions.put(key, session, session.size)
        trim_memory()
        return found

    def index(self, *words: str) -> PhotoIndex:
        """The photos that can be searched by words that are not too long; a `GoneError` if there are none."""
        if self.photos is None:
            raise GoneError("no photos can be searched here: start the server with --photos FOLDER")
        self._check_texts(words)
        return self.photos

    def _checked_model(self, model: str | None, layer: str | None, texts: Sequence[str]) -> ServedModel:
        """The classifier of a question whose texts are neither too many nor too long, and whose layer is there."""
        self._check_texts(texts)
        served_model = self.served_model(model)
        # a short error: that of the engine may list thousands of layers
        if layer is not None and layer not in dict(served_model.classifier.module.named_modules()) and layer != "input":
            raise LayerError(f"{served_model.name} has no layer {layer!r}: use one of {', '.join(served_model.layers)}")
        return served_model

    def _check_texts(self, texts: Sequence[str]) -> None:
        longest = max(map(len, texts), default=0)
        if len(texts) > self.limits.concepts:
            raise ConceptError(f"{len(texts)} concepts at once: ask for at most {self.limits.concepts}")
        if longest > self.limits.letters:
            raise ConceptError(f"a concept of {longest} letters: write at most {self.limits.letters}")
