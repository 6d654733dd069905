import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from torch import nn

from excite.errors import ConceptError, ImageError, ModelError
from excite.models import MODELS, Card, Preprocess, wrap
from excite.vocabulary import Labels


def noise(width, height):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((224, 224), (224, 224)),
        ((448, 224), (448, 224)),
        ((500, 375), (298, 224)),
        ((375, 500), (224, 298)),
        ((10, 20), (224, 448)),
        ((1, 1), (224, 224)),
        ((5000, 10), (896, 224)),
        ((3, 90000), (224, 896)),
    ],
)
def test_the_whole_picture_is_kept_and_bounded(size, expected):
    assert Preprocess().size(size) == expected
    assert Preprocess(square=True).size(size) == (224, 224)


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

    swapped = Preprocess(shorter_side=6, mean=(104, 117, 123), scale=1, channels="bgr")(picture)
    torch.testing.assert_close(swapped, values.flip(0) - torch.tensor([104.0, 117.0, 123.0])[:, None, None])


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK"])
def test_a_picture_in_another_mode_is_refused(mode):
    with pytest.raises(ImageError, match=f"mode {mode}"):
        Preprocess()(Image.new(mode, (9, 9)))


@pytest.mark.parametrize("wrong", [{"shorter_side": 0}, {"channels": "gbr"}, {"interpolation": "nearest"}])
def test_preprocessing_that_cannot_be_is_refused(wrong):
    with pytest.raises(ModelError, match="give"):
        Preprocess(**wrong)


def test_probabilities_are_a_softmax_or_sigmoids():
    logits = torch.tensor([[1.0, 2.0, -1.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(wrap(nn.Identity()).probabilities(logits), logits.softmax(1))
    torch.testing.assert_close(wrap(nn.Identity(), multilabel=True).probabilities(logits), logits.sigmoid())


def test_some_outputs_may_be_true_together_beside_others_of_which_one_is():
    logits = torch.tensor([[1.0, 2.0, -1.0, 3.0, 0.5], [0.0, 0.0, 0.0, 0.0, 0.0]])
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


@pytest.mark.parametrize("shape", [(3,), (1, 3, 4), (1, 1, 1, 1, 1)])
def test_an_output_of_another_shape_is_refused(shape):
    with pytest.raises(ModelError, match="Identity gave an output of shape"):
        wrap(nn.Identity()).probabilities(torch.zeros(shape))


def test_wrap_keeps_what_it_is_given():
    module = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Dropout())
    labels = Labels(["cat", "dog"])
    classifier = wrap(module, labels=labels, preprocess=str, layer="0", name="mine", multilabel=True)
    assert classifier.module is module
    assert module.training  # what the user set is the user's
    assert classifier.labels is labels
    assert classifier.preprocess is str
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


@pytest.mark.parametrize("name", MODELS)
def test_every_card_is_complete(name):
    card = MODELS[name]
    assert isinstance(card, Card)
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


def test_the_papers_networks():
    """BGR less the mean of each channel, in units of a pixel, picked."""
    (prepare,) = {MODELS[name].preprocess for name in ("cnn-s", "vgg16", "googlenet")}
    picture = noise(301, 224)
    blue_first = torch.from_numpy(np.array(picture, dtype=np.float32)).permute(2, 0, 1).flip(0)
    expected = blue_first - torch.tensor([103.939, 116.779, 123.68])[:, None, None]
    torch.testing.assert_close(prepare(picture), expected)
    assert prepare.antialias is False
    assert prepare.interpolation == "bilinear"
