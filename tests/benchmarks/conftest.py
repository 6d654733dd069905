"""What several experiments are tried on: two colours to be found, in pictures that take no time."""

import pytest
from annotated import colour_classifier, make_voc, scenes

from excite.datasets import open_dataset
from excite.methods import view
from excite.propagation import ExcitationPass


@pytest.fixture
def classifier():
    return colour_classifier()


@pytest.fixture
def dataset(tmp_path):
    return open_dataset(make_voc(tmp_path / "voc", scenes(24)))


@pytest.fixture
def looks(monkeypatch):
    """How often the network runs."""
    seen = []
    monkeypatch.setattr(
        view, "ExcitationPass", lambda *arguments, **more: seen.append(1) or ExcitationPass(*arguments, **more)
    )
    return seen
