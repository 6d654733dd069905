"""What can be asked of an image, for people and for programs: nothing here knows of pages or of HTTP."""

from __future__ import annotations

import ctypes
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from PIL import Image

from excite.errors import ConceptError, ExciteError, LayerError, ModelError
from excite.grounding.ground import GAMMA, METHOD, MOST, GroundingSession
from excite.grounding.proposals import find_proposer
from excite.methods import find_method
from excite.models.layers import candidate_layers, default_layer, spatial_layers
from excite.session import ByteCache, SessionCache
from excite.web.uploads import Desk, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

    from excite.attention import AttentionMap
    from excite.grounding import Grounded
    from excite.grounding.proposals import Proposals
    from excite.models import Choice, Classifier
    from excite.web.uploads import Sheet


# So many are served at once and so many wait: whoever comes then is told so at once, instead of waiting for ever.


class BusyError(ExciteError):
    """Too many are waiting already."""


class Gate:
    """Lets so many through at a time; whoever is inside may ask again without waiting.

    Args:
        at_once: how many.
        waiting: how many more may wait.

    Example:
        >>> gate = Gate(at_once=1, waiting=0)
        >>> with gate.passed(), gate.passed():
        ...     print("inside")
        inside
    """

    def __init__(self, at_once: int, waiting: int) -> None:
        self._places = threading.BoundedSemaphore(at_once + waiting)
        self._turns = threading.BoundedSemaphore(at_once)
        self._mine = threading.local()  # whether this thread is inside

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Wait for one's turn, and have it for as long as the block lasts.

        Raises:
            BusyError: too many are waiting.
        """
        if getattr(self._mine, "inside", False):
            yield
            return
        if not self._places.acquire(blocking=False):
            raise BusyError("too many people are asking at the moment: try again in a few seconds")
        try:
            with self._turns:
                self._mine.inside = True
                yield
        finally:
            self._mine.inside = False
            self._places.release()


# Memory that nobody uses, given back to the system.

ARENA_MAX, ARENAS = -8, 2  # as in malloc.h; each thread would have holes of its own


class Trimmer:
    """Gives back what was freed, now and then.

    Forward passes come and go in pieces of all sizes. glibc keeps the holes between them for later, and a server that
    runs for weeks seems to grow and grow: on 60 images with a phrase each by 700 MB where 200 MB are in use. Other
    systems do without.

    Args:
        seconds: the least time between two times.

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
        """Give back, unless it was done a moment ago."""
        with self._lock:
            now = time.monotonic()
            if self._malloc_trim is None or now - self._last < self._seconds:
                return
            self._last = now
        self._malloc_trim(0)


# What can be asked of an image, for people and for programs: nothing here knows of pages or of HTTP.

MOST_LAYERS = 24


@dataclass(frozen=True)
class Finding:
    """Something that the classifier finds in an image."""

    concept: str
    probability: float


class Offer:
    """A classifier that people may ask, loaded when the first one does.

    Args:
        name: as it is called here.
        choice: which it is.
        passes: how many bytes of forward passes are kept.
    """

    def __init__(self, name: str, choice: Choice, passes: int) -> None:
        self.name = name
        self._choice = choice
        self._passes = passes
        self._lock = threading.Lock()
        self.studies: ByteCache[GroundingSession] = ByteCache(passes)

    @cached_property
    def _memory(self) -> SessionCache:
        return SessionCache(self._choice.load(), most_bytes=self._passes)

    @property
    def memory(self) -> SessionCache:
        """Answers questions about images, and remembers them."""
        with self._lock:  # it is loaded once, however many come first
            return self._memory

    @property
    def classifier(self) -> Classifier:
        """The classifier itself."""
        return self.memory.classifier

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The layers worth reading, from the image up."""
        inputs = self._square
        ends = [layer.name for layer in candidate_layers(self.classifier.module, inputs, MOST_LAYERS)]
        known = [layer.name for layer in spatial_layers(self.classifier.module, inputs)]
        return tuple(name for name in known if name in {*ends, self.layer})

    @cached_property
    def layer(self) -> str:
        """The layer that is read when nobody names one."""
        return self.classifier.layer or default_layer(self.classifier.module, self._square)

    @property
    def _square(self) -> Tensor:
        return self.classifier.preprocess(Image.new("RGB", (256, 256)))[None]


class Service:
    """Answers questions about images; several threads may ask.

    Args:
        choices: the classifiers, by the names by which they are asked for; the first is the default.
        limits: how much anybody may ask for.

    Example:
        >>> from excite.models import Choice
        >>> service = Service({"words": Choice("words")})                     # doctest: +SKIP
        >>> sheet = service.desk.take(Path("photo.jpg").read_bytes())         # doctest: +SKIP
        >>> service.findings(sheet)[0].concept                                # doctest: +SKIP
        'cat'
    """

    def __init__(self, choices: Mapping[str, Choice], limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.offers = {name: Offer(name, choice, self.limits.passes) for name, choice in choices.items()}
        self.default = next(iter(self.offers))
        self.desk = Desk(self.limits)
        self.gate = Gate(self.limits.at_once, self.limits.waiting)
        self._slowly = Gate(max(1, self.limits.at_once - 1), self.limits.waiting)  # phrases take long: one turn is free
        self._proposals: ByteCache[Proposals] = ByteCache(self.limits.pictures)
        self._trimmer = Trimmer()

    def offer(self, model: str | None = None) -> Offer:
        """The classifier of that name; the default if none is named.

        Raises:
            ModelError: it is not offered here.
        """
        name = model or self.default
        if name not in self.offers:
            raise ModelError(f"the classifier {name!r} is not offered here: use one of {', '.join(self.offers)}")
        return self.offers[name]

    def findings(self, sheet: Sheet, model: str | None = None, most: int = 10, method: str = "c-mwp") -> list[Finding]:
        """What the classifier finds, most probable first; what has several outputs is told once.

        It is one look with what `attend` needs for this method next.
        """
        offer, chosen = self.offer(model), find_method(method)
        with self.gate.passed():
            found = self._findings(sheet, offer, most, chosen.name)
            self._trimmer.trim()
            return found

    def attend(
        self,
        sheet: Sheet,
        concepts: Sequence[str] | None = None,
        *,
        model: str | None = None,
        method: str = "c-mwp",
        layer: str | None = None,
        against: Sequence[str] = (),
    ) -> list[AttentionMap]:
        """As `excite.attend`; without concepts, for what the classifier finds.

        Raises:
            ExciteError: a concept, method, layer or classifier is unknown, or too much is asked for.
        """
        self.check_texts([*(concepts or ()), *against])
        offer, chosen = self.offer(model), find_method(method)
        with self.gate.passed():
            wanted = (
                [one.concept for one in self._findings(sheet, offer, 5, chosen.name)]
                if concepts is None
                else list(concepts)
            )
            self._check_layer(offer, layer)
            maps = offer.memory.attend(
                sheet.picture, wanted, method=chosen.name, layer=layer, against=list(against) or None
            )
            self._trimmer.trim()
            return maps

    def ground(
        self,
        sheet: Sheet,
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
        offer, chosen = self.offer(model), find_method(method)
        with self._slowly.passed(), self.gate.passed():
            self._check_layer(offer, layer)
            key = sheet.key, chosen.name, layer
            study = offer.studies.get(key)
            if study is None:
                study = GroundingSession(
                    offer.classifier, sheet.picture, self._proposals_of(sheet), method=chosen.name, layer=layer
                )
            found = study.ground(phrases, gamma=gamma, most=most)
            offer.studies.put(key, study, study.size)
            self._trimmer.trim()
            return found

    @staticmethod
    def _findings(sheet: Sheet, offer: Offer, most: int, method: str) -> list[Finding]:
        return [Finding(*found) for found in offer.memory.findings(sheet.picture, most, method=method)]

    def _proposals_of(self, sheet: Sheet) -> Proposals:
        found = self._proposals.get(sheet.key)
        if found is None:
            found = find_proposer("hierarchy").of(sheet.picture, "the image")
            self._proposals.put(sheet.key, found, found.nbytes)
        return found

    def check_texts(self, texts: Sequence[str]) -> None:
        """Whether concepts or phrases are few and short enough to be looked at.

        Raises:
            ConceptError: they are not.
        """
        if len(texts) > self.limits.concepts:
            raise ConceptError(f"{len(texts)} concepts at once: ask for at most {self.limits.concepts}")
        longest = max((len(text) for text in texts), default=0)
        if longest > self.limits.letters:
            raise ConceptError(f"a concept of {longest} letters: write at most {self.limits.letters}")

    @staticmethod
    def _check_layer(offer: Offer, layer: str | None) -> None:
        """Some networks have thousands of layers, and the error of the engine lists many."""
        if layer is not None and layer not in dict(offer.classifier.module.named_modules()) and layer != "input":
            raise LayerError(f"{offer.name} has no layer {layer!r}: use one of {', '.join(offer.layers)}")
