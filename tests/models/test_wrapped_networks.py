"""Networks of others as they come: their sizes, preprocessing, labels and errors; and layers that are no maps."""

import copy
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import zoo
from PIL import Image
from torch import nn

import excite
from excite.errors import ExciteError, LayerError, ModelError, UnknownPreprocessWarning
from excite.models import Preprocess
from excite.models.classifier import OneSize
from excite.models.layers import spatial_layers

NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8))


class Patches(nn.Module):
    """Takes squares of one size, as most transformers, and says so in its error."""

    def __init__(self, side=48, error=AssertionError):
        super().__init__()
        torch.manual_seed(0)
        self.side, self.error = side, error
        self.proj, self.head = nn.Conv2d(3, 8, 8, stride=8), nn.Linear(8, 4)

    def forward(self, x):
        if x.shape[-2:] != (self.side, self.side):
            raise self.error(f"Input height ({x.shape[-2]}) doesn't match model ({self.side}).")
        return self.head(self.proj(x).relu().mean((2, 3)))


class TestSizes:
    @pytest.mark.parametrize("error", [AssertionError, ValueError, TypeError, RuntimeError])
    @pytest.mark.parametrize("method", ["c-mwp", "extent"])
    def test_the_size_in_the_error_is_taken(self, error, method):
        classifier = excite.wrap(Patches(error=error).eval())
        (found,) = excite.attend(classifier, NOISE, 1, method=method)
        assert found.values.shape == (6, 6)
        assert classifier.prepared(NOISE).shape == (3, 48, 48)

    def test_the_size_that_the_network_was_made_for_is_taken(self):
        class Silent(Patches):
            def forward(self, x):
                assert x.shape[-2:] == (self.side, self.side)
                return super().forward(x)

        network = Silent().eval()
        network.img_size = (48, 48)
        assert excite.wrap(network).prepared(NOISE).shape == (3, 48, 48)

    def test_sides_are_rounded_before_anything_is_squashed(self):
        class Even(nn.Sequential):
            def forward(self, x):
                assert not any(side % 32 for side in x.shape[-2:])
                return super().forward(x)

        network = Even(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        assert excite.wrap(network.eval()).prepared(Image.new("RGB", (400, 300))).shape == (3, 224, 288)

    def test_what_a_network_takes_does_not_depend_on_the_image(self):
        """Also where the first image fits by chance."""
        classifier = excite.wrap(Patches(224).eval())
        for size in ((300, 300), (400, 300)):
            assert classifier.prepared(Image.new("RGB", size)).shape == (3, 224, 224)

    def test_a_size_that_was_asked_for_is_kept(self):
        zoo.timm_models()
        classifier = excite.load("timm:beit_base_patch16_224", weights="random", size=96)
        with pytest.raises(ModelError, match=r"fails on an image preprocessed to 3 x 96 x 96"):
            excite.attend(classifier, NOISE, 1, method="grad-cam")


class Failing(nn.Module):
    def __init__(self, error):
        super().__init__()
        self.body, self.error = nn.Conv2d(3, 2, 3), error

    def forward(self, x):
        if self.error is not None:
            raise self.error
        return self.body(x).mean((2, 3))


@pytest.mark.parametrize(
    "error",
    [KeyError("pixel_values"), IndexError("3"), ValueError("no\nlines"), AssertionError(), TypeError("x")],
    ids=repr,
)
@pytest.mark.parametrize(
    "ask", [excite.attend, excite.locate, lambda *given: excite.SessionCache(given[0]).findings(NOISE)]
)
def test_whatever_a_network_raises_is_one_clear_line(error, ask):
    classifier = excite.wrap(Failing(error).eval(), layer="body")
    with pytest.raises(ModelError, match=r"Failing fails on an image preprocessed to 3 x 224 x 298") as caught:
        ask(classifier, NOISE, 1)
    assert "\n" not in str(caught.value)
    assert type(error).__name__ in str(caught.value)
    with pytest.raises(ModelError, match="Failing fails"):
        classifier.logits(torch.zeros(1, 3, 4, 4))


def test_what_stops_a_program_is_not_caught():
    classifier = excite.wrap(Failing(KeyboardInterrupt()).eval(), layer="body")
    with pytest.raises(KeyboardInterrupt):
        excite.attend(classifier, NOISE, 1)


class TestPreprocessing:
    @pytest.mark.parametrize("name", ["pretrained_cfg", "default_cfg"])
    @pytest.mark.parametrize("kind", [dict, SimpleNamespace])
    def test_of_timm(self, name, kind):
        network = Patches(96)
        facts = {"input_size": (3, 96, 96), "mean": (0.5,) * 3, "std": (0.25,) * 3, "interpolation": "bicubic"}
        setattr(network, name, kind(**facts, fixed_input_size=True))
        found = excite.wrap(network).preprocess
        assert found == OneSize(96, (127.5,) * 3, (1 / 63.75,) * 3, interpolation="bicubic")
        assert found.scaled(2) == found

    def test_timms_own(self):
        timm = zoo.timm_models()
        network = timm.create_model("vit_tiny_patch16_384", pretrained=False).eval()
        classifier = excite.wrap(network)
        loaded = excite.load("timm:vit_tiny_patch16_384", weights="random").preprocess
        assert loaded == Preprocess(**{**vars(classifier.preprocess), "multiple": 16})  # made to take larger images
        assert classifier.prepared(NOISE).shape == (3, 384, 384)

    def test_of_an_image_processor(self):
        processor = SimpleNamespace(
            image_mean=[0.5, 0.4, 0.3], image_std=[0.5, 0.25, 0.2], size={"height": 96, "width": 96}, resample=2,
            rescale_factor=1 / 255, do_resize=True, do_rescale=True, do_normalize=True,
        )  # fmt: skip
        found = excite.wrap(Patches(96), preprocess=processor).preprocess
        expected = Preprocess(96, (127.5, 102, 76.5), (1 / 127.5, 1 / 63.75, 1 / 51), interpolation="bilinear")
        values = np.asarray(NOISE.resize((96, 96), Image.Resampling.BILINEAR), np.float32) / 255
        values = (values - np.float32(processor.image_mean)) / np.float32(processor.image_std)
        classifier = excite.wrap(Patches(96), preprocess=processor)
        torch.testing.assert_close(classifier.prepared(NOISE), torch.from_numpy(values).permute(2, 0, 1))
        assert found.shorter_side == expected.shorter_side

    @pytest.mark.parametrize(
        ("settings", "side", "first"),
        [
            (
                {"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}, "do_center_crop": True},
                224,
                0.5,
            ),
            ({"size": 160, "do_normalize": False}, 160, 0.0),
            ({"size": {"shortest_edge": 288}, "resample": 3, "rescale_factor": 1 / 127.5}, 288, 0.5),
        ],
    )
    def test_its_settings(self, settings, side, first):
        usual = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "rescale_factor": 1 / 255, "resample": 2}
        found = excite.wrap(Patches(), preprocess=SimpleNamespace(**usual | settings)).preprocess
        factor = settings.get("rescale_factor", 1 / 255)
        assert found.shorter_side == side
        assert found.mean[0] == pytest.approx(first / factor)
        assert found.interpolation == ("bicubic" if settings.get("resample") == 3 else "bilinear")

    def test_sizes_that_are_not_square_are_refused(self):
        processor = SimpleNamespace(image_mean=[0.5] * 3, image_std=[0.5] * 3, size={"height": 96, "width": 64})
        with pytest.raises(ModelError, match=r"image processor gives images of .*96"):
            excite.wrap(Patches(), preprocess=processor)


class OfTransformers(Patches):
    """The outside of an image classifier of transformers: its settings, and an object with logits as the answer."""

    def __init__(self, words):
        super().__init__(96, ValueError)
        self.config = SimpleNamespace(id2label=words, image_size=96)

    def forward(self, pixel_values=None, labels=None):
        return SimpleNamespace(loss=None, logits=super().forward(pixel_values))


class TestTransformers:
    def test_labels_and_logits(self):
        network = OfTransformers({"1": "dog, hound", "0": "cat", "2": "car", "3": "sky"}).eval()
        with pytest.warns(UnknownPreprocessWarning, match="AutoImageProcessor"):
            classifier = excite.wrap(network)
        (found,) = excite.attend(classifier, NOISE, "hound")
        assert (found.concept, found.units, found.values.shape) == ("dog", (1,), (12, 12))

    def test_numbered_labels_are_none(self):
        processor = SimpleNamespace(image_mean=[0.5] * 3, image_std=[0.5] * 3, size={"height": 96, "width": 96})
        network = OfTransformers({k: f"LABEL_{k}" for k in range(4)}).eval()
        assert excite.wrap(network, preprocess=processor).labels is None


class Attention(nn.Module):
    """Attention over windows, channels last: its weights [N * windows, heads, 16, 16] have the shape of maps."""

    def __init__(self, channels=8, window=4):
        super().__init__()
        self.window, self.qkv, self.softmax = window, nn.Linear(channels, 3 * channels), nn.Softmax(-1)
        self.norm, self.proj = nn.LayerNorm(channels), nn.Linear(channels, channels)

    def forward(self, x):
        n, h, w, c = x.shape
        tokens = self.norm(x).view(n, h // self.window, self.window, w // self.window, self.window, c)
        tokens = tokens.permute(0, 1, 3, 2, 4, 5).reshape(-1, self.window**2, c)
        q, k, v = self.qkv(tokens).view(len(tokens), -1, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        out = (self.softmax(q @ k.mT) @ v).transpose(1, 2).reshape(-1, self.window, self.window, c)
        out = out.view(n, h // self.window, w // self.window, self.window, self.window, c)
        return x + self.proj(out.permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c))


class Back(nn.Module):
    def forward(self, x):
        return x.permute(0, 3, 1, 2)


class Swin(nn.Module):
    def __init__(self, side=32):
        super().__init__()
        torch.manual_seed(0)
        self.proj, self.block, self.back = nn.Conv2d(3, 8, 2, stride=2), Attention(window=side // 4), Back()
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.back(self.block(self.proj(x).permute(0, 2, 3, 1)))
        return self.head(x.relu().mean((2, 3)))


def swin(**options):
    return excite.wrap(Swin().eval(), preprocess=Preprocess(32, square=True), verify=False, **options)


MAPS = ["proj", "block.norm", "block.proj", "block", "back"]  # of `Swin`; most have their channels last


class TestMaps:
    def test_only_maps_are_found(self):
        assert [layer.name for layer in spatial_layers(Swin(), torch.zeros(1, 3, 32, 32))] == MAPS

    @pytest.mark.parametrize("method", [name for name in excite.METHODS if name != "cam"])
    def test_every_method_reads_one_or_says_why_not(self, method):
        try:
            (found,) = excite.attend(swin(), NOISE, 1, method=method)
        except ExciteError as error:
            assert re.search("no top-down rule|cam cannot be read|through attention between all", str(error))  # noqa: PT017
        else:
            assert set(found.layer.split("+")) <= {*MAPS, "input"}

    @pytest.mark.parametrize("method", ["grad-cam", "c-mwp"])
    @pytest.mark.parametrize(
        ("layer", "reason"),
        [("block.softmax", "each pair of positions")],
    )
    def test_what_is_none_is_refused(self, layer, reason, method):
        of_its_own = [(swin(layer=layer), None)] if method == "c-mwp" else []
        for classifier, named in ((swin(), layer), *of_its_own):
            with pytest.raises(LayerError, match=rf"'{layer}' is no map: .*{reason}.*maps: {', '.join(MAPS)}"):
                excite.attend(classifier, NOISE, 1, layer=named, method=method)

    def test_one_of_unknown_origin_may_be_named(self):
        network = nn.Sequential(
            nn.Conv2d(3, 2, 1), nn.Flatten(2), nn.Linear(64, 64), nn.Unflatten(2, (8, 8)), nn.ReLU()
        )
        network += nn.Sequential(nn.Conv2d(2, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        classifier = excite.wrap(copy.deepcopy(network).eval(), preprocess=Preprocess(8, square=True))
        (found,) = excite.attend(classifier, NOISE, 1, layer="4", method="grad-cam")
        assert found.values.shape == (8, 8)

    def test_the_error_names_maps(self):
        network = nn.Sequential(
            nn.Flatten(), nn.Linear(3 * 64, 8), nn.Unflatten(1, (2, 2, 2)), nn.Flatten(), nn.Linear(8, 2)
        )
        with pytest.raises(LayerError, match="no layer below the classifier's weights has places to show"):
            excite.attend(excite.wrap(network.eval(), preprocess=Preprocess(8, square=True)), NOISE, 1)

    @pytest.mark.parametrize("name", ["swin_tiny_patch4_window7_224", "maxvit_pico_rw_256"])
    def test_those_of_timm(self, name):
        network = zoo.timm_models().create_model(name, pretrained=False).eval()
        classifier = excite.wrap(network, verify=False)
        (found,) = excite.attend(classifier, NOISE, 1, method="grad-cam")
        assert found.layer == "norm"
