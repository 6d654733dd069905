"""Options that several commands share, and their interpretation."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer import Argument, Option

from excite.cli.console import help_without_command
from excite.cli.help import Commands, completes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from excite.jobs import Executor
    from excite.models import Classifier
    from excite.tags.corpus import ColumnNames


PLAIN_IMAGENET = "efficientnet-lite0"  # the default of the benchmarks, whose published tables are made with it
MODEL_HELP = (
    "The classifier: a name of `excite ls models`; torchvision:, timm:, hf: or open_clip:NAME; a Caffe or weights file."
)

Model = Annotated[str, Option(help=MODEL_HELP, autocompletion=completes("models"))]
ModelArgument = Annotated[str, Argument(metavar="MODEL", help=MODEL_HELP, autocompletion=completes("models"))]
Weights = Annotated[
    str | None, Option(metavar="FILE", help="Weights for it: safetensors, a state dict, a .caffemodel; or `random`.")
]
LabelsFile = Annotated[
    str | None, Option("--labels", metavar="FILE", help="Its labels: one a line, synonyms after commas; or JSON.")
]
Size = Annotated[
    int | None, Option(min=1, help="The shorter side of the images it sees; by default as it was trained.")
]
Layer = Annotated[
    str | None, Option(help="Where to read the map; see `excite ls layers`.", autocompletion=completes("layers"))
]
Method = Annotated[
    str | None, Option(help="How to make the map; see `excite ls methods`.", autocompletion=completes("methods"))
]
Overlays = Annotated[bool, Option("--overlays/--no-overlays", help="Whether to draw images.")]
FullyConvolutional = Annotated[
    bool | None,
    Option(
        "--fully-convolutional/--whole-picture",
        help="Answer for each window of its training size, or once for the image; by default as it needs.",
    ),
]
Device = Annotated[
    str,
    Option(
        metavar="auto|cpu|cuda|mps|...",
        help="Where the network computes; auto: on an accelerator if there is one, else on the CPU.",
    ),
]
ProposalsFrom = Annotated[
    str,
    Option(
        "--proposals",
        metavar="NAME|FILE|FOLDER",
        help="The regions to choose from: hierarchy, edge-boxes, selective-search; or files.",
    ),
]
Hints = Annotated[
    bool,
    Option(
        "--hints/--no-hints", help='Whether "left", "red" and such words weigh the map, and the main word counts more.'
    ),
]
CorpusArgument = Annotated[
    Path, Argument(metavar="CORPUS", help="A Parquet file with the columns image, tags, user; or a folder of such.")
]
RawCorpusArgument = Annotated[
    Path, Argument(metavar="CORPUS", help="Parquet (a file or a folder of parts), CSV, TSV or JSON Lines; also .gz.")
]
Columns = Annotated[
    str | None,
    Option(metavar="NAME=COLUMN,...", help="What image, tags and user are called there, as in tags=keywords."),
]


def columns_of(given: str | None, *, users_needed: bool = True) -> ColumnNames:
    """The names of the columns of a corpus, from ``--columns``; a column of users that is named must exist."""
    from excite.tags.corpus import ColumnNames

    names = {"image": "image", "tags": "tags", "user": "user"}
    for pair in given.split(",") if given else []:
        name, equals, column = pair.partition("=")
        if name not in names or not equals or not column:
            raise typer.BadParameter(f"--columns names image, tags or user, as in tags=keywords, not {pair!r}")
        names[name] = column
        users_needed |= name == "user"
    return ColumnNames(**names, users_needed=users_needed)


def folder_name(model: str) -> str:
    """A model's name as part of the name of a folder."""
    return re.sub(r"[^\w.-]+", "-", model)


# Options of the commands that compare methods.

Data = Annotated[Path, Option(help="The folder of annotated images: ImageNet, VOC, COCO, or your own in their format.")]
Split = Annotated[str | None, Option(help="Which part of the data; its validation images if none.")]
Models = Annotated[
    list[str] | None, Option("--model", help=f"{MODEL_HELP} May be given several times. {PLAIN_IMAGENET} if none.")
]
Methods = Annotated[str, Option(metavar="A,B,...", help="What to compare: names of `excite ls methods`, or `all`.")]
Layers = Annotated[
    list[str] | None,
    Option("--layer", help="Read all methods here, may be given several times; each where it should be if none."),
]
Out = Annotated[Path, Option(help="The folder for results; a run that was stopped goes on there.")]
AsJson = Annotated[bool, Option("--json", help="Print one JSON object.")]
Fresh = Annotated[
    bool, Option("--fresh", help="Do everything again, also what an earlier run into this folder has done.")
]


# Groups of options: a parameter of a command `grouped` may have one of these types, and stands for all of its fields.


@dataclass(frozen=True)
class ClassifierOptions:
    """What classifiers are, besides their names."""

    weights: Weights = None
    labels: LabelsFile = None
    size: Size = None
    fully_convolutional: FullyConvolutional = None
    device: Device = "auto"

    def load(self, names: Sequence[str] | None) -> list[Classifier]:
        """Load the classifiers. Where two have the same name, all get the name that the user gave.

        Example:
            >>> [classifier.name for classifier in ClassifierOptions().load(None)]
            ['efficientnet-lite0']
        """
        from excite.errors import ModelError
        from excite.models import Choice

        choices = [Choice(name, **vars(self)) for name in names or [PLAIN_IMAGENET]]
        if len(choices) > 1 and (self.weights or self.labels):
            several = "give several as files or folders of their own"
            raise ModelError(f"--weights and --labels are for one --model: {several}")
        found = [choice.load() for choice in choices]
        if len({classifier.name for classifier in found}) == len(found):
            return found
        return [replace(one, name=choice.model) for one, choice in zip(found, choices, strict=True)]


@dataclass(frozen=True)
class ImageOptions:
    """Which images are used."""

    limit: Annotated[int | None, Option(min=1, help="Use at most so many images.")] = None
    skip: Annotated[int, Option(min=0, help="Leave out so many images first.")] = 0


@dataclass(frozen=True)
class JobOptions:
    """Where the work is done."""

    workers: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="How many processes work at the same time; 1 if none, or with --engine ray one for each CPU.",
        ),
    ] = None
    engine: Annotated[str, Option(metavar="local|ray", help="Work on this machine, or on a Ray cluster of many.")] = (
        "local"
    )
    address: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT",
            help="The Ray cluster: HOST:PORT, ray://HOST:PORT, auto or local; the one that is there if none, or a new "
            "one.",
        ),
    ] = None

    def executor(self) -> Executor:
        """The executor, checked before anything heavy is loaded."""
        from excite.jobs import ENGINES, Executor

        if self.engine not in ENGINES:
            raise typer.BadParameter(f"there is no engine {self.engine!r}: choose {' or '.join(ENGINES)}")
        if self.address is not None and self.engine != "ray":
            raise typer.BadParameter("--address is that of a Ray cluster: give --engine ray too")
        return Executor(self.engine, self.workers, self.address)


@dataclass(frozen=True)
class AnswerOptions:
    """How results are shown."""

    with_page: Annotated[bool, Option("--page/--no-page", help="Whether to make a page with figures.")] = True
    as_json: AsJson = False


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its groups of options spread out, as typer needs them; its parameters are keywords."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    spread: list[Parameter] = []
    for name, given in signature(command).parameters.items():
        if name in groups:
            kinds = get_type_hints(groups[name], include_extras=True)
            options = {option.name: option.default for option in fields(groups[name])}
            spread += [given.replace(name=one, default=options[one], annotation=kinds[one]) for one in options]
        else:
            spread.append(given.replace(annotation=hints[name]))

    @wraps(command)
    def call(**values: Any) -> None:
        packed = {
            name: hint(**{option.name: values.pop(option.name) for option in fields(hint)})
            for name, hint in groups.items()
        }
        command(**values, **packed)

    call.__signature__ = Signature(spread)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in spread}
    return call


def group(description: str) -> typer.Typer:
    """An empty group of commands; called without a command, it prints its help and exits with 2."""
    app = Commands(help=description)
    app.callback(invoke_without_command=True)(help_without_command)
    return app


def gone(app: typer.Typer, name: str, words: str) -> None:
    """Let a command that is no longer there answer with one line, whatever it is given."""

    def command() -> None:
        from excite.errors import DataError

        raise DataError(words)

    app.command(name, hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(command)
