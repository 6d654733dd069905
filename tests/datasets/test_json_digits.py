"""Numbers of thousands of digits, which Python refuses to read, are broken files like others."""

import pytest

from excite.datasets import open_dataset
from excite.errors import ConceptError, DataError
from excite.vocabulary import Labels

HUGE = "1" * 5000


def test_in_the_annotations_of_coco(tmp_path):
    (tmp_path / "annotations").mkdir()
    (tmp_path / "val2017").mkdir()
    (tmp_path / "annotations/instances_val2017.json").write_text(f'{{"images": [{HUGE}]}}')
    with pytest.raises(DataError, match=r"instances_val2017\.json"):
        open_dataset(tmp_path)


def test_in_a_list_of_labels(tmp_path):
    (tmp_path / "labels.json").write_text(f"[{HUGE}]")
    with pytest.raises(ConceptError, match=r"labels\.json"):
        Labels.read(tmp_path / "labels.json")
