"""The Difficult subset: the rule, and lists of others."""

from pathlib import Path

import pytest
from annotated import coco_content, make_voc, scenes, write_coco

from excite.datasets import Instance, Sample, Target, open_dataset
from excite.datasets.difficult import is_difficult, read_difficult_list
from excite.errors import DataError, ImageError


def target(concept, *boxes, difficult=False):
    return Target(concept, tuple(Instance(box, difficult=difficult) for box in boxes))


def sample(*targets, size=(10, 10), path="a.jpg"):
    return Sample("a", Path(path), targets, size)


class TestRule:
    DOG = target("dog", (0, 0, 1, 1))

    @pytest.mark.parametrize(
        ("boxes", "expected"),
        [
            ([(0, 0, 4, 6)], True),  # 24 of 100
            ([(0, 0, 5, 5)], False),  # a quarter is not less than a quarter
            ([(0, 0, 3, 4), (0, 0, 3, 4)], True),
            ([(0, 0, 3, 5), (0, 0, 3, 5)], False),  # added up, though it is one place
            ([(0, 0, 0, 10)], True),  # without any area
        ],
    )
    def test_less_than_a_quarter(self, boxes, expected):
        cat = target("cat", *boxes)
        assert is_difficult(sample(cat, self.DOG), cat) is expected

    def test_never_alone_and_by_the_annotated_area(self):
        assert not is_difficult(sample(self.DOG), self.DOG)
        cat = Target("cat", (Instance((0, 0, 10, 10), annotated_area=20.0),))
        assert is_difficult(sample(cat, self.DOG), cat)

    def test_a_picture_of_unknown_size_is_read(self, tmp_path):
        dataset = open_dataset(make_voc(tmp_path, scenes(1)))
        found = dataset.sample("000000")
        assert found.size is None
        assert all(is_difficult(found, one) for one in found.targets)  # 8 x 8 of 48 x 48
        found.path.unlink()
        with pytest.raises(ImageError):
            is_difficult(Sample("b", tmp_path / "b.jpg", found.targets), found.targets[0])

    @pytest.mark.parametrize(("place", "pairs", "hard"), [("VOCdevkit", 1450, 511), ("coco", 502, 427)])
    def test_real_data(self, shared_data, place, pairs, hard):
        """Counted by another program too: in whole pixels from VOC's files, by the areas of COCO's."""
        samples = open_dataset(shared_data / place, "val")
        found = [(one, target) for one in samples for target in one.targets if not target.difficult]
        assert (len(found), sum(is_difficult(*pair) for pair in found)) == (pairs, hard)


class TestLists:
    @pytest.fixture
    def voc(self, tmp_path):
        return open_dataset(make_voc(tmp_path / "voc", scenes(4)))  # green and red

    def read(self, tmp_path, text, dataset):
        (tmp_path / "list.txt").write_text(text)
        return read_difficult_list(tmp_path / "list.txt", dataset)

    @pytest.mark.parametrize(
        "text",
        [
            "000000\t0\t1\n000001\t0\t0\n000002\t1\t1\n",  # as the authors' lists are passed on
            "000000 0 1\n000002 1 1\n",
            "000000 red\n\n000002 red green\n",
            "000000,red\n000002, green, red\n000000,red\n",
            "000000\tred\r\n000002\tred\tgreen\r\n",
            '{"red": ["000000", "000002"], "green": ["000002"]}',
        ],
    )
    def test_formats(self, tmp_path, voc, text):
        assert self.read(tmp_path, text, voc) == {("000000", "red"), ("000002", "red"), ("000002", "green")}

    @pytest.mark.parametrize(
        "text",
        [
            "000000.jpg,dining table\n000001.jpg,red\n",
            "000000 dining table\n000001 red\n",
            "99,dining table\n98,red\n",
            "000000 0 1 0\n000001 1 0 0\n",
            '{"dining table": [99], "red": ["98"]}',
            '{"dining table": ["000000"], "red": [98]}',
        ],
    )
    def test_names_and_numbers_of_coco(self, tmp_path, text):
        coco = open_dataset(write_coco(tmp_path, coco_content(scenes(4), ["red", "dining table", "green"])))
        assert self.read(tmp_path, text, coco) == {("000000.jpg", "dining table"), ("000001.jpg", "red")}

    def test_names_of_others_are_counted(self, tmp_path, voc):
        with pytest.warns(UserWarning, match=r"2 of its 3 images are not in the split 'val' \('000007' is the first"):
            found = self.read(tmp_path, "000000 red\n000007 red\n000008 whale\n000007 green\n", voc)
        assert found == {("000000", "red")}

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "it lists no images"),
            ("{}", "it lists no images"),
            ("000007 red\n", "none of its 1 images is in the split 'val': it has '000007', the data set '000000'"),
            ("000000 red\n000001 rde\n", "line 2: 'rde' is no category"),
            ("000000\n", "line 1: the name of an image and categories"),
            ("000000,red,\n", "line 1: the name of an image and categories"),
            ("000000 0 1 0\n", "line 1: 3 flags, but the data set has 2 categories"),
            ('{"red": "000000"}', "'red': a list of names"),
            ('{"red": [0.5]}', "'red': a list of names"),
            ('{"whale": ["000000"]}', "'whale' is no category"),
            ('{"red": ["000000"]', "broken JSON"),
            ('["000000"]', "names of images for each category were expected"),
        ],
    )
    def test_broken(self, tmp_path, voc, text, words):
        with pytest.raises(DataError, match=rf"list\.txt.*{words}"):
            self.read(tmp_path, text, voc)

    def test_a_name_of_two_pictures_names_neither(self, tmp_path):
        content = coco_content(scenes(2), ["red", "green"])
        content["images"][0]["file_name"], content["images"][1]["file_name"] = "a.jpg", "a.png"
        dataset = open_dataset(write_coco(tmp_path / "coco", content))
        with pytest.raises(DataError, match="none of its 1 images"):
            self.read(tmp_path, "a red\n", dataset)
        assert self.read(tmp_path, "a.png red\n", dataset) == {("a.png", "red")}
