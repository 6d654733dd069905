"""State dicts that call something by a very long name: torch would search long for advice about it."""

import io
import pickle
import time
import zipfile

import pytest
import torch

from excite.errors import ModelError
from excite.models.weights import names_too_long, read_tensors

LONG = b"\x80\x02cos\n" + b"x" * 200_000 + b"\n."
UNENDED = b"\x80\x02cos\n" + b"x" * 200_000


def zipped(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return file.getvalue()


def legacy(content):
    """As torch wrote files before 2020: a magic number, a version, the system, and then the pickle."""
    head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    return b"".join(pickle.dumps(part, protocol=2) for part in head) + content


@pytest.mark.parametrize("content", [LONG, UNENDED], ids=["long", "unended"])
@pytest.mark.parametrize("packed", [zipped, legacy], ids=["zip", "before 2020"])
def test_it_is_refused_at_once(packed, content, tmp_path):
    (tmp_path / "long.pth").write_bytes(packed(content))
    began = time.process_time()
    with pytest.raises(ModelError, match="more than tensors"):
        read_tensors(tmp_path / "long.pth")
    assert time.process_time() - began < 2


@pytest.mark.parametrize("zipping", [True, False])
def test_files_of_torch_are_read_as_ever(zipping, tmp_path):
    torch.save({"weight": torch.arange(3.0)}, tmp_path / "good.pth", _use_new_zipfile_serialization=zipping)
    with (tmp_path / "good.pth").open("rb") as file:
        assert not names_too_long(file)
        assert file.tell() == 0
    assert read_tensors(tmp_path / "good.pth")["weight"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x03\x04broken", b"\x80\x02", b"no pickle"])
def test_damaged_files_are_left_to_torch(content):
    assert not names_too_long(io.BytesIO(content))
