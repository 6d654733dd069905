"""The fast kernels give the maps of the plain ones: on every architecture of the table, in both precisions."""

import sys
from pathlib import Path

import pytest
import torch
from test_architectures import NON_NEGATIVE, SIGNED, network, picture
from torch import nn

from excite.propagation import ExcitationPass, fast, mwp, plain_kernels, prior

LAYERS = {**NON_NEGATIVE, **SIGNED}


@pytest.fixture(autouse=True)
def kernels():
    """Both are compared here."""


def maps(net, x, layer):
    excitation = ExcitationPass(net, x, [layer])
    signals = torch.stack([prior(excitation.output, {7: 1.0}), prior(excitation.output, {8: 0.5, 9: 0.5})])
    return excitation.output, excitation.down(signals)[layer], excitation.down(signals, dual=-1.0)[layer]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_plain_and_fast_agree(name, dtype, tolerance):
    """Relative to what was propagated: the mass of the map, and for a contrastive map that of its two halves."""
    net, x = network(name).to(dtype), picture(name).to(dtype)
    for norm in net.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm):
            norm.weight.data[::3].neg_()  # rows of both signs
    output, won, contrast = maps(net, x, LAYERS[name])
    with plain_kernels():
        wanted_output, wanted, wanted_contrast = maps(net, x, LAYERS[name])
    assert torch.equal(output, wanted_output)
    for signal in range(2):
        assert (won[signal] - wanted[signal]).abs().sum() <= tolerance * wanted[signal].abs().sum()
        assert (contrast[signal] - wanted_contrast[signal]).abs().sum() <= tolerance * 2 * wanted[signal].abs().sum()


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
