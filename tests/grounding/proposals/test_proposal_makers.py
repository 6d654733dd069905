"""EdgeBoxes, selective search, and what all proposers have in common."""

import sys

import numpy as np
import pytest
from PIL import Image

from excite.errors import DataError, ExciteError, ModelError
from excite.grounding.proposals import PROPOSERS as MAKERS
from excite.grounding.proposals import EdgeBoxes, Hierarchy, Proposals, Segments, SelectiveSearch, find_proposer
from excite.grounding.proposals.base import enlarge_parts, segment_boxes, shrink_parts
from excite.grounding.proposals.hierarchy import edge_strength
from excite.grounding.proposals.opencv import OPTIONS
from excite.metrics.boxes import box_iou

SQUARE = (30, 20, 70, 60)
CLOSE = {"hierarchy": 0.95, "edge-boxes": 0.75, "selective-search": 0.85}  # EdgeBoxes tries a few sizes only


def scene(mode="RGB"):
    picture = Image.new("RGB", (120, 90), (40, 60, 160))
    picture.paste((200, 40, 30), SQUARE)
    return picture.convert(mode)


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_square_is_found_and_again(name):
    for mode in ("RGB", "L", "P"):
        found = find_proposer(name).of(scene(mode), "square.png")
        assert found.size == (120, 90)
        assert box_iou(found.boxes, [SQUARE]).max() > CLOSE[name]
        assert (np.diff(found.scores) <= 0).all()
    pixels = np.random.default_rng(5).integers(0, 255, (9, 12, 3), np.uint8)
    picture = Image.fromarray(pixels).resize((120, 90), Image.Resampling.BICUBIC)
    one, two = (find_proposer(name).of(picture, "a") for _ in range(2))
    assert len(one) > 5
    assert np.array_equal(one.boxes, two.boxes)
    assert np.array_equal(one.scores, two.scores)


@pytest.mark.parametrize("size", [(1, 1), (9, 1), (2, 2), (7, 300), (600, 3), (257, 30)], ids=str)
@pytest.mark.parametrize("name", list(MAKERS))
def test_odd_sizes(name, size):
    for pixels in (np.zeros((*size[::-1], 3)), np.random.default_rng(2).integers(0, 255, (*size[::-1], 3))):
        found = find_proposer(name).of(Image.fromarray(pixels.astype(np.uint8)), "odd.png")
        assert len(found) >= 1
        assert (found.boxes[:, :2] >= 0).all()
        assert (found.boxes[:, 2:] <= size).all()
        assert (found.boxes[:, 2:] > found.boxes[:, :2]).all()
        assert np.isfinite(found.scores).all()
        assert found.segments is None or np.array_equal(segment_boxes(found.segments), found.boxes)
        assert name != "hierarchy" or pixels.any() or found.boxes.tolist() == [[0, 0, *size]]


def test_settings_count_and_large_pictures_are_told_in_their_own_pixels():
    picture = scene()
    assert len(Hierarchy(count=0)(picture)) == 0
    assert len(EdgeBoxes(count=3)(picture)) == 3
    noise = Image.fromarray(np.random.default_rng(2).integers(0, 255, (40, 40, 3), np.uint8))
    assert len(SelectiveSearch(count=3)(noise)) <= 3
    assert len(SelectiveSearch(quality=True, most_alike=1.0)(noise)) > len(SelectiveSearch(most_alike=1.0)(noise))
    for proposer in MAKERS.values():
        found = proposer(picture.resize((1200, 900), Image.Resampling.NEAREST))
        assert box_iou(found.boxes, [[10 * side for side in SQUARE]]).max() > CLOSE[proposer.name]
        assert found.segments is None or found.segments.parts.shape == (900, 1200)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("%YAML:1.0\n---\n", "options are missing"),
        ("%YAML:1.0\n---\noptions:\n   stride: 2\n", "options are missing"),
        ("no YAML", "no file of OpenCV"),
        ("", "no file of OpenCV"),
        (None, "there is no edge model"),
        ("%YAML:1.0\n---\noptions:\n" + "\n".join(f"   {name}: 1" for name in OPTIONS), "trees are missing"),
    ],
)
def test_bad_edge_models(tmp_path, content, message):
    file = tmp_path / "model.yml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ModelError, match=message) as caught:
        EdgeBoxes(model=str(file))(scene())
    assert "\n" not in str(caught.value)


def test_an_edge_model_is_used(tmp_path):
    """A forest of one leaf that sees no edges: then there is nothing but the whole image."""
    sizes = {"shrinkNumber": 2, "stride": 2, "patchSize": 32, "patchInnerSize": 16, "selfsimilarityGridSize": 5}
    options = "".join(f"   {name}: {sizes.get(name, 1)}\n" for name in OPTIONS)
    radii = "gradientSmoothingRadius regFeatureSmoothingRadius ssFeatureSmoothingRadius gradientNormalizationRadius"
    options += "".join(f"   {name}: 4\n" for name in radii.split())
    trees = "childs: [[0]]\nfeatureIds: [[0]]\nthresholds: [[0.]]\nedgeBoundaries: [[0, 0]]\nedgeBins: [[0]]\n"
    file = tmp_path / "model.yml"
    file.write_text(f"%YAML:1.0\n---\noptions:\n{options}{trees}")
    assert EdgeBoxes(model=str(file))(scene()).boxes.tolist() == [[0, 0, 120, 90]]


@pytest.mark.parametrize(
    ("package", "proposer", "extra"),
    [("higra", Hierarchy(), "ground"), ("cv2", EdgeBoxes(), "proposals"), ("cv2", SelectiveSearch(), "proposals")],
)
def test_missing_packages(monkeypatch, package, proposer, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ExciteError, match=rf"excite\[{extra}\]"):
        proposer(scene())
    monkeypatch.undo()
    monkeypatch.delattr("cv2.ximgproc")
    with pytest.raises(ExciteError, match=r"extra modules.*excite\[proposals\]"):
        EdgeBoxes()(scene())


def test_strength_and_direction_of_edges():
    """A border between left and right is crossed to the right, one between top and bottom downwards."""
    pixels = np.full((40, 40, 3), 60, np.uint8)
    pixels[:, 20:] = 180
    for turned, angle in ((pixels, 0), (pixels.transpose(1, 0, 2), np.pi / 2)):
        for strength, direction in edge_strength(turned, (1.5, 3.0)):
            here = np.unravel_index(strength.argmax(), strength.shape)
            assert here[1 if angle == 0 else 0] in (19, 20)
            off = abs(direction[here] - angle)
            assert min(off, np.pi - off) < 0.05
            assert strength.min() == 0


def test_texture_is_no_border():
    """Coarse scales see the mixture: fine stripes are weak beside the border of the striped field."""
    pixels = np.full((80, 80, 3), 128, np.uint8)
    pixels[:, 40:] = np.tile([90, 90, 170, 170], 10)[:, None]
    (fine, _), (coarse, _) = edge_strength(pixels, (1.0, 6.0))
    inside, border = (slice(10, 70), slice(58, 70)), (slice(10, 70), slice(34, 46))
    assert fine[inside].max() > 0.7 * fine[border].max()
    assert coarse[inside].max() < 0.3 * coarse[border].max()


def test_parts_are_shrunk_only_without_loss():
    rng = np.random.default_rng(0)
    for size, small in (((640, 480), (192, 256)), ((300, 300), (256, 256)), ((257, 40), (40, 256))):
        parts = enlarge_parts(rng.integers(-1, 9, small).astype(np.int32), size)
        packed = shrink_parts(parts, 256)
        assert packed.shape == small
        assert np.array_equal(enlarge_parts(packed, size), parts)
    parts = rng.integers(0, 9, (300, 300)).astype(np.int32)
    assert shrink_parts(parts, 256) is parts


def test_proposals_that_do_not_fit_together():
    boxes, scores = np.zeros((2, 4), np.float32), np.zeros(2, np.float32)
    segments = Segments(np.zeros((4, 4), np.int32), np.array([0, 1]), np.array([0], np.int32))
    for wrong in ((scores, segments), (scores[:1],)):
        with pytest.raises(DataError, match="do not fit together"):
            Proposals((4, 4), boxes, *wrong)
