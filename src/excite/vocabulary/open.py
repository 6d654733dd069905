"""An open vocabulary: every word or phrase is a concept, whose row of the output layer is written when it is needed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol, Self, SupportsIndex

from excite.errors import ConceptError
from excite.vocabulary.labels import Concept, Labels, fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

MOST = 4096  # phrases that have a row at the same time, beside the default labels


class Rows(Protocol):
    """Writes the rows of an output layer."""

    def check(self, text: str) -> None:
        """A ConceptError where no row can be written for a text."""

    def write(self, texts: Sequence[str]) -> Tensor:
        """The rows [texts, embedding]."""


class OpenLabels(Labels):
    """The default labels of a dual encoder, and behind them every phrase that was asked for.

    ``len`` and iteration are of the default labels: what an image is compared with, and what is found in it where no
    concept is named. ``find`` gives any other phrase the next output unit. A phrase keeps its unit until ``most``
    others were asked for since: then the unit is given to a new phrase, in a new `generation`. Safe for threads.

    Args:
        entries: the default labels, as those of `Labels`; only the name of a label has a row.
        rows: writes the rows of the output layer.
        most: how many phrases have a row at the same time.

    Example:
        >>> import torch
        >>> class Lengths:
        ...     def check(self, text): pass
        ...     def write(self, texts): return torch.tensor([[float(len(text))] for text in texts])
        >>> labels = OpenLabels(["cat", "dog"], Lengths())
        >>> labels.find("dog").units, labels.find("A man in a  red hat")
        ((1,), Concept(name='a man in a red hat', units=(2,)))
        >>> len(labels), labels.rows().T
        (2, tensor([[ 3.,  3., 18.]]))
    """

    is_open = True

    def __init__(self, entries: Sequence[str | Sequence[str]], rows: Rows, *, most: int = MOST) -> None:
        super().__init__(entries)
        self.most = most
        self._writer = rows
        self._asked: OrderedDict[str, int] = OrderedDict()  # the place of each phrase, the least recently used first
        self._texts: list[str] = []  # the phrase at each place
        self._since: list[int] = []  # the generation in which it came there
        self.generation = 0  # how many phrases were given a unit so far
        self._rows: Tensor | None = None
        self._unwritten: set[int] = set()
        self._lock = threading.RLock()
        for name in self:
            rows.check(name)

    # The module and its classifier hold the same vocabulary, also where one of them is copied.

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {**vars(self), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def written(self, concepts: Sequence[Concept]) -> int:
        """The last generation in which one of these concepts was given its unit; 0 for default labels.

        Raises:
            ConceptError: one has lost its unit to another of them: there are more than ``most``.
        """
        last = 0
        with self._lock:
            for concept in concepts:
                if max(concept.units) >= len(self):
                    place = max(concept.units) - len(self)
                    if self._asked.get(concept.name) != place:
                        raise ConceptError(f"These are too many phrases at once: ask for at most {self.most}.")
                    last = max(last, self._since[place])
        return last

    def rows(self) -> Tensor:
        """The rows [labels and phrases, embedding] of the output layer; a tensor that is never changed."""
        with self._lock:
            if self._rows is None:
                self._rows = self._writer.write(list(self))
            if self._unwritten:
                places = sorted(self._unwritten)
                written = self._writer.write([self._texts[place] for place in places])
                rows = self._rows.new_zeros(len(self) + len(self._texts), self._rows.shape[1])
                rows[: len(self._rows)] = self._rows
                rows[[len(self) + place for place in places]] = written
                self._rows, self._unwritten = rows, set()
            return self._rows

    def find(self, query: SupportsIndex | str | Concept) -> Concept:
        """The concept for a phrase, a unit, or a concept of this vocabulary.

        A phrase that is the name of a default label is that label, digits are a unit, and any other phrase is a concept
        of its own, with the text in small letters for its name.

        Raises:
            ConceptError: the phrase is blank or longer than the text tower reads, or there is no such unit.
        """
        if isinstance(query, Concept):  # of another process perhaps, where its phrase has another unit
            return query if max(query.units) < len(self) else self._ask(query.name)
        if not isinstance(query, str):
            return super().find(query)
        text = spoken(query)
        if not text or text.removeprefix("-").isdecimal():
            return super().find(query)
        units = self._names.get(fold(text))
        return self._ask(text) if units is None else Concept(self.synonyms(units[0])[0], units)

    def word(self, text: str) -> Concept | None:
        """As `find`: no word is unknown."""
        return self.find(text)

    def synonyms(self, unit: SupportsIndex) -> tuple[str, ...]:
        """All words for a default label, its name first; the phrase of any other unit."""
        (index,) = self._indices([unit])
        return self._entries[index] if index < len(self) else (self._texts[index - len(self)],)

    @property
    def _outputs(self) -> int:
        return len(self._entries) + len(self._texts)

    def _ask(self, text: str) -> Concept:
        with self._lock:
            if text not in self._asked:
                self._writer.check(text)
                self._asked[text] = self._give_place(text)
            self._asked.move_to_end(text)
            return Concept(text, (len(self) + self._asked[text],))

    def _give_place(self, text: str) -> int:
        """A new place for a phrase, or that of the least recently used."""
        self.generation += 1
        if len(self._asked) < self.most:
            place = len(self._texts)
            self._texts.append(text)
            self._since.append(self.generation)
        else:
            _, place = self._asked.popitem(last=False)
            self._texts[place], self._since[place] = text, self.generation
        self._unwritten.add(place)
        return place


def spoken(text: str) -> str:
    r"""A phrase as it is compared and embedded: small letters, single blanks.

    Example:
        >>> spoken("  A T-shirt\t and traffic_lights ")
        'a t-shirt and traffic lights'
    """
    return " ".join(text.replace("_", " ").casefold().split())
