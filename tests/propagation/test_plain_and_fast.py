"""The fast kernels give the maps of the plain ones: on every architecture of the table, in both precisions."""

import pytest
import torch
from test_architectures import NON_NEGATIVE, SIGNED, network, picture

from excite.propagation import ExcitationPass, plain_kernels, prior

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
        if isinstance(norm, torch.nn.modules.batchnorm._BatchNorm):
            norm.weight.data[::3].neg_()  # rows of both signs
    output, won, contrast = maps(net, x, LAYERS[name])
    with plain_kernels():
        wanted_output, wanted, wanted_contrast = maps(net, x, LAYERS[name])
    assert torch.equal(output, wanted_output)
    for signal in range(2):
        assert (won[signal] - wanted[signal]).abs().sum() <= tolerance * wanted[signal].abs().sum()
        assert (contrast[signal] - wanted_contrast[signal]).abs().sum() <= tolerance * 2 * wanted[signal].abs().sum()
