"""The paper's tables and figures: the commands behind each, and their results beside the paper's numbers.

A recipe (``recipes/NAME.toml``) names steps, tables and figures. Steps are command lines of excite, in
``recipes/steps.toml``; each resumes by itself. Tables are made of the files that the steps write.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import tomllib
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from excite.attention import compare
from excite.datasets.base import read_text
from excite.errors import DataError
from excite.experiments.base import maps_of, open_session
from excite.experiments.published import CONTRAST, GROUNDING, LOCALIZATION, MEASURES, POINTING, WORDS, pair_words
from excite.experiments.report.tables import NOTHING, markdown_table
from excite.images import free_photographs, read_image
from excite.io.files import save_json, save_picture, save_text
from excite.methods import find_method
from excite.models import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from excite.experiments.report.tables import Lines

    Rows = Sequence[Mapping[str, Any]]  # of a ``rows.json``
    Paper = Mapping[str, Mapping[str, float]]  # the paper's values of each method, by the measures of our rows

FOLDERS = {"voc": "VOCdevkit/VOC2007", "coco": "coco", "imagenet": "imagenet"}  # below --data
CAPTIONS = ("captions_train2017.json", "labels_train2017.jsonl")  # COCO's own file, or words of images
BESIDE = ("center", "mwp")  # the methods whose distance to each other method is shown
CLAIM = re.compile(r"(\w+): (\S+) ([<>]) (.+)")  # MEASURE: METHOD > METHODS
CELL = 200  # the width of a map in a figure, in pixels
_RECIPES = files("excite.experiments").joinpath("recipes")
_STEPS: Mapping[str, str] = tomllib.loads(_RECIPES.joinpath("steps.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Recipe:
    """How a table or a figure of the paper is made."""

    name: str
    title: str
    steps: Sequence[str] = ()  # their names, in order
    tables: Sequence[Mapping[str, Any]] = ()  # each with its kind, the step whose results it shows, and claims
    figures: Sequence[Mapping[str, Any]] = ()  # each with its photographs and their concepts, methods and layers
    networks: Sequence[str] = ()  # those whose layers it names; none: any network will do

    def fits(self, model: str) -> bool:
        """Whether it can be followed with this network."""
        return not self.networks or model in self.networks


def all_recipes() -> dict[str, Recipe]:
    """Every recipe, by name."""
    texts = {file.name.removesuffix(".toml"): file.read_text("utf-8") for file in _RECIPES.iterdir()}
    del texts["steps"]
    return {name: Recipe(name, **tomllib.loads(texts[name])) for name in sorted(texts)}


def find_recipes(name: str, model: str) -> list[Recipe]:
    """The recipe of this name, or with ``all`` each that fits a network."""
    recipes = all_recipes()
    if name == "all":
        return [recipe for recipe in recipes.values() if recipe.fits(model)]
    if name not in recipes:
        raise DataError(f"there is no recipe {name!r}: use all, {', '.join(recipes)}")
    if not recipes[name].fits(model):
        raise DataError(f"{name} reads layers of {', '.join(recipes[name].networks)}, which {model} does not have")
    return [recipes[name]]


@dataclass(frozen=True)
class Answer:
    """The results of a recipe."""

    recipe: Recipe
    tables: Sequence[tuple[str, Lines]]
    figures: Sequence[Path]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        tables = [{"title": title, "rows": lines} for title, lines in self.tables]
        figures = [path.name for path in self.figures]
        return {"name": self.recipe.name, "title": self.recipe.title, "tables": tables, "figures": figures}

    def write(self, out: Path) -> list[Path]:
        """Write NAME.md and NAME.json; these and the figures."""
        parts = [part for title, lines in self.tables for part in (f"## {title}", markdown_table(lines))]
        shown = [f"![{path.stem}]({path.name})" for path in self.figures]
        text, name = "\n\n".join([f"# {self.recipe.title}", *parts, *shown]), self.recipe.name
        files = [save_text(f"{text}\n", out / f"{name}.md"), save_json(self.to_dict(), out / f"{name}.json")]
        return [*files, *self.figures]


@dataclass(frozen=True)
class Reproduction:
    """The data, the network and the folder with which recipes are followed."""

    data: Path  # holds the folders of `FOLDERS`
    out: Path  # for results
    model: str = "googlenet"
    weights: str | None = None
    coco_train: Path | None = None  # COCO's training images, laid out as the data's coco; None: those there
    workers: int = 1
    values: Mapping[str, str] = field(init=False)  # what stands for the names in braces in a step

    def __post_init__(self) -> None:
        train = self.coco_train or self.data / "coco"
        captions = [train / "annotations" / name for name in CAPTIONS]
        values = {name: self.data / folder for name, folder in FOLDERS.items()} | {
            "coco-train": train,
            "captions": next(filter(Path.is_file, captions), captions[0]),
            "out": self.out,
            "name": re.sub(r"[^\w.-]+", "-", self.model),
            "workers": self.workers,
        }
        object.__setattr__(self, "values", {name: str(value) for name, value in values.items()})

    def commands(self, recipes: Sequence[Recipe]) -> list[list[str]]:
        """The arguments of each step of some recipes, once; a `DataError` where data are missing."""
        steps = dict.fromkeys(step for recipe in recipes for step in recipe.steps)
        for name in (*FOLDERS, "coco-train", "captions"):
            needed = any(f"{{{name}}}" in _STEPS[step] for step in steps)
            if needed and not Path(self.values[name]).exists():
                raise DataError(f"there is no {self.values[name]}: see docs/reproduction.md for what --data must hold")
        return [list(self._filled(_STEPS[step])) for step in steps]

    def _filled(self, step: str) -> Iterator[str]:
        for word in shlex.split(step):
            if word == "{classifier}":
                yield from ("--model", self.model, *(("--weights", self.weights) if self.weights else ()))
            else:
                yield word.format_map(self.values)

    def answer(self, recipe: Recipe) -> Answer:
        """The tables and figures of a recipe whose steps are done."""
        tables: list[tuple[str, Lines]] = []
        for table in recipe.tables:
            folder, kind, title = self.out / table["results"], KINDS[table["kind"]], table["title"]
            paper = kind.published(self.model)
            tables.append((title, kind.lines(json.loads(read_text(folder / "rows.json"))["rows"], paper)))
            claims = [line for claim in table.get("claims", ()) for line in claim_lines(claim, paper, folder)]
            tables += [(f"{title}: orders that the paper claims, on the same images", claims)] * bool(claims)
        return Answer(recipe, tables, [self._draw(figure) for figure in recipe.figures])

    def _draw(self, figure: Mapping[str, Any]) -> Path:
        """A figure: a row of maps for each concept of each photograph, of every method at every layer."""
        photographs = {path.name: path for path in free_photographs()}
        if not photographs:
            raise DataError("the figures show photographs of scikit-image: pip install 'excite[demo]'")
        classifier = load(self.model, weights=self.weights)
        methods, layers, maps = [find_method(name) for name in figure["methods"]], figure["layers"], []
        for name, *concepts in figure["photographs"]:
            photograph = read_image(photographs[name])
            session = open_session(classifier, photograph, methods, layers)
            for concept in concepts:
                maps += [one for method in methods for one in maps_of(session, method, [concept], photograph)]
        drawn = compare(maps, columns=len(methods) * len(layers), cell_width=CELL)
        return save_picture(drawn, self.out / f"{figure['name']}.jpg")


# The orders of methods that the paper claims.


def claim_lines(claim: str, paper: Paper, folder: Path) -> Iterator[dict[str, str]]:
    """The differences of a claim "MEASURE: METHOD > METHODS", in the paper and in ``differences.csv``, each judged.

    Methods that the network cannot be read by are left out.
    """
    found = CLAIM.fullmatch(claim)
    if found is None:
        raise ValueError(f"a claim is MEASURE: METHOD > METHODS, not {claim!r}")
    measure, one, sign, others = found.groups()
    gaps = {
        (gap["method"], gap["other"]): gap for gap in csv.DictReader(read_text(folder / "differences.csv").splitlines())
    }
    for other in others.split():
        gap = gaps.get((one, other)) or gaps.get((other, one))
        if gap is None or not gap[measure]:
            continue
        low, value, high = sorted(
            (1 if (one, other) in gaps else -1) * float(gap[f"{measure}{end}"]) for end in ("_low", "", "_high")
        )
        known = [paper[method][measure] for method in (one, other) if measure in paper.get(method, {})]
        yield {
            "claim": f"{WORDS.get(one, one)} {sign} {WORDS.get(other, other)}",
            "of": measure,
            "paper": f"{known[0] - known[1]:+.1f}" if len(known) == len((one, other)) else NOTHING,
            "here": f"{value:+.1f} ({low:+.1f} to {high:+.1f})",
            "verdict": verdict(low, high, sign),
        }


def verdict(low: float, high: float, sign: str) -> str:
    """Whether the whole 95 % interval of a difference lies on the claimed side of zero.

    Example:
        >>> verdict(0.5, 2.0, ">"), verdict(-1.0, 2.0, ">"), verdict(0.5, 2.0, "<")
        ('holds', 'not established', 'reversed')
    """
    if low <= 0 <= high:
        return "not established"
    return "holds" if (low > 0) == (sign == ">") else "reversed"


# The kinds of tables.


@dataclass(frozen=True)
class Kind:
    """A kind of table."""

    published: Callable[[str], Paper]  # the paper's values for a network; empty where it has none
    lines: Callable[[Rows, Paper], Lines]  # our rows beside them


def _published_points(data: str, network: str) -> Paper:
    columns = (one.scores for one in POINTING[data] if one.network.casefold() == network and "paper" in one.source)
    scores = next(columns, {}).items()
    return {
        method: {name: value for name, value in zip(("all", "difficult"), pair, strict=True) if value is not None}
        for method, pair in scores
    }


def _pointing_lines(rows: Rows, paper: Paper) -> Lines:
    """All / Difficult of each method, and its distance to those `BESIDE` it, in the paper and here; no ablations."""
    here = {
        row["method"]: {name: row[name] for name in ("all", "difficult") if row[name] is not None}
        for row in rows
        if row["method"] == "c-mwp" or row["method"] not in CONTRAST
    }
    lines = []
    for method, scores in here.items():
        line = {"method": WORDS.get(method, method), "paper": _values(paper.get(method, {})), "here": _values(scores)}
        for other in BESIDE:
            for where, of in (("paper", paper), ("here", here)):
                one, base = of.get(method, {}), of.get(other, {})
                gaps = {name: one[name] - base[name] for name in one if name in base}
                line[f"over {WORDS[other]}, {where}"] = _values(gaps, "+")
        lines.append(line)
    return lines


def _values(values: Mapping[str, float], sign: str = "") -> str:
    return " / ".join(f"{value:{sign}.1f}" for value in values.values()) or NOTHING


def _published_contrast(network: str) -> Paper:
    known = {method: text.split()[0] for method, text in CONTRAST.items() if network == "googlenet"}
    return {method: {"difficult": float(text)} for method, text in known.items() if text[0].isdigit()}


def _contrast_lines(rows: Rows, _paper: Paper) -> Lines:
    """The variants on Difficult pairs, and in brackets the method without the contrast."""
    here = {row["method"]: row for row in rows}
    lines = []
    for method, text in CONTRAST.items():
        row, plain = here.get(method), here.get(method.removeprefix("c-"))
        if row is None:
            continue
        score = "zero everywhere" if row["empty"] == row["pairs"] else _values({"": row["difficult"]})
        without = "" if plain is None or method == "c-mwp" else f" ({_values({'': plain['difficult']})})"
        lines.append({"variant": method, "paper": text, "here": f"{score}{without}"})
    return lines


def _published_boxes(network: str) -> Paper:
    known = LOCALIZATION.items() if network == "googlenet" else ()
    return {method: {"error": one.error} | ({} if one.alpha is None else {"alpha": one.alpha}) for method, one in known}


def _boxes_lines(rows: Rows, paper: Paper) -> Lines:
    """The error of each method, and the threshold chosen for it."""
    return [
        {
            "method": WORDS.get(row["method"], row["method"]),
            "error, paper": str(paper.get(row["method"], {}).get("error", NOTHING)),
            "error, here": "{:.1f} ({:.1f} to {:.1f})".format(row["error"], *row["error_interval"]),
            "alpha, paper": str(paper.get(row["method"], {}).get("alpha", NOTHING)),
            "alpha, here": str(row["alpha"]),
        }
        for row in rows
    ]


def _layer_lines(rows: Rows, _paper: Paper) -> Lines:
    """All / Difficult of each method at each layer."""
    lines: dict[str, dict[str, str]] = {}
    for row in rows:
        line = lines.setdefault(row["layer"], {"layer": row["layer"]})
        line[WORDS.get(row["method"], row["method"])] = pair_words((row["all"], row["difficult"]))
    return list(lines.values())


def _phrase_lines(rows: Rows, _paper: Paper) -> Lines:
    """The measures of each method, all phrases / small instances: a line of the paper, and one of ours."""
    published = {line.method: line for line in GROUNDING if line.proposals == "MCG"}
    lines = []
    for row in rows:
        method = row["method"]
        keys = [f"r{name[2:]}" if name[0] == "R" else name.lower().replace(" ", "_") for name in MEASURES]
        found = [("here", row["gamma"], [(row[key], row[f"{key}_small"]) for key in keys])]
        if method in published:
            found.insert(0, ("paper", published[method].gamma, [*published[method].measures]))
        lines += [
            {"method": WORDS.get(method, method), "where": where, "gamma": NOTHING if gamma is None else f"{gamma:g}"}
            | dict(zip(MEASURES, map(pair_words, pairs), strict=True))
            for where, gamma, pairs in found
        ]
    return lines


KINDS = {
    "voc": Kind(partial(_published_points, "voc"), _pointing_lines),
    "coco": Kind(partial(_published_points, "coco"), _pointing_lines),
    "contrast": Kind(_published_contrast, _contrast_lines),
    "boxes": Kind(_published_boxes, _boxes_lines),
    "layers": Kind(lambda _network: {}, _layer_lines),
    "phrases": Kind(lambda _network: {}, _phrase_lines),
}
