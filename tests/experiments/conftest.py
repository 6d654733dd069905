"""What several experiments are tried on: two colours to be found, in images that take no time."""

import pytest
from annotated import colour_classifier, make_voc, scenes

import excite.session
from excite.datasets import open_dataset
from excite.methods import METHODS, Method
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
        excite.session,
        "ExcitationPass",
        lambda *arguments, **more: seen.append(1) or ExcitationPass(*arguments, **more),
    )
    return seen


@pytest.fixture
def planted(monkeypatch):
    """Makes a method with a known map, whatever it is asked."""

    def make(name, values):
        def maps(_passes, units, layers):
            return dict.fromkeys(layers, values.expand(len(units), -1, -1, -1))

        monkeypatch.setitem(METHODS, name, Method(name, "finds what it was told", maps))
        return name

    return make
