"""The layout of the package: imports go one way, and its size stays within limits (`make house` prints the figures).

Imports: propagation <- methods <- session <- api <- cli.
"""

import ast
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import excite

ROOT = Path(excite.__file__).parent
MAY_IMPORT = {  # each part, itself and errors aside
    "errors": "",
    "images": "",
    "io": "",
    "propagation": "",
    "readouts": "io",
    "vocabulary": "",
    "attention": "io readouts",
    "datasets": "images io vocabulary",
    "jobs": "io",
    "methods": "propagation",
    "models": "io propagation vocabulary",
    "metrics": "datasets",
    "session": "attention images io methods models propagation vocabulary",
    "session_cache": "attention images io methods models propagation session",
    "tags": "images io jobs vocabulary",
    "api": "attention images methods models session",
    "export": "attention images io methods models propagation session session_cache",
    "grounding": "attention datasets images io methods metrics models readouts session vocabulary",
    "search": "grounding images io jobs methods models readouts vocabulary",
    "training": "datasets images io jobs metrics models propagation tags vocabulary",
    "__init__": "api attention export grounding methods models propagation session session_cache",
    "autolabel": "api attention images io jobs methods models readouts session vocabulary",
    "experiments": (
        "attention autolabel datasets export grounding images io jobs methods metrics models propagation readouts "
        "session vocabulary"
    ),
    "web": "attention grounding images io methods models readouts search session session_cache vocabulary",
    "cli": (
        "attention autolabel datasets experiments export grounding images io jobs methods models readouts search "
        "tags training vocabulary web"
    ),
    "__main__": "cli",
}
MAY_IMPORT = {part: set(names.split()) for part, names in MAY_IMPORT.items()}
FACTS = {"__version__", "DEFAULT_MODEL"}  # of the package, which every part may use: they import nothing
FILES = sorted(ROOT.rglob("*.py"))


def part_of(path):
    first, *rest = path.relative_to(ROOT).parts
    return first if rest else first.removesuffix(".py")


def imported(path):
    """The modules of excite that a file imports, anywhere in it: also inside functions and for typing only."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "excite")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            if (node.module or "").split(".")[0] == "excite":
                yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name not in FACTS)


def parts_imported(path):
    for name in imported(path):
        _, *inner = name.split(".")
        known = bool(inner) and ((ROOT / inner[0]).is_dir() or (ROOT / f"{inner[0]}.py").is_file())
        yield inner[0] if known else "__init__"


def test_every_part_has_its_place():
    assert {part_of(path) for path in FILES} == set(MAY_IMPORT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path):
    part = part_of(path)
    allowed = MAY_IMPORT[part] | {part, "errors"}
    assert set(parts_imported(path)) <= allowed


def test_there_is_no_way_round():
    order = ["errors"]
    waiting = {part: set(allowed) for part, allowed in MAY_IMPORT.items() if part != "errors"}
    while waiting:
        ready = sorted(part for part, needed in waiting.items() if needed <= set(order))
        assert ready, f"these import each other: {sorted(waiting)}"
        order += ready
        for part in ready:
            del waiting[part]
    assert order.index("propagation") < order.index("methods") < order.index("session") < order.index("api")
    assert order.index("api") < order.index("cli")
    assert [part for part, allowed in MAY_IMPORT.items() if "cli" in allowed] == ["__main__"]


def test_the_reader_of_imports_sees_them(tmp_path):
    """A check that finds nothing to check would pass for ever."""
    file = tmp_path / "file.py"
    file.write_text(
        "import torch\nfrom excite.cli import main\ndef f():\n    from excite import load\n    import excite.autolabel"
    )
    assert set(parts_imported(file)) == {"cli", "__init__", "autolabel"}
    assert {"propagation"} <= set(parts_imported(ROOT / "methods" / "base.py"))  # for typing only
    assert {"autolabel"} <= set(parts_imported(ROOT / "cli" / "attend.py"))  # inside a function


PRINTING = {"print", "typer.echo", "typer.secho", "click.echo", "sys.stdout.write", "sys.stderr.write"}
MAY_PRINT = {  # all others call these, which let nothing in a text act on the terminal
    "cli/console.py",
    "cli/app.py",  # a trace, line by line
    "jobs/executor.py",  # warnings of workers
    "web/server.py",  # the address
}


def test_what_is_printed_goes_through_the_console():
    found = {
        str(path.relative_to(ROOT))
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTING
    }
    assert found == MAY_PRINT


LIMITS = {
    "lines": 42_830,
    "files": 220,
    "entries of the package": 26,
    "lines of the longest file": 500,
    "modules with one importer": 80,
    "files with one public definition": 80,
    "lines of rules.py, operations.py and provenance.py": 1_100,
    "files that attend and overlay run through": 27,
    "functions that attend and overlay run through": 319,
}


def tree_figures():
    """The size of the package, from its source alone."""
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    names = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path for path in FILES}
    importers = defaultdict(set)
    for name, path in names.items():
        for target in imported(path):
            for module in (target, target.rpartition(".")[0]):
                if module in names and module != name:
                    importers[module].add(name)
    definitions = [
        sum(
            isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
            for node in ast.parse(text).body
        )
        for text in texts.values()
    ]
    mechanism = (ROOT / "propagation" / name for name in ("rules.py", "operations.py", "provenance.py"))
    lines = [len(text.splitlines()) for text in texts.values()]
    return {
        "lines": sum(lines),
        "files": len(FILES),
        "entries of the package": len({part_of(path) for path in FILES}),
        "lines of the longest file": max(lines),
        "modules with one importer": sum(len(found) == 1 for found in importers.values()),
        "files with one public definition": definitions.count(1),
        "lines of rules.py, operations.py and provenance.py": sum(len(texts[path].splitlines()) for path in mechanism),
    }


def walk_figures():
    """The files and functions of the package that one attention map and its overlay run through."""
    from skimage import data

    functions = set()

    def profile(frame, event, _argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{ROOT}/") and code.co_name != "<module>":
            functions.add((code.co_filename, code.co_qualname))

    image = data.chelsea()
    load, attend = excite.load, excite.attend  # their modules are imported now: what that calls does not count
    sys.setprofile(profile)
    try:
        attend(load(), image, ["cat"])[0].overlay()
    finally:
        sys.setprofile(None)
    return {
        "files that attend and overlay run through": len({file for file, _ in functions}),
        "functions that attend and overlay run through": len(functions),
    }


def test_the_package_stays_within_its_limits():
    walked = subprocess.run([sys.executable, __file__], check=True, capture_output=True, text=True)  # noqa: S603
    figures = {**tree_figures(), **json.loads(walked.stdout)}
    print()
    for name, value in figures.items():
        print(f"{name:52} {value:>7,} of {LIMITS[name]:>7,}")
    assert {name: value for name, value in figures.items() if value > LIMITS[name]} == {}


if __name__ == "__main__":  # in a process of its own, where no cache is filled yet
    print(json.dumps(walk_figures()))
