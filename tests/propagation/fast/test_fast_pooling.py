"""Quicker ways of the same values: equal to torch's own to the bit."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from excite.propagation import ExcitationPass
from excite.propagation.fast import shortcuts as quick


@settings(max_examples=120, deadline=None)
@given(
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.one_of(st.none(), st.tuples(st.integers(1, 3), st.integers(1, 3))),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    ceil=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_max_pooling_is_torchs_own(height, width, kernel, stride, padding, ceil, dtype):
    x = torch.randn(2, 3, height, width, dtype=dtype)
    x[0, 0, 0, 0] = torch.nan
    try:
        expected = functional.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil)
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=str(error)[:20].replace("(", r"\(").replace("[", r"\[")):
            quick.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil)
        return
    found = quick.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert found.is_contiguous()


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (2, 2, 0), (3, 1, 1)])
def test_ties_go_to_the_same_child(kernel, stride, padding):
    """Where several children are the largest, torch's gradient has a favourite, and so have we."""
    x = torch.randint(0, 3, (2, 4, 9, 10)).float()
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    pooled = [
        pool(leaf, kernel, stride, padding)
        for pool, leaf in zip((functional.max_pool2d, quick.max_pool2d), leaves, strict=True)
    ]
    assert torch.equal(*pooled)
    signal = torch.rand_like(pooled[0])
    assert torch.equal(*(torch.autograd.grad(out, leaf, signal)[0] for out, leaf in zip(pooled, leaves, strict=True)))


@pytest.mark.parametrize(
    "change", [lambda x: x.half(), lambda x: x[0], lambda x: x.transpose(2, 3), lambda x: x[:, :0]]
)
def test_unusual_tensors_are_left_to_torch(change):
    x = change(torch.randn(2, 4, 6, 6))
    for ours, theirs, options in (
        (quick.max_pool2d, functional.max_pool2d, (2,)),
        (quick.local_response_norm, functional.local_response_norm, (3,)),
    ):
        try:
            expected = theirs(x, *options)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                ours(x, *options)
        else:
            assert torch.equal(ours(x, *options), expected)


@pytest.mark.parametrize(
    ("size", "channels", "dtype"), list(itertools.product([1, 2, 3, 5, 8], [1, 4, 13], [torch.float32, torch.float64]))
)
def test_response_norms_are_torchs_own(size, channels, dtype):
    x = torch.randn(2, channels, 5, 6, dtype=dtype) * 20
    expected = functional.local_response_norm(x, size, alpha=2e-2, beta=0.6, k=1.5)
    assert torch.equal(quick.local_response_norm(x, size, alpha=2e-2, beta=0.6, k=1.5), expected)


def test_a_network_gives_its_own_output_above_and_below_the_tap():
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(3, 2, ceil_mode=True),
        torch.nn.LocalResponseNorm(5),
        torch.nn.Conv2d(6, 8, 3),
        torch.nn.ReLU(),
        torch.nn.LocalResponseNorm(3),
        torch.nn.MaxPool2d(2, padding=1),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(4),
    ).eval()
    x = torch.randn(2, 3, 20, 23)
    expected = net(x).detach()
    for layer in ("0", "2", "3", "5", "7"):
        assert torch.equal(ExcitationPass(net, x, [layer]).output, expected)
