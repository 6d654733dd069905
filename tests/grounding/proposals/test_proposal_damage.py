"""Files of proposals that would harm whoever reads them: damaged, too large, or outside of their folder."""

import zipfile

import numpy as np
import pytest
from PIL import Image

from excite.errors import DataError, ProposalError
from excite.grounding.proposals import ProposalFiles

PICTURE = Image.new("RGB", (6, 4))


@pytest.mark.parametrize(
    "header", ["{'descr': '<f8',", "()", "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000, 4)}"]
)
def test_damaged_arrays(tmp_path, header):
    """NumPy answers with errors of all kinds, or for want of memory."""
    text = header.encode().ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("boxes.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    with pytest.raises(DataError, match="as NPZ") as caught:
        ProposalFiles(tmp_path / "a.npz").of(PICTURE, "a.jpg")
    assert "\n" not in str(caught.value)


def test_json_as_some_editors_save_it(tmp_path):
    (tmp_path / "all.json").write_text('[{"image_id": 1, "bbox": [0, 0, 2, 2]}]', encoding="utf-8-sig")
    assert len(ProposalFiles(tmp_path / "all.json").of(PICTURE, "1.jpg")) == 1


def test_a_file_that_would_fill_the_memory(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", boxes=np.zeros((10_000, 4)))
    monkeypatch.setattr("excite.grounding.proposals.files.LARGEST", 300_000)
    with pytest.raises(DataError, match="unpacked it has more than"):
        ProposalFiles(tmp_path / "a.npz").of(PICTURE, "a.jpg")


def test_more_proposals_than_can_be_compared(tmp_path):
    np.savez(tmp_path / "a.npz", boxes=np.tile([0, 0, 1, 1], (10_001, 1)))
    with pytest.raises(
        DataError, match=r"for 'a\.jpg' .* there are 10001 proposals for one image: keep its best 10000"
    ):
        ProposalFiles(tmp_path / "a.npz").of(PICTURE, "a.jpg")


@pytest.mark.parametrize("name", ["../a.jpg", "sub/../../a.jpg", "b" * 300 + ".jpg"])
def test_a_folder_is_not_left(tmp_path, name):
    for place in ("a.npz", "inside/c.npz"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        np.savez(tmp_path / place, boxes=[[0, 0, 1, 1]])
    with pytest.raises(ProposalError, match="has no proposals for"):
        ProposalFiles(tmp_path / "inside").of(PICTURE, name)
