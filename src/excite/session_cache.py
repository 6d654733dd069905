"""Pictures that are asked about again: their forward passes are kept, so that one more concept costs one way down."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from excite.errors import ExciteError
from excite.images import read_image
from excite.methods import find_method
from excite.propagation import held_bytes
from excite.propagation.keeping import version_of
from excite.session import Look, listed

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from PIL import Image

    from excite.api import ImageSource
    from excite.attention import AttentionMap
    from excite.methods import Method
    from excite.models import Classifier
    from excite.session import Cue


# Things kept for whoever asks for them again, within so many bytes.

Thing = TypeVar("Thing")


class Shelf(Generic[Thing]):
    """The things asked for lately; the least recently used are forgotten first. Several threads may use it.

    Args:
        most_bytes: how much they may hold together; a single one that holds more is not kept.

    Example:
        >>> shelf = Shelf(most_bytes=10)
        >>> shelf.put("a", "first", 6)
        >>> shelf.put("b", "second", 6)
        >>> shelf.get("a"), shelf.get("b"), shelf.size
        (None, 'second', 6)
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._kept: OrderedDict[Hashable, tuple[Thing, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Thing | None:
        """What is kept under this key, or None."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: Hashable, thing: Thing, size: int) -> None:
        """Keep a thing that holds so many bytes; what was there under the key is replaced."""
        with self._lock:
            self._size += size - self._kept.pop(key, (None, 0))[1]
            self._kept[key] = thing, size
            while self._size > self.most_bytes:
                _, (_, gone) = self._kept.popitem(last=False)
                self._size -= gone

    @property
    def size(self) -> int:
        """How many bytes the things hold together."""
        return self._size

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self._size = 0


# Images that are asked about again: their forward passes are kept, so that one more concept costs one way down.

MOST_BYTES = 512 * 2**20
METHOD = "c-mwp"


@dataclass
class _Remembered:
    look: Look
    lock: threading.Lock = field(default_factory=threading.Lock)  # a forward pass serves one question at a time


class Memory:
    """Answers questions about images like `excite.attend`, and remembers what the network saw in them.

    An image is known by its pixels, wherever it came from. Forward passes are forgotten when the network's weights
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
        """As `excite.attend`, but the network runs only if it has not seen this image in this way lately."""
        picture = read_image(image)
        chosen = find_method(method)
        key, remembered = self._look(picture, chosen, layer, against)
        with remembered.lock:
            (maps,) = remembered.look.answer(chosen, [listed(concepts)], [picture])
        self._keep(key, remembered)
        return maps

    def findings(self, image: ImageSource, most: int = 5, *, method: str = METHOD) -> list[tuple[str, float]]:
        """What the classifier finds in an image and how sure it is, the most probable first.

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
        """The look at an image in one way, and how it is known: an earlier one, or a new one."""
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
