"""The published numbers are those of the publications."""

import re

import pytest

from excite.experiments.published import CONTRAST, POINTING, WORDS

PAIR = re.compile(r"(\d+\.\d)\D+?(\d+\.\d)")


def numbers(text):
    return [tuple(map(float, PAIR.search(cell).groups())) if PAIR.search(cell) else None for cell in text]


def columns(data, source):
    return [one for one in POINTING[data] if source in one.source]


@pytest.fixture
def shared(shared_data):
    return shared_data.parent


def test_the_papers_table(shared):
    """Center, Grad, ..., each with CNN-S, VGG16 and GoogleNet on VOC07 and then on COCO."""
    path = shared / "paper.tex"
    if not path.is_file():
        pytest.skip(f"no {path}")
    table = path.read_text().partition("VOC07 Test (All/Diff.)")[2].partition(r"\bottomrule")[0]
    rows = {line.split()[0]: line.split("&") for line in table.splitlines() if "&" in line}
    for method, name in WORDS.items():
        if method != "grad-cam":
            _, *voc, _, cnn_s, vgg16, googlenet = rows[name.split()[0]]
            published = [column.scores.get(method) for data in POINTING for column in columns(data, "paper")]
            assert published == numbers([*voc, cnn_s, vgg16, googlenet])


def test_the_papers_contrast(shared):
    path = shared / "paper.tex"
    if not path.is_file():
        pytest.skip(f"no {path}")
    cells = next(line for line in path.read_text().splitlines() if "Mean Acc." in line).split("&")
    printed = [re.findall(r"\d+\.\d", cell) for cell in cells[1:] if cell.strip()]
    assert [re.findall(r"\d+\.\d", cell) for cell in CONTRAST.values()] == printed


def test_torchrays_numbers(shared):
    path = shared / "FIELD.md"
    if not path.is_file():
        pytest.skip(f"no {path}")
    rows = {
        line.split("|")[1].split()[0]: line.split("|")[6:9]
        for line in path.read_text().splitlines()
        if PAIR.search(line) and "|" in line
    }
    for method, name in WORDS.items():
        published = [column.scores.get(method) for data in POINTING for column in columns(data, "TorchRay")]
        assert published == numbers(rows[name.split()[0]])


def test_a_difficult_subset_is_harder():
    assert all(hard < every for data in POINTING.values() for column in data for every, hard in column.scores.values())
