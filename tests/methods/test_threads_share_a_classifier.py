"""Several threads use one classifier of which nothing is known yet: each gets what it would get alone."""

from concurrent.futures import ThreadPoolExecutor
from sys import getswitchinterval, setswitchinterval
from threading import Barrier

import pytest
import torch
from networks import one_signal
from small_transformers import Transformer, images, made

import excite
from excite.methods import METHODS
from excite.session import Session

NAMES = ["c-mwp", "extent", "grad-cam", "chefer"]


@pytest.fixture
def busy():
    """Python changes threads as often as it can."""
    before = getswitchinterval()
    setswitchinterval(1e-6)
    yield
    setswitchinterval(before)


def test_default_layers_are_found_as_if_alone(busy):
    network, x = made(Transformer), images()

    def explain(classifier, name):
        session = Session(classifier, {1.0: x}, [METHODS[name]])
        return session.layers[METHODS[name]], one_signal(session, METHODS[name], {2: 1.0})

    alone = [explain(excite.wrap(network), name) for name in NAMES]
    shared, start = excite.wrap(network), Barrier(len(NAMES))

    def work(name):
        start.wait()
        return explain(shared, name)

    with ThreadPoolExecutor(len(NAMES)) as pool:
        together = list(pool.map(work, NAMES))
    for (layers, maps), (found, given) in zip(alone, together, strict=True):
        assert found == layers
        torch.testing.assert_close(given, maps, rtol=0, atol=1e-10)
    assert not any(module._forward_hooks for module in network.modules())
