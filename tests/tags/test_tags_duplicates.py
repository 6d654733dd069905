"""Likeness: what it survives and what it tells apart; near duplicates: exactly as they are defined, and fast."""

import io
import pickle
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageEnhance

from excite.errors import DataError, ImageError
from excite.jobs.loop import run
from excite.jobs.results import JsonLinesStore
from excite.tags.cleaning import duplicates as near
from excite.tags.cleaning.duplicates import PerceptualHasher, near_duplicates, perceptual_hash
from excite.tags.images import open_images


def by_definition(hashes, most, known=None):
    """The earliest earlier image that is kept and within so many bits; quadratic."""
    answer = []
    for row, mine in enumerate(hashes):
        earlier = (
            other
            for other in range(row)
            if answer[other] < 0
            and (known is None or (known[row] and known[other]))
            and (int(mine) ^ int(hashes[other])).bit_count() <= most
        )
        answer.append(next(earlier, -1))
    return answer


def families(rng, count, families=4, changes=6):
    """Hashes near a few, each some bits away."""
    hashes = rng.integers(0, 2**63, families, dtype=np.uint64)[rng.integers(0, families, count)] << np.uint64(1)
    for _ in range(changes):
        flips = np.uint64(1) << rng.integers(1, 64, count).astype(np.uint64)
        hashes = np.where(rng.random(count) < 0.5, hashes ^ flips, hashes)
    return hashes


def scene(seed, size=(320, 240)):
    """An image with texture at all scales."""
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", size, tuple(int(v) for v in rng.integers(0, 255, 3)))
    draw = ImageDraw.Draw(image)
    for _ in range(40):
        x, y, w, h = rng.random(4) * [size[0], size[1], size[0] / 3, size[1] / 3]
        draw.ellipse((x - w, y - h, x + w, y + h), fill=tuple(int(v) for v in rng.integers(0, 255, 3)))
    return image


def jpeg(image, quality):
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def distance(first, second):
    return (perceptual_hash(first) ^ perceptual_hash(second)).bit_count()


class TestLikeness:
    @pytest.mark.parametrize(
        ("change", "most"),
        [
            (lambda image: image, 0),
            (lambda image: jpeg(image, 90), 2),
            (lambda image: jpeg(image, 40), 4),
            (lambda image: image.resize((160, 120)), 4),
            (lambda image: image.resize((1000, 750)), 4),
            (lambda image: image.convert("L").convert("RGB"), 0),
            (lambda image: ImageEnhance.Brightness(image).enhance(0.9), 4),
        ],
    )
    def test_survives(self, change, most):
        assert max(distance(scene(seed), change(scene(seed))) for seed in range(8)) <= most

    def test_tells_others_apart(self):
        bits = [perceptual_hash(scene(seed)) for seed in range(20)] + [perceptual_hash(scene(0).transpose(0))]
        assert min((a ^ b).bit_count() for row, a in enumerate(bits) for b in bits[:row]) > 10

    def test_the_bits(self):
        """By the definition of the transform, written out."""
        image = scene(3)
        small = np.asarray(image.convert("L").resize((32, 32), Image.Resampling.LANCZOS, reducing_gap=3), float)
        x = np.arange(32)
        waves = [
            np.sum(small * np.outer(np.cos(np.pi * v * (2 * x + 1) / 64), np.cos(np.pi * u * (2 * x + 1) / 64)))
            * (0.5**0.5 if u == 0 else 1)
            * (0.5**0.5 if v == 0 else 1)
            for v in range(8)
            for u in range(8)
        ][1:]
        bits = [0, *(wave > np.median(waves) for wave in waves)]
        assert perceptual_hash(image) == sum(int(bit) << place for place, bit in enumerate(bits))

    def test_none_without_texture(self):
        ramp = Image.fromarray(np.tile(np.linspace(0, 255, 300).astype(np.uint8), (200, 1)))
        noise = Image.fromarray(np.random.default_rng(0).integers(120, 136, (200, 300), dtype=np.uint8))
        for image in (Image.new("RGB", (300, 200), "teal"), Image.new("L", (1, 1)), ramp, noise):
            assert perceptual_hash(image) is None
            assert perceptual_hash(jpeg(image.convert("RGB"), 20)) is None

    def test_real_pictures(self, shared_data):
        files = sorted((shared_data / "coco/train2017").glob("*.jpg"))[:40]
        if not files:
            pytest.skip("no COCO images in the shared data")
        pictures = [Image.open(file).convert("RGB") for file in files]
        changed = [jpeg(picture.resize((picture.width // 2, picture.height // 2)), 50) for picture in pictures]
        hashes = np.array([perceptual_hash(picture) for picture in (*pictures, *changed)], np.uint64)
        assert near_duplicates(hashes).tolist() == [-1] * len(files) + list(range(len(files)))


class TestNearDuplicates:
    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, 2**32), st.integers(0, 60), st.integers(0, 9), st.booleans())
    def test_as_defined(self, seed, count, most, some):
        rng = np.random.default_rng(seed)
        hashes = families(rng, count)
        known = rng.random(count) < 0.8 if some else None
        assert near_duplicates(hashes, most, known).tolist() == by_definition(hashes, most, known)

    @settings(max_examples=30, deadline=None)
    @given(st.integers(0, 2**32), st.integers(0, 100), st.integers(0, 6))
    def test_in_halves_where_there_are_too_many_pairs(self, seed, count, most):
        hashes = families(np.random.default_rng(seed), count, families=2, changes=4)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(near, "MOST_PAIRS", 5)
            assert near_duplicates(hashes, most).tolist() == by_definition(hashes, most)

    @pytest.mark.parametrize("agreeing", [1, 2, 3, 4])
    def test_however_many_bands_agree(self, agreeing, monkeypatch):
        monkeypatch.setattr(near, "_cost", lambda _, chosen, __: abs(chosen - agreeing))
        hashes = families(np.random.default_rng(agreeing), 150)
        assert near_duplicates(hashes, 4).tolist() == by_definition(hashes, 4)

    def test_a_chain_keeps_every_second_step(self):
        chain = np.array([0b0, 0b11 << 2, 0b1111 << 2, 0b111111 << 2], np.uint64)
        assert near_duplicates(chain, 2).tolist() == [-1, 0, -1, 2]

    def test_without_a_hash_never_a_double(self):
        hashes = np.zeros(4, np.uint64)
        known = np.array([False, True, False, True])
        assert near_duplicates(hashes, 4, known).tolist() == [-1, -1, -1, 1]

    @pytest.mark.parametrize("count", [0, 1])
    def test_few(self, count):
        assert near_duplicates(np.zeros(count, np.uint64)).tolist() == [-1] * count

    @pytest.mark.parametrize("most", [-1, 31, 64])
    def test_bits_that_cannot_be_meant(self, most):
        with pytest.raises(DataError, match=f"{most} bits"):
            near_duplicates(np.zeros(2, np.uint64), most)

    def test_many_equal_ones(self):
        """A million times the same image is not a million times a million pairs."""
        hashes = np.full(1_000_000, 6, np.uint64)
        answer = near_duplicates(hashes)
        assert answer[0] == -1
        assert (answer[1:] == 0).all()

    def test_fast(self):
        rng = np.random.default_rng(0)
        hashes = rng.integers(0, 2**63, 200_000, dtype=np.uint64) << np.uint64(1)
        hashes[-1000:] = hashes[:1000] ^ np.uint64(0b110110)
        started = time.process_time()
        answer = near_duplicates(hashes)
        assert time.process_time() - started < 6  # a million takes 4 s alone on a core; quadratic would take 100
        assert answer[-1000:].tolist() == list(range(1000))
        assert (answer >= 0).sum() == 1000


class TestHashing:
    @pytest.fixture
    def hashing(self, tmp_path):
        for seed in range(3):
            scene(seed, (64, 48)).save(tmp_path / f"{seed}.png")
        Image.new("RGB", (9, 9)).save(tmp_path / "flat.png")
        return PerceptualHasher(open_images(tmp_path))

    def test_written_down_once(self, hashing, tmp_path):
        names = ["0.png", "flat.png", "missing.png", "../x.png", "2.png"]
        failures = []
        entries = list(
            run(hashing, names, JsonLinesStore(tmp_path / "hashes.jsonl", ("picture", "hash")), failures=failures)
        )
        assert [entry["picture"] for entry in entries] == ["0.png", "flat.png", "2.png"]
        assert int(entries[0]["hash"], 16) == perceptual_hash(scene(0, (64, 48)))
        assert entries[1]["hash"] is None
        assert len(failures) == 2
        known = JsonLinesStore(tmp_path / "hashes.jsonl", ("picture", "hash")).read()
        assert {hashing.key("0.png"), hashing.key("flat.png"), hashing.key("2.png")} == set(known)

    def test_the_key_changes_with_the_picture(self, hashing, tmp_path):
        before = hashing.key("1.png")
        assert before == hashing.key("1.png") != hashing.key("2.png")
        scene(9).save(tmp_path / "1.png")
        assert hashing.key("1.png") != before
        with pytest.raises(ImageError):
            hashing.key("missing.png")

    def test_can_be_sent_to_workers(self, hashing):
        assert pickle.loads(pickle.dumps(hashing))("1.png") == hashing("1.png")  # noqa: S301 - made here
