"""COCO's masks, against pycocotools where that can be trusted."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pycocotools import mask as coco

from excite.datasets import Mask
from excite.errors import DataError, ExciteError

SHAPES = st.tuples(st.integers(1, 12), st.integers(1, 12))


def stored(content):
    return Mask(json.dumps(content))


def compressed(pixels):
    runs = coco.encode(np.asfortranarray(pixels.astype(np.uint8)))
    return {"size": runs["size"], "counts": runs["counts"].decode()}


class TestRuns:
    @settings(max_examples=100, deadline=None)
    @given(arrays(bool, SHAPES))
    def test_compressed(self, pixels):
        height, width = pixels.shape
        assert (stored(compressed(pixels)).pixels((width, height)) == pixels).all()

    def test_plain(self):
        """They go down the columns, the first one outside."""
        pixels = stored({"size": [2, 3], "counts": [1, 2, 3]}).pixels((3, 2))
        assert pixels.astype(int).tolist() == [[0, 1, 0], [1, 0, 0]]


class TestPolygons:
    def test_several_parts(self):
        pixels = stored([[0, 0, 2, 0, 2, 2, 0, 2], [4, 1, 6, 1, 6, 3, 4, 3]]).pixels((7, 4))
        assert pixels.astype(int).tolist() == [
            [1, 1, 0, 0, 0, 0, 0],
            [1, 1, 0, 0, 1, 1, 0],
            [0, 0, 0, 0, 1, 1, 0],
            [0, 0, 0, 0, 0, 0, 0],
        ]

    def test_without_pycocotools(self, monkeypatch):
        """An error that ends the run: images left out one by one would hide it."""
        monkeypatch.setitem(__import__("sys").modules, "pycocotools", None)
        with pytest.raises(ExciteError, match=r"excite\[coco\]") as caught:
            stored([[0, 0, 2, 0, 2, 2]]).pixels((5, 4))
        assert not isinstance(caught.value, DataError)
        assert stored({"size": [1, 1], "counts": [0, 1]}).pixels((1, 1)).all()  # runs need none


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"size": [3, 2], "counts": [6]}, r"for an image of \[height, width\] \[3, 2\], not \(2, 3\)"),
        ({"size": [20, 30], "counts": [600]}, "for an image of"),
        ({"size": None, "counts": [6]}, "for an image of"),
        ({"size": [2, 3], "counts": [5]}, "cover 5 pixels, but the image has 6"),  # pycocotools gives chance pixels
        ({"size": [2, 3], "counts": [5, 5]}, "cover 10 pixels, but"),
        ({"size": [2, 3], "counts": []}, "cover 0 pixels"),
        ({"size": [2, 3], "counts": [7, -1]}, "must be lengths of runs"),
        ({"size": [2, 3], "counts": [6.0]}, "must be lengths of runs"),
        ({"size": [2, 3], "counts": 6}, "must be lengths of runs"),
        ({"size": [2, 3], "counts": "5"}, "cover 5 pixels"),
        ({"size": [2, 3], "counts": ""}, "cover 0 pixels"),
        ({"size": [2, 3], "counts": "6~"}, "no runs of pixels in COCO's compressed text"),
        ({"size": [2, 3], "counts": "P"}, "cut off"),
        ({"size": [2, 3], "counts": "o" * 100_000}, "no runs of pixels in COCO's compressed text"),
        ({"counts": [6]}, "'size' and 'counts'"),
        ("6", "'size' and 'counts'"),
        ([[1, 1, 2, 2]], "three corners"),  # pycocotools takes four numbers for a box
        ([[1, 1, 2, 1, 2]], "three corners"),
        ([[1, 1, 2, 1, 2, 2, 1]], "three corners"),
        ([1, 1, 2, 1, 2, 2], "three corners"),
        ([[]], "three corners"),
        ([[1, 1, 2, 1, 2, "2"]], "numbers of pixels"),
        ([[1, 1, 2, 1, 2, None]], "numbers of pixels"),
        ([[1, 1, 2, 1, 2, float("nan")]], "numbers of pixels"),
        ([[1, 1, 2, 1, 2, 1e9]], "numbers of pixels"),  # pycocotools would fill the memory with its edge
        ([[1, 1, 2, 1, 2, 10**400]], "numbers of pixels"),
    ],
)
@pytest.mark.parametrize("look", [Mask.check, Mask.pixels])
def test_broken(content, words, look):
    with pytest.raises(DataError, match=words):
        look(stored(content), (3, 2))
