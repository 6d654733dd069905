"""The public API, written down: a name that comes or goes is a decision, not an accident."""

import inspect
import re
from importlib.metadata import version
from pathlib import Path

import pytest

import excite

NAMES = [
    "METHODS",
    "MODELS",
    "AttentionMap",
    "Classifier",
    "ExciteError",
    "Grounded",
    "Located",
    "Memory",
    "Region",
    "absorbing_chain",
    "attend",
    "attend_batch",
    "compare",
    "ground",
    "load",
    "locate",
    "mwp",
    "sample_winners",
    "transition_matrix",
    "winner_take_all",
    "wrap",
]
PARAMETERS = {  # * in front: by name only
    "attend": "classifier image concepts *layer *method *against",
    "attend_batch": "classifier images concepts *layer *method *against",
    "compare": "maps *rows *image *point *box *columns *cell_width",
    "Memory": "classifier *most_bytes",
    "ground": "classifier image phrases *proposals *method *layer *gamma *trust *side *hints *most",
    "load": "name *weights *labels *preprocess *size *layer *multilabel *fully_convolutional",
    "locate": "classifier image concepts *method *layer *alpha",
    "mwp": "module inputs signal *layer *contrastive *dual",
    "wrap": "module *labels *preprocess *layer *name *multilabel *fully_convolutional",
}
FIELDS = "values concept layer method mass image_size probability image units".split()
METHODS = {"box", "load", "numpy", "overlay", "point", "save", "to_dict", "upsample"}
FUNCTIONS = [name for name in NAMES if inspect.isfunction(getattr(excite, name))]


def test_the_names():
    assert excite.__all__ == NAMES
    assert all(hasattr(excite, name) for name in NAMES)


def test_nothing_else_looks_public():
    """What `dir(excite)` shows beside the API are its own modules."""
    shown = {name for name in vars(excite) if not name.startswith("_")} - set(NAMES)
    assert all(inspect.ismodule(getattr(excite, name)) for name in shown)


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_parameters(name):
    parameters = inspect.signature(getattr(excite, name)).parameters.values()
    written = [("*" if one.kind is one.KEYWORD_ONLY else "") + one.name for one in parameters]
    assert " ".join(written) == PARAMETERS[name]


def test_the_attention_map():
    assert list(inspect.signature(excite.AttentionMap).parameters) == FIELDS
    public = {name for name in vars(excite.AttentionMap) if not name.startswith("_")}
    assert public - set(FIELDS) == METHODS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_says_what_it_does_and_shows_how(name):
    described = inspect.getdoc(getattr(excite, name))
    assert len(described.splitlines()[0]) > 20
    assert ">>>" in described


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_of_the_map_shows_how(name):
    described = inspect.getdoc(getattr(excite.AttentionMap, name))
    assert ">>>" in described


def test_all_errors_are_of_one_family():
    from excite import errors

    for name in errors.__all__:
        kind = getattr(errors, name)
        assert issubclass(kind, excite.ExciteError) or issubclass(kind, UserWarning)
        assert inspect.getdoc(kind)


def test_one_version():
    assert excite.__version__ == version("excite")
    assert re.fullmatch(r"\d+\.\d+\.\d+", excite.__version__)
    assert (Path(excite.__file__).parent / "py.typed").is_file()
