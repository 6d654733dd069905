import pytest
import torch


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
