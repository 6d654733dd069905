"""Help and version are quick and short; the shell completes names; methods come in two groups."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

import excite as package
from excite.cli.help import completes

MOST = 0.3  # seconds of the processor; the clock also counts what else the machine does
TIMED = """
import atexit, sys, time
heavy = {"torch", "scipy", "PIL"}
atexit.register(lambda: print(time.process_time(), *heavy & {*sys.modules}))
sys.argv[0] = "excite"
from excite.cli import main
main()
"""


def answer_of(words, folder, **variables):
    """What the command prints, what heavy packages it loads, and the seconds that it takes."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(folder), **variables}  # compiled once, as where it is installed
    command = [sys.executable, "-c", TIMED, *words.split()]
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout  # noqa: S603
    *lines, facts = out.splitlines()
    seconds, *heavy = facts.split()
    return lines, heavy, float(seconds)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


@pytest.mark.parametrize("words", ["--version", "--help", "attend -h", "bench pointing --help-all"])
def test_help_and_version_are_quick_and_import_no_torch(words, compiled):
    """In up to five processes, until one is quick: the others were disturbed, or compiled."""
    found = []
    while len(found) < 5 and (not found or min(found) >= MOST):
        _, heavy, seconds = answer_of(words, compiled)
        assert not heavy
        found.append(seconds)
    assert min(found) < MOST


def test_every_public_name_is_imported_when_it_is_used():
    program = (
        "import sys, excite; before = 'torch' in sys.modules\n"
        "missing = {*excite.__all__, 'propagation', 'jobs'} - {*dir(excite)}\n"
        "from excite import *\n"
        "print(before, missing, callable(attend), excite.propagation.mwp is excite.mwp, excite.Memory is SessionCache)"
    )
    answer = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
    assert answer.stdout.split() == ["False", "set()", "True", "True", "True"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


def test_help_comes_in_short_groups_with_rare_options_behind_help_all(excite):
    short, whole = excite("ground", "-h").out, excite("ground", "--help-all").out
    for title in ("Classifier:", "Map:", "Output:", "Help:"):
        assert f"\n{title}\n" in short
    assert "  --gamma" not in short
    assert "--gamma" in short  # named only
    assert "  --gamma" in whole
    assert len(short.splitlines()) < len(whole.splitlines()) - 10


def test_the_shell_completes_names(tmp_path, monkeypatch, compiled):
    """Names that were found once are kept: the shell then gets them without torch."""
    monkeypatch.setenv("EXCITE_HOME", str(tmp_path))
    asked = SimpleNamespace(params={"model": "everyday"})
    assert completes("methods")(asked, "gra") == ["grad-cam", "grad"]
    assert completes("models")(asked, "every") == ["everyday"]
    layers = completes("layers")(asked, "blocks.14.expand.")
    assert layers == [f"blocks.14.expand.{name}" for name in ("conv", "norm", "act")]
    assert completes("layers")(SimpleNamespace(params={"model": "no-such"}), "") == []
    for typed, offered in (("excite attend p.jpg --method gra", "grad-cam grad"), ("excite bench po", "pointing")):
        words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_EXCITE_COMPLETE": "complete_bash"}
        assert answer_of("", compiled, **words)[0] == offered.split()
        assert "torch" not in answer_of("", compiled, **words)[1]


def test_methods_come_in_two_groups(excite):
    first, _, rest = excite("ls", "methods").out.partition("for comparison\n")
    assert [line.split()[0] for line in first.splitlines()[1:]] == "excite extent c-mwp mwp grad-cam guided".split()
    assert {"center", "c-mwp-no-norm"} <= {line.split()[0] for line in rest.splitlines()}
    listed = json.loads(excite("ls", "methods", "--json").out)
    assert [one["method"] for one in listed if one["main"]] == [line.split()[0] for line in first.splitlines()[1:]]
