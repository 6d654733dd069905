"""CAM by hand, Grad-CAM against captum, and where CAM cannot be."""

import pytest
import torch
from networks import CLASSES, Connected, Pooled, made, maps, one_signal, pictures, session
from torch import nn

from excite.errors import MethodError
from excite.methods import METHODS


def test_cam_is_the_classifiers_weights_times_the_last_map():
    network, x = made(Pooled), pictures()
    for unit in range(CLASSES):
        expected = (network.features(x) * network.fc.weight[unit].view(1, -1, 1, 1)).sum(1).detach()
        assert expected.abs().max() > 1
        torch.testing.assert_close(maps(network, x, "cam", unit=unit), expected)


def test_fully_convolutional():
    """A classifier slid over the image: the signal says where it looks from, and the channels keep their weights."""
    network = nn.Sequential(*made(Pooled).features, nn.AvgPool2d(3, 1), nn.Conv2d(6, CLASSES, 1)).double()
    x = pictures()
    expected = (network[:5](x) * network[6].weight[2].view(1, -1, 1, 1)).sum(1).detach()
    torch.testing.assert_close(maps(network, x, "cam", "4"), expected)
    method = METHODS["cam"]
    two = one_signal(session(network, x, {method: ["4"]}), method, {1: 1.0, 2: 3.0})["4"]  # each looks from elsewhere
    torch.testing.assert_close(two, 3 * expected + maps(network, x, "cam", "4", unit=1))


@pytest.mark.parametrize(
    ("kind", "layer"), [(Connected, "features.4"), (Connected, "features.2"), (Pooled, "features.3"), (Pooled, "input")]
)
def test_cam_is_refused_where_channels_have_no_weights(kind, layer):
    with pytest.raises(MethodError, match=f"cam cannot be read at layer '{layer}': it needs average pooling and one"):
        maps(made(kind), pictures(), "cam", layer)


def test_single_precision_is_no_reason_to_refuse():
    network, x = made(Pooled).float(), pictures().float()
    found = maps(network, x * 100, "cam")
    assert found.dtype == torch.float32
    assert not maps(network, x, "cam", weight=0.0).any()


def test_the_contrast_points_where_cam_points():
    network, x = made(Pooled), pictures(6)
    for unit in range(CLASSES):
        plain, contrast = maps(network, x, "cam", unit=unit), maps(network, x, "c-cam", unit=unit)
        assert torch.equal(plain.flatten(1).argmax(1), contrast.flatten(1).argmax(1))
        torch.testing.assert_close(contrast, 2 * plain / plain.abs().sum((1, 2), keepdim=True))


@pytest.mark.parametrize("layer", ["features.0", "features.1", "features.3", "features.4"])
@pytest.mark.parametrize("kind", [Pooled, Connected])
def test_grad_cam_is_captums(kind, layer):
    captum = pytest.importorskip("captum.attr", reason="captum is the peer of this test: pip install 'excite[dev]'")
    network, x = made(kind), pictures()
    for unit in range(CLASSES):
        peer = captum.LayerGradCam(network, network.get_submodule(layer))
        expected = peer.attribute(x, target=unit, relu_attributions=True)[:, 0]
        torch.testing.assert_close(maps(network, x, "grad-cam", layer, unit), expected.detach())


def test_each_method_reads_its_own_layers():
    """Methods that share a forward pass do not hand each other's layers to each other."""
    network, x = made(Pooled), pictures()
    cam, guided = METHODS["cam"], METHODS["guided"]
    seen = session(network, x, {cam: ["features.4"], guided: ["input", "features.1"]})
    assert list(one_signal(seen, cam, {2: 1.0})) == ["features.4"]  # at the others it would be refused
    assert list(one_signal(seen, guided, {2: 1.0})) == ["input", "features.1"]
    for layer, found in one_signal(seen, guided, {2: 1.0}).items():
        assert torch.equal(found, maps(network, x, "guided", layer))
