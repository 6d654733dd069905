"""Architectures of torchvision with random weights, and what is special in some (all are in test_plain_and_fast.py)."""

import pytest
import torch
from oracle import randomise
from torch import nn
from zoo import torchvision_models

from excite.propagation import mwp

try:
    models = torchvision_models()
except ImportError:
    pytest.skip("torchvision's model definitions are explained here", allow_module_level=True)

# Networks whose activations are non-negative from the first ReLU on, and an early layer of each.
NON_NEGATIVE = {
    "alexnet": "features.2",
    "vgg11": "features.2",
    "squeezenet1_0": "features.2",
    "googlenet": "maxpool1",
    "inception_v3": "maxpool1",
    "resnet18": "maxpool",
    "resnet50": "maxpool",
    "densenet121": "features.pool0",
    "shufflenet_v2_x0_5": "maxpool",
}
# Networks with linear bottlenecks, SiLU or GELU: signed activations, so some units are lost; never too much.
SIGNED = {
    "mobilenet_v2": "features.1",
    "mobilenet_v3_small": "features.0",
    "efficientnet_b0": "features.0",
    "regnet_y_400mf": "stem",
    "convnext_tiny": "features.0",
    "swin_t": "features.0",
}
SIZES = {"inception_v3": 96, "alexnet": 96}


STAGES = (96, 192), (192, 384), (384, 768), (768, None)
SHALLOW = {  # with fewer blocks of each kind
    "resnet50": lambda: models.ResNet(models.resnet.Bottleneck, [2, 1, 1, 1]),
    "densenet121": lambda: models.DenseNet(32, (2, 2, 2, 2), 64),
    "convnext_tiny": lambda: models.ConvNeXt([models.convnext.CNBlockConfig(*sides, 1) for sides in STAGES]),
    "swin_t": lambda: models.SwinTransformer([4, 4], 96, [2, 2], [3, 6], [7, 7]),
}


def made(name):
    """An architecture; where full connections hold nearly all weights, which take seconds to draw, with fewer units."""
    if name not in {"alexnet", "vgg11"}:
        options = {"init_weights": False} if name in {"googlenet", "inception_v3"} else {}
        return SHALLOW[name]() if name in SHALLOW else getattr(models, name)(weights=None, **options)
    with torch.device("meta"):
        net, units = getattr(models, name)(weights=None), 64
        places = [k for k, layer in enumerate(net.classifier) if isinstance(layer, nn.Linear)]
        first, last = net.classifier[places[0]].in_features, net.classifier[places[-1]].out_features
        wide = (first, units), (units, units), (units, last)
        for place, sides in zip(places, wide, strict=True):
            net.classifier[place] = nn.Linear(*sides)
    net.to_empty(device="cpu")
    for layer in net.modules():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    return net


def network(name):
    """Random weights; no biases and no shifts, so that only children excite; positive scales."""
    torch.manual_seed(0)
    net = made(name).eval()
    with torch.no_grad():
        for module in net.modules():
            if getattr(module, "bias", None) is not None:
                module.bias.zero_()
            if isinstance(module, (nn.modules.batchnorm._BatchNorm, nn.LayerNorm)):
                module.weight.uniform_(0.5, 1.5)
    return net


def picture(name):
    size = SIZES.get(name, 64)
    return torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(1))


def test_a_vision_transformer_keeps_all_of_it_among_its_tokens():
    net = models.VisionTransformer(64, 32, 2, 2, 16, 32, num_classes=4).eval()
    randomise(net)
    for name, parameter in net.named_parameters():
        parameter.data.mul_(0 if name.endswith("bias") else 0.3)
    layers = ["encoder.layers.encoder_layer_0", "encoder.dropout", "conv_proj"]
    mass = {name: float(won.sum()) for name, won in mwp(net, torch.rand(1, 3, 64, 64), 0, layer=layers).items()}
    assert all(0.97 < mass[name] <= 1 + 1e-6 for name in layers[:2]), mass  # 16 channels: a mean takes something
    assert mass["conv_proj"] < mass["encoder.dropout"]  # the class token has no place in the image


def test_layers_of_a_residual_network():
    """Behind each block the mass is 1; inside a branch it is what the skip connection leaves."""
    net, x = network("resnet18"), picture("resnet18")
    layers = ["layer4", "layer3", "layer2", "layer1", "maxpool", "layer2.0.bn2", "layer2.0.downsample", "layer3.1.bn1"]
    mass = {name: float(won.sum()) for name, won in mwp(net, x, 3, layer=layers).items()}
    for name in layers[:5]:
        assert abs(mass[name] - 1) < 1e-5
    assert abs(mass["layer2.0.bn2"] + mass["layer2.0.downsample"] - 1) < 1e-4
    assert 0.05 < mass["layer3.1.bn1"] < 0.95


def test_zero_initialised_residual_branches():
    """A scale of exactly zero silences the branch: all to the skip connection, and no NaN."""
    net = models.resnet18(weights=None, zero_init_residual=True).eval()
    won = mwp(net, picture("resnet18"), 3, layer=["layer1.0.bn2", "maxpool"])
    assert float(won["layer1.0.bn2"].abs().sum()) == 0
    assert abs(float(won["maxpool"].sum()) - 1) < 1e-4


def test_training_mode_of_a_network_with_a_second_head():
    """GoogleNet in training mode returns auxiliary outputs too: the main one is explained."""
    net = network("googlenet").train()
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.eval()
    state = {key: value.clone() for key, value in net.state_dict().items()}
    won = mwp(net, torch.rand(2, 3, 64, 64), 3, layer="inception3a")
    assert abs(float(won[0].sum()) - 1) < 1e-3
    assert all(torch.equal(value, state[key]) for key, value in net.state_dict().items())


def test_segmentation_heads_are_modules_too():
    """A fully convolutional network: class maps, explained from where the class is seen."""
    net = models.segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=5).eval()
    with torch.no_grad():
        net.classifier[4].bias.zero_()
    won = mwp(net, torch.rand(1, 3, 48, 48), 2, layer="backbone.layer2")
    assert 0.9 < float(won.sum()) < 1 + 1e-4
