"""The public API, written down in docs/api/: what comes, goes or changes is a decision, not an accident."""

import importlib.util
import inspect
import re
from importlib.metadata import version
from pathlib import Path

import pytest

import excite
from excite import errors

METHODS = {"box", "load", "numpy", "overlay", "point", "save", "to_dict", "upsample"}
ROOT = Path(__file__).parents[1]


def recipe():
    spec = importlib.util.spec_from_file_location("public_api", ROOT / "dev" / "public_api.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


api = recipe()
LISTED = api.list_of(excite.__version__).read_text(encoding="utf-8")


def test_the_list_is_what_the_code_has_and_nothing_went_undeprecated():
    found = list(api.differences(LISTED, "\n".join(api.lines())))
    assert not found, (
        "the public API is not as docs/api/ has it:\n"
        + "\n".join(found)
        + "\nWhat was removed or changed in a way that "
        "breaks programs needs a deprecation first (docs/reference/versions.md). If it is meant: "
        "`python dev/public_api.py`, and a line in CHANGELOG.md."
    )
    earlier = api.before(api.list_of(excite.__version__))
    assert not (list(api.broken(earlier.read_text(encoding="utf-8"), LISTED)) if earlier else [])


def test_the_list_holds_the_names_the_errors_and_the_commands():
    facts = api.facts(LISTED)
    assert {f"excite.{name}" for name in excite.__all__} <= facts.keys()
    assert facts["excite.attend layer"] == "by name Layers | None = None"
    assert facts["excite.AttentionMap.save"] == "-> pathlib.Path"
    assert facts["excite.errors.ProposalError"].startswith("DataError ExciteError Exception")
    assert facts["excite attend --model"] == "str = 'words'"
    assert facts["excite train tags"] == "a command"
    assert "0x" not in LISTED  # addresses differ each time


OLD = "excite.f -> int\n    x: int\n    y: by name int = 1\nexcite.g -> str  [deprecated]\n    z: int"


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (OLD.replace("    y: by name int = 1\n", ""), ["removed: excite.f y: it was by name int = 1"]),
        (OLD + "\nexcite.h: a class", ["added: excite.h: a class"]),
        (OLD.replace("= 1", "= 2"), ["changed: excite.f y: it was 'by name int = 1' and is 'by name int = 2'"]),
        (OLD, []),
    ],
)
def test_it_says_in_words_what_differs(new, said):
    assert list(api.differences(OLD, new)) == said


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (OLD.partition("excite.g")[0], ""),  # it was deprecated, with all that it had
        (OLD.replace("    y: by name int = 1\n", ""), "excite.f y is gone without having been deprecated"),
        (OLD.replace("    x: int\n", "    x: int\n    w: int\n"), "excite.f w is new and has no default"),
        (OLD.replace("    x: int\n", "    x: int\n    w: int = 3\n"), ""),
    ],
)
def test_a_minor_version_takes_nothing_away_unannounced(new, said):
    found = "".join(api.broken(OLD, new))
    assert found.startswith(said) if said else not found


def test_what_says_that_it_is_deprecated_is_listed_so():
    def leaving(x: int = 1) -> int:
        """Give it back.

        Deprecated since 0.2: use it directly.
        """
        return x

    assert list(api.about("excite.leaving", leaving)) == ["excite.leaving -> int  [deprecated]", "    x: int = 1"]


def test_what_is_public_says_what_it_does_and_shows_how():
    """What `dir(excite)` shows beside the API are its own modules."""
    shown = {name for name in vars(excite) if not name.startswith("_")} - set(excite.__all__)
    assert all(inspect.ismodule(getattr(excite, name)) for name in shown)
    functions = [getattr(excite, name) for name in excite.__all__ if inspect.isfunction(getattr(excite, name))]
    methods = [getattr(excite.AttentionMap, name) for name in METHODS]
    assert [one.__name__ for one in (*functions, *methods) if ">>>" not in inspect.getdoc(one)] == []
    assert all(len(inspect.getdoc(one).splitlines()[0]) > 20 for one in functions)
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert issubclass(kind, (excite.ExciteError, UserWarning))
        assert inspect.getdoc(kind)


def test_one_version():
    assert excite.__version__ == version("excite")
    assert re.fullmatch(r"\d+\.\d+\.\d+", excite.__version__)
    assert (Path(excite.__file__).parent / "py.typed").is_file()
