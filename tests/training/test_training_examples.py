"""What images show, read from every format there is."""

import json

import annotated
import pytest

from excite.errors import DataError
from excite.training.examples import Example, Examples, read_examples
from excite.vocabulary import Labels


def labels_only(folder, lines, split="train2017"):
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (folder / "annotations" / f"labels_{split}.jsonl").write_text(text)
    return folder


def shown(examples):
    return {picture.name: (set(picture.present), set(picture.unsure)) for picture in examples.pictures}


class TestDatasets:
    def test_voc_with_difficult_objects(self, tmp_path):
        folder = annotated.make_voc(tmp_path, annotated.scenes(4), split="train")
        boxes = [("red", 1), ("red", 0), ("green", 1), ("pottedplant", 0)]
        annotated.annotate(folder, "000001", *(annotated.voc_object(name, (0, 0, 8, 8), hard) for name, hard in boxes))
        examples = read_examples(folder, "train")
        assert examples.categories == ("green", "pottedplant", "red")
        assert shown(examples)["000001"] == ({"red", "pottedplant"}, {"green"})  # one easy red one is enough
        assert shown(examples)["000000"] == ({"green", "red"}, set())
        assert examples.pictures[0].path == folder / "JPEGImages/000000.jpg"
        assert examples.labels.find("potted plant").name == "pottedplant"
        (folder / "Annotations/000002.xml").write_text("<annotation><object/></annotation>")
        examples = read_examples(folder, "train")
        assert list(shown(examples)) == ["000000", "000001", "000003"]
        assert ["000002.xml" in line for line in examples.failures] == [True]


class TestLabelsOnly:
    LINES = ({"file": "b.jpg", "labels": ["dog", "cat"], "captions": []}, {"file": "a.jpg", "labels": []})

    def test_read(self, tmp_path):
        examples = read_examples(labels_only(tmp_path, self.LINES), "train")
        assert examples.categories == ("cat", "dog")
        assert shown(examples) == {"b.jpg": ({"cat", "dog"}, set()), "a.jpg": (set(), set())}
        assert examples.pictures[0].path == tmp_path / "train2017" / "b.jpg"
        with pytest.raises(DataError, match="no categories"):
            read_examples(labels_only(tmp_path, [self.LINES[1]]), "train")

    def test_beside_another_split_with_boxes(self, tmp_path):
        annotated.write_coco(tmp_path, annotated.coco_content(annotated.scenes(3), ["red", "green"]))
        labels_only(tmp_path, self.LINES)
        assert read_examples(tmp_path, "train2017").categories == ("cat", "dog")
        examples = read_examples(tmp_path, "val")
        assert (examples.categories, shown(examples)["000001.jpg"]) == (("red", "green"), ({"red"}, set()))
        with pytest.raises(DataError, match="its splits are train2017, val2017"):
            read_examples(tmp_path, "test")
        annotated.write_coco(tmp_path, annotated.coco_content(annotated.scenes(3), ["red", "green"]), "train2017")
        assert read_examples(tmp_path, "train").categories == ("red", "green")  # where there are boxes, they are read

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ("{", "line 2: broken JSON"),
            ("[]", "line 2: .* was expected"),
            ('{"file": "a.jpg"}', "line 2: .* was expected"),
            ('{"file": "a.jpg", "labels": "cat"}', "line 2: .* was expected"),
            ('{"file": "a.jpg", "labels": [" "]}', "line 2: .* was expected"),
            ('{"file": "../a.jpg", "labels": []}', "line 2: .* no name of an image"),
            ('{"file": "b.jpg", "labels": []}', "several lines"),
        ],
    )
    def test_broken_lines(self, tmp_path, line, said):
        with pytest.raises(DataError, match=said):
            read_examples(labels_only(tmp_path, [self.LINES[0], line]), "train")

    def test_the_shared_pictures(self, shared_data):
        examples = read_examples(shared_data / "coco", "train")
        assert len(examples.pictures) == 3300
        assert len(examples.categories) == 80
        assert all(picture.path.is_file() for picture in examples.pictures[:50])


class TestChoosing:
    EXAMPLES = Examples(
        Labels([["diningtable", "dining table"], "cat", "dog"]),
        ("diningtable", "cat", "dog"),
        tuple(Example(f"{k:06}.jpg", None, frozenset({"cat"})) for k in range(3000)),
    )

    def test_by_any_of_their_words_and_in_that_order(self):
        chosen = self.EXAMPLES.of(Labels(["Dog", ["table", "Dining-Table"]]))
        assert chosen.categories == ("dog", "diningtable")
        assert list(chosen.labels) == ["Dog", "table"]
        assert chosen.pictures == self.EXAMPLES.pictures
        with pytest.raises(DataError, match="no category 'cow': it has diningtable, cat, dog"):
            self.EXAMPLES.of(Labels(["cat", "cow"]))
        with pytest.raises(DataError, match="the same category"):
            self.EXAMPLES.of(Labels(["diningtable", "dining table"]))

    def test_a_tenth_held_out_by_name_alone(self):
        kept, held_out = self.EXAMPLES.split(0.1)
        assert len(kept.pictures) + len(held_out.pictures) == 3000
        assert 240 < len(held_out.pictures) < 360
        assert not {picture.name for picture in kept.pictures} & {picture.name for picture in held_out.pictures}
        fewer = Examples(self.EXAMPLES.labels, self.EXAMPLES.categories, self.EXAMPLES.pictures[:100])
        assert set(fewer.split(0.1)[1].pictures) <= set(held_out.pictures)
        assert set(held_out.pictures) <= set(self.EXAMPLES.split(0.2)[1].pictures)
        assert self.EXAMPLES.split(0)[0] == self.EXAMPLES
