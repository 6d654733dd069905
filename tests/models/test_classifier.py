from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from samples import noise
from scipy import ndimage
from torch import nn

from excite.errors import ConceptError, ImageError, ModelError
from excite.models import MODELS, Preprocess, wrap
from excite.vocabulary import Labels


def test_the_whole_picture_is_kept_and_bounded():
    sizes = {(224, 224): (224, 224), (500, 375): (298, 224), (375, 500): (224, 298), (10, 20): (224, 448)}
    sizes |= {(1, 1): (224, 224), (5000, 10): (896, 224), (3, 90000): (224, 896)}
    assert {size: Preprocess().size(size) for size in sizes} == sizes
    assert {Preprocess(square=True).size(size) for size in sizes} == {(224, 224)}


def test_the_tensor_is_the_shifted_and_scaled_picture():
    picture = noise(8, 6)
    values = torch.from_numpy(np.array(picture, dtype=np.float32)).permute(2, 0, 1)
    made = Preprocess(shorter_side=6)(picture)
    assert made.dtype == torch.float32
    assert made.is_contiguous()
    torch.testing.assert_close(made, (values - 127) / 128)

    mean, deviation = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
    each = Preprocess(shorter_side=6, mean=mean, scale=tuple(1 / value for value in deviation))(picture)
    expected = (values - torch.tensor(mean)[:, None, None]) / torch.tensor(deviation)[:, None, None]
    torch.testing.assert_close(each, expected)

    (papers,) = {MODELS[name].preprocess for name in ("cnn-s", "vgg16", "googlenet")}  # BGR, picked
    assert (papers.antialias, papers.interpolation) == (False, "bilinear")
    expected = values.flip(0) - torch.tensor([103.939, 116.779, 123.68])[:, None, None]
    torch.testing.assert_close(replace(papers, shorter_side=6)(picture), expected)


def test_what_cannot_be_prepared_is_refused():
    for wrong in ({"shorter_side": 0}, {"multiple": 0}, {"channels": "gbr"}, {"interpolation": "nearest"}):
        with pytest.raises(ModelError, match="give"):
            Preprocess(**wrong)
    for mode in ("L", "RGBA", "P", "CMYK"):
        with pytest.raises(ImageError, match=f"mode {mode}"):
            Preprocess()(Image.new(mode, (9, 9)))


def test_some_outputs_may_be_true_together_beside_others_of_which_one_is():
    logits = torch.tensor([[1.0, 2.0, -1.0, 3.0, 0.5], [0.0, 0.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(wrap(nn.Identity(), multilabel=True).probabilities(logits), logits.sigmoid())
    classifier = wrap(nn.Identity(), multilabel=range(2, 4))
    found = classifier.probabilities(logits)
    torch.testing.assert_close(found[:, [0, 1, 4]], logits[:, [0, 1, 4]].softmax(1))
    torch.testing.assert_close(found[:, 2:4], logits[:, 2:4].sigmoid())
    places = logits[:, :, None, None] + torch.tensor([[-1.0, 1.0]])
    torch.testing.assert_close(classifier.probabilities(places), found)
    beyond = wrap(nn.Identity(), multilabel=range(7, 9))  # other weights, with fewer outputs
    torch.testing.assert_close(beyond.probabilities(logits), logits.softmax(1))


@pytest.mark.parametrize(
    ("multilabel", "units", "chance"),
    [(False, (0, 1, 3), 0.875), (True, (0, 1, 3), 0.5), (range(2, 4), (0, 1, 3), 0.75), (range(2, 4), (2, 3), 0.125)],
)
def test_the_chance_of_several_outputs(multilabel, units, chance):
    probabilities = torch.tensor([0.25, 0.5, 0.0625, 0.125])
    assert wrap(nn.Identity(), multilabel=multilabel).chance(probabilities, units) == chance


def test_an_output_of_another_shape_is_refused():
    for shape in ((3,), (1, 3, 4), (1, 1, 1, 1, 1)):
        with pytest.raises(ModelError, match="Identity gave an output of shape"):
            wrap(nn.Identity()).probabilities(torch.zeros(shape))


def test_wrap_keeps_what_it_is_given():
    module = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Dropout())
    labels = Labels(["cat", "dog"])
    classifier = wrap(module, labels=labels, preprocess=str, layer="0", name="mine", multilabel=True)
    assert (classifier.module, classifier.labels, classifier.preprocess) == (module, labels, str)
    assert module.training  # what the user set is the user's
    assert (classifier.layer, classifier.layers, classifier.name) == ("0", ("0",), "mine")
    assert classifier.multilabel is True
    assert (wrap(module).name, wrap(module).labels, wrap(module).layer) == ("Sequential", None, None)
    assert wrap(module, labels=[("cat", "puss"), "dog"]).labels.find("puss").units == (0,)
    with pytest.raises(ConceptError, match="sequence"):
        wrap(module, labels="cat")


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_torchscript_is_refused():
    scripted = torch.jit.script(nn.Linear(2, 2))
    traced = torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))
    function = torch.jit.trace(torch.relu, torch.zeros(1, 2))
    for model in (scripted, traced, function, nn.Sequential(nn.Flatten(), scripted)):
        with pytest.raises(ModelError, match="TorchScript"):
            wrap(model)


def test_every_card_is_complete():
    for name, card in MODELS.items():
        assert card.name == name
        assert card.layers
        assert card.description
        assert card.source
        assert len(card.labels()) > 1


@pytest.mark.parametrize("size", [(90, 60), (33, 47), (20, 21)])
def test_without_antialiasing_pixels_are_picked(size):
    """Bilinear without anti-aliasing: the pixels around the centre of each new one, weighed by nearness."""
    picture = noise(*size)
    made = Preprocess(shorter_side=24, mean=0, scale=1, interpolation="bilinear", antialias=False)(picture)
    centres = [(np.arange(new) + 0.5) * old / new - 0.5 for new, old in zip(made.shape[1:], size[::-1], strict=True)]
    for channel, values in zip(np.asarray(picture, np.float64).transpose(2, 0, 1), made.numpy(), strict=True):
        expected = ndimage.map_coordinates(channel, np.meshgrid(*centres, indexing="ij"), order=1, mode="nearest")
        np.testing.assert_allclose(values, expected, atol=1e-3)
