import pytest


@pytest.fixture(autouse=True)
def kernels():
    """These are tests of the fast kernels themselves."""
    return "fast"
