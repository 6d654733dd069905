"""Pictures that are asked about again: their forward passes are kept, so that one more concept costs one way down."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from excite.errors import ExciteError
from excite.images import read_image
from excite.looking import Look, listed
from excite.methods import find_method
from excite.propagation import held_bytes
from excite.propagation.keeping import version_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from PIL import Image

    from excite.attending import ImageSource
    from excite.attention import AttentionMap
    from excite.looking import Cue
    from excite.models import Classifier

__all__ = ["Memory"]

MOST_BYTES = 512 * 2**20


@dataclass
class _Remembered:
    look: Look
    size: int = 0
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
        self.most_bytes = most_bytes
        self.looks = 0
        self._kept: OrderedDict[Hashable, _Remembered] = OrderedDict()
        self._lock = threading.Lock()

    def attend(
        self,
        image: ImageSource,
        concepts: Sequence[Cue] | Cue | None = None,
        *,
        layer: str | Sequence[str] | None = None,
        method: str = "c-mwp",
        against: Sequence[Cue] | Cue | None = None,
    ) -> list[AttentionMap]:
        """As `excite.attend`, but the network runs only if it has not seen this picture in this way lately."""
        picture = read_image(image)
        chosen = find_method(method)
        layers = None if layer is None else (layer,) if isinstance(layer, str) else tuple(layer)
        rivals = tuple(listed(against) or ())
        key = (_pixels(picture), chosen.name, layers, rivals, self._versions())
        remembered = self._recall(key)
        if remembered is None:
            inputs = {scale: self.classifier.prepared(picture, scale)[None] for scale in chosen.scales}
            remembered = _Remembered(Look(self.classifier, inputs, [chosen], layer=layer, against=against))
            with self._lock:
                self.looks += 1
        with remembered.lock:
            (maps,) = remembered.look.answer(chosen, [listed(concepts)], [picture])
            remembered.size = held_bytes(self.classifier.module, remembered.look.view.passes())
        self._keep(key, remembered)
        return maps

    @property
    def size(self) -> int:
        """How many bytes the forward passes hold."""
        with self._lock:
            return sum(each.size for each in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()

    def _versions(self) -> tuple[int, ...]:
        """Changes when the network's weights or statistics do (not through ``.data``, which torch does not count)."""
        module = self.classifier.module
        return tuple(version_of(each) for each in (*module.parameters(), *module.buffers()))

    def _recall(self, key: Hashable) -> _Remembered | None:
        with self._lock:
            remembered = self._kept.get(key)
            if remembered is not None:
                self._kept.move_to_end(key)
            return remembered

    def _keep(self, key: Hashable, remembered: _Remembered) -> None:
        with self._lock:
            self._kept[key] = remembered
            self._kept.move_to_end(key)
            while self._kept and sum(each.size for each in self._kept.values()) > self.most_bytes:
                self._kept.popitem(last=False)


def _pixels(picture: Image.Image) -> tuple[Any, ...]:
    return picture.mode, picture.size, hashlib.sha256(picture.tobytes()).digest()
