import pytest
import torch

from excite.propagation import plain_kernels


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """The tensors here are tiny: several threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


@pytest.fixture(autouse=True, params=["fast", "plain"])
def kernels(request):
    """Every rule is tested with the fast kernels and with the plain ones."""
    if request.param == "fast":
        yield request.param
        return
    with plain_kernels():
        yield request.param
