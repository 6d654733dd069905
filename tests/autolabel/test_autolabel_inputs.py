"""The inputs of a run: concepts and the names of their boxes, images and their names."""

from pathlib import Path

import pytest
from annotated import picture

from excite.autolabel import BoxQuery
from excite.autolabel.files import OutputFolder
from excite.autolabel.run import category_name, find_inputs, find_targets, substitutions
from excite.errors import ConceptError, ImageError
from excite.vocabulary import Labels

LABELS = Labels([["dog", "domestic dog"], "cat", "Egyptian cat", "forklift", "caf\u00e9"])


def test_words_and_the_concepts_behind_them():
    """Letters and their accents may be two characters, as the names of folders are on some disks."""
    assert substitutions(find_targets(["Dogs", "egyptian_cat", "cat", "fork", "2"], LABELS)) == (
        "'Dogs' for 'dog', 'fork' for 'forklift', '2' for 'Egyptian cat'"
    )
    assert substitutions(find_targets(["cat"], LABELS)) == ""
    (cafe,), (wanted,) = find_targets(["cafe\u0301"], LABELS), find_targets(["3"], None)
    assert (cafe.category, cafe.cue.name) == ("caf\u00e9", "caf\u00e9")
    assert (wanted.category, wanted.cue) == ("3", "3"), "a classifier without words"
    with pytest.raises(ConceptError) as error:
        find_targets(["dgo", "cat", "truk"], LABELS)
    said = str(error.value)
    assert said.startswith("2 concepts are unknown. No label is called 'dgo'. Did you mean 'dog'?")
    assert "'truk'" in said
    assert "\n" not in said


def test_names_of_categories():
    """On one line, with their joiners; words that cannot be written down are refused."""
    assert category_name("a\n b\u2028\x85c\t") == "a b c"
    assert category_name("\u0645\u06cc\u200c\u062e &<>\"'") == "\u0645\u06cc\u200c\u062e &<>\"'"
    for word in ("", " \n", "bell\x07", "half\ud800", "no\ufffe"):
        with pytest.raises(ConceptError, match=r"blank|no file of boxes can hold"):
            category_name(word)


def test_thresholds():
    assert BoxQuery().threshold == BoxQuery(("dog",)).threshold == 0.5
    assert BoxQuery(from_folders=True).threshold == 0
    assert BoxQuery(from_folders=True, at_least=0.5).threshold == 0.5
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConceptError, match="from 0 to 1"):
            BoxQuery(at_least=wrong)
    with pytest.raises(ConceptError, match="name no concepts beside them"):
        BoxQuery(("dog",), from_folders=True)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("dog/2.png", "dog/10.jpg", "cat/1.png", "cat.png"):
        picture(tmp_path / "photos" / name, [])
    return tmp_path / "photos"


def found(*arguments, out="out"):
    root, pictures = find_inputs(arguments, OutputFolder(Path(out), "voc"))
    assert [one.number for one in pictures] == list(range(1, len(pictures) + 1))
    return root, [one.name for one in pictures]


def stems():
    return [one.stem for one in find_inputs(["photos"], OutputFolder(Path("out"), "voc"))[1]]


def test_names_are_relative_to_the_folder_that_was_named_or_the_one_that_holds_all(photos):
    names = ["cat.png", "cat/1.png", "dog/10.jpg", "dog/2.png"]
    assert found("photos") == found(str(photos)) == found("photos/cat.png", "photos") == (photos, names)
    assert found("photos/dog") == found("photos/dog/2.png", "photos/dog") == (photos / "dog", ["10.jpg", "2.png"])
    assert found(".") == (photos.parent, [f"photos/{name}" for name in names])
    below = found("photos/dog", "photos/cat")
    assert below == found("photos/cat", "photos/dog") == found("photos/*/*") == (photos, names[1:])
    assert found("photos/dog/2.png") == (photos / "dog", ["2.png"])
    (photos / "again.png").symlink_to(photos / "cat.png")
    once = ["again.png", *names[1:]]
    assert found("photos")[1] == found("photos", "./photos", str(photos / "cat.png"))[1] == once
    assert found("photos/cat.png", "photos") == found("photos", "photos/cat.png") == found("photos")
    for nothing in ("nothing", "photos/none.png", "*.gif", " "):
        with pytest.raises(ImageError, match=r"no images found|blank"):
            found("photos", nothing)


def test_the_folder_may_be_a_link(photos):
    Path("linked").symlink_to(photos / "dog")
    root, pictures = find_inputs(["linked"], OutputFolder(Path("out"), "voc"))
    assert root == photos / "dog"
    assert [(one.path, one.folder) for one in pictures] == [
        (Path("linked/10.jpg"), "linked"),
        (Path("linked/2.png"), "linked"),
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            ["ä b,c (1).png", "e\u0301.png", "no-dots.v2.png", "😀.png"],
            "cat cat-1 dog-10 dog-2 é no-dots-v2 ä-b-c-1 picture",
        ),
        (
            ["CAT.jpg", "cat-1.png", "cat 1.png", "cat-1-2.png", "cat-1.jpg"],
            "CAT cat-1 cat-1-2 cat-1-3 cat-1-4 cat-2 cat-1-5 dog-10 dog-2",
        ),
    ],
)
def test_stems_without_blanks_and_no_two_alike(photos, names, expected):
    for name in names:
        picture(photos / name, [])
    assert stems() == expected.split()


def test_stems_are_not_too_long(photos):
    for name in ("1.png", "2.png"):
        picture(photos / ("ä" * 100) / ("ö" * 100) / name, [])
    answer = stems()
    assert len(set(answer)) == 6
    assert max(len(stem.encode()) for stem in answer) < 210


class TestOurOwn:
    """Links that an earlier run has put into a folder that is searched."""

    def link(self, out, *originals):
        OutputFolder(Path(out), "voc").write({f"JPEGImages/{path.name}": path for path in originals})

    @pytest.mark.parametrize("out", ["a-boxes", "z-boxes"])  # found before and after the images
    @pytest.mark.parametrize("argument", [".", "**/*.png"])
    def test_are_no_pictures(self, photos, out, argument):
        before = found(argument)
        self.link(out, photos / "cat.png", photos / "cat/1.png")
        assert found(argument, out=out) == before

    def test_nor_are_those_behind_them_if_nobody_named_them(self, photos):
        self.link("out", photos / "cat.png")
        picture(Path("out/more.png"), [])
        assert found("out") == (photos.parent / "out", ["more.png"])
        with pytest.raises(ImageError, match="but those that excite itself has put there"):
            found("out/JPEGImages")
        picture(Path("out/JPEGImages/1.png"), [])  # somebody who keeps images there may get annotations beside them
        self.link("out", Path("out/JPEGImages/1.png").resolve())
        assert found("out/JPEGImages")[1] == ["1.png"]
