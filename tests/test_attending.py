"""The question the package answers: from an image, a classifier and words to maps."""

import copy

import numpy as np
import pytest
import torch
from method_names import FOR_ANY_NETWORK
from PIL import Image
from skimage import data
from torch import nn

import excite
from excite.errors import ConceptError, LayerError, LostSignalWarning, ModelError
from excite.models import Preprocess
from excite.vocabulary import Concept, Labels


@pytest.fixture(scope="module")
def classifier():
    return excite.load("efficientnet-lite0")


@pytest.fixture(scope="module")
def chelsea():
    return Image.fromarray(data.chelsea())


def plain(picture):
    """Pixels as they are, in 0..1 and double precision, at their own size."""
    return torch.from_numpy(np.array(picture, dtype=np.float64) / 255).permute(2, 0, 1)


def noise(width, height, seed=0):
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def small_network(outputs=4, seed=0):
    torch.manual_seed(seed)
    body = [nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    body += [nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(8, outputs)).double()


def small(outputs=4, **options):
    return excite.wrap(small_network(outputs).eval(), preprocess=plain, **options)


def red_patches():
    """A classifier that sees red: its map is the image's red channel, so that its answers are known."""
    network = nn.Sequential(nn.Conv2d(3, 1, 1, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network.append(nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        network[0].weight[:] = torch.tensor([1.0, 0.0, 0.0])[None, :, None, None]
        network[4].weight[:] = torch.tensor([[1.0], [-1.0]])
    return excite.wrap(network.eval(), labels=["red", "other"], preprocess=Preprocess(mean=0, scale=1 / 255), layer="1")


def with_patch(size, patch):
    picture = Image.new("RGB", size)
    picture.paste((255, 0, 0), patch)
    return picture


def same(one, other, tolerance=1e-6):
    assert one.concept == other.concept
    for name in ("layer", "method", "units", "image_size"):
        assert getattr(one, name) == getattr(other, name)
    torch.testing.assert_close(one.values, other.values, rtol=0, atol=tolerance)
    assert one.probability == pytest.approx(other.probability, abs=1e-5)
    assert one.mass == pytest.approx(other.mass, abs=1e-5)


class TestPhotographs:
    """The boxes were written down by looking at the photographs, not at the maps."""

    HEAD = (30, 0, 405, 290)  # of the cat, ears to chin
    CUP = (165, 10, 420, 310)
    ROCKET = (290, 115, 352, 410)
    TOWERS = ((0, 0, 95, 427), (160, 115, 215, 427), (430, 115, 485, 427), (550, 0, 640, 427))

    @staticmethod
    def inside(point, box):
        x, y = point
        return box[0] <= x < box[2] and box[1] <= y < box[3]

    @pytest.mark.parametrize("word", ["cat", "tiger cat"])
    def test_the_cat_is_found_by_its_head(self, classifier, chelsea, word):
        (found,) = excite.attend(classifier, chelsea, word)
        assert self.inside(found.point(), self.HEAD)

    @pytest.mark.parametrize("word", ["rocket", "space shuttle"])
    def test_the_rocket_is_found(self, classifier, word):
        (found,) = excite.attend(classifier, data.rocket(), word)
        assert self.inside(found.point(), self.ROCKET)

    def test_concepts_differ(self, classifier):
        rocket, crane = excite.attend(classifier, data.rocket(), ["rocket", "crane"])
        assert any(self.inside(crane.point(), tower) for tower in self.TOWERS)
        shapes = [found.values / found.values.sum() for found in (rocket, crane)]
        assert torch.minimum(*shapes).sum() < 0.4  # they share less than half of their evidence

    def test_contrast_parts_what_plain_maps_confuse(self, classifier):
        """The paper's point: without contrast the crane is seen on the rocket too."""
        rocket, crane = excite.attend(classifier, data.rocket(), ["rocket", "crane"], method="mwp")
        assert self.inside(crane.point(), self.ROCKET)
        shapes = [found.values / found.values.sum() for found in (rocket, crane)]
        assert torch.minimum(*shapes).sum() > 0.6

    def test_its_own_findings(self, classifier, chelsea):
        maps = excite.attend(classifier, chelsea)
        with torch.no_grad():
            logits = classifier.module(classifier.preprocess(chelsea)[None])
        best = logits.softmax(1)[0].topk(5)
        assert [found.units for found in maps] == [(unit,) for unit in best.indices.tolist()]
        assert [found.probability for found in maps] == pytest.approx(best.values.tolist(), abs=1e-5)
        assert [found.concept for found in maps] == [classifier.labels.name(unit) for unit in best.indices]
        assert {(found.layer, found.method) for found in maps} == {("blocks.14", "c-mwp")}


class TestOriginalPixels:
    @pytest.mark.parametrize("size", [(40, 30), (400, 100), (300, 1400)])
    def test_whatever_its_size(self, size):
        width, height = size
        patch = (width // 2, height // 5, width * 3 // 4, height // 2)
        (found,) = excite.attend(red_patches(), with_patch(size, patch), "red")
        slack = max(2, max(found.image_size) // 100)
        x, y = found.point()
        assert patch[0] - slack <= x <= patch[2] + slack
        assert patch[1] - slack <= y <= patch[3] + slack
        assert found.box() == pytest.approx(patch, abs=slack)

    @pytest.mark.parametrize("kind", ["path", "string", "picture", "array", "tensor"])
    def test_pictures_of_every_kind_give_the_same_answer(self, tmp_path, chelsea, classifier, kind):
        path = tmp_path / "cat.png"
        chelsea.save(path)
        source = {
            "path": path,
            "string": str(path),
            "picture": chelsea,
            "array": np.array(chelsea),
            "tensor": torch.from_numpy(np.array(chelsea)).permute(2, 0, 1),
        }[kind]
        same(excite.attend(classifier, source, "tabby")[0], excite.attend(classifier, chelsea, "tabby")[0], 0)


class TestSignals:
    """The map of a mixed signal is the mixture of the maps: everything is linear until the negative part is cut."""

    def shares(self, classifier, picture, units):
        with torch.no_grad():
            found = classifier.module(classifier.preprocess(picture)[None]).softmax(1)[0, list(units)]
        return (found / found.sum()).tolist()

    def test_a_group_is_the_weighted_sum_of_its_labels(self, classifier, chelsea):
        (group,) = excite.attend(classifier, chelsea, "cat", method="mwp")
        singles = excite.attend(classifier, chelsea, list(group.units), method="mwp")
        shares = self.shares(classifier, chelsea, group.units)
        assert len(group.units) == 5
        expected = sum(share * single.values for share, single in zip(shares, singles, strict=True))
        torch.testing.assert_close(group.values, expected, rtol=0, atol=1e-6)
        assert group.probability == pytest.approx(sum(single.probability for single in singles), abs=1e-6)

    def test_a_contrastive_group_is_cut_off_once(self, classifier, chelsea):
        (group,) = excite.attend(classifier, chelsea, "cat")
        shares = self.shares(classifier, chelsea, group.units)
        cues = torch.eye(1000)[list(group.units), None]
        inputs = classifier.preprocess(chelsea)[None]
        raw = excite.mwp(classifier.module, inputs, cues, layer="blocks.14", contrastive=True).sum(2)[:, 0]
        torch.testing.assert_close(group.values, torch.tensordot(torch.tensor(shares), raw, 1).clamp(min=0))
        assert raw.amin((1, 2)).min() < 0  # there was something to cut off

    @pytest.mark.parametrize("method", ["mwp", "c-mwp"])
    def test_against_is_the_difference_of_two_plain_maps(self, classifier, chelsea, method):
        (found,) = excite.attend(classifier, chelsea, "tabby", against="plastic bag", method=method)
        tabby, bag = excite.attend(classifier, chelsea, ["tabby", "plastic bag"], method="mwp")
        torch.testing.assert_close(found.values, (tabby.values - bag.values).clamp(min=0), rtol=0, atol=1e-6)
        assert found.mass == pytest.approx(float((tabby.values - bag.values).clamp(min=0).sum()), abs=1e-5)
        assert found.concept == "tabby, not plastic bag"
        assert found.probability == pytest.approx(tabby.probability)

    def test_against_several_is_against_their_group(self, classifier, chelsea):
        rivals = ["plastic bag", "lynx"]
        (found,) = excite.attend(classifier, chelsea, "cat", against=rivals, method="mwp")
        cat, *others = excite.attend(classifier, chelsea, ["cat", *rivals], method="mwp")
        shares = self.shares(classifier, chelsea, [unit for other in others for unit in other.units])
        expected = cat.values - sum(share * other.values for share, other in zip(shares, others, strict=True))
        torch.testing.assert_close(found.values, expected.clamp(min=0), rtol=0, atol=1e-6)

    def test_a_unit_that_underflows_shares_evenly(self):
        """Probabilities of exactly zero give no weights: the concept's units are then cued alike."""
        network = small_network(3)
        with torch.no_grad():
            network[8].bias[:] = torch.tensor([0.0, -2000.0, -2000.0])
        classifier = excite.wrap(network.eval(), preprocess=plain, layer="5")
        picture = noise(12, 9)
        (group,) = excite.attend(classifier, picture, Concept("both", (1, 2)), method="mwp")
        one, two = excite.attend(classifier, picture, [1, 2], method="mwp")
        torch.testing.assert_close(group.values, (one.values + two.values) / 2)


class TestLayers:
    def test_several_layers_in_one_pass(self, classifier, chelsea):
        layers = ["blocks.10", "head"]
        maps = excite.attend(classifier, chelsea, ["tabby", "lynx"], layer=layers)
        assert [(found.concept, found.layer) for found in maps] == [
            (concept, layer) for concept in ("tabby", "lynx") for layer in layers
        ]
        for found in maps:
            (alone,) = excite.attend(classifier, chelsea, found.concept, layer=found.layer)
            same(found, alone)

    @pytest.mark.parametrize("method", FOR_ANY_NETWORK)
    def test_a_network_of_ones_own_needs_no_layer(self, method):
        (found,) = excite.attend(small(), noise(40, 30), 1, method=method)
        at_input, nearer = excite.METHODS[method].place == "input", len(excite.METHODS[method].scales) > 1
        assert found.layer == ("input" if at_input else "5")
        assert found.values.shape == ((30, 40) if at_input else (27, 37) if nearer else (15, 20))

    @pytest.mark.parametrize("method", [name for name in FOR_ANY_NETWORK if excite.METHODS[name].place != "input"])
    def test_the_default_layer_lies_below_the_last_weights(self, method):
        """Read at the classifier itself, a contrast would be refused and a plain map would say nothing."""
        torch.manual_seed(1)
        network = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 1)).double().eval()
        (found,) = excite.attend(excite.wrap(network, preprocess=plain), noise(12, 9), 1, method=method)
        assert found.layer == "1"

    def test_hardly_any_signal(self):
        network = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2))
        with torch.no_grad():
            network[4].weight.fill_(-1.0)  # nothing excites: every unit answers by its bias alone
            network[4].bias.fill_(5.0)
        classifier = excite.wrap(network.eval(), preprocess=Preprocess())
        with pytest.warns(LostSignalWarning, match="only 0 of the signal for '0' is left at layer '1'"):
            (found,) = excite.attend(classifier, noise(30, 20), 0, method="mwp")
        assert found.mass == 0
        assert found.point() is None
        assert found.box() is None


class TestMass:
    """What of the signal arrives at the layers of the embedded classifier."""

    LAYERS = ("stem", *(f"blocks.{block}" for block in range(16)), "head")

    def masses(self, module, inputs):
        with torch.no_grad():
            unit = int(module(inputs)[0].argmax())
        maps = excite.mwp(module, inputs, unit, layer=self.LAYERS)
        return {layer: float(values.sum()) for layer, values in maps.items()}

    def test_above_the_last_block_nothing_is_lost_and_below_a_known_part(self, classifier, chelsea):
        masses = self.masses(classifier.module, classifier.preprocess(chelsea)[None])
        assert masses["head"] == pytest.approx(1, abs=1e-4)
        assert masses["blocks.15"] == pytest.approx(1, abs=1e-4)
        assert 0.25 < masses["blocks.14"] < 0.45
        assert 0.02 < masses["stem"] < 0.08
        from_below = list(masses.values())
        assert from_below == pytest.approx(sorted(from_below), abs=1e-5)  # what is lost does not come back

    def test_without_biases_nothing_is_lost(self, classifier, chelsea):
        """All that is lost is lost at units excited by their bias alone: without biases there are none."""
        module = copy.deepcopy(classifier.module)
        for norm in module.modules():
            if isinstance(norm, nn.BatchNorm2d):
                norm.running_mean.zero_()
                nn.init.zeros_(norm.bias)
        masses = self.masses(module, classifier.preprocess(chelsea)[None])
        assert len(masses) == len(self.LAYERS)
        assert all(mass == pytest.approx(1, abs=1e-3) for mass in masses.values()), masses


class TestBatches:
    def test_equals_one_by_one(self, classifier, chelsea):
        pictures = [
            chelsea,
            chelsea.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
            Image.fromarray(data.coffee()),
            chelsea.rotate(180),
            Image.fromarray(data.coffee()).crop((0, 0, 300, 300)),
        ]
        concepts = [["cat", "plastic bag"], "tabby", ["cup"], None, []]
        batch = excite.attend_batch(classifier, pictures, concepts)
        assert [len(maps) for maps in batch] == [2, 1, 1, 5, 0]
        for picture, cues, maps in zip(pictures, concepts, batch, strict=True):
            alone = excite.attend(classifier, picture, cues)
            for one, other in zip(maps, alone, strict=True):
                same(one, other)
                assert one.image.tobytes() == picture.tobytes()

    def test_pictures_of_one_size_share_a_forward_pass(self):
        classifier = small(layer="5", verify=False)
        excite.attend(classifier, noise(12, 10), 0)  # that the layer is a map is found out once
        sizes = []
        hook = classifier.module.register_forward_pre_hook(lambda _module, inputs: sizes.append(len(inputs[0])))
        pictures = [noise(12, 10), noise(10, 12), noise(12, 10, seed=1), noise(12, 10, seed=2)]
        excite.attend_batch(classifier, pictures, [[0, 1, 2]] * 4)
        hook.remove()
        assert sorted(sizes) == [1, 3]

    @pytest.mark.parametrize("concept", ["cat", 1, np.int64(1), Concept("cat", (1,))])
    def test_one_concept_is_looked_for_everywhere(self, concept):
        """Three images and the word "cat": not the letters c, a and t."""
        classifier = small(labels=["c", "cat", "a", "t"], layer="5")
        batch = excite.attend_batch(classifier, [noise(9, 8, seed) for seed in range(3)], concept)
        assert [[found.units for found in maps] for maps in batch] == [[(1,)]] * 3


class TestConcepts:
    @pytest.mark.parametrize(
        "cue", [285, np.int64(285), "285", "Egyptian_CAT", Concept("mine", (285,)), torch.tensor(285)]
    )
    def test_ways_to_name_one(self, classifier, chelsea, cue):
        maps = [excite.attend(classifier, chelsea, cue), excite.attend(classifier, chelsea, [cue])]
        assert [[found.units for found in one] for one in maps] == [[(285,)]] * 2

    def test_numbers_are_the_words_of_a_network_without_words(self):
        assert [found.concept for found in excite.attend(small(), noise(12, 10), ["3", 0])] == ["3", "0"]
        with pytest.raises(ConceptError, match="units are 0 to 3"):
            excite.attend(small(), noise(12, 10), 4)
        assert len(excite.attend(small(outputs=3), noise(12, 10))) == 3  # fewer than five findings

    def test_labels_that_do_not_fit(self):
        with pytest.raises(ModelError, match="4 outputs but 2 labels"):
            excite.attend(small(labels=["cat", "dog"]), noise(12, 10), "cat")

    def test_several_may_be_true_at_once(self):
        classifier = small(multilabel=True, labels=Labels(list("abcd"), groups={"both": (0, 2)}))
        picture = noise(12, 10)
        with torch.no_grad():
            expected = classifier.module(plain(picture)[None]).sigmoid()[0].tolist()
        maps = excite.attend(classifier, picture, list("abcd"), method="mwp")
        assert [found.probability for found in maps] == pytest.approx(expected, abs=1e-6)
        (both,) = excite.attend(classifier, picture, "both", method="mwp")
        assert both.probability == pytest.approx(max(expected[0], expected[2]), abs=1e-6)
        share = expected[0] / (expected[0] + expected[2])
        mixed = share * maps[0].values + (1 - share) * maps[2].values
        torch.testing.assert_close(both.values, mixed, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("concepts", "options", "error", "reason"),
    [
        ("tabby", {"against": "tabby"}, ConceptError, "'tabby' cannot be contrasted with itself"),
        ("tabby", {"layer": "blocks.99"}, LayerError, r"no layer 'blocks\.99'.*closest: blocks\.9.*stem.*head"),
        ("tabby", {"layer": "classifier"}, LayerError, r"'classifier' has no places: its output has shape \(1, 1000\)"),
        ("tabby", {"layer": []}, LayerError, "no layer was named"),
        ([["cat"]] * 2, {}, ConceptError, "1 images but concepts for 2"),
        ("egyptian ct", {}, ConceptError, r"No label is called 'egyptian ct'\. Did you mean 'egyptian cat'"),
    ],
)
def test_what_cannot_be_asked(classifier, chelsea, concepts, options, error, reason):
    with pytest.raises(error, match=reason):
        excite.attend_batch(classifier, [chelsea], concepts, **options)


class TestNetworksOfOnesOwn:
    def test_one_that_answers_for_each_place(self):
        """The signal starts where the class is likeliest, and the rule is that of the paper (Eqn. 8), written out."""
        torch.manual_seed(1)
        network = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 4, 1, bias=False)).double()
        picture = noise(11, 7)
        (found,) = excite.attend(excite.wrap(network.eval(), preprocess=plain), picture, 2, method="mwp")
        with torch.no_grad():
            features = network[:2](plain(picture)[None])[0]
            logits = network(plain(picture)[None])[0, 2]
            start = logits.flatten().softmax(0).view_as(logits)
            weights = network[2].weight[2, :, 0, 0]
            excitation = (weights.clamp(min=0)[:, None, None] * features).sum(0)
            expected = torch.where(excitation > 0, start, 0.0)  # one place above, one place below
            probability = float(network(plain(picture)[None]).mean((2, 3)).softmax(1)[0, 2])
        assert found.layer == "1"
        torch.testing.assert_close(found.values.double(), expected, rtol=0, atol=1e-6)
        assert found.probability == pytest.approx(probability)

    @pytest.mark.filterwarnings("ignore::excite.errors.TrainingModeWarning")
    @pytest.mark.parametrize("method", FOR_ANY_NETWORK)
    def test_one_in_training_is_left_as_it_was(self, method):
        network = small_network().train()
        network[0].eval()
        before = copy.deepcopy(network.state_dict())
        classifier = excite.wrap(network, preprocess=plain)
        excite.attend(classifier, noise(12, 10), [0, 1], method=method)
        after = network.state_dict()
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert [part.training for part in network] == [False] + [True] * 8
        assert all(parameter.requires_grad and parameter.grad is None for parameter in network.parameters())
        assert not any(part._forward_hooks or part._forward_pre_hooks for part in network.modules())


class TestNetworksOfOneSize:
    """A fully connected network takes one size of image; ours are of all shapes."""

    def network(self):
        torch.manual_seed(0)
        body = [nn.Conv2d(3, 4, 3, stride=4), nn.ReLU(), nn.Flatten()]
        return nn.Sequential(*body, nn.Linear(4 * 8 * 8, 5))

    @pytest.mark.parametrize("layer", ["1", None])  # without one, a dry run looks for the best
    def test_a_clear_error_says_what_to_do(self, layer):
        classifier = excite.wrap(self.network(), layer=layer, preprocess=lambda _picture: torch.zeros(3, 32, 48))
        with pytest.raises(ModelError, match=r"Sequential fails on .* 3 x 32 x 48: .*fully_convolutional=True"):
            excite.attend(classifier, Image.new("RGB", (300, 200), "red"), 1)
        with pytest.raises(ModelError, match="choose a method with one scale, such as c-mwp"):
            excite.attend(classifier, Image.new("RGB", (300, 200), "red"), 1, method="excite")

    @pytest.mark.parametrize("square", [False, True])
    @pytest.mark.parametrize("method", ["c-mwp", "excite", "extent"])
    def test_it_gets_its_one_size_at_every_scale(self, square, method):
        preprocess = Preprocess(shorter_side=32, square=square)
        classifier = excite.wrap(self.network(), layer="1", preprocess=preprocess)
        (found,) = excite.attend(classifier, noise(300, 200), 1, method=method)
        assert found.values.shape == (8, 8)

    def test_fully_convolutional_it_takes_them_all(self):
        preprocess = Preprocess(shorter_side=32)
        classifier = excite.wrap(self.network(), layer="1", preprocess=preprocess, fully_convolutional=True)
        pictures = [Image.effect_noise((300, 200), 80).convert("RGB"), Image.effect_noise((64, 64), 80).convert("RGB")]
        for picture, width in zip(pictures, (12, 8), strict=True):
            (found,) = excite.attend(classifier, picture, 1, method="mwp")
            assert found.values.shape == (8, width)
            assert 0.5 < found.mass < 1 + 1e-5
