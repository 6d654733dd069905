"""Pictures that are asked about again: their forward passes are kept, so that one more concept costs one way down."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from excite.errors import ExciteError
from excite.images import read_image
from excite.looking import Look, listed
from excite.methods import find_method
from excite.propagation import held_bytes
from excite.propagation.rules import version_of
from excite.shelf import Shelf

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from PIL import Image

    from excite.attending import ImageSource
    from excite.attention import AttentionMap
    from excite.looking import Cue
    from excite.methods import Method
    from excite.models import Classifier

__all__ = ["Memory"]

MOST_BYTES = 512 * 2**20
METHOD = "c-mwp"


@dataclass
class _Remembered:
    look: Look
    lock: threading.Lock = field(default_factory=threading.Lock)  # a forward pass serves one question at a time


class Memory:
    """Answers questions about pictures like `excite.attend`, and remembers what the network saw in them.

    A picture is known by its pixels, wherever it came from. Forward passes are forgotten when the network's weights
    change, or, the least recently used first, when they hold too much memory. Several threads may ask.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        most_bytes: how much the forward passes may hold; a single one that holds more is used and forgotten.

    Attributes:
        looks: how often the network ran.

    Example:
        >>> memory = excite.Memory(excite.load())                  # doctest: +SKIP
        >>> memory.attend("photo.jpg", "tabby")                    # doctest: +SKIP
        >>> memory.attend("photo.jpg", "sofa")                     # doctest: +SKIP
        >>> memory.looks                                           # doctest: +SKIP
        1
    """

    def __init__(self, classifier: Classifier, *, most_bytes: int = MOST_BYTES) -> None:
        if most_bytes < 0:
            raise ExciteError(f"a memory of {most_bytes} bytes is no memory: give at least 0")
        self.classifier = classifier
        self.looks = 0
        self._kept: Shelf[_Remembered] = Shelf(most_bytes)
        self._lock = threading.Lock()

    def attend(
        self,
        image: ImageSource,
        concepts: Sequence[Cue] | Cue | None = None,
        *,
        layer: str | Sequence[str] | None = None,
        method: str = METHOD,
        against: Sequence[Cue] | Cue | None = None,
    ) -> list[AttentionMap]:
        """As `excite.attend`, but the network runs only if it has not seen this picture in this way lately."""
        picture = read_image(image)
        chosen = find_method(method)
        key, remembered = self._look(picture, chosen, layer, against)
        with remembered.lock:
            (maps,) = remembered.look.answer(chosen, [listed(concepts)], [picture])
        self._keep(key, remembered)
        return maps

    def findings(self, image: ImageSource, most: int = 5, *, method: str = METHOD) -> list[tuple[str, float]]:
        """What the classifier finds in a picture and how sure it is, the most probable first.

        A word that several outputs have is told once. The look is that of `attend` by this method, without a layer.

        Example:
            >>> memory = excite.Memory(excite.load())                  # doctest: +SKIP
            >>> memory.findings("photo.jpg", 1)                        # doctest: +SKIP
            [('tabby', 0.71)]
        """
        key, remembered = self._look(read_image(image), find_method(method), None, None)
        self._keep(key, remembered)
        probabilities, labels = remembered.look.probabilities[0], remembered.look.labels
        found: dict[str, float] = {}
        for unit in probabilities.argsort(descending=True).tolist():
            if len(found) < most:
                found.setdefault(labels.name(unit), float(probabilities[unit]))
        return list(found.items())

    @property
    def most_bytes(self) -> int:
        """How much the forward passes may hold."""
        return self._kept.most_bytes

    @property
    def size(self) -> int:
        """How many bytes the forward passes hold."""
        return self._kept.size

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()

    def _look(
        self,
        picture: Image.Image,
        method: Method,
        layer: str | Sequence[str] | None,
        against: Sequence[Cue] | Cue | None,
    ) -> tuple[Hashable, _Remembered]:
        """The look at a picture in one way, and how it is known: an earlier one, or a new one."""
        layers = None if layer is None else (layer,) if isinstance(layer, str) else tuple(layer)
        key = (_pixels(picture), method.name, layers, tuple(listed(against) or ()), self._versions())
        remembered = self._kept.get(key)
        if remembered is None:
            inputs = {scale: self.classifier.prepared(picture, scale)[None] for scale in method.scales}
            remembered = _Remembered(Look(self.classifier, inputs, [method], layer=layer, against=against))
            with self._lock:
                self.looks += 1
        return key, remembered

    def _keep(self, key: Hashable, remembered: _Remembered) -> None:
        """Only now is it known how much it holds: parts of a look are made when they are needed."""
        with remembered.lock:
            size = held_bytes(self.classifier.module, remembered.look.view.passes())
        self._kept.put(key, remembered, size)

    def _versions(self) -> tuple[int, ...]:
        """Changes when the network's weights or statistics do (not through ``.data``, which torch does not count)."""
        module = self.classifier.module
        return tuple(version_of(each) for each in (*module.parameters(), *module.buffers()))


def _pixels(picture: Image.Image) -> tuple[Any, ...]:
    return picture.mode, picture.size, hashlib.sha256(picture.tobytes()).digest()
