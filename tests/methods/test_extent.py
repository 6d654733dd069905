"""The extent of the main object: winners, and what looks like them."""

from dataclasses import replace

import pytest
import torch
from networks import Staged
from PIL import Image
from scipy import ndimage
from torch import nn

import excite
from excite.images import read_image
from excite.methods import METHODS
from excite.methods.base import largest_region, resized
from excite.methods.excitation import LARGER
from excite.methods.extent import BACKGROUND, CLASS, CONTRAST, LOSING, PART, STEEP, likeness, without_the_weak
from excite.models import Preprocess
from excite.session import Session


@pytest.fixture
def module():
    torch.manual_seed(0)
    return Staged()


@pytest.fixture
def classifier(module):
    return excite.wrap(module, labels=list("abcd"), preprocess=Preprocess(28))


def alike(fine, evidence):
    """How much more each position is like the winners than like the losers, with loops."""
    height, width = evidence.shape
    directions = {
        (y, x): fine[:, y, x] / fine[:, y, x].norm().clamp(min=1e-12) for y in range(height) for x in range(width)
    }
    winner = sum(evidence[place] ** 2 * direction for place, direction in directions.items())
    loser = sum(direction / (evidence[place] + LOSING) for place, direction in directions.items())
    toward = winner / winner.norm() - BACKGROUND * loser / loser.norm()
    score = torch.tensor([[directions[y, x] @ toward for x in range(width)] for y in range(height)])
    return ((score - score.min()) / (score.max() - score.min())).float()


def by_hand(classifier, module, picture, name, contrast=0.0, cards=False):
    """The map once more, with loops and without the helpers."""
    evidence, similar, masses = [], [], []
    for scale in (1.0, LARGER):
        inputs = classifier.prepared(picture, scale)[None]
        fine = module.fine(inputs)[0].detach().double()
        sized = excite.wrap(module, labels=list("abcd"), preprocess=Preprocess(round(28 * scale)))
        (won,) = excite.attend(sized, picture, name, method="mwp", layer="coarse")
        masses.append(won.mass)
        on_fine = resized(won.values[None], fine.shape[-2:])[0].double()
        on_fine /= on_fine.mean()
        if contrast:
            (more,) = excite.attend(sized, picture, name, method="c-mwp", layer="coarse")
            more = resized(more.values[None], fine.shape[-2:])[0].double()
            on_fine = (1 - contrast) * on_fine + contrast * more / more.mean()
        if cards:
            weights = module.output.weight["abcd".index(name)]
            active = (weights[:, None, None] * module.coarse(module.fine(inputs))[0]).sum(0).clamp(min=0).detach()
            active = resized(active[None], fine.shape[-2:])[0]
            on_fine = (1 - CLASS) * on_fine + CLASS * active / active.mean()
        evidence.append(on_fine.float())
        similar.append(alike(fine, on_fine))
    grid = evidence[1].shape
    evidence, similar = (sum(resized(each[None], grid) for each in both)[0] / 2 for both in (evidence, similar))
    found = evidence * similar ** (2 if contrast else 1)
    if contrast:
        return found / found.sum() * sum(masses) / 2
    if cards:
        finest = module.fine[0](inputs)[0].detach().double()
        found = resized(found[None], finest.shape[-2:])[0]
        found = found / found.mean() * alike(finest, (found / found.mean()).double())
    part = (found > found.mean()).float().mean()
    kept = largest_region((found * (found > min((PART / part) ** STEEP * found.mean(), found.max() / 2)))[None])[0]
    return kept / kept.sum() * sum(masses) / 2


@pytest.mark.parametrize(("method", "contrast"), [("extent", 0.0), ("c-extent", CONTRAST)])
def test_it_is_what_it_says(classifier, module, picture, method, contrast):
    other, found = excite.attend(classifier, picture, ["a", "b"], method=method, layer="coarse+fine")
    expected = by_hand(classifier, module, picture, "b", contrast)
    torch.testing.assert_close(found.values, expected, rtol=1e-4, atol=1e-7)
    assert not torch.allclose(other.values, expected)
    (found,) = excite.attend(classifier, picture, "b", method=method, layer="coarse@coarse+fine^fine.0")
    again = by_hand(classifier, module, picture, "b", contrast, cards=True)
    torch.testing.assert_close(found.values, again, rtol=1e-4, atol=1e-7)
    assert not torch.allclose(expected, again)


def test_winners_of_several_layers_count_the_same(classifier, picture):
    """A layer twice is no other evidence than once, and another one is."""
    once, twice, other = (
        excite.attend(classifier, picture, "b", method="extent", layer=layer)[0]
        for layer in ("coarse+fine", "coarse+coarse.1+fine", "coarse+fine+fine")
    )
    torch.testing.assert_close(once.values, twice.values)
    assert not torch.allclose(once.values, other.values)
    assert once.layer == "coarse+fine"


def test_a_network_that_nobody_knows_is_read_at_its_last_map_and_its_default_layer(classifier, picture):
    (found,) = excite.attend(classifier, picture, "b", method="extent")
    assert set(found.layer.split("+")) <= {"coarse", "coarse.1", "fine", "fine.1"}


def test_a_layer_that_is_not_there_is_named(classifier, picture):
    with pytest.raises(excite.ExciteError, match="fin"):
        excite.attend(classifier, picture, "b", method="extent", layer="coarse+fin")


def test_pictures_of_a_batch_do_not_touch_each_other(classifier, picture):
    other = picture.transpose(Image.Transpose.ROTATE_180)
    together = excite.attend_batch(classifier, [picture, other], [["b"], ["c"]], method="extent")
    for one, concept, maps in zip((picture, other), "bc", together, strict=True):
        (alone,) = excite.attend(classifier, one, concept, method="extent")
        torch.testing.assert_close(maps[0].values, alone.values, rtol=1e-4, atol=1e-7)


def test_nothing_that_wins_leaves_nothing():
    assert METHODS["extent"].taps("a@b+c^d") == ("a", "b", "c", "d")
    dead = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    with torch.no_grad():
        dead[0].weight.zero_()
        dead[0].bias.fill_(-1)
    classifier = excite.wrap(dead, labels=["a", "b"], preprocess=Preprocess(16))
    with pytest.warns(excite.errors.LostSignalWarning):
        (found,) = excite.attend(classifier, Image.new("RGB", (20, 20), "red"), "a", method="extent", layer="1")
    assert found.values.abs().max() == 0
    assert found.box() is None


def test_likeness_where_all_places_are_alike_leaves_none_out():
    assert torch.equal(likeness(torch.ones(1, 3, 2, 2), torch.ones(1, 2, 2)), torch.ones(1, 2, 2))


@pytest.mark.parametrize("seed", range(20))
def test_the_largest_region_is_scipys(seed):
    maps = torch.rand(3, 9, 13, generator=torch.Generator().manual_seed(seed)) ** 3
    maps *= maps > maps.mean()
    for one, kept in zip(maps, largest_region(maps), strict=True):
        regions, count = ndimage.label(one.numpy() > 0, torch.ones(3, 3).numpy())
        sizes = [int((regions == k).sum()) for k in range(1, count + 1)]
        left = (kept > 0).numpy()
        assert left.sum() == max(sizes)
        assert len(set(regions[left])) == 1
        assert torch.equal(kept[left], one[left])


def test_a_narrow_peak_loses_its_foot_and_a_wide_one_keeps_it():
    """A third of the maximum: below the threshold around one place in a hundred, above it around half of them."""
    narrow, wide = torch.ones(2, 10, 10)
    narrow[0, 0], wide[:5] = 3, 3
    kept = without_the_weak(torch.stack([narrow, wide, torch.ones(10, 10)]))
    assert kept[0].count_nonzero() == 1
    assert torch.equal(kept[1], wide)
    assert kept[2].min() == 1  # an even map has no weak part


class TestShownBoxes:
    """The boxes of a map are those of `locate`: found on demand, for all maps of a call, if winners made the map."""

    @pytest.fixture
    def counted(self):
        torch.manual_seed(0)
        parts = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()]
        net = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).eval()
        sizes = []
        net.register_forward_pre_hook(lambda _module, arguments: sizes.append(tuple(arguments[0].shape[-2:])))
        layers = {"preprocess": excite.models.Preprocess(shorter_side=28), "layer": "4", "verify": False}
        return excite.wrap(net, **layers), sizes

    picture = torch.rand(3, 28, 28, generator=torch.Generator().manual_seed(0))

    def test_on_demand_and_once(self, counted):
        classifier, sizes = counted
        excite.attend(classifier, self.picture, [0, 1])
        sizes.clear()
        maps = excite.attend(classifier, self.picture, [0, 1])
        assert set(sizes) == {(28, 28)}  # the larger scale waits
        boxes = [found.box() for found in maps]
        assert (52, 52) in sizes
        runs = len(sizes)
        assert [found.box() for found in maps] == boxes
        assert len(sizes) == runs
        assert boxes == [found.box for found in excite.locate(classifier, self.picture, [0, 1])]
        assert [found.box() for found in excite.SessionCache(classifier).attend(self.picture, [0, 1])] == boxes

    def test_where_the_pass_of_the_map_is_shared_each_scale_runs_once(self, counted):
        classifier, sizes = replace(counted[0], extent="4+1"), counted[1]
        alone, image = excite.attend(classifier, self.picture, [0, 1, 2]), read_image(self.picture)
        expected = [found.boxes() for found in alone]
        methods = [METHODS["c-mwp"], METHODS["c-extent"]]
        session = Session(classifier, {1.0: classifier.prepared(image)[None]}, methods)
        sizes.clear()
        likely = max(found.probability for found in alone)  # so the boxes are made in two parts
        (maps,) = session.attend(methods[0], [[0, 1, 2]], [image], session.at_scales, likely)
        assert [found.boxes() for found in maps] == expected
        assert sizes == [(28, 28), (52, 52)]
        assert [*session.excitation().readings] == ["4"], "what is only compared takes no rules"

    def test_other_methods_keep_their_own(self, counted):
        classifier, sizes = counted
        for method in ("grad-cam", "grad", "lrp", "center"):
            (found,) = excite.attend(classifier, self.picture, 1, method=method)
            sizes.clear()
            assert found.box() == found.box(alpha=1.0)
            assert sizes == []

    def test_a_network_of_one_size(self):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 64, 3)).eval()
        classifier = excite.wrap(net, preprocess=lambda _: self.picture[:, :8, :8], layer="1", verify=False)
        (found,) = excite.attend(classifier, self.picture, 1)
        assert found.box() is not None
