"""EdgeBoxes and selective search, from OpenCV's extra modules.

EdgeBoxes begins with a map of edges and their directions. Its authors took it from structured forests, whose trained
model OpenCV does not include. By default the edges are our own: changes of colours and texture at a fine and a coarser
scale. With a model file (``model.yml.gz`` of OpenCV's extra test data) they are the authors'.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from excite.errors import ExciteError, ModelError
from excite.grounding.proposals.base import Proposals, checked_scores, enlarge_boxes, shrink, sorted_proposals
from excite.grounding.proposals.hierarchy import edge_strength, suppress_overlapping

Array = NDArray[Any]

SMALLEST = 0.0015  # the least share of the image that a box covers: there would be too many smaller ones
SMALLEST_SIDE = 8  # the least side of an image for OpenCV's search
BRIGHT = 99  # the percentile of the edge strength that is scaled to 1, for faint and strong images alike
OPTIONS = """
stride shrinkNumber patchSize patchInnerSize numberOfGradientOrientations selfsimilarityGridSize numberOfTrees
numberOfTreesToEvaluate
""".split()  # of a forest: OpenCV divides by them, so that they must be there
TREES = ("childs", "featureIds", "thresholds", "edgeBoundaries", "edgeBins")


@dataclass(frozen=True)
class EdgeBoxes:
    """Proposes boxes that hold whole contours, by EdgeBoxes."""

    count: int = 500
    model: str = ""  # a file with a structured forest for OpenCV; blank for our own edges
    step: float = 0.65  # of the sliding windows, OpenCV's alpha
    most_alike: float = 0.7  # the largest IoU of two boxes, OpenCV's beta
    longest: int = 320  # the longer side of the image that is searched, in pixels

    name: ClassVar[str] = "edge-boxes"
    version: ClassVar[int] = 1

    def __call__(self, picture: Image.Image) -> Proposals:
        """The boxes, best first."""
        cv2 = opencv()
        small = shrink(picture, self.longest)
        shown = np.asarray(small)
        strength, direction = _model_edges(shown, self.model) if self.model else _own_edges(shown)
        if min(small.size) < SMALLEST_SIDE or not strength.any():
            whole = np.array([[0, 0, *picture.size]], np.float32)
            return Proposals(picture.size, whole, np.zeros(1, np.float32))
        search = cv2.ximgproc.createEdgeBoxes(
            alpha=self.step, beta=self.most_alike, maxBoxes=self.count, minBoxArea=SMALLEST * strength.size
        )
        found, scores = search.getBoundingBoxes(strength, direction)
        boxes = enlarge_boxes(np.minimum(corners(found), small.size * 2), small.size, picture.size)
        return sorted_proposals(picture.size, boxes, np.asarray(scores, np.float32).reshape(-1))


def _own_edges(shown: Array) -> tuple[Array, Array]:
    """Edges one pixel wide with a strength from 0 to 1, and the direction across each of them."""
    maps = edge_strength(shown, (1.5, 3.0))
    strength = np.mean([strength for strength, _ in maps], axis=0)
    direction = maps[1][1]
    strength = np.clip(strength / max(float(np.percentile(strength, BRIGHT)), 1e-6), 0, 1)
    rows, columns = np.indices(strength.shape)
    down, right = np.rint(np.sin(direction)).astype(int), np.rint(np.cos(direction)).astype(int)
    crest = np.ones(strength.shape, bool)
    for sign in (-1, 1):  # 0 where a neighbour across the edge is stronger
        places = zip((rows + sign * down, columns + sign * right), strength.shape, strict=True)
        crest &= strength >= strength[tuple(np.clip(place, 0, side - 1) for place, side in places)]
    return np.where(crest, strength, 0).astype(np.float32), direction.astype(np.float32)


def _model_edges(shown: Array, model: str) -> tuple[Array, Array]:
    forest = _forest(model)
    edges = forest.detectEdges(np.ascontiguousarray(shown, np.float32) / 255)
    direction = forest.computeOrientation(edges)
    return forest.edgesNms(edges, direction), direction


@lru_cache(maxsize=1)
def _forest(model: str) -> Any:
    """The structured forest in a file. Checked here, because OpenCV accepts a file without one, and then crashes."""
    cv2 = opencv()
    if not Path(model).is_file():
        raise ModelError(f"there is no edge model {model!r}: give the file of a structured forest, or none.")
    try:
        nodes = cv2.FileStorage(model, cv2.FILE_STORAGE_READ)
    except (cv2.error, SystemError):
        raise ModelError(f"the edge model {model!r} cannot be read: it is no file of OpenCV.") from None
    options = nodes.getNode("options")
    known = options.isMap() and all(options.getNode(name).isInt() for name in OPTIONS)
    if not known or min(options.getNode(name).real() for name in OPTIONS) < 1:
        raise ModelError(f"the edge model {model!r} is no structured forest: its options are missing.")
    if not all(nodes.getNode(name).isSeq() and nodes.getNode(name).size() > 0 for name in TREES):
        raise ModelError(f"the edge model {model!r} is no structured forest: its trees are missing.")
    return cv2.ximgproc.createStructuredEdgeDetection(model)


@dataclass(frozen=True)
class SelectiveSearch:
    """Proposes boxes around segments merged by colour, texture, size and fill: selective search.

    OpenCV gives the boxes in random order and without scores. Here the larger ones come first, which is the reversed
    order of merging; a score is no more than that.
    """

    count: int = 500
    quality: bool = False  # more colour spaces and finer segments: ten times as slow
    most_alike: float = 0.8  # the largest IoU of two boxes
    longest: int = 320  # the longer side of the image that is searched, in pixels

    name: ClassVar[str] = "selective-search"
    version: ClassVar[int] = 1

    def __call__(self, picture: Image.Image) -> Proposals:
        """The boxes, largest first."""
        cv2 = opencv()
        small = shrink(picture, self.longest)
        search = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
        search.setBaseImage(np.ascontiguousarray(np.asarray(small)[..., ::-1]))
        (search.switchToSelectiveSearchQuality if self.quality else search.switchToSelectiveSearchFast)()
        found = np.unique(corners(search.process()), axis=0)
        area = (found[:, 2:] - found[:, :2]).prod(axis=1)
        kept = suppress_overlapping(found, area, self.count, self.most_alike)
        boxes = enlarge_boxes(found[kept], small.size, picture.size)
        return Proposals(picture.size, boxes, checked_scores(None, len(kept)))


def opencv() -> Any:
    """The package ``cv2`` with its extra modules, or an `ExciteError` that names the remedy."""
    try:
        import cv2
    except ImportError:
        raise ExciteError("these proposals need OpenCV: pip install 'excite[proposals]'") from None
    if not hasattr(cv2, "ximgproc"):
        raise ExciteError(
            "these proposals need OpenCV's extra modules: pip install 'excite[proposals]', no other OpenCV"
        )
    return cv2


def corners(rectangles: Any) -> NDArray[np.float32]:
    """OpenCV's x, y, width, height as half-open boxes."""
    boxes = np.asarray(rectangles, np.float32).reshape(-1, 4).copy()
    boxes[:, 2:] += boxes[:, :2]
    return boxes
