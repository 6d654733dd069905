"""Boxes for folders of coloured squares, from the query to the files."""

import json
import os
import warnings
from contextlib import closing
from pathlib import Path

import pytest
from annotated import SIDE, colour_classifier, picture
from boxfiles import READERS, read_coco, records, tree
from pages import Page
from PIL import Image, ImageChops

from excite.api import locate
from excite.autolabel import FORMATS, AutoLabeler, BoxQuery
from excite.autolabel.run import BoxWork
from excite.errors import ConceptError, ExciteError, LayerError, LostSignalWarning
from excite.models import wrap

EXIF_ORIENTATION = 0x0112
SQUARES = {
    "red/1.png": [("red", (4, 4, 16, 16))],
    "red/2.png": [("red", (20, 8, 44, 40))],
    "green/1.png": [("green", (30, 30, 44, 44))],
    "green/both.png": [("green", (0, 0, 20, 20)), ("red", (40, 40, 44, 44))],
    "green/dark.png": [],
}


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, squares in SQUARES.items():
        picture(tmp_path / "photos" / name, squares)
    return tmp_path / "photos"


def boxing(kind="coco", out="out", fresh=False, **question):
    return AutoLabeler(colour_classifier(), ["photos"], Path(out), BoxQuery(**question), kind, fresh=fresh)


def located(photos, name, *concepts):
    """What the library itself says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LostSignalWarning)  # where there is nothing
        found = locate(colour_classifier(), photos / name, list(concepts))
    return [(one.concept, one.probability, one.box) for one in found]


@pytest.fixture
def looked_at(monkeypatch):
    """The images at which a classifier looks."""
    looked, look = [], BoxWork.__call__

    def watched(self, task):
        looked.append(task.picture.name)
        return look(self, task)

    monkeypatch.setattr(BoxWork, "__call__", watched)
    return looked


class TestWhatIsLookedFor:
    def test_named_concepts_in_every_picture(self, photos):
        answer = boxing(concepts=("red", "green"), at_least=0.5).write()
        read = read_coco(Path("out"))
        assert set(read) == set(SQUARES)
        for name, (size, boxes) in read.items():
            told = [one for one in located(photos, name, "red", "green") if one[1] >= 0.5 and one[2] is not None]
            assert size == (SIDE, SIDE)
            assert boxes == sorted(told)
        assert answer["boxes"] == sum(len(boxes) for _, boxes in read.values()) > 0

    def test_what_folders_are_called_and_the_best_finding(self, photos):
        """However improbable what a folder says: somebody knows that it is there."""
        answer = boxing(from_folders=True).write()
        read = read_coco(Path("out"))
        for name, (_, boxes) in read.items():
            assert boxes == [one for one in located(photos, name, Path(name).parent.name) if one[2] is not None]
        assert answer["concepts"] == {"green": 2, "red": 2}
        assert read["green/dark.png"] == ((SIDE, SIDE), [])
        boxing(at_least=0).write()
        for name, (_, boxes) in read_coco(Path("out")).items():
            best = max(located(photos, name, "red", "green"), key=lambda one: one[1])
            assert boxes == ([best] if best[2] is not None else [])
        assert Path("out/labels.txt").read_text() == "green\nred\n"

    def test_other_classifiers_and_ways_to_make_a_box(self, photos):
        """Findings are called as the classifier calls them, on one line; without words, by their numbers."""
        module, preprocess = colour_classifier().module, colour_classifier().preprocess
        odd = wrap(module, labels=["red\n<&>", "green, \"as' grass"], preprocess=preprocess)
        answer = AutoLabeler(odd, ["photos"], Path("out"), BoxQuery(), "voc").write()
        assert list(answer["concepts"]) == ["green, \"as' grass", "red <&>"]
        plain = wrap(module, preprocess=preprocess)
        answer = AutoLabeler(plain, ["photos/red"], Path("out"), BoxQuery(("0",)), "csv").write()
        assert answer["concepts"] == {"0": 2}
        boxing(concepts=("red",), how={"method": "c-mwp", "layer": "1", "alpha": 3.0}).write()
        (found,) = locate(colour_classifier(), photos / "red/1.png", ["red"], method="c-mwp", layer="1", alpha=3.0)
        assert read_coco(Path("out"))["red/1.png"][1] == [("red", found.probability, found.box)]


class TestBeforeAnyWork:
    """What can be known at the beginning is told then, and nothing is written."""

    def refused(self, error, match, **options):
        before = tree(Path.cwd(), without=())
        with pytest.raises(error, match=match):
            boxing(**options)
        assert tree(Path.cwd(), without=()) == before

    def test_words_and_names_that_cannot_be(self, photos):
        self.refused(ConceptError, "'gren'. Did you mean 'green'", concepts=("red", "gren"))
        bell = wrap(colour_classifier().module, labels=["red", "bell\x07"])
        with pytest.raises(ConceptError, match=r"bell\\x07"):
            AutoLabeler(bell, ["photos"], Path("out"), BoxQuery())
        picture(photos / "caf\udce9.png", [])
        self.refused(ExciteError, "rename it, or use coco", kind="csv", concepts=("red",))

    @pytest.mark.parametrize("kind", FORMATS)
    def test_files_of_others_and_files_that_somebody_has_corrected(self, photos, kind):
        places = {"coco": "boxes.json", "csv": "boxes.csv", "voc": "Annotations/green-both.xml", "yolo": "data.yaml"}
        places["label-studio"] = "tasks.json"
        for name in ("labels.txt", "records.jsonl", "written.jsonl", places[kind]):
            path = Path("out", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("somebody's work\n")
            self.refused(ExciteError, f"{path.name}' is there already", kind=kind, concepts=("red",))
            path.unlink()
        boxing(kind, concepts=("green",)).write()
        path.write_text(path.read_text().replace("green", "vert"))
        self.refused(ExciteError, "or was changed since", kind=kind, concepts=("green",))
        self.refused(ExciteError, "or was changed since", kind=kind, concepts=("red",), fresh=True)
        Path("out/records.jsonl").write_text('{"key": "k", "image": "1.jpg", "targets": []}\n')  # another command's
        self.refused(ExciteError, "not written by excite boxes", kind=kind, concepts=("red",), fresh=True)


class TestDrawn:
    def run(self, **changes):
        made = AutoLabeler(
            colour_classifier(), ["photos"], Path("out"), BoxQuery(("red", "green")), drawn=True, **changes
        )
        return made.write()

    def stamps(self):
        return {path.name: path.stat().st_mtime_ns for path in Path("out/drawn").iterdir()}

    def test_boxes_are_drawn_and_all_images_are_on_the_page(self, photos):
        answer = self.run()
        assert answer["files"][-2:] == ["out/drawn", "out/index.html"]
        read = read_coco(Path("out"))
        assert set(self.stamps()) == {
            f"{name[:-4].replace('/', '-')}.jpg" for name, (_, found) in read.items() if found
        }
        page = Page(Path("out/index.html").read_text())
        assert all(name in page.text for name in SQUARES)
        links = [about["href"] for tag, about in page.tags if tag == "a"]
        assert len(links) == len(SQUARES)
        assert all(Path("out", link).exists() for link in links)
        drawn, plain = (Image.open(path) for path in (Path("out/drawn/red-1.jpg"), photos / "red/1.png"))
        with drawn, plain:
            assert drawn.size == plain.size
            assert ImageChops.difference(drawn.convert("RGB"), plain.convert("RGB")).getextrema() != ((0, 0),) * 3

    def test_nothing_is_drawn_twice_and_another_threshold_is(self, photos):
        self.run()
        before = self.stamps()
        self.run()
        assert self.stamps() == before
        picture(photos / "red/1.png", [("red", (20, 20, 40, 40))])
        self.run()
        assert {name for name, time in self.stamps().items() if before[name] != time} == {"red-1.jpg"}

    def test_drawings_and_pages_of_others_are_kept(self, photos):
        Path("out/drawn").mkdir(parents=True)
        for path in (Path("out/index.html"), Path("out/drawn/red-1.jpg")):
            path.write_bytes(b"mine")
            with pytest.raises(ExciteError, match=f"{path.name}' is there already"):
                self.run()
            assert path.read_bytes() == b"mine"
            path.unlink()
        Path("out/drawn").rmdir()
        assert list(Path("out").iterdir()) == []
        self.run()
        assert AutoLabeler(colour_classifier(), ["."], Path("new"), BoxQuery(("red",))).write()["pictures"] == 5


class TestAgain:
    @pytest.mark.parametrize("kind", FORMATS)
    def test_nothing_is_done_twice_nor_for_another_threshold_or_format(self, photos, looked_at, kind):
        answer = boxing(kind, concepts=("red",)).write()
        before = {path: path.lstat().st_mtime_ns for path in Path("out").rglob("*")}
        looked_at.clear()
        assert boxing(kind, concepts=("red",)).write() == answer
        assert {path: path.lstat().st_mtime_ns for path in Path("out").rglob("*")} == before
        for other in FORMATS:
            less, more = (boxing(other, concepts=("red",), at_least=least).write() for least in (0.9, 0))
            assert less["boxes"] < more["boxes"]
        assert looked_at == []

    def test_another_question_picture_or_network_does(self, photos, looked_at):
        boxing(concepts=("red",)).write()
        others = [{"concepts": ("green",)}, {"concepts": ("red",), "how": {"alpha": 2.0}}, {"concepts": ("0",)}, {}]
        for other in others:
            looked_at.clear()
            boxing(**other).write()
            assert looked_at == sorted(SQUARES)
        looked_at.clear()
        os.utime(photos / "red/1.png", ns=(5, 5))
        picture(photos / "red/3.png", SQUARES["red/1.png"])
        boxing(concepts=("red",)).write()
        assert looked_at == ["red/1.png", "red/3.png"]
        assert set(read_coco(Path("out"))) == {*SQUARES, "red/3.png"}
        other = colour_classifier()
        other.module[5].weight.data *= 2
        AutoLabeler(other, ["photos"], Path("out"), BoxQuery(("red",))).write()
        assert len(looked_at) == 2 + len(SQUARES) + 1

    def test_pictures_that_are_no_longer_asked_for_leave_nothing_behind(self, photos):
        for out in ("out", "photos/boxes", "photos/boxes"):  # also inside the folder of images
            assert boxing("voc", out, concepts=("red",)).write()["pictures"] == len(SQUARES)
        AutoLabeler(colour_classifier(), ["photos/red"], Path("out"), BoxQuery(("red",)), "voc").write()
        assert set(tree(Path("out"))) == {
            *("Annotations/1.xml", "Annotations/2.xml", "JPEGImages/1.png", "JPEGImages/2.png"),
            *("ImageSets/Main/trainval.txt", "labels.txt"),
        }


class TestStopped:
    @pytest.mark.parametrize("kind", FORMATS)
    def test_what_was_done_is_in_the_files(self, photos, kind):
        boxing(kind, out="whole", concepts=("red", "green"), at_least=0).write()

        def stopping(entries, total):
            assert total == len(SQUARES)
            with closing(entries):
                for k, entry in enumerate(entries):
                    if k == 3:
                        raise KeyboardInterrupt
                    yield entry

        with pytest.raises(KeyboardInterrupt):
            boxing(kind, concepts=("red", "green"), at_least=0).write(progress=stopping)
        whole, part = READERS[kind](Path("whole")), READERS[kind](Path("out"))
        assert part == {name: whole[name] for name in list(whole)[: len(part)]}
        assert len(part) == (2 if kind == "csv" else 3)  # the third has no box
        boxing(kind, concepts=("red", "green"), at_least=0).write()
        assert tree(Path("out")) == tree(Path("whole"))

    def test_now_and_then(self, photos, monkeypatch):
        """Not after every image: writing would be most of the work."""
        writings, save = [], AutoLabeler._save
        monkeypatch.setattr(AutoLabeler, "_save", lambda self: (writings.append(len(self.records)), save(self)))
        boxing(concepts=("red",)).write()
        assert writings == [0, 5]
        monkeypatch.setattr("excite.autolabel.run.PAUSE", 0)
        monkeypatch.setattr("excite.autolabel.run.SHARE", 0)
        boxing(out="often", concepts=("red",)).write()
        assert writings[2:] == [0, 1, 2, 3, 4, 5, 5]

    def test_corrected_while_it_works(self, photos):
        """Somebody's work is not lost, and ours neither; nor are older boxes, by a question without an answer."""
        boxing(concepts=("red",)).write()
        before = tree(Path("out"))
        with pytest.raises(LayerError):
            boxing(concepts=("red",), how={"layer": "no such"}).write()
        assert tree(Path("out")) == before

        def correcting(entries, _total):
            yield from entries
            Path("out/boxes.json").write_text("corrected")

        with pytest.raises(ExciteError, match="was changed since"):
            boxing(concepts=("red",), fresh=True).write(progress=correcting)
        assert Path("out/boxes.json").read_text() == "corrected"
        assert len(records(Path("out"))) == len(SQUARES)


class TestWhatIsTold:
    def test_numbers_do_not_depend_on_pictures_that_cannot_be_read(self, photos):
        (photos / "green/broken.png").write_text("no image")
        answer = boxing(from_folders=True).write()
        assert answer["notes"] == ["no box in 1 image: there is no evidence for what was looked for"]
        images = json.loads(Path("out/boxes.json").read_text())["images"]
        names = ["green/1.png", "green/both.png", "green/broken.png", "green/dark.png", "red/1.png", "red/2.png"]
        numbers = {name: number for number, name in enumerate(names, start=1) if "broken" not in name}
        assert {one["file_name"]: one["id"] for one in images} == numbers

    @pytest.mark.parametrize("suffix", ["jpg", "tif"])
    def test_pictures_that_are_stored_on_their_side(self, photos, suffix):
        """Sizes and boxes are those of the upright image. Pillow turns TIFF itself: nobody sees that on its side."""
        upright = Image.new("RGB", (SIDE, SIDE // 2))
        upright.paste("red", (2, 2, 10, 14))
        exif = Image.Exif()
        exif[EXIF_ORIENTATION] = 6
        turned = photos / f"turned.{suffix}"
        upright.transpose(Image.Transpose.ROTATE_90).save(turned, exif=exif)
        answer = boxing(concepts=("red",)).write()
        size, boxes = read_coco(Path("out"))[f"turned.{suffix}"]
        assert size == upright.size
        assert [box for _, _, box in boxes] == [locate(colour_classifier(), turned, "red")[0].box]
        assert (boxes[0][2][0] < 4, boxes[0][2][2] <= SIDE // 2) == (True, True)  # on the left, not on top
        said = "1 image stored on the side (EXIF): boxes are those of the upright image"
        assert sum(note.startswith(said) for note in answer["notes"]) == (suffix != "tif")

    def test_copies(self, photos, monkeypatch):
        monkeypatch.setattr(Path, "symlink_to", lambda *_: (_ for _ in ()).throw(OSError(1, "not permitted")))
        for _ in range(2):
            answer = boxing("voc", from_folders=True).write()
            assert answer["notes"][-1] == "5 images copied into 'out': links cannot be made there"
        assert len(READERS["voc"](Path("out"))) == 5
        assert answer["files"] == ["out/Annotations", "out/JPEGImages", "out/ImageSets", "out/labels.txt"]

    @pytest.mark.parametrize("out", ["photos/red/1.png", "photos/red/1.png/deeper", "x" * 300])
    def test_a_folder_that_cannot_be(self, photos, out):
        with pytest.raises(ExciteError, match="cannot "):
            boxing(out=out, concepts=("red",)).write()
