"""One query on many images: resuming, and files that do not overwrite each other."""

import itertools
import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from pages import Page
from PIL import Image
from torch import nn

from excite.autolabel import batch as module
from excite.autolabel.batch import AttendQuery, Batch, Drawing, split_arguments
from excite.errors import ConceptError, ExciteError, ImageError, LayerError
from excite.images import read_reduced as reduced
from excite.jobs import Executor, ResultStore
from excite.models import MODELS, Card, Choice, Preprocess
from excite.vocabulary import Labels

WORDS = ["cat", "dog", "crane", "crane", "AC/DC", "AC.DC", "Ärger ☂", "Cat", "x" * 300, "字" * 120]


def tiny(classes=None):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, len(WORDS))
    ).eval()


@pytest.fixture(autouse=True)
def tiny_card(monkeypatch):
    about = {"layers": ("1", "0"), "description": "for these tests", "source": "made here"}
    preprocess, labels = Preprocess(shorter_side=24, mean=0, scale=1 / 255), Labels(WORDS, groups={"pet": (0, 1)})
    card = Card(name="tiny", build=tiny, pretrained=tiny, preprocess=preprocess, labels=lambda: labels, **about)
    monkeypatch.setitem(MODELS, "tiny", card)
    monkeypatch.setattr(module, "compare", partial(module.compare, cell_width=40))  # small figures are quickly drawn


@pytest.fixture
def looks(monkeypatch):
    """For each call of the classifier the number of its threads."""
    seen, session = [], module.Session
    monkeypatch.setattr(module, "Session", lambda *a, **k: seen.append(torch.get_num_threads()) or session(*a, **k))
    return seen


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three images in a folder; the tests run beside it."""
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        picture(tmp_path / "photos" / f"{number}.png", seed=number)
    return Path("photos")


def picture(path, seed=0, size=(30, 20)):
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(values).save(path)
    return path


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def size_of(path):
    with Image.open(path) as image:
        return image.size


def question(*concepts, method="mwp", **options):
    listed = {name: tuple(options.pop(name, ())) for name in ("layers", "against")}
    return AttendQuery(Choice("tiny"), concepts, listed["layers"] or None, method, listed["against"], **options)


def photos_of(*arguments, out="out"):
    return split_arguments([str(argument) for argument in arguments], Path(out))[0]


def run(photos, *concepts, out="out", stop_after=None, **options):
    asked = {name: options.pop(name) for name in ("method", "layers", "against", "alpha") if name in options}
    if not options.pop("overlays", True):
        options["drawing"] = None
    made = Batch(question(*(concepts or ("cat", "dog")), **asked), Path(out), **options)
    return list(itertools.islice(made.answers(photos), stop_after)), made


def store(out="out"):
    text = (Path(out) / "answers.jsonl").read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def files(out="out"):
    return {path.name: path.stat().st_mtime_ns for path in Path(out).iterdir()}


class TestAnswers:
    def test_what_is_answered_and_written(self, folder):
        answers, made = run(photos_of(folder), "cat", "AC/DC")
        assert [answer["image"] for answer in answers] == [f"photos/{number}.png" for number in range(3)]
        assert made.failures == []
        for number, answer in enumerate(answers):
            assert list(answer) == ["image", "maps"]
            assert list(answer["maps"][0]) == "concept probability point box boxes mass layer method overlay".split()
            assert [one["overlay"] for one in answer["maps"]] == [f"out/{number}.{of}.jpg" for of in ("cat", "AC-DC")]
        drawn = {f"{n}.{of}.jpg" for n in range(3) for of in ("cat", "AC-DC")}
        assert set(files()) == {"answers.jsonl", "index.html"} | drawn
        with Image.open("out/2.cat.jpg") as overlay:
            assert overlay.size == (30, 20)
        run(photos_of(folder / "2.png"), "cat", "AC/DC", out="alone")
        assert set(files("alone")) == {"answers.jsonl", "2.cat.jpg", "2.AC-DC.jpg", "2-maps.jpg"}
        ((answer,), _) = run(photos_of(folder / "2.png"), "cat", out="plain", arrays=True, overlays=False)
        assert answer["maps"][0]["overlay"] is None
        assert set(files("plain")) == {"answers.jsonl", "2.cat.npy"}
        assert np.load("plain/2.cat.npy").sum() == pytest.approx(answer["maps"][0]["mass"], rel=1e-5)

    def test_what_is_wrong_with_a_query_costs_no_picture(self, folder, looks):
        for concepts, against in ((("cat", "unheard of"), ()), (("cat",), ("unheard of",))):
            with pytest.raises(ConceptError, match="unheard of"):
                Batch(question(*concepts, against=against), Path("out"))
        assert not looks
        assert not Path("out").exists()
        with pytest.raises(LayerError, match="no layer '7'"):
            run(photos_of(folder), "cat", layers=["7"])

    def test_one_bad_picture_among_good_ones(self, folder):
        (folder / "1.png").write_bytes(b"no image at all")
        answers, made = run(photos_of(*(folder / f"{name}.png" for name in (0, 1, "gone", 2))))
        assert [answer["image"] for answer in answers] == ["photos/0.png", "photos/2.png"]
        assert ["photos/1.png" in made.failures[0], "photos/gone.png" in made.failures[1]] == [True, True]
        with pytest.raises(ImageError, match=r"1\.png"):
            run(photos_of(folder / "1.png"))
        with pytest.raises(ImageError, match=r"gone\.png"):
            photos_of(folder / "gone.png")


def files_in(folder):
    """The drawings and arrays of a folder."""
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.suffix in {".jpg", ".npy"}}


class TestResuming:
    def test_what_is_done_is_not_done_again(self, folder, looks, tmp_path, monkeypatch):
        """Started again from elsewhere, the answers name images and overlays as they are called there."""
        uninterrupted, _ = run(photos_of(folder), out="whole")
        looks.clear()
        run(photos_of(folder), stop_after=2)
        before = files()
        assert (len(looks), len(store())) == (3, 2), "the third was being looked at"
        looks.clear()
        answers, _ = run(photos_of(folder))
        assert len(looks) == 1
        drawn = {name for name in before if name[0] in "01"}
        assert "index.html" not in before
        assert drawn
        assert {name: files()[name] for name in drawn} == {name: before[name] for name in drawn}
        assert json.dumps(answers) == json.dumps(uninterrupted).replace("whole/", "out/")
        assert [line["key"] for line in store()] == [line["key"] for line in store("whole")]
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        answers, _ = run(photos_of("../photos"), out="../out")
        assert (answers[0]["image"], answers[0]["maps"][0]["overlay"]) == ("../photos/0.png", "../out/0.cat.jpg")
        assert len(looks) == 1
        run(photos_of("../photos/0.png"), out="../out")
        assert (len(looks), len(store("../out"))) == (2, 3), "one image alone is always looked at, and has one line"

    def test_after_a_stop_between_the_files_and_the_line(self, folder, monkeypatch, looks):
        with monkeypatch.context() as patched:
            patched.setattr(ResultStore, "add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                run(photos_of(folder))
        assert (Path("out") / "0.cat.jpg").exists()
        looks.clear()
        assert len(run(photos_of(folder))[0]) == 3
        assert len(looks) == 3

    @pytest.mark.parametrize("damage", [b"\xff\xfe half\x00", b"17", b'{"key": "a"}', b"[" * 100_000])
    def test_lines_that_are_no_answers_or_cut_off(self, folder, looks, damage):
        expected, _ = run(photos_of(folder))
        path = Path("out/answers.jsonl")
        first, *others = path.read_bytes().splitlines(keepends=True)
        path.write_bytes((first + damage + b"\n" + b"".join(others))[:-200])
        looks.clear()
        assert run(photos_of(folder))[0] == expected
        assert len(looks) == 1
        assert len(store()) == 3

    def test_a_changed_picture_a_lost_file_and_another_question_are_looked_at_anew(self, folder, looks):
        before, _ = run(photos_of(folder))
        picture(folder / "2.png", seed=99)
        after, _ = run(photos_of(folder))
        assert len(looks) == 4
        assert [one == other for one, other in zip(before, after, strict=True)] == [True, True, False]
        for change in ({"overlays": False}, {"arrays": True}):
            looks.clear()
            run(photos_of(folder), **change)
            assert len(looks) == 3, change
        for name in ("0.dog.jpg", "1.cat.npy"):
            Path("out", name).unlink()
        run(photos_of(folder), arrays=True)
        assert len(looks) == 5
        assert {"0.dog.jpg", "1.cat.npy"} < set(files())

    @pytest.mark.parametrize(
        "other",
        [{"method": "c-mwp"}, {"against": ["dog"]}, {"alpha": 2.0}, {"layers": ["0"]}],
        ids=lambda change: next(iter(change)),
    )
    def test_another_question_leaves_the_files_of_the_first(self, folder, looks, other):
        plain = {"method": "mwp"}
        run(photos_of(folder), "cat", arrays=True, **plain)
        before = files_in("out")
        answers, _ = run(photos_of(folder), "cat", arrays=True, **(plain | other))
        after = files_in("out")
        assert {name: after[name] for name in before} == before
        assert len(after) == 2 * len(before)  # overlays and arrays
        assert all(Path(answer["maps"][0]["overlay"]).name not in before for answer in answers)
        looks.clear()
        for change in ({}, other):
            run(photos_of(folder), "cat", arrays=True, **(plain | change))
        assert not looks
        assert files_in("out") == after

    def test_other_concepts_and_pictures_have_sheets_of_their_own(self, folder):
        run(photos_of(folder / "0.png"), "cat")
        before = files_in("out")
        run(photos_of(folder / "0.png"), "dog")
        run(photos_of(folder / "0.png"), "cat", "dog")
        after = files_in("out")
        assert {name: after[name] for name in before} == before
        assert sum("-maps" in name for name in after) == 3
        assert sum("-maps" not in name for name in after) == 2  # the overlay of each concept is that of both together
        run(photos_of(folder / "0.png"), "dog")
        assert files_in("out") == after
        picture(Path("others/0.png"), seed=50)
        run(photos_of("others/0.png"), "cat")
        assert {name: files_in("out")[name] for name in after} == after
        names = set(files_in("out"))
        picture(folder / "0.png", seed=99)
        run(photos_of(folder / "0.png"), "cat")
        assert set(files_in("out")) == names, "a drawing of the same question is replaced"
        assert files_in("out")["0.cat.jpg"] != after["0.cat.jpg"]


class TestReport:
    def run(self, folder, looks, **drawing):
        looks.clear()
        answers, made = run(photos_of(folder), "cat", "dog", "AC/DC", drawing=Drawing(**drawing))
        drawn = [[found["overlay"] is not None for found in answer["maps"]] for answer in answers]
        return answers, drawn, made

    def test_only_the_most_probable_are_drawn_and_on_the_page(self, folder, looks):
        answers, drawn, made = self.run(folder, looks)
        assert drawn == [[True] * 3] * 3
        middle = sorted(found["probability"] for answer in answers for found in answer["maps"])[4]
        for most, wanted in ((None, 5), (1, 3)):
            Path("out/answers.jsonl").unlink()
            answers, drawn, made = self.run(folder, looks, at_least=middle, most=most)
            assert sum(map(sum, drawn)) <= wanted
            for answer, each in zip(answers, drawn, strict=True):
                chances = [found["probability"] for found in answer["maps"]]
                best = sorted((one for one in chances if one >= middle), reverse=True)[:most]
                assert sorted((one for one, yes in zip(chances, each, strict=True) if yes), reverse=True) == best
        page = Page(made.page.read_text())
        assert [tag for tag, _ in page.tags].count("img") == 3
        links = [about["href"] for tag, about in page.tags if tag == "a"]
        assert links
        assert all((made.page.parent / link).exists() for link in links)
        assert all(name in page.text for name in ("0.png", "1.png", "2.png"))

    def test_another_threshold_draws_only_what_is_missing(self, folder, looks):
        self.run(folder, looks, at_least=1.0)
        assert len(looks) == 3
        for drawing, asked in (({"at_least": 1.0}, 0), ({"at_least": 0.0, "most": 1}, 3), ({"at_least": 0.9}, 0)):
            self.run(folder, looks, **drawing)
            assert len(looks) == asked, drawing
        assert self.run(folder, looks, kind="png", longest=None)[1] == [[True] * 3] * 3
        assert len(looks) == 3

    def test_boxes_are_found_for_what_is_probable_only(self, folder, looks):
        def boxed(**options):
            looks.clear()
            answers, _ = run(photos_of(folder), "cat", "dog", **options)
            return [(found["probability"], found["boxes"]) for answer in answers for found in answer["maps"]]

        chances = sorted(chance for chance, _ in boxed(out="all"))
        for at_least, drawn, missing, times in ((chances[3], True, 3, 3), (1.0, False, 6, 3), (0.0, False, 0, 3)):
            drawing = Drawing(at_least=at_least) if drawn else None
            found = boxed(drawing=drawing, at_least=at_least)
            assert [boxes is None for _, boxes in found] == [chance < at_least for chance, _ in found]
            assert (sum(boxes is None for _, boxes in found), len(looks)) == (missing, times)
        assert None not in [boxes for _, boxes in boxed(drawing=None, at_least=1.0)]
        assert not looks, "more boxes than asked for are no reason to look again"
        ((answer,), _) = run(photos_of(folder / "0.png"), "cat", drawing=None, at_least=1.0)
        assert answer["maps"][0]["boxes"] is not None, "an image alone has its boxes"

    def test_large_photographs_are_decoded_smaller_and_answered_in_their_own_pixels(self, folder, monkeypatch):
        values = np.random.default_rng(7).integers(0, 256, (6, 8, 3), dtype=np.uint8)
        large = Image.fromarray(values).resize((3328, 2496), Image.Resampling.BICUBIC)
        large.save(folder / "large.jpg", quality=95, exif=turned(6))
        read = []
        monkeypatch.setattr(module, "read_reduced", lambda *a: read.append(reduced(*a)) or read[-1])
        (small,), _ = run(photos_of(folder / "large.jpg"), "cat", out="small")
        (whole,), _ = run(photos_of(folder / "large.jpg"), "cat", out="whole", drawing=Drawing(longest=None))
        assert [(image.size, size) for image, size in read] == [((1248, 1664), (2496, 3328)), ((2496, 3328),) * 2]
        one, other = small["maps"][0], whole["maps"][0]
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-3)
        near = 3328 / 16 / 3  # pixels: a third of a position of the map
        assert one["point"] == pytest.approx(other["point"], abs=near)
        assert np.ravel(one["boxes"]) == pytest.approx(np.ravel(other["boxes"]), abs=near)

    def test_drawings_are_small_unless_their_size_is_asked_for(self, folder):
        for number in range(2):
            picture(folder / f"{number}.png", seed=number, size=(2000, 100))
        for options, sizes in (({}, {(1600, 80)}), ({"longest": None, "kind": "png"}, {(2000, 100)})):
            answers, _ = run(photos_of(folder / "[01].png"), "cat", drawing=Drawing(**options))
            assert {size_of(found["overlay"]) for answer in answers for found in answer["maps"]} == sizes

    def test_a_page_says_what_is_not_on_it(self, folder, monkeypatch):
        monkeypatch.setattr(module, "MOST_CARDS", 2)
        answers, made = run(photos_of(folder), "cat", against=["dog"])
        page = Page(made.page.read_text())
        assert (len(answers), [tag for tag, _ in page.tags].count("img")) == (3, 2)
        note = "cat: at least 0% probable; model tiny, method mwp, layer 1 against dog (the first 2 of 3 images)"
        assert note in page.text

    def test_a_page_of_somebody_else_is_kept_and_costs_nothing(self, folder, looks):
        Path("out").mkdir()
        Path("out/index.html").write_text("<h1>mine</h1>")
        with pytest.raises(ExciteError, match=r"'out/index.html' is there already and was not written by excite"):
            run(photos_of(folder), "cat")
        assert (Path("out/index.html").read_text(), looks) == ("<h1>mine</h1>", [])
        run(photos_of(folder / "0.png"), "cat")  # needs no page
        run(photos_of(folder), "cat", overlays=False)

    def test_each_line_says_its_question_and_lines_without_one_stay(self, folder):
        Path("out").mkdir()
        old = {"key": "0123456789abcdef", "image": "photos/0.png", "maps": [], "files": {"0.cat.png": 1}}
        Path("out/answers.jsonl").write_text(f"{json.dumps(old)}\n")
        run(photos_of(folder), "cat")
        run(photos_of(folder), "dog", method="c-mwp", layers=["0"], against=["cat"])
        first, *others = store()
        assert first == old
        told = [{"concepts": ["cat"], "layers": None, "method": "mwp", "against": []}] * 3
        told += [{"concepts": ["dog"], "layers": ["0"], "method": "c-mwp", "against": ["cat"]}] * 3
        assert [line["question"] for line in others] == [{"model": "tiny", **one, "alpha": None} for one in told]


class TestWorkers:
    @pytest.mark.usefixtures("quick_workers")
    def test_several_give_the_same(self, folder):
        (folder / "1.png").write_bytes(b"no image")
        one, alone = run(photos_of(folder), out="one", arrays=True)
        made = Batch(question("cat", "dog"), Path("two"), arrays=True)
        two = list(made.answers(photos_of(folder), Executor(workers=2)))
        assert json.dumps(two) == json.dumps(one).replace("one/", "two/")
        assert made.failures == alone.failures
        assert len(made.failures) == 1
        assert set(files("one")) == set(files("two"))
        for name in files("one"):
            if name.endswith(".npy"):
                assert Path("one", name).read_bytes() == Path("two", name).read_bytes()
        assert [line["key"] for line in store("two")] == [line["key"] for line in store("one")]

    def test_one_picture_alone_may_use_all_cores(self, folder, looks):
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            run(photos_of(folder / "0.png"))
            run(photos_of(folder / "0.png", folder / "1.png"))
        finally:
            torch.set_num_threads(before)
        assert looks == [2, 1]  # the first one is known by then


class TestNames:
    def overlays(self, photos, *concepts, **options):
        """All files of a run, having checked that each was written once."""
        answers, _ = run(photos, *concepts, **options)
        names = [found["overlay"] for answer in answers for found in answer["maps"]]
        figures = [line for line in files(options.get("out", "out")) if line.endswith(".jpg")]
        assert len(set(names)) == len(names)
        assert len(figures) == len(names) + (len(photos) == 1)
        assert len({name.casefold() for name in figures}) == len(figures)  # other systems know no capitals
        assert all(len(name.encode()) <= 255 for name in figures)
        return [Path(name).name for name in names]

    def test_pictures_of_one_name_or_called_like_the_overlay_of_another(self, folder):
        picture(Path("more/0.png"), seed=9)
        names = self.overlays(photos_of(folder, "more/"), "cat")
        assert (len(names), names[0], names[-1]) == (4, "photos-0.cat.jpg", "more-0.cat.jpg")
        picture(folder / "0.bmp")
        names = self.overlays(photos_of(folder), "cat", out="new")
        assert names[:2] == ["photos-0-bmp.cat.jpg", "photos-0-png.cat.jpg"]
        for name in ("0-cat.png", "0.cat.png", "0-cat-dog.png", "0.cat.dog.png"):
            picture(folder / name)
        self.overlays(photos_of(folder), "cat", "dog", "pet", out="newer")

    @pytest.mark.parametrize(
        ("concepts", "names"),
        [
            (("crane", "2", "3"), "crane.all crane.2 crane.3"),  # "crane" means both, the bird and the machine
            (("0", "AC/DC", "AC.DC", "7", "Ärger ☂"), "cat.0 AC-DC.4 AC-DC.5 Cat.7 Ärger"),
        ],
    )
    def test_concepts_with_one_name(self, folder, concepts, names):
        assert self.overlays(photos_of(folder / "0.png"), *concepts) == [f"0.{name}.jpg" for name in names.split()]

    def test_very_long_names(self, folder):
        for name in ("字" * 80 + "一.png", "字" * 80 + "二.png", "y" * 251 + ".png"):
            picture(folder / name)
        self.overlays(photos_of(folder), "x" * 300, "字" * 120, layers=["0", "1"])

    def test_a_name_that_is_not_unicode(self, folder):
        (folder / "0.png").rename(folder / os.fsdecode(b"caf\xe9.png"))
        answers, made = run(photos_of(folder), "cat")
        assert (len(answers), made.failures) == (3, [])
        assert "out/caf.cat.jpg" in {answer["maps"][0]["overlay"] for answer in answers}
        assert json.loads(json.dumps(answers)) == answers


class TestArguments:
    def split(self, *arguments):
        photos, concepts = split_arguments(arguments, Path("out"))
        return [str(photo) for photo in photos], concepts

    def test_pictures_come_first(self, folder):
        assert self.split("photos/0.png") == (["photos/0.png"], [])
        assert self.split("photos/0.png", "cat", "2") == (["photos/0.png"], ["cat", "2"])
        assert self.split("photos/0.png", "photos/[12].png", "cat") == ([f"photos/{n}.png" for n in (0, 1, 2)], ["cat"])
        assert len(self.split("photos", "cat")[0]) == 3
        assert self.split("photos/0.png", "photos", "cat") == (["photos/0.png"], ["photos", "cat"])
        picture(Path("odd.png/inside.png"))  # in a folder called like an image
        assert self.split("photos/0.png", "odd.png", "cat") == (["photos/0.png", "odd.png/inside.png"], ["cat"])

    def test_nothing_there(self, folder):
        Path("empty").mkdir()
        for nothing in ("empty", "nothing*.png", "nothing.png", "cat"):
            with pytest.raises(ImageError, match="no images found"):
                self.split(nothing)
        with pytest.raises(ImageError, match="blank"):
            self.split("", "cat")
        with pytest.raises(ConceptError, match=r"'photos/1\.png' looks like an image behind a concept"):
            self.split("photos/0.png", "cat", "photos/1.png")
        with pytest.raises(ImageError, match="File name too long"):
            self.split("x" * 300 + ".png")
        answers, made = run(photos_of("photos/0.png", "x" * 300 + ".png"), "cat")
        assert len(answers) == 1
        assert "File name too long" in made.failures[0]

    def test_what_excite_has_drawn_is_no_picture_unless_it_is_named(self, folder):
        """`excite attend .` twice must not explain its own overlays."""
        first, _ = run(photos_of("."), "cat")
        assert (len(first), run(photos_of("."), "cat")[0]) == (3, first)
        assert photos_of("out/0.cat.jpg") == [Path("out/0.cat.jpg")]
        with pytest.raises(ImageError, match="but those that excite itself has drawn"):
            photos_of("out")
        picture(Path("out/mine.png"))
        Path("out/broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
        assert {path.name for path in photos_of("out")} == {"mine.png", "broken.png"}

    @pytest.mark.parametrize("name", ["0.cat.jpg", "0-maps.jpg"])
    def test_a_picture_of_the_user_is_never_overwritten(self, folder, name):
        originals = {path: path.read_bytes() for path in (*folder.iterdir(), picture(folder / name, seed=77))}
        with pytest.raises(ExciteError, match=rf"'photos/{name}' is there already and was not drawn by excite"):
            run(photos_of(folder / "0.png"), "cat", out="photos")
        assert originals == {path: path.read_bytes() for path in originals}


def test_folders_that_cannot_be(folder, monkeypatch):
    Path("out").write_text("mine")
    for out in ("out", "out/deeper/still"):
        with pytest.raises(ExciteError, match=r"out' is a file; choose a folder"):
            run(photos_of(folder), out=out)
    assert Path("out").read_text() == "mine"
    with pytest.raises(ExciteError, match=r"cannot write to 'x+\.\.\.x+': File name too long"):
        run(photos_of(folder), out="x" * 300)
    Path("other/answers.jsonl").mkdir(parents=True)
    with pytest.raises(ExciteError, match=r"cannot read 'other/answers\.jsonl'"):
        run(photos_of(folder), out="other")
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != Path("other"))  # root may do all
    with pytest.raises(ExciteError, match="cannot write to 'other': no permission"):
        run(photos_of(folder), out="other")
