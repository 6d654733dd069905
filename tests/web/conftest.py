import pytest
from browser import chromium


@pytest.fixture(scope="module")  # and no longer: its event loop, while it is open, lets no other run
def browser():
    with chromium() as browser:
        yield browser
