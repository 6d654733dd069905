"""The queries about an image, for the page and for programs; independent of HTTP."""

from __future__ import annotations

import ctypes
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from anyio import CapacityLimiter, to_thread
from PIL import Image

from excite.errors import ConceptError, ExciteError, LayerError, ModelError
from excite.grounding.ground import GAMMA, METHOD, MOST, GroundingSession
from excite.grounding.proposals import find_proposer
from excite.io.cache import ByteCache
from excite.methods import find_method
from excite.models.layers import candidate_layers, default_layer, spatial_layers
from excite.session import SessionCache
from excite.web.uploads import Limits, UploadStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from excite.attention import AttentionMap
    from excite.grounding import Grounded
    from excite.grounding.proposals import Proposals
    from excite.models import Choice, Classifier
    from excite.web.uploads import Upload


Result = TypeVar("Result")

MOST_LAYERS = 24
ARENA_MAX, ARENAS = -8, 2  # as in malloc.h; each thread would have an arena of its own


class BusyError(ExciteError):
    """Too many requests are waiting."""


class ConcurrencyLimit:
    """Runs work in threads, so many at once; refuses at once when too many wait. Used in one event loop.

    Args:
        at_once: the number of threads.
        waiting: the number of requests that may wait for one.

    Example:
        >>> import asyncio
        >>> asyncio.run(ConcurrencyLimit(at_once=1, waiting=0).run(lambda: "answered"))
        'answered'
    """

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


class Trimmer:
    """Returns freed memory to the system, at most once in so many seconds.

    Forward passes allocate pieces of all sizes, and glibc keeps the holes between them: after 60 images with a phrase
    each, a server held 700 MB with 200 MB in use. On other systems this does nothing.

    Example:
        >>> Trimmer().trim()
    """

    def __init__(self, seconds: float = 5.0) -> None:
        self._seconds = seconds
        self._last = -seconds
        self._lock = threading.Lock()
        library = ctypes.CDLL(None)
        self._malloc_trim = getattr(library, "malloc_trim", None)
        if self._malloc_trim is not None:
            library.mallopt(ARENA_MAX, ARENAS)

    def trim(self) -> None:
        """Return freed memory, unless it was done a moment ago."""
        with self._lock:
            now = time.monotonic()
            if self._malloc_trim is None or now - self._last < self._seconds:
                return
            self._last = now
        self._malloc_trim(0)


@dataclass(frozen=True)
class Finding:
    """A concept that the classifier finds in an image."""

    concept: str
    probability: float


class ServedModel:
    """A classifier of the server, loaded at the first request.

    Args:
        name: its name here.
        choice: the classifier.
        passes: the bytes of forward passes to keep.
    """

    def __init__(self, name: str, choice: Choice, passes: int) -> None:
        self.name = name
        self._choice = choice
        self._passes = passes
        self._lock = threading.Lock()
        self.sessions: ByteCache[GroundingSession] = ByteCache(passes)

    @cached_property
    def _cache(self) -> SessionCache:
        return SessionCache(self._choice.load(), most_bytes=self._passes)

    @property
    def cache(self) -> SessionCache:
        """The classifier with a cache of its forward passes."""
        with self._lock:  # it is loaded once
            return self._cache

    @property
    def classifier(self) -> Classifier:
        """The classifier itself."""
        return self.cache.classifier

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The layers worth reading, from the image up."""
        inputs = self._square
        ends = [layer.name for layer in candidate_layers(self.classifier.module, inputs, MOST_LAYERS)]
        known = [layer.name for layer in spatial_layers(self.classifier.module, inputs)]
        return tuple(name for name in known if name in {*ends, self.layer})

    @cached_property
    def layer(self) -> str:
        """The default layer."""
        return self.classifier.layer or default_layer(self.classifier.module, self._square)

    @property
    def _square(self) -> Tensor:
        return self.classifier.preprocess(Image.new("RGB", (256, 256)))[None]


class Service:
    """Answers queries about images; safe for several threads.

    Args:
        choices: the classifiers by name; the first is the default.
        limits: the limits of a request and of the caches.

    Example:
        >>> from excite.models import Choice
        >>> service = Service({"words": Choice("words")})                     # doctest: +SKIP
        >>> upload = service.uploads.take(Path("photo.jpg").read_bytes())         # doctest: +SKIP
        >>> service.findings(upload)[0].concept                                # doctest: +SKIP
        'cat'
    """

    def __init__(self, choices: Mapping[str, Choice], limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.models = {name: ServedModel(name, choice, self.limits.passes) for name, choice in choices.items()}
        self.default = next(iter(self.models))
        self.uploads = UploadStore(self.limits)
        self.concurrency = ConcurrencyLimit(self.limits.at_once, self.limits.waiting)
        self._proposals: ByteCache[Proposals] = ByteCache(self.limits.pictures)
        self._trimmer = Trimmer()

    def served_model(self, model: str | None = None) -> ServedModel:
        """The classifier of that name; the default if none is named.

        Raises:
            ModelError: it is not offered here.
        """
        name = model or self.default
        if name not in self.models:
            raise ModelError(f"the classifier {name!r} is not offered here: use one of {', '.join(self.models)}")
        return self.models[name]

    def findings(
        self, upload: Upload, model: str | None = None, most: int = 10, method: str = "c-mwp"
    ) -> list[Finding]:
        """The classifier's findings, most probable first, each once though it may have several outputs.

        The forward pass is the one that `attend` needs for this method next.
        """
        served_model, chosen = self.served_model(model), find_method(method)
        found = self._findings(upload, served_model, most, chosen.name)
        self._trimmer.trim()
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
        """As `excite.attend`; without concepts, for the classifier's findings.

        Raises:
            ExciteError: a concept, method, layer or classifier is unknown, or too much is asked for.
        """
        self.check_texts([*(concepts or ()), *against])
        served_model, chosen = self.served_model(model), find_method(method)
        wanted = (
            [one.concept for one in self._findings(upload, served_model, 5, chosen.name)]
            if concepts is None
            else list(concepts)
        )
        self._check_layer(served_model, layer)
        maps = served_model.cache.attend(
            upload.picture, wanted, method=chosen.name, layer=layer, against=list(against) or None
        )
        self._trimmer.trim()
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
        """As `excite.ground`.

        Raises:
            ExciteError: a phrase is blank, or the classifier has no words, or too much is asked for.
        """
        self.check_texts(phrases)
        served_model, chosen = self.served_model(model), find_method(method)
        self._check_layer(served_model, layer)
        key = upload.key, chosen.name, layer
        session = served_model.sessions.get(key)
        if session is None:
            session = GroundingSession(
                served_model.classifier, upload.picture, self._proposals_of(upload), method=chosen.name, layer=layer
            )
        found = session.ground(phrases, gamma=gamma, most=most)
        served_model.sessions.put(key, session, session.size)
        self._trimmer.trim()
        return found

    @staticmethod
    def _findings(upload: Upload, served_model: ServedModel, most: int, method: str) -> list[Finding]:
        return [Finding(*found) for found in served_model.cache.findings(upload.picture, most, method=method)]

    def _proposals_of(self, upload: Upload) -> Proposals:
        found = self._proposals.get(upload.key)
        if found is None:
            found = find_proposer("hierarchy").of(upload.picture, "the image")
            self._proposals.put(upload.key, found, found.nbytes)
        return found

    def check_texts(self, texts: Sequence[str]) -> None:
        """Raise a `ConceptError` if concepts or phrases are too many or too long."""
        if len(texts) > self.limits.concepts:
            raise ConceptError(f"{len(texts)} concepts at once: ask for at most {self.limits.concepts}")
        longest = max((len(text) for text in texts), default=0)
        if longest > self.limits.letters:
            raise ConceptError(f"a concept of {longest} letters: write at most {self.limits.letters}")

    @staticmethod
    def _check_layer(served_model: ServedModel, layer: str | None) -> None:
        """A short error: that of the engine may list thousands of layers."""
        if layer is not None and layer not in dict(served_model.classifier.module.named_modules()) and layer != "input":
            raise LayerError(f"{served_model.name} has no layer {layer!r}: use one of {', '.join(served_model.layers)}")
