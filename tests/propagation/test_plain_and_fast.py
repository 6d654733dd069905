"""Whole architectures with random weights: nothing lost, nothing gained, the same maps by both kinds of kernels."""

import sys
from pathlib import Path

import pytest
import torch
from test_architectures import NON_NEGATIVE, SIGNED, network, picture
from torch import nn

from excite.propagation import ExcitationPass, fast, mwp, plain_kernels, prior

LAYERS = {**NON_NEGATIVE, **SIGNED}
DOUBLE = ["squeezenet1_0", "resnet18", "shufflenet_v2_x0_5"]


@pytest.fixture(autouse=True)
def kernels():
    """Both are compared here."""


def maps(net, x, layer):
    excitation = ExcitationPass(net, x, [layer])
    signals = torch.stack([prior(excitation.output, {7: 1.0}), prior(excitation.output, {8: 0.5, 9: 0.5})])
    return excitation.output, excitation.down(signals)[layer], excitation.down(signals, dual=-1.0)[layer]


def agreeing(net, x, layer, tolerance):
    """The maps of the fast kernels. Those of the plain ones differ little, relative to what was propagated."""
    output, won, contrast = maps(net, x, layer)
    with plain_kernels():
        plain_output, plain, plain_contrast = maps(net, x, layer)
    assert torch.equal(output, net(x))  # the network's own to the bit
    assert torch.equal(output, plain_output)
    for signal in range(2):
        assert (won[signal] - plain[signal]).abs().sum() <= tolerance * plain[signal].abs().sum()
        assert (contrast[signal] - plain_contrast[signal]).abs().sum() <= tolerance * 2 * plain[signal].abs().sum()
    return won, contrast


@pytest.mark.parametrize("name", LAYERS)
def test_nothing_is_lost(name):
    """Mass 1 at an early layer, and the contrastive map sums to 0; of signed networks some units are lost."""
    won, contrast = agreeing(network(name), picture(name), LAYERS[name], 1e-6)
    assert torch.isfinite(won).all()
    assert won.min() >= 0
    assert (won[0] - won[1]).abs().sum() > 1e-6  # random weights mix everything, but not to the same map
    if name in NON_NEGATIVE:
        assert abs(float(won[0].sum()) - 1) < 1e-5  # of the first signal: a ReLU on the output silences other classes
        assert abs(float(contrast[0].sum())) < 1e-5
        assert contrast[0].abs().sum() > 1e-6
    else:
        assert 0.99 < float(won[0].sum()) < 1 + 1e-5


@pytest.mark.parametrize("name", DOUBLE)
def test_plain_and_fast_agree_in_double_precision(name):
    net, x = network(name).double(), picture(name).double()
    for norm in net.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm):
            norm.weight.data[::3].neg_()  # rows of both signs
    agreeing(net, x, LAYERS[name], 1e-12)


def test_plain_kernels_need_nothing_of_fast():
    """But the switch itself."""
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.LocalResponseNorm(3)]
    layers += [nn.Conv2d(8, 1024, 1), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 3)]
    net, seen = nn.Sequential(*layers).eval(), set()
    net[1].weight.data[::2].neg_()

    def profile(frame, _event, _argument):
        seen.add(Path(frame.f_code.co_filename))

    with plain_kernels():
        sys.setprofile(profile)
        try:
            mwp(net, torch.rand(1, 3, 12, 12), 1, layer="1", contrastive=True)
        finally:
            sys.setprofile(None)
    assert {path.name for path in seen if path.parent == Path(fast.__file__).parent} == {"__init__.py"}
