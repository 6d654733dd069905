"""The command run in this process, and photographs to run it on."""

import json
from dataclasses import dataclass, replace

import pytest
from annotated import colour_classifier, make_voc, scenes
from PIL import Image
from skimage import data

from excite.cli import main


@dataclass
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def answers(self):
        """The JSON objects on standard output, which holds nothing else."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def complaint(self):
        """The one line on standard error of a command that failed, having printed nothing else."""
        assert self.code not in {0, None}
        assert self.out == ""
        assert self.err.startswith("excite: ")
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1
        assert "Traceback" not in self.err
        return self.err.removeprefix("excite: ").rstrip()


@pytest.fixture
def excite(capsys):
    """Run ``excite`` with those arguments."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Ended(ended.value.code, said.out, said.err)

    return run


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(monkeypatch):
    """Every name is a classifier of colours; "twin" calls itself by another name."""

    def load(choice):
        classifier = colour_classifier()
        return replace(classifier, name="twin") if choice.model == "twin" else classifier

    monkeypatch.setattr("excite.models.Choice.load", load)
    return "colours"


@pytest.fixture
def voc(here):
    """24 images of colours, annotated as VOC's."""
    return make_voc(here / "voc", scenes(24))


@pytest.fixture
def cat(here):
    """A photograph of a cat, 451 x 300."""
    Image.fromarray(data.chelsea()).save(here / "cat.png")
    return "cat.png"
