"""What a phrase leads to in a picture, drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from excite.errors import ExciteError
from excite.grounding.ground import WIDTH
from excite.grounding.unheeded import span_of, unheeded
from excite.readouts.figure import percent
from excite.readouts.grounded_figure import Told, WordMap, grounded_figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL import Image

    from excite.attention import AttentionMap
    from excite.grounding.ground import Grounded
    from excite.readouts.boxes_drawn import Box
    from excite.vocabulary import Reading

__all__ = ["as_map", "draw_grounded"]


def draw_grounded(grounded: Grounded, *, true_boxes: Sequence[Box] = (), width: int = WIDTH) -> Image.Image:
    """The picture with the regions of a phrase, the maps of the phrase and its words, and the words in their colours.

    Args:
        grounded: from `excite.ground`.
        true_boxes: where it really is, if that is known; they are dashed.
        width: of the figure in pixels.

    Raises:
        ExciteError: the maps carry no picture, or the width is too small.

    Example:
        >>> (hat,) = excite.ground(classifier, "photo.jpg", "a man in a red hat")  # doctest: +SKIP
        >>> draw_grounded(hat).save("hat.png")                                     # doctest: +SKIP
    """
    reading, picture = grounded.map.reading, grounded.map.words[0].image
    if picture is None:
        raise ExciteError(f"the maps of {grounded.phrase!r} carry no picture to draw on: ask excite.ground for them.")
    hints = grounded.map.hints
    return grounded_figure(
        picture,
        Told(grounded.phrase, tuple(map(span_of, hints)), unheeded(reading, hints)),
        as_map(grounded).values,
        _word_maps(reading, grounded.map.words),
        [region.box for region in grounded.regions],
        true_boxes=true_boxes,
        width=width,
    )


def as_map(grounded: Grounded) -> AttentionMap:
    """The map of a phrase as one that can be saved and compared like any other; its mass is that of a word on average.

    Example:
        >>> (hat,) = excite.ground(classifier, "photo.jpg", "a man in a red hat")  # doctest: +SKIP
        >>> as_map(hat).save("hat.npy")                                            # doctest: +SKIP
    """
    words = grounded.map.words
    return replace(
        words[0],
        values=torch.from_numpy(np.ascontiguousarray(grounded.map.plane)),
        concept=grounded.phrase,
        mass=sum(word.mass for word in words) / len(words),
        probability=None,
        units=(),
    )


def _word_maps(reading: Reading, maps: Sequence[AttentionMap]) -> list[WordMap]:
    """One for each thing that is looked for: two words for the same share a map."""
    if not reading.words:
        return [WordMap(one.concept, one.values, percent(one.probability)) for one in maps]
    found = {word.concept: one for word, one in zip(reading.words, maps, strict=True)}
    written = {concept: [word for word in reading.words if word.concept == concept] for concept in found}
    return [
        WordMap(
            title=written[concept][0].text,
            values=one.values,
            note=_note(written[concept][0].text, one),
            spans=tuple((word.start, word.end) for word in written[concept]),
        )
        for concept, one in found.items()
    ]


def _note(word: str, found: AttentionMap) -> str:
    """What the word means to the classifier, unless that is itself or its singular, and how probable that is."""
    meaning = "" if word.casefold().startswith(found.concept.casefold()) else found.concept
    return " ".join(filter(None, (meaning, percent(found.probability))))
