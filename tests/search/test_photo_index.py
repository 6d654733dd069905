"""The index of a folder: what is computed when, what is kept, and what a damaged or foreign file leads to."""

import os
import random
import sqlite3
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from annotated import colour_classifier, picture, scenes
from PIL import Image
from processes import Forked
from torch import nn

import excite
from excite.errors import ConceptError, ExciteError, ImageError
from excite.search import Changes, PhotoIndex
from excite.search import index as index_module
from excite.search.index import IndexFile, Photo, decode, encode

COUNT = 12
NEAR = 0.052  # the largest relative error of a probability: half a step of 0.1 in log-odds


@pytest.fixture
def folder(tmp_path):
    for name, squares in scenes(COUNT):
        picture(tmp_path / "photos" / name[-1] / f"{name}.png", squares)
    return tmp_path / "photos"


def opened(folder, classifier=None, **more):
    return PhotoIndex(folder, classifier or colour_classifier(), **more)


def own(classifier, paths):
    """What the classifier itself says, in float32, one photo at a time."""
    with torch.inference_mode():
        inputs = [classifier.preprocess(Image.open(path).convert("RGB"))[None] for path in paths]
        return torch.cat([classifier.probabilities(classifier.module(each)) for each in inputs]).numpy()


@pytest.mark.parametrize(("bits", "error"), [(8, NEAR), (16, 4e-4)])
def test_codes_keep_the_order_and_the_values(bits, error):
    odds = np.sort(np.random.default_rng(0).uniform(*index_module.RANGES[bits], 5000))
    values = 1 / (1 + np.exp(-odds))
    found = decode(encode(values, bits)).astype(np.float64)
    assert (np.diff(found) >= 0).all()
    assert (np.abs(found / values - 1) < error).all()
    assert encode([0.0, 1.0], bits).tolist() == [0, 2**bits - 1]
    with pytest.raises(ExciteError, match="no numbers"):
        encode([0.5, np.nan])


def test_ranking_is_that_of_the_classifier(folder):
    index = opened(folder)
    assert index.update() == Changes(added=COUNT)
    matches = index.query("red", most=COUNT).matches
    expected = own(index.classifier, [one.path for one in matches])[:, 0]
    assert [one.probability for one in matches] == pytest.approx(expected.tolist(), rel=NEAR)
    order = [(-int(code), one.number) for code, one in zip(encode(expected), matches, strict=True)]
    assert order == sorted(order)
    both = index.query("red -green", most=1).matches[0]
    assert both.probability == pytest.approx(both.each["red"] * (1 - both.each["green"]))
    assert index.query("red", at_least=0.5, most=1).count == (expected >= 0.5).sum()


def test_equal_photos_come_in_the_order_of_their_numbers(tmp_path):
    for name in "dbcae":
        picture(tmp_path / f"{name}.png", [("red", (0, 0, 40, 40))])
    index = opened(tmp_path)
    index.update()
    picture(tmp_path / "0.png", [("red", (0, 0, 40, 40))])  # the first name, and the last number
    index.update()
    assert [one.path.stem for one in index.query("red", most=3).matches] == ["a", "b", "c"]
    assert [one.path.stem for one in index.query("red", most=6).matches] == [*"abcde", "0"]


def test_only_what_has_changed_is_read_again(folder, monkeypatch):
    opened(folder).update()
    read = []
    monkeypatch.setattr("excite.search.photos.read_image", lambda path: read.append(path.name) or original(path))
    original = excite.images.read_image
    index = opened(folder)
    assert index.update() == Changes()
    names = sorted(folder.rglob("*.png"))
    names[0].rename(folder / "renamed.png")
    os.utime(names[1], ns=(1, 1))
    swapped = names[2].read_bytes()
    names[2].write_bytes(names[4].read_bytes())
    names[4].write_bytes(swapped)
    names[5].unlink()
    picture(names[3], [("red", (0, 0, 40, 40))])
    picture(folder / "new.png", [("green", (0, 0, 40, 40))])
    changes = index.update()
    assert sorted(read) == [names[3].name, "new.png"]
    assert (changes.added, changes.changed, changes.removed) == (1, 1, 1)
    matches = opened(folder).query("red", most=COUNT + 1).matches
    there = sorted(folder.rglob("*.png"))
    assert sorted(one.path for one in matches) == there
    expected = dict(zip(there, own(index.classifier, there)[:, 0], strict=True))
    assert {one.path: one.probability for one in matches} == pytest.approx(expected, rel=NEAR)
    assert max(one.number for one in matches) < COUNT + 1  # numbers are used again


def test_a_folder_that_comes_back_costs_nothing(folder, monkeypatch):
    index = opened(folder)
    index.update()
    (folder / "0").rename(folder.parent / "away")
    assert index.update().removed == 2
    (folder.parent / "away").rename(folder / "0")
    monkeypatch.setattr("excite.search.photos.read_image", None)
    assert index.update() == Changes(renamed=2)
    assert len(index) == COUNT


def test_photos_that_cannot_be_read_are_remembered_until_they_change(folder):
    (folder / "broken.jpg").write_bytes(b"\xff\xd8 nothing")
    index = opened(folder)
    (line,) = index.update().unreadable
    assert "broken.jpg" in line
    assert index.update() == Changes()
    assert index.unreadable() == [line]
    assert len(index.query("red", most=100).matches) == COUNT
    picture(folder / "broken.jpg", [("red", (0, 0, 40, 40))])
    assert index.update() == Changes(changed=1)
    assert index.unreadable() == []
    assert len(index) == COUNT + 1


@pytest.mark.parametrize("block", [4, 5, COUNT, 64])
def test_blocks_and_rows_answer_alike(folder, monkeypatch, block):
    monkeypatch.setattr(index_module, "BLOCK", block)
    monkeypatch.setattr(index_module, "FEWEST", 4)
    monkeypatch.setattr("excite.search.photos.BATCH", 3)
    index = opened(folder)
    index.update()
    for name in sorted(folder.rglob("*.png"))[:3]:  # numbers that are already in a block
        picture(name, [("green", (0, 0, 8, 8))])
    index.update()
    (rows,) = index.file.read("SELECT count(*) FROM codes")[0]
    assert 0 < rows < COUNT
    matches = index.query("green", most=COUNT).matches
    expected = own(index.classifier, [one.path for one in matches])[:, 1]
    assert [one.probability for one in matches] == pytest.approx(expected.tolist(), rel=NEAR)


def test_exclusive_outputs_add_up_and_independent_ones_do_not(folder):
    net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4)).eval()
    preprocess = colour_classifier().preprocess
    labels = excite.vocabulary.Labels(["a", "b", "c", "d"], {"most": (0, 1, 2), "all": (0, 1, 2, 3)})
    classifier = replace(excite.wrap(net, preprocess=preprocess, multilabel=range(2, 4)), labels=labels)
    index = opened(folder, classifier)
    index.update()
    for word in ("most", "all", "d"):
        for match in index.query(word, most=2).matches:
            row = torch.from_numpy(own(classifier, [match.path])[0])
            assert match.probability == pytest.approx(classifier.chance(row, labels.find(word).units), rel=NEAR)


def test_an_index_of_another_classifier_is_refused(folder):
    opened(folder).update()
    with pytest.raises(ExciteError, match="is of the classifier colours, not twin: --fresh"):
        opened(folder, replace(colour_classifier(), name="twin"))
    trained = colour_classifier()
    trained.module[5].bias.data += 1
    with pytest.raises(ExciteError, match="is of the classifier another colours"):
        opened(folder, trained)
    assert opened(folder, trained, fresh=True).update().added == COUNT


def test_an_index_of_another_format_or_width_is_refused(folder):
    index = opened(folder)
    index.update()
    for change, reason in {
        "UPDATE facts SET value = '16' WHERE name = 'bits'": "is damaged",
        "DELETE FROM facts WHERE name = 'bits'": "is damaged",
        "UPDATE facts SET value = '1' WHERE name = 'format'": "is of another version of excite: --fresh",
    }.items():
        index.file.read(change)
        with pytest.raises(ExciteError, match=reason):
            opened(folder)
    assert opened(folder, fresh=True).update().added == COUNT


def test_no_other_file_is_touched(folder):
    notes = folder / "notes.txt"
    notes.write_text("precious " * 100)
    other = folder / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (a)")
    before = other.read_bytes()
    for file in (notes, other):
        for fresh in (False, True):
            with pytest.raises(ExciteError, match=r"--index|--fresh"):
                opened(folder, file=file, fresh=fresh)
    assert (notes.read_text(), other.read_bytes()) == ("precious " * 100, before)


def test_folders_without_photos(tmp_path):
    with pytest.raises(ImageError, match="no folder"):
        opened(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImageError, match="no images found"):
        opened(tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []


def test_two_at_once(folder):
    index, again = opened(folder), opened(folder)
    entered, leave = threading.Event(), threading.Event()

    def waiting(items, *_):
        entered.set()
        leave.wait(60)
        return items

    thread = threading.Thread(target=index.update, kwargs={"progress": waiting})
    thread.start()
    entered.wait(60)
    with pytest.raises(ExciteError, match="another run is writing"):
        again.update()
    leave.set()
    thread.join()
    assert len(again) == COUNT


def answered(folder):
    """The probability of each photo, or the error."""
    try:
        index = opened(folder)
        index.update()
        return {one.path: one.probability for one in index.query("red", most=COUNT).matches}
    except ExciteError as error:
        return str(error)


def test_damaged_files_are_told_in_one_line_and_never_change_an_answer(folder, monkeypatch):
    monkeypatch.setattr(index_module, "BLOCK", 8)
    first = opened(folder)
    first.update()
    expected = {one.path: one.probability for one in first.query("red", most=COUNT).matches}
    first.close()
    file = folder / ".excite-index.sqlite"
    whole, photos = file.read_bytes(), {path: path.read_bytes() for path in folder.rglob("*.png")}
    chance, told = random.Random(0), 0
    for case in range(45):
        content = bytearray(whole)
        if case % 3 == 0:
            del content[chance.randrange(1, len(content)) :]
        for _ in range(case % 3 * 4):
            at = chance.randrange(len(content))
            content[at] ^= 1 << chance.randrange(8)
        file.write_bytes(content)
        found = answered(folder)
        if isinstance(found, str):
            told += 1
            assert str(file) in found
        else:
            assert found == pytest.approx(expected, rel=1e-6)
        with suppress(ExciteError):  # a file that is no index any more is left for its owner
            assert opened(folder, fresh=True).update().added == COUNT
    assert told > 10
    assert {path: path.read_bytes() for path in folder.rglob("*.png")} == photos


KILLED = """
import sys
from annotated import colour_classifier
from excite.search import PhotoIndex, photos

def slowly(items, *_):
    for item in items:
        print(item.number, flush=True)
        yield item

photos.BATCH = 2
PhotoIndex(sys.argv[1], colour_classifier()).update(progress=slowly)
"""


def test_killed_in_the_middle(folder):
    with Forked(KILLED, [folder], stdout=subprocess.PIPE) as process:
        for _ in range(5):
            process.stdout.readline()
        process.kill()
    index = opened(folder)
    kept = len(index)
    assert kept >= 5
    assert index.update() == Changes(added=COUNT - kept)
    assert index.file.read("PRAGMA integrity_check") == [("ok",)]
    assert len(index.query("red", most=100).matches) == COUNT


def test_full_disks_lose_nothing(folder, monkeypatch):
    monkeypatch.setattr("excite.search.photos.BATCH", 1)
    for path in folder.rglob("*.png"):
        Image.effect_noise((300, 300), 90).save(path)
    index = opened(folder)
    index.file.read("PRAGMA max_page_count = 12")
    with pytest.raises(ExciteError, match="make room; what was finished is kept"):
        index.update()
    kept = len(index)
    assert kept > 0
    index.file.read("PRAGMA max_page_count = 99999")
    assert index.update() == Changes(added=COUNT - kept)


@pytest.mark.usefixtures("quick_workers")
def test_workers_give_the_same(folder, monkeypatch):
    monkeypatch.setattr("excite.search.photos.BATCH", 4)
    one, two = (opened(folder, file=folder.parent / f"{n}.sqlite") for n in (1, 2))
    one.update()
    two.update(workers=2)
    assert [*one.query("red").matches] == [*two.query("red").matches]


def test_a_large_index_is_small_and_quick(tmp_path):
    """As many photos as fit into two blocks, with the outputs of the default classifier."""
    count, outputs = 2 * index_module.BLOCK, 3615
    file = IndexFile(tmp_path / "index.sqlite", ["words"])
    codes = np.random.default_rng(0).integers(0, 256, (count, outputs), dtype=np.uint8)
    names = [f"2024/summer holiday/IMG_{number:06d}.jpg".encode() for number in range(count)]
    for start in range(0, count, 2032):
        photos = [Photo(n, names[n], 3_000_000, 10**18, n.to_bytes(16)) for n in range(start, start + 2032)]
        file.add(photos, list(codes[start : start + 2032]), [None] * 2032)
    file.pack()
    assert file.path.stat().st_size / count < 4096
    started = time.process_time()
    (found,) = file.chances([((7,), np.array([True]))])
    assert time.process_time() - started < 0.1
    assert (found == decode(codes[:, 7])).all()


def test_words_that_are_not_known(folder):
    index = opened(folder)
    for words, reason in {
        "blue": "No label",
        "red -blue": "No label",
        " ": "say what",
        "red -red": "cannot be",
    }.items():
        with pytest.raises(ConceptError, match=reason):
            index.query(words)


def test_outputs_without_words_have_numbers(folder):
    index = opened(folder, replace(colour_classifier(), labels=None))
    index.update()
    assert index.query("1", most=1).matches[0].path.suffix == ".png"
    with pytest.raises(ConceptError, match="no output unit 2"):
        index.query("2")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody can write to")
def test_a_folder_that_cannot_be_written(folder):
    with pytest.raises(ExciteError, match="--index"):
        opened(folder, file="/proc/self/index.sqlite")
