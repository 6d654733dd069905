"""Several threads, each explaining a network of its own: the same as one after the other."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch
from oracle import randomise
from torch import nn

from excite.propagation import mwp

WORKERS = 4


def network(seed):
    body = [nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    body += [nn.Conv2d(6, 6, 3, padding=1), nn.Tanh() if seed % 2 else nn.ReLU(inplace=True), nn.Flatten()]
    return randomise(nn.Sequential(*body, nn.Linear(6 * 64, 4)).eval(), seed)


def explain(seed):
    x = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(seed))
    return mwp(network(seed), x, seed % 4, layer=["0", "2", "5"], contrastive=seed % 3 == 0)


def check(explain):
    """All threads at once give what they give one after the other."""
    serial = [explain(seed) for seed in range(24)]
    start = Barrier(WORKERS)

    def work(worker):
        start.wait()
        return [explain(seed) for seed in range(worker, 24, WORKERS)]

    with ThreadPoolExecutor(WORKERS) as pool:
        parallel = list(pool.map(work, range(WORKERS)))
    for seed, expected in enumerate(serial):
        found = parallel[seed % WORKERS][seed // WORKERS]
        for layer, won in expected.items():
            torch.testing.assert_close(found[layer], won, rtol=1e-5, atol=1e-8)


def test_threads_do_not_disturb_each_other():
    check(explain)


def test_a_thread_that_does_something_else_is_not_seen():
    """A network running in another thread at the same time is not explained by accident."""
    net, other, x = network(1), network(2), torch.rand(1, 3, 16, 16)
    expected, answer = mwp(net, x, 0, layer="2"), other(x)
    start = Barrier(2)

    def run():
        start.wait()
        return [other(x) for _ in range(20)]

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        start.wait()
        found = [mwp(net, x, 0, layer="2") for _ in range(20)]
        answers = running.result()
    assert all(torch.allclose(each, expected) for each in found)
    assert all(torch.equal(each, answer) and each.grad_fn is not None for each in answers)


def test_threads_may_share_one_network():
    """A network in evaluation mode is not touched, so it can be explained by several threads at once."""
    net = network(3)
    pictures = torch.rand(24, 1, 3, 16, 16)
    check(lambda k: mwp(net, pictures[k], k % 4, layer=["0", "2", "5"]))
    assert not any(module._forward_hooks for module in net.modules())
