"""Sessions that are kept: one more concept of a known image costs one top-down pass."""

from __future__ import annotations

import threading
import warnings
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from excite.errors import ExciteError
from excite.images import read_image
from excite.io.cache import ByteCache, fingerprint
from excite.methods import find_method
from excite.propagation.rules import version_of
from excite.session import Session, as_list, named_layers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from PIL import Image

    from excite.attention import AttentionMaps
    from excite.methods import Method
    from excite.models import Classifier
    from excite.session import Cue, ImageSource, Layers

MOST_BYTES = 512 * 2**20
METHOD = "c-mwp"


class SessionCache:
    """`excite.attend` with a cache of sessions: one more concept of a known image costs one top-down pass.

    An image is identified by its pixels. Sessions are dropped when the network's weights change (not through ``.data``,
    which torch does not count), or, least recently used first, at the limit of memory. Safe for threads.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        most_bytes: the limit for all forward passes; a single one that is larger is used and dropped.

    Attributes:
        runs: how often the network ran.

    Example:
        >>> cache = excite.SessionCache(excite.load())             # doctest: +SKIP
        >>> cache.attend("photo.jpg", "tabby")                     # doctest: +SKIP
        >>> cache.attend("photo.jpg", "sofa")                      # doctest: +SKIP
        >>> cache.runs                                             # doctest: +SKIP
        1
    """

    def __init__(self, classifier: Classifier, *, most_bytes: int = MOST_BYTES) -> None:
        if most_bytes < 0:
            raise ExciteError(f"a cache of {most_bytes} bytes is no cache: give at least 0")
        self.classifier = classifier
        self.runs = 0
        self._sessions: ByteCache[Session] = ByteCache(most_bytes)
        self._lock = threading.Lock()

    def attend(
        self,
        image: ImageSource,
        concepts: Sequence[Cue] | Cue | None = None,
        *,
        layer: Layers | None = None,
        method: str = METHOD,
        against: Sequence[Cue] | Cue | None = None,
    ) -> AttentionMaps:
        """As `excite.attend`, but the network runs only where no session is kept for the image, method and layer."""
        picture, chosen = read_image(image), find_method(method)
        with self._session(picture, chosen, layer, against) as session:
            again = partial(self._again, as_list(against) or ())
            (maps,) = session.attend(chosen, [as_list(concepts)], [picture], again)
        return maps

    def _again(
        self, against: Sequence[Cue], image: Image.Image, method: Method, scales: Sequence[float]
    ) -> AbstractContextManager[Session]:
        return self._session(image, method, None, against, scales)

    def findings(self, image: ImageSource, most: int = 5, *, method: str = METHOD) -> list[tuple[str, float]]:
        """The most probable classes of an image with their probabilities; a word of several units is listed once.

        Uses the session of `attend` by this method, without a layer.

        Example:
            >>> cache = excite.SessionCache(excite.load())             # doctest: +SKIP
            >>> cache.findings("photo.jpg", 1)                         # doctest: +SKIP
            [('tabby', 0.71)]
        """
        with self._session(read_image(image), find_method(method), None, None) as session:
            units = session.findings(0, most)
        return [(session.labels.name(unit), float(session.probabilities[0, unit])) for unit in units]

    @property
    def most_bytes(self) -> int:
        """The limit for all forward passes."""
        return self._sessions.most_bytes

    @property
    def size(self) -> int:
        """The bytes that the kept forward passes hold."""
        return self._sessions.size

    @property
    def looks(self) -> int:
        """Deprecated since 0.2: use `runs` instead."""
        warnings.warn("SessionCache.looks is now SessionCache.runs", DeprecationWarning, stacklevel=2)
        return self.runs

    def __len__(self) -> int:
        return len(self._sessions)

    def clear(self) -> None:
        """Drop all sessions."""
        self._sessions.clear()

    @contextmanager
    def _session(
        self,
        image: Image.Image,
        method: Method,
        layer: Layers | None,
        against: Sequence[Cue] | Cue | None,
        scales: Sequence[float] = (),
    ) -> Iterator[Session]:
        """The kept session of an image and a method, or a new one, with its lock held; it is kept after its use."""
        layers = None if layer is None else tuple(named_layers(self.classifier, layer))
        pixels = fingerprint([image.mode, image.size], image.tobytes(), digits=64)
        scales = tuple(scales or method.scales)
        key = (pixels, method.name, layers, scales, tuple(as_list(against) or ()), weight_versions(self.classifier))
        session = self._sessions.get(key)
        if session is None:
            inputs = {scale: self.classifier.prepared(image, scale)[None] for scale in scales}
            session = Session(self.classifier, inputs, [method], layer=layers, against=against)
            with self._lock:
                self.runs += 1
        with session.lock:
            before = session.renewals
            yield session
            size = session.size  # only now its forward passes are made
        with self._lock:
            self.runs += session.renewals - before
        self._sessions.put(key, session, size)


def weight_versions(classifier: Classifier) -> tuple[int, ...]:
    """Changes with the network's weights and statistics (not through ``.data``, which torch does not count)."""
    module = classifier.module
    return tuple(version_of(each) for each in (*module.parameters(), *module.buffers()))
