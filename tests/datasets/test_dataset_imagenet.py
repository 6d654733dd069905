"""The tables of ImageNet's localisation challenge."""

import pytest
from annotated import make_imagenet, scenes

from excite.datasets import open_dataset
from excite.errors import ConceptError, DataError
from excite.vocabulary import Labels, imagenet_labels

WORDS = ["red", "green"]


@pytest.fixture
def folder(tmp_path):
    return make_imagenet(tmp_path, scenes(4), WORDS)


def boxes(folder, line):
    (folder / "LOC_val_solution.csv").write_text(f"ImageId,PredictionString\n{line}\n")
    return open_dataset(folder).sample("a").targets


def test_a_sample(folder):
    sample = open_dataset(folder).sample("000001")
    assert sample.path == folder / "val/000001.JPEG"
    assert [target.concept for target in sample.targets] == ["n00000000"]
    assert sample.targets[0].boxes == ((4, 4, 12, 12),)  # as drawn: the file's last pixel is included


def test_several_boxes_and_classes(folder):
    red, green = boxes(folder, "a,n00000000 1 2 3 4 n00000001 0 0 0 0 n00000000 5 6 7 8 ")
    assert (red.concept, red.boxes) == ("n00000000", ((1, 2, 4, 5), (5, 6, 8, 9)))
    assert (green.concept, green.boxes) == ("n00000001", ((0, 0, 1, 1),))


def test_sorted_into_folders_of_classes(folder):
    """As torchvision wants them."""
    for sample in open_dataset(folder):
        place = folder / "val" / sample.targets[0].concept
        place.mkdir(exist_ok=True)
        sample.path.rename(place / sample.path.name)
    assert [sample.path.parent.name for sample in open_dataset(folder)] == ["n00000001", "n00000000"] * 2
    assert all(sample.path.is_file() for sample in open_dataset(folder))


def test_the_usual_words_where_there_is_no_file_of_words(folder):
    (folder / "LOC_synset_mapping.txt").unlink()
    (target,) = boxes(folder, "a,n01751748 111 108 441 193")
    dataset = open_dataset(folder)
    assert (target.boxes, dataset.words(target.concept)[0]) == (((111, 108, 442, 194),), "sea snake")
    assert len(dataset.categories) == 1000
    assert dataset.concept("n01751748", imagenet_labels()).units == (65,)
    with pytest.raises(DataError, match=r"csv, line 2: 'n00000000' is no class of ImageNet"):
        boxes(folder, "a,n00000000 1 2 3 4")


class TestConcepts:
    def test_namesakes_are_told_apart(self, folder):
        """Two classes are called crane, and two maillot."""
        (folder / "LOC_synset_mapping.txt").write_text("n02012849 crane\nn03126707 crane\nn00000000 red\nn00000001 x\n")
        dataset = open_dataset(folder)
        bird, machine = (dataset.concept(wnid, imagenet_labels()) for wnid in ("n02012849", "n03126707"))
        assert (bird.units, machine.units) == ((134,), (517,))

    def test_another_classifier_is_asked_by_words(self, folder):
        dataset = open_dataset(folder)
        assert dataset.concept("n00000001", Labels(["blue", "green"])).units == (1,)
        with pytest.raises(ConceptError):
            dataset.concept("n00000000", Labels(["blue", "green"]))

    def test_all_real_classes(self, shared_data):
        dataset = open_dataset(shared_data / "imagenet")
        units = [dataset.concept(wnid, imagenet_labels()).units for wnid in dataset.categories]
        assert units == [(unit,) for unit in range(1000)]
        assert all(dataset.words(wnid)[0] == imagenet_labels().name(k) for k, wnid in enumerate(dataset.categories))


class TestBroken:
    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("a,n00000000 1 2 3", "line 2: a class and four numbers"),
            ("a,", "line 2: a class and four numbers"),
            ("a,n00000000 1 2 3 four", "line 2: the corners of a box must be numbers"),
            ("a,n00000000 5 2 3 4", "line 2: .* is no box"),
            ("a,n00000000 -1 2 3 4", "line 2: .* begins outside of the image"),
            ("a,n00000000 nan 2 3 4", "line 2: .* is no box"),
            ("a,n00000000 1 2 1e999 4", "line 2: .* is no box"),
            ("a,n09999999 1 2 3 4", "line 2: 'n09999999' is no class"),
            ("a", "line 2: two columns"),
            ("a,n00000000 1 2 3 4\na,n00000000 1 2 3 4", "line 3: two columns and a new image"),
        ],
    )
    def test_a_line(self, folder, line, words):
        with pytest.raises(DataError, match=rf"LOC_val_solution\.csv, {words}"):
            boxes(folder, line)

    @pytest.mark.parametrize(
        ("file", "text", "words"),
        [
            ("LOC_val_solution.csv", "a,n00000000 1 2 3 4\n", "line 1: the columns must be"),
            ("LOC_synset_mapping.txt", "n00000000 red\ngreen\n", "line 2: a WordNet number"),
        ],
    )
    def test_a_file(self, folder, file, text, words):
        (folder / file).write_text(text)
        with pytest.raises(DataError, match=rf"{file}, {words}"):
            open_dataset(folder)
