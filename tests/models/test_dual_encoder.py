"""Dual encoders: rows, probabilities, and sessions that outlive the vocabulary they were made with."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from standin import BagOfWords, dual_encoder, image_tower, open_classifier
from torch import nn

import excite
from excite.errors import ConceptError, ModelError
from excite.io.fetch import cache_folder
from excite.methods import find_method
from excite.models.dual_encoder import DualEncoder, prompts
from excite.session import Session
from excite.vocabulary.open import OpenLabels

MWP, C_MWP = map(find_method, ("mwp", "c-mwp"))
PHRASES = ["a red square", "something green", "blue", "a man in a red hat", "green and blue", "cat"]
pytestmark = pytest.mark.filterwarnings("ignore::excite.errors.LostSignalWarning")  # not all of them are there
KINDS = pytest.mark.parametrize("bias", [None, -2.0], ids=["softmax", "sigmoid"])


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EXCITE_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def image():
    pixels = np.random.default_rng(0).integers(0, 60, (48, 60, 3), dtype=np.uint8)
    pixels[4:24, 4:24, 0] = pixels[10:30, 30:50, 1] = pixels[30:44, 8:24, 2] = 255
    return Image.fromarray(pixels)


def slow_rows(tower, phrases):
    """One text at a time."""
    rows = []
    for phrase in phrases:
        each = [tower.embed(tower.tokens([text]))[0] for text in prompts(phrase)]
        mean = sum(one / one.norm() for one in each)
        rows.append(mean / mean.norm())
    return torch.stack(rows).detach()


class Plain(nn.Module):
    """The same network written out, with the negative of each row behind all rows."""

    def __init__(self, rows, scale, bias):
        super().__init__()
        self.image, self.top = image_tower(), nn.Linear(3, 2 * len(rows), bias=bias is not None)
        with torch.no_grad():
            self.top.weight.copy_(scale * torch.cat([rows, -rows]))
            if bias is not None:
                self.top.bias.fill_(bias)

    def forward(self, images):
        embeddings = self.image(images)
        return self.top(embeddings / embeddings.norm(dim=1, keepdim=True))


@KINDS
def test_a_phrase_is_an_output_unit_and_its_dual_unit_the_negative(bias):
    net = dual_encoder(bias=bias).double()
    classifier, count = excite.wrap(net), 3 + len(PHRASES) - 1  # "cat" is a label
    units = [classifier.labels.find(phrase).units for phrase in PHRASES]
    assert units == [(3,), (4,), (5,), (6,), (7,), (2,)]
    rows = slow_rows(BagOfWords(), ["red", "green", "cat", *PHRASES[:-1]]).double()
    plain = excite.wrap(Plain(rows, 10.0, bias).eval().double(), labels=list(map(str, range(2 * count))))
    x = torch.rand(2, 3, 24, 30, dtype=torch.float64)
    torch.testing.assert_close(net(x), plain.module(x)[:, :count], rtol=0, atol=1e-5)  # rows are kept in float32
    signals = [[{k: 1.0}] * 2 for k in range(count)]
    duals = [[{count + k: 1.0}] * 2 for k in range(count)]
    found = Session(classifier, {1.0: x}, [MWP, C_MWP], layer="image.1")
    wanted = Session(plain, {1.0: x}, [MWP, C_MWP], layer="image.1")
    (own,), (written_out,) = found.maps(MWP, signals).values(), wanted.maps(MWP, signals).values()
    torch.testing.assert_close(own, written_out, rtol=1e-5, atol=1e-8)
    (contrast,), (dual,) = found.maps(C_MWP, signals).values(), wanted.maps(MWP, duals).values()
    torch.testing.assert_close(contrast, written_out - dual, rtol=1e-5, atol=1e-8)
    assert (contrast > 0).any()


@KINDS
def test_probabilities_do_not_depend_on_what_else_was_asked_for(bias, image):
    classifier = open_classifier(bias=bias)
    before = excite.attend(classifier, image)
    alone = {phrase: excite.attend(open_classifier(bias=bias), image, phrase)[0].probability for phrase in PHRASES}
    for phrase in PHRASES:
        (found,) = excite.attend(classifier, image, phrase)
        assert found.probability == pytest.approx(alone[phrase], rel=1e-5)
    logits = classifier.logits(classifier.prepared(image)[None])[0].double()
    for phrase in PHRASES:
        (unit,) = classifier.labels.find(phrase).units
        among = [0, 1, 2] if unit < 3 else [0, 1, 2, unit]
        wanted = logits[unit].sigmoid() if bias is not None else logits[among].softmax(0)[among.index(unit)]
        assert alone[phrase] == pytest.approx(float(wanted), rel=1e-5)
    after = excite.attend(classifier, image)
    assert [one.concept for one in after] == [one.concept for one in before]
    assert [one.probability for one in after] == pytest.approx([one.probability for one in before], rel=1e-5)
    chances = classifier.chances(
        classifier.network.embed(classifier.prepared(image)[None]), [classifier.labels.find(one) for one in PHRASES]
    )
    assert chances[:, 0].tolist() == pytest.approx([alone[phrase] for phrase in PHRASES], rel=1e-5)


def test_a_kept_session_runs_again_for_a_new_phrase_only(image):
    cache = excite.SessionCache(open_classifier())
    for phrase, runs in (("a red square", 1), ("cat", 1), ("a red square", 1), ("blue", 2), ("a red square", 2)):
        (found,) = cache.attend(image, phrase)
        (wanted,) = excite.attend(open_classifier(), image, phrase)
        assert cache.runs == runs, phrase
        torch.testing.assert_close(found.values, wanted.values)
    (found,) = cache.attend(image, "green and blue", against=["a red square", "red"])
    (wanted,) = excite.attend(open_classifier(), image, "green and blue", against=["a red square", "red"])
    torch.testing.assert_close(found.values, wanted.values)
    assert found.concept == "green and blue, not a red square, not red"


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.sampled_from(PHRASES), min_size=1, max_size=3, unique=True), min_size=2, max_size=8))
def test_units_that_are_given_to_other_phrases_mislead_no_session(reference, image, asked):
    """A vocabulary of three phrases, two images whose sessions are kept, and boxes that are found at the end."""
    classifier = open_classifier()
    small = OpenLabels(["red", "green", "cat"], classifier.network.text, most=3)
    classifier.network.vocabulary = small
    cache = excite.SessionCache(excite.wrap(classifier.network, preprocess=classifier.preprocess))
    kept = []
    for k, phrases in enumerate(asked):
        for found in cache.attend(reference.images[k % 2], phrases):
            wanted = reference.maps[k % 2, found.concept]
            torch.testing.assert_close(found.values, wanted.values)
            assert found.probability == pytest.approx(wanted.probability)
            kept.append((found, wanted))
    assert all(found.boxes() == wanted.boxes() for found, wanted in kept)


@pytest.fixture(scope="module")
def reference(image):
    images = (image, image.rotate(180))
    maps = {(k, one): excite.attend(open_classifier(), images[k], one)[0] for k in (0, 1) for one in PHRASES}
    return SimpleNamespace(images=images, maps=maps)


def test_threads_share_a_vocabulary(reference):
    cache, start = excite.SessionCache(open_classifier()), threading.Barrier(4)

    def ask(k):
        start.wait(10)
        return [cache.attend(reference.images[k % 2], one, layer="image.1")[0] for one in PHRASES[k:] + PHRASES[:k]]

    with ThreadPoolExecutor(4) as pool:
        for k, found in enumerate(pool.map(ask, range(4))):
            for one in found:
                torch.testing.assert_close(one.values, reference.maps[k % 2, one.concept].values)


def test_rows_are_written_once_and_damaged_ones_again():
    first = dual_encoder()
    rows = first.vocabulary.rows()
    torch.testing.assert_close(rows, slow_rows(BagOfWords(), ["red", "green", "cat"]), rtol=1e-5, atol=1e-6)
    assert first.text.embedded == sum(len(prompts(name)) for name in ("red", "green", "cat"))
    second = dual_encoder()
    assert torch.equal(second.vocabulary.rows(), rows)
    assert second.text.embedded == 0
    files = sorted((cache_folder() / "rows").rglob("*.npy"))
    assert len(files) == 3
    files[0].write_bytes(files[0].read_bytes()[:-4])
    files[1].write_bytes(b"")
    np.save(files[2], np.full(3, np.nan, np.float32))
    third = dual_encoder()
    assert torch.equal(third.vocabulary.rows(), rows)
    assert third.text.embedded == first.text.embedded
    assert not torch.equal(dual_encoder(seed=1).vocabulary.rows(), rows)  # other weights


def test_without_a_place_for_the_cache_rows_are_written_each_time(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EXCITE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        net = dual_encoder()
        net.vocabulary.rows()
        assert net.text.embedded


def test_phrases_that_are_none(image):
    classifier = open_classifier()
    for wrong, told in (
        ("  ", "blank"),
        ("a b c d e f g h i j k", "'a b c d e f g h i j k' is longer than the text tower reads"),
        (7, "no output unit 7"),
        ("7", "no output unit 7"),
        (-1, "no output unit -1"),
    ):
        with pytest.raises(ConceptError, match=told):
            excite.attend(classifier, image, wrong)
    assert excite.attend(classifier, image, ["Red", 0, "GREEN "])[1].concept == "red"
    small = classifier.network.vocabulary = OpenLabels(["red"], classifier.network.text, most=2)
    with pytest.raises(ConceptError, match="at most 2"):
        excite.attend(excite.wrap(classifier.network, preprocess=classifier.preprocess), image, PHRASES)
    assert len(small) == 1
    broken = dual_encoder()
    broken.text.network.weight.data.fill_(torch.nan)
    with pytest.raises(ModelError, match="weights are broken"):
        broken.vocabulary.rows()
    with pytest.raises(ModelError, match="above 0"):
        DualEncoder(image_tower(), BagOfWords(), scale=0.0)


def test_copies_know_the_same_phrases(image):
    classifier = open_classifier()
    (wanted,) = excite.attend(classifier, image, "something blue")
    moved = pickle.loads(pickle.dumps(classifier))  # noqa: S301 - as a worker gets it
    assert moved.network.vocabulary is moved.labels
    moved.labels.find("a zebra")  # which takes the next unit there
    classifier.labels.find("a lion")
    concept = classifier.labels.find("two lions")
    (found,) = excite.attend(moved, image, [concept])
    torch.testing.assert_close(found.values, excite.attend(classifier, image, "two lions")[0].values)
    (found,) = excite.attend(moved, image, "something blue")
    torch.testing.assert_close(found.values, wanted.values)
    assert copy.deepcopy(classifier.module).vocabulary is classifier.labels


def test_other_default_labels():
    net = dual_encoder()
    other = excite.wrap(net, labels=["blue", "a red bus"])
    assert list(other.labels) == ["blue", "a red bus"]
    assert list(net.vocabulary) == ["red", "green", "cat"]
    assert other.network.image is net.image
    assert len(DualEncoder(image_tower(), BagOfWords(), scale=1.0).vocabulary) == 80
