"""Precomputed proposals: the conventions of each kind of file, and one clear line for each fault."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from excite.errors import DataError, ProposalError
from excite.grounding.proposals import ProposalFiles, find_proposer
from excite.grounding.proposals.base import segment_boxes

PICTURE = Image.new("RGB", (6, 4))
SUPERPIXELS = np.array([[1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 3, 3], [4, 4, 4, 5, 5, 5], [4, 4, 4, 5, 5, 5]], np.uint16)


def cells(*values, kind=np.uint32):
    made = np.empty((len(values), 1), object)
    for place, value in enumerate(values):
        made[place, 0] = np.array(value, kind)
    return made


@pytest.fixture
def save(tmp_path):
    """Writes one file of the kind that its name says, and gives what is read from it."""

    def write(name, content):
        path = tmp_path / name
        if name.endswith(".mat"):
            from scipy.io import savemat

            savemat(path, content, do_compression=True)  # without: test_matlab_files_by_hand
        elif name.endswith(".npz"):
            np.savez(path, **content)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return ProposalFiles(path)

    return write


def mask(proposals, place):
    segments = proposals.segments
    return np.isin(segments.parts, segments.members[segments.starts[place] : segments.starts[place + 1]])


def test_mcg_segments(save):
    """The proposals are unions of superpixels counted from 1; bboxes are another list and do not count."""
    content = {
        "superpixels": SUPERPIXELS,
        "labels": cells([[1, 2]], [[3]], [[2], [5]]),
        "scores": np.array([[0.9], [0.5], [0.7]]),
        "bboxes": np.array([[1, 1, 4, 6]]),
    }
    found = save("a.mat", content).of(PICTURE, "a.jpg")
    assert found.scores.tolist() == pytest.approx([0.9, 0.7, 0.5])
    assert found.boxes.tolist() == [[0, 0, 4, 2], [2, 0, 6, 4], [4, 0, 6, 2]]
    assert np.array_equal(mask(found, 0), np.isin(SUPERPIXELS, [1, 2]))
    assert np.array_equal(mask(found, 1), np.isin(SUPERPIXELS, [2, 5]))
    assert (found.segments.parts[SUPERPIXELS == 4] == -1).all()


def test_mcg_boxes(save):
    """Rows are up, left, down, right, counted from 1, the last ones belonging to the box."""
    rows = np.array([[1, 1, 4, 6], [2, 3, 3, 5]], np.float64)
    found = save("a.mat", {"bboxes": rows, "bboxes_scores": np.array([[0.1], [0.2]])}).of(PICTURE, "a.jpg")
    assert found.boxes.tolist() == [[2, 1, 5, 3], [0, 0, 6, 4]]
    assert found.segments is None
    for unscored in ({"boxes": rows}, {"candidates": {"bboxes": rows}, "note": "in a struct"}):
        assert save("b.mat", unscored).of(PICTURE, "b.jpg").boxes.tolist() == [[0, 0, 6, 4], [2, 1, 5, 3]]


def test_edge_boxes(save):
    """Rows are x, y, width, height, score; x and y counted from 1."""
    rows = np.array([[1, 1, 6, 4, 0.05], [3, 2, 2, 1, 0.3]], np.float32)
    found = save("a.mat", {"bbs": rows}).of(PICTURE, "a.jpg")
    assert found.boxes.tolist() == [[2, 1, 4, 2], [0, 0, 6, 4]]
    assert found.scores.tolist() == pytest.approx([0.3, 0.05])


def test_npz_segments_boxes_and_masks(save):
    content = {"parts": [[0, 1, -1]], "starts": [0, 1, 3], "members": [1, 0, 1], "scores": [0.5, 1.0]}
    found = save("a.npz", content).of(PICTURE, "a.jpg")  # of a shrunk image
    assert found.boxes.tolist() == [[0, 0, 4, 4], [2, 0, 4, 4]]
    assert found.segments.parts[0].tolist() == [0, 0, 1, 1, -1, -1]
    found = save("a.npz", {"boxes": [[0, 0, 2, 2], [1, 1, 6.3, 4]], "scores": [1, 2]}).of(PICTURE, "a.jpg")
    assert found.boxes.tolist() == [[1, 1, 6, 4], [0, 0, 2, 2]]
    masks = np.random.default_rng(0).random((9, 4, 6)) < 0.4
    found = save("b.npz", {"masks": masks}).of(PICTURE, "b.jpg")
    assert all(np.array_equal(mask(found, place), one) for place, one in enumerate(masks))
    assert np.array_equal(segment_boxes(found.segments), found.boxes)
    assert np.array_equal(mask(found.best(3), 2), masks[2])


def test_coco_results(save):
    rows = [
        {"image_id": 123, "bbox": [1, 1, 2, 3], "score": 0.2},
        {"image_id": 123, "bbox": [0, 0, 6, 4], "score": 0.9},
        {"image_id": 7, "bbox": [0, 0, 1, 1], "score": 0.5},
    ]
    source = save("a.json", "\ufeff" + json.dumps(rows))  # as some editors save it
    assert source.of(PICTURE, "000000000123.jpg").boxes.tolist() == [[0, 0, 6, 4], [1, 1, 3, 4]]
    assert source.of(PICTURE, "val/COCO_val2014_000000000007.jpg").boxes.tolist() == [[0, 0, 1, 1]]
    for name in ("000000000008.jpg", "cat.jpg", ""):
        with pytest.raises(ProposalError, match=f"no proposals for the image '{name}'"):
            source.of(PICTURE, name)


def test_coco_results_that_name_their_pictures(save):
    """Flickr30k's image is called 2; its file says which one is meant, and 2 is another image's number."""
    names = {1: "2.jpg", "x": "cat1.jpg", 2: "1.jpg"}
    content = {
        "images": [{"id": key, "file_name": name} for key, name in names.items()],
        "annotations": [{"image_id": key, "bbox": [0, 0, side, side]} for side, key in enumerate(names, start=1)],
    }
    source, file = save("a.json", content), Path("flickr30k-images/2.jpg")
    assert source.of(PICTURE, "2.jpg").boxes.tolist() == [[0, 0, 1, 1]]
    assert source.of(PICTURE, "cat1.jpg").boxes.tolist() == [[0, 0, 2, 2]]
    assert source.of(PICTURE, "2", file).boxes.tolist() == [[0, 0, 1, 1]]
    rows = [{"image_id": "2.jpg", "bbox": [0, 0, 1, 1]}]
    assert save("b.json", rows).of(PICTURE, "2", file).boxes.tolist() == [[0, 0, 1, 1]]


def test_coco_masks(save):
    pytest.importorskip("pycocotools")
    runs = {"size": [4, 6], "counts": [4, 2, 18]}  # down the columns: two pixels of the second one
    polygon = [[1, 1, 4, 1, 4, 3, 1, 3]]
    rows = [
        {"image_id": 1, "segmentation": runs, "score": 0.5},
        {"image_id": 1, "segmentation": polygon, "score": 0.6, "bbox": [0, 0, 6, 4]},
    ]
    found = save("a.json", rows).of(PICTURE, "1.jpg")
    assert found.boxes.tolist() == [[1, 1, 4, 3], [1, 0, 2, 2]]
    assert mask(found, 1).sum() == 2
    assert mask(found, 0).sum() == 6


def test_a_folder(tmp_path):
    np.savez(tmp_path / "a.npz", boxes=[[0, 0, 1, 1]])
    (tmp_path / "sub").mkdir()
    np.savez(tmp_path / "sub" / "b.npz", boxes=[[0, 0, 2, 2]])
    np.savez(tmp_path / "none.npz", boxes=np.empty((0, 4)))
    source = find_proposer(str(tmp_path))
    assert source.of(PICTURE, "a.jpg").boxes.tolist() == [[0, 0, 1, 1]]
    assert source.of(PICTURE, "elsewhere/a.png").boxes.tolist() == [[0, 0, 1, 1]]
    assert source.of(PICTURE, "sub/b.jpg").boxes.tolist() == [[0, 0, 2, 2]]
    assert source.of(PICTURE, "/somewhere/sub/v1.5/a.jpg").boxes.tolist() == [[0, 0, 1, 1]]
    for name in ("c.jpg", "none.jpg", "", "/c.jpg"):
        with pytest.raises(ProposalError, match=f"no proposals for the image '{name}'"):
            source.of(PICTURE, name)
    for name in ("../a.jpg", "b/../../a.jpg", "b" * 300 + ".jpg"):  # the folder is not left
        with pytest.raises(ProposalError, match="has no proposals for"):
            ProposalFiles(tmp_path / "sub").of(PICTURE, name)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("a.mat", {"bbs": np.zeros((0, columns))}) for columns in (0, 5)),
        ("a.mat", {"bboxes": np.zeros((0, 0)), "bboxes_scores": np.zeros((0, 0))}),
        ("a.mat", {"superpixels": SUPERPIXELS, "labels": np.zeros((0, 0), object), "scores": np.zeros((0, 0))}),
        *(("a.npz", {"boxes": boxes, "scores": []}) for boxes in ([], np.zeros((0, 4)))),
        *(("a.npz", {"masks": masks}) for masks in ([], np.zeros((0, 4, 6), bool))),
    ],
)
def test_a_file_that_says_that_there_is_nothing(save, name, content):
    """That is no broken file: the phrases of such an image are missed, where those of a broken one are left out."""
    with pytest.raises(ProposalError, match=r"has no proposals for the image 'a\.jpg'"):
        save(name, content).of(PICTURE, "a.jpg")


BOX = {"image_id": 1, "bbox": [0, 0, 1, 1]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("1.mat", {"labels": cells([1]), "superpixels": SUPERPIXELS.T}, r"'superpixels' must be \[4, 6\]"),
        *(
            ("1.mat", {"labels": cells([n]), "superpixels": SUPERPIXELS}, "1 names superpixels that are not")
            for n in (0, 6)
        ),
        ("1.mat", {"labels": cells([]), "superpixels": SUPERPIXELS}, "proposal 1 must be numbers"),
        ("1.mat", {"labels": cells([1]), "superpixels": SUPERPIXELS - 1}, "must be numbered from 1"),
        ("1.mat", {"labels": cells([np.nan], kind=float), "superpixels": SUPERPIXELS}, "superpixels that are not"),
        ("1.mat", {"labels": cells([1]), "superpixels": SUPERPIXELS + np.nan}, "must be numbered from 1"),
        ("1.mat", {"labels": [1, 2], "superpixels": SUPERPIXELS}, "must be a cell"),
        ("1.mat", {"labels": cells([1]), "superpixels": SUPERPIXELS, "scores": [1, 2]}, "one score for each of 1"),
        ("1.mat", {"bboxes": [[1, 1, 9, 9]]}, "is it of another size"),
        ("1.mat", {"bboxes": [[3, 3, 1, 1]]}, "has no pixels"),
        ("1.mat", {"bboxes": [[3, 3, 1]]}, r"must be \[n, 4\]"),
        ("1.mat", {"bbs": [[1, 1, 1]]}, r"must be \[n, 5\]"),
        ("1.mat", {"bbs": cells([1, 1, 1, 1, 1])}, "a cell of many images"),
        ("1.mat", {"other": 1}, "but other"),
        ("1.npz", {"boxes": [[0, 0, np.nan, 1]]}, "no finite numbers"),
        ("1.npz", {"boxes": [["a"] * 4]}, "four numbers each"),
        *(("1.npz", {"boxes": [[0, 0, 1, 1]], "scores": [n]}, "scores are no finite numbers") for n in (np.nan, 1e300)),
        ("1.npz", {"boxes": [[0, 0, 1, 1]], "size": [4, 6]}, r"of an image of \[4, 6\]"),
        ("1.npz", {"masks": np.zeros((1, 4, 6), bool)}, "mask 0 is empty"),
        ("1.npz", {"masks": np.ones((1, 6, 4), bool)}, r"must be \[n, 4, 6\]"),
        ("1.npz", {"masks": np.ones((1, 4, 6))}, "true or false"),
        ("1.npz", {"parts": SUPERPIXELS}, "'members and starts'"),
        ("1.npz", {"parts": SUPERPIXELS, "starts": [0, 1], "members": [9]}, "no pixel has"),
        ("1.npz", {"parts": SUPERPIXELS, "starts": [0, 2], "members": [1]}, "must go up from 0"),
        ("1.npz", {"parts": SUPERPIXELS, "starts": np.array([0, 9, 2], np.uint64), "members": [1, 2]}, "must go up"),
        ("1.npz", {"parts": SUPERPIXELS.astype(int) << 40, "starts": [0, 1], "members": [2**40]}, "without large gaps"),
        ("1.npz", {"parts": np.ones((40, 60), int), "starts": [0, 1], "members": [1]}, "more than the 4 x 6 pixels"),
        ("1.npz", {"parts": [1.5], "starts": [0], "members": [1]}, "whole numbers"),
        ("1.npz", {"boxes": np.array([None])}, "as NPZ"),
        ("1.json", [{"image_id": 1, "bbox": [0, 0, 1]}], "'bbox' of four numbers"),
        ("1.json", [{"image_id": 1}], "no numbers|four numbers"),
        ("1.json", [BOX, {**BOX, "score": 1}], "have a score and others"),
        ("1.json", [{"image_id": 1, "bbox": [0, 0, 10**400, 1]}], "no numbers"),
        ("1.json", [{"image_id": 1, "segmentation": []}], "has no pixels"),
        ("1.json", [{**BOX, "score": "high"}], "some scores are no numbers"),
        ("1.json", [BOX, {**BOX, "segmentation": [[0, 0, 1, 1, 2, 2]]}], "a segmentation and others"),
        ("1.json", [{"image_id": 1, "segmentation": {"size": [9, 9], "counts": [81]}}], "is for an image of"),
        ("1.json", [{"image_id": 1, "segmentation": {"size": [4, 6], "counts": [24]}}], "has no pixels"),
        ("1.json", [{"image_id": 1, "segmentation": "x"}], "must be polygons"),
        ("1.json", b"{", "broken JSON"),
        ("1.json", b"\xff\xfe", "no UTF-8 text"),
        ("1.json", {"images": []}, "list of results"),
        ("1.json", {"images": [1], "annotations": []}, "'images' must be"),
        *(("1.json", [entry], "result 0 has no 'image_id'") for entry in ({"bbox": []}, 1)),
        ("1.txt", b"", "give a folder"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:scipy")
def test_broken_proposals(save, tmp_path, name, content, message):
    with pytest.raises(DataError, match=message) as caught:
        save(name, content).of(PICTURE, "1.jpg")
    assert not isinstance(caught.value, ProposalError)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)


HEADERS = ["{'descr': '<f8',", "()", "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000, 4)}"]


def npz(header):
    """NumPy answers with errors of all kinds, or for want of memory."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize("name", ["a.mat", "a.npz"])
@pytest.mark.parametrize(
    "content",
    [b"", b"MATLAB 5.0 MAT-file" + bytes(109), b"PK\x03\x04 cut", bytes(300), *map(npz, HEADERS)],
)
def test_damaged_files(tmp_path, name, content):
    if b"NUMPY" in content:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("boxes.npy", content)
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        ProposalFiles(tmp_path / name).of(PICTURE, "a.jpg")
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize("order", ["<", ">"])
def test_matlab_files_by_hand(tmp_path, order):
    """Text and complex numbers are passed over; a cut file, odd lengths and depths beyond all sense are refused."""

    def element(kind, content):
        return np.array([kind, len(content)], f"{order}u4").tobytes() + content + bytes(-len(content) % 8)

    def matrix(kind, name, *parts, shape=(1, 4)):
        head = element(6, np.array([kind, 0], f"{order}u4").tobytes())
        return element(
            14, head + element(5, np.array(shape, f"{order}i4").tobytes()) + element(1, name) + b"".join(parts)
        )

    def read(content, mark=b"\1\0" + (b"IM" if order == "<" else b"MI")):
        (tmp_path / "a.mat").write_bytes(b"MATLAB 5.0".ljust(124) + mark + content)
        return ProposalFiles(tmp_path / "a.mat").of(PICTURE, "a.jpg").boxes.tolist()

    numbers = element(9, np.array([1, 1, 4, 6.0], f"{order}f8").tobytes())
    boxes = matrix(6, b"bboxes", numbers)
    text = matrix(4, b"note", element(4, b"h\0i\0"), shape=(1, 2))
    assert read(text + matrix(6 | 0x800, b"waves", numbers, numbers) + boxes) == [[0, 0, 6, 4]]
    deep = matrix(6, b"", numbers)
    for _ in range(1200):
        deep = matrix(1, b"cell", deep, shape=(1, 1))
    small = np.array([9 | 5 << 16, 0], f"{order}u4").tobytes()
    odd, negative = matrix(6, b"bboxes", small), matrix(6, b"bboxes", numbers, shape=(-1, -4))
    for damage in (boxes[:-9], boxes + b"1234", odd, negative, deep):
        with pytest.raises(DataError, match="it is a damaged MATLAB file"):
            read(damage)
    for mark in (b"\0\2IM", b"\1\0no"):
        with pytest.raises(DataError, match="save it in MATLAB with the option -v7"):
            read(boxes, mark)


def test_nothing_there(tmp_path):
    for name, said in ((tmp_path, "no NPZ or MAT file"), ("hierachy", "did you mean hierarchy")):
        with pytest.raises(DataError, match=said):
            find_proposer(name)
    with pytest.raises(DataError, match="there are no proposals"):
        ProposalFiles(tmp_path / "none.npz")


def test_files_that_would_fill_the_memory(save, monkeypatch):
    with pytest.raises(
        DataError, match=r"for 'a\.jpg' .* there are 10001 proposals for one image: keep its best 10000"
    ):
        save("a.npz", {"boxes": np.tile([0, 0, 1, 1], (10_001, 1))}).of(PICTURE, "a.jpg")
    for name, module in (("a.npz", "files"), ("a.mat", "mat")):
        monkeypatch.setattr(f"excite.grounding.proposals.{module}.LARGEST", 300_000)
        with pytest.raises(DataError, match="unpacked it has more than"):
            save(name, {"boxes": np.zeros((10_000, 4))}).of(PICTURE, "a.jpg")
