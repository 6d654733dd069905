"""What the documentation says exists: links, commands with their options, names, files, and the paper's numbers."""

import pkgutil
import re
import shlex
from pathlib import Path

import pytest
import typer

from excite.cli.app import app
from excite.experiments.published import CONTRAST, LOCALIZATION, POINTING, published_ranks
from excite.experiments.report.tables import markdown_table

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*ING.md"), ROOT / "README.md"])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOT_OURS = {"--debug", "--help", "-h"}  # of every command
FILE = re.compile(r"\b(?:src|tests|recipes|dev|examples|docs)/[\w./-]*\w")
COMMANDS = typer.main.get_command(app)
PLACEHOLDERS = {"excite.json", "excite.NAME"}  # a file, and a name in a how-to
MADE_UP = {"excite count holiday/"}  # the command that a how-to adds
by_name = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def code_of(text):
    """The lines of all code blocks, and the code spans, which may go over two lines."""
    fenced = [block for _, block in FENCE.findall(text)]
    rest = FENCE.sub("", text)
    indented = re.findall(r"^ {4}(.*)$", rest, re.MULTILINE)
    spans = [" ".join(span.split()) for span in re.findall(r"(?<!\\)`([^`]+)`", rest)]
    return [line for block in fenced for line in block.splitlines()] + indented + spans


def commands_of(text):
    for line in code_of(text):
        found = re.match(r"(?:[\w-]*\$ )?(excite [a-z].*)", line.strip())
        if found and found[1] not in MADE_UP:
            yield found[1]


def fault_of(said):
    """What is wrong with a command; None if nothing is."""
    words = shlex.split(said.split(" | ")[0], comments=True)[1:]
    command = COMMANDS
    while words and hasattr(command, "commands"):
        name = words.pop(0)
        if name not in command.commands:
            return f"there is no command {name!r}"
        command = command.commands[name]
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | NOT_OURS
    asked = [word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return next((f"there is no option {option}" for option in asked if option not in known), None)


def test_the_checker_of_commands_sees_faults():
    assert fault_of("excite attend photo.jpg cat --against dog --json  # --nonsense") is None
    assert fault_of("excite attend photo.jpg --nonsense") == "there is no option --nonsense"
    assert fault_of("excite bench nonsense --data x") == "there is no command 'nonsense'"
    text = (
        "Say `excite ls\nmodels` or\n\n    machine-1$ excite layers MODEL\n\n```sh\nexcite bench speed --quick\n```\n"
    )
    assert list(commands_of(text)) == ["excite bench speed --quick", "excite layers MODEL", "excite ls models"]


@by_name
def test_commands_and_their_options_exist(page):
    text = page.read_text(encoding="utf-8")
    faults = {said: fault for said in commands_of(text) if (fault := fault_of(said))}
    assert faults == {}


def test_there_are_commands_to_check():
    assert sum(len(list(commands_of(page.read_text(encoding="utf-8")))) for page in PAGES) > 100


@by_name
def test_links_lead_to_files(page):
    """As where the repository is shown as files; the site's own links are checked when it is built."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if ":" not in target and not target.startswith("#"):
            assert (page.parent / target.split("#")[0]).exists(), target


@by_name
def test_files_that_are_named_exist(page):
    text = page.read_text(encoding="utf-8")
    for name in set(FILE.findall(text)):
        assert (ROOT / name).exists() or list(ROOT.glob(f"{name}*")), name


@by_name
def test_names_of_the_library_exist(page):
    text = "\n".join(code_of(page.read_text(encoding="utf-8")))
    names = set(re.findall(r"(?<![\w./-])excite(?:\.[A-Za-z_]\w*)+(?![\w/-])", text))
    names |= set(re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE))
    for name in sorted(names - PLACEHOLDERS):
        pkgutil.resolve_name(name)


def test_the_papers_numbers_are_those_of_the_library():
    """They are written down once, in experiments/published.py; a table in the docs is that, not a copy that may rot."""
    pointing = (ROOT / "docs" / "pointing.md").read_text(encoding="utf-8")
    own = [column for data in ("voc", "coco") for column in POINTING[data] if "paper" in column.source]
    rows = [line.split(" | ") for line in pointing.partition("its Table 1")[2].partition("its Table 2")[0].splitlines()]
    told = {
        cells[0].strip("| "): [cell.strip(" |") for cell in cells[1:]] for cells in rows if len(cells) == len(own) + 1
    }
    names = {"Center": "center", "Grad": "grad", "LRP": "lrp", "CAM": "cam", "MWP": "mwp", "c-MWP": "c-mwp"}
    for said, method in (names | {"Deconv (guided backprop)": "guided"}).items():
        assert told[said] == [
            "{:.1f} / {:.1f}".format(*one.scores[method]) if method in one.scores else "-" for one in own
        ]
    contrast = pointing.partition("its Table 2")[2]
    assert all(f"| {value} " in contrast for value in CONTRAST.values())
    grounding = (ROOT / "docs" / "grounding.md").read_text(encoding="utf-8")
    assert markdown_table(published_ranks()) in grounding
    localization = (ROOT / "docs" / "localization.md").read_text(encoding="utf-8")
    assert [method for method, paper in LOCALIZATION.items() if f"{paper.error:.1f}" not in localization] == []
