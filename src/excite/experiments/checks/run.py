"""All checks of a classifier on some images, and their report. A new check is a `Check` and one name in `CHECKS`."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from excite.errors import ImageError, MethodError
from excite.experiments.base import Measurement, ReadableLayers, image_records
from excite.experiments.checks import base, perturbation
from excite.experiments.checks.base import STANDINGS, Check, CheckedImage, Panel, Standing, Verdict, worst
from excite.experiments.report import figures
from excite.experiments.report.page import write_page
from excite.experiments.report.tables import markdown_table
from excite.images import file_state, find_images, free_photographs, read_image
from excite.io.cache import fingerprint
from excite.io.text import for_markdown, markdown_code
from excite.jobs import Entry, Executor
from excite.methods import find_method
from excite.metrics.statistics import FEW
from excite.models import Classifier

CHECKS: Mapping[str, Check] = {
    check.name: check
    for check in (
        *(base.MASS, base.VALUES, base.RESPONSE),
        *(perturbation.RANDOMISATION, perturbation.CLASSES, perturbation.REMOVAL, perturbation.STABILITY),
    )
}
AS_MEASURED = 2  # the version of the measurements: older records are measured again
PEERS = ("mwp", "grad", "grad-cam", "lrp")  # methods for comparison; and a random map in the removal check


def chosen_checks(names: str | None) -> list[str]:
    """The checks of a comma-separated list, or all of them."""
    chosen = list(CHECKS) if names is None else list(dict.fromkeys(names.split(",")))
    for name in chosen:
        if name not in CHECKS:
            raise MethodError(f"there is no check {name!r}: use some of {','.join(CHECKS)}")
    return chosen


@dataclass(frozen=True, eq=False)
class CheckMeasurement(Measurement):
    """Computes the record of an image: the measurements of every check; ``layers`` has the checked method first."""

    checks: Sequence[str]  # their names
    seed: int = 0  # of all random draws

    def facts(self) -> list[Any]:
        """The methods with their layers, the checks and the seed."""
        return [AS_MEASURED, list(self.layers.items()), list(self.checks), self.seed]

    def key(self, task: Path) -> str:
        """A digest of the image and the question."""
        return fingerprint([self.question, *file_state(task)])

    def __call__(self, task: Path) -> dict[str, Any]:
        """The record of an image; each has its own random weights and noise."""
        seed = self.seed + zlib.crc32(task.name.encode("utf-8", "surrogateescape"))
        seen = CheckedImage(self.classifier, self.layers, read_image(task), seed)
        return {
            "image": str(task),
            "finding": seen.finding.name,
            "probability": float(seen.probabilities.max()),
            "checks": {name: CHECKS[name].measure(seen) for name in self.checks},
        }


@dataclass(frozen=True)
class SanityReport:
    """The verdicts of the checks."""

    model: str
    method: str  # the checked method
    layer: str  # the layer at which it is read
    pictures: int
    verdicts: Mapping[str, Verdict]  # by the names of the checks

    @property
    def standing(self) -> Standing:
        """The least reassuring of all checks."""
        return worst([verdict.standing for verdict in self.verdicts.values()])

    def summary(self) -> str:
        """Whether the maps can be relied on, in a sentence."""
        asked = f"the maps of {self.method} at {self.layer} of {self.model}"
        images = "1 image" if self.pictures == 1 else f"{self.pictures} images"
        few = " So few images say little: name more of them." if self.pictures < FEW else ""
        if self.standing == "holds":
            return f"Yes: {asked} passed all {len(self.verdicts)} checks on {images}.{few}"
        opening = "No" if self.standing == "fails" else "With care"
        names = {each: [name for name, one in self.verdicts.items() if one.standing == each] for each in STANDINGS}
        words = [f"{each}: {', '.join(names[each])}" for each in reversed(STANDINGS) if names[each]]
        return f"{opening}: {asked}, checked on {images}. {'; '.join(words).capitalize()}.{few}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "model": self.model,
            "method": self.method,
            "layer": self.layer,
            "pictures": self.pictures,
            "standing": self.standing,
            "summary": self.summary(),
            "checks": {
                name: {
                    "standing": verdict.standing,
                    "said": list(verdict.sentences),
                    "rows": [dict(row) for row in verdict.rows],
                    "curves": {panel.title: dict(panel.lines) for panel in verdict.panels},
                }
                for name, verdict in self.verdicts.items()
            },
        }


class SanityChecks:
    """Checks the maps of a method on a classifier, in comparison with other methods."""

    def __init__(
        self,
        classifier: Classifier,
        pictures: Sequence[Path],
        *,
        method: str = "c-mwp",
        layer: str | None = None,
        checks: Sequence[str] = tuple(CHECKS),
        seed: int = 0,
    ) -> None:
        self.classifier, self.pictures, self.checks, self.seed = classifier, pictures, checks, seed
        self.failures: list[str] = []
        asked = [find_method(name) for name in dict.fromkeys([method, "mwp"])]
        self.layers = dict(ReadableLayers(classifier, asked, None if layer is None else [layer]).layers)
        for each in asked:
            if each.name not in self.layers:
                raise MethodError(f"{each.name} cannot be read on {classifier.name}, so there is nothing to check")
        beside = ReadableLayers(classifier, [find_method(name) for name in PEERS if name not in self.layers])
        self.layers |= beside.layers
        self.unreadable = beside.unreadable

    def records(self, out: Path, workers: int | Executor = 1) -> Iterator[Entry]:
        """The record of each image, kept in ``records.jsonl``; see `excite.experiments.base.image_records`."""
        work = CheckMeasurement(self.classifier, self.layers, self.checks, self.seed)
        path, fields = out / "records.jsonl", ("image", "finding", "checks")
        return image_records(work, self.pictures, path, fields, workers=workers, failures=self.failures)

    def facts(self) -> list[tuple[str, str]]:
        """What was checked, and what was left out and why."""
        read = ", ".join(f"{method} at {layers[0]}" for method, layers in self.layers.items())
        facts = [("classifier", self.classifier.name), ("read", read), ("seed", str(self.seed))]
        facts += [("left out", f"{place}: {why}") for place, why in self.unreadable.items()]
        return facts + [("could not be read", failure) for failure in self.failures]

    def report(self, records: Sequence[Entry]) -> SanityReport:
        """The verdicts on the records."""
        if not records:
            raise ImageError(f"none of the {len(self.pictures)} images could be read; the first: {self.failures[0]}")
        method = next(iter(self.layers))
        verdicts = {
            name: CHECKS[name].judge([record["checks"][name] for record in records], method) for name in self.checks
        }
        return SanityReport(self.classifier.name, method, self.layers[method][0], len(records), verdicts)


def pictures_of(patterns: Sequence[str], limit: int) -> list[Path]:
    """The files of images, folders and patterns, or of scikit-image's photographs; at most ``limit``, evenly spread."""
    files = find_images(patterns) if patterns else list(free_photographs())
    if not files:
        raise ImageError("name some images, or install photographs to check on: pip install 'excite[demo]'")
    return files if len(files) <= limit else [files[k * len(files) // limit] for k in range(limit)]


# The report on a terminal and in files.


def text(report: SanityReport) -> list[str]:
    """The report as lines for a terminal: each check's standing and sentences, and then the summary."""
    lines = []
    for name, verdict in report.verdicts.items():
        first, *more = verdict.sentences
        lines.append(f"{verdict.standing:9} {name:14} {first}")
        lines += [f"{'':9} {'':14} {sentence}" for sentence in more]
    return [*lines, report.summary()]


def markdown(report: SanityReport, command: str) -> str:
    """The report as a section of a page of documentation."""
    heading = for_markdown(f"{report.model}, {report.method} at {report.layer}")
    parts = [f"### {heading}", for_markdown(report.summary()), f"Command: {markdown_code(command)}"]
    for name, verdict in report.verdicts.items():
        parts.append(f"**{CHECKS[name].question}** {verdict.standing.capitalize()}.")
        parts.append(for_markdown(" ".join(verdict.sentences)))
        parts += [markdown_table(verdict.rows)] if name != "mass" else []
    return "\n\n".join(parts) + "\n"


def curves_figure(verdicts: Iterable[Verdict], method: str) -> Any:
    """All panels of the checks, side by side; the checked method is drawn thick. None where there are none."""
    panels = [panel for verdict in verdicts for panel in verdict.panels]
    if not panels:
        return None
    names = dict.fromkeys([method, *(line for panel in panels for line in panel.lines)])
    looks = dict(zip(names, cycle(figures.LOOKS), strict=False))
    figure = figures.new_figure(3.6 * len(panels), 3.9)
    drawn: dict[str, Any] = {}
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        drawn |= _drawn(axes, panel, looks, method)
    shown = {name: drawn[name] for name in names if name in drawn}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=len(shown), frameon=False, fontsize=9)
    return figure


def _drawn(axes: Any, panel: Panel, looks: Mapping[str, tuple[str, str]], method: str) -> dict[str, Any]:
    """Draw a panel; the lines by name."""
    lines = {}
    for name, points in panel.lines.items():
        colour, marker = looks[name]
        width, above = (2.6, 3) if name == method else (1.3, 2)
        style = {"color": colour, "marker": marker, "markersize": 3.5, "linewidth": width, "zorder": above}
        (lines[name],) = axes.plot(*zip(*points, strict=True), **style)
    axes.set_title(panel.title, fontsize=10, color=figures.INK)
    axes.set_xlabel(panel.across, fontsize=9, color=figures.INK)
    axes.set_ylabel(panel.up, fontsize=9, color=figures.INK)
    axes.set_ylim(min(0.0, axes.get_ylim()[0]), axes.get_ylim()[1])
    figures.style_axes(axes)
    return lines


def write_figure(report: SanityReport, path: Path) -> Path | None:
    """Draw the curves; None where the checks have none."""
    figure = curves_figure(report.verdicts.values(), report.method)
    return None if figure is None else figures.save_png(figure, path)


def write_html(report: SanityReport, facts: list[tuple[str, str]], command: str, path: Path) -> Path:
    """Write the report as an HTML page."""
    verdicts = {CHECKS[name].question: verdict for name, verdict in report.verdicts.items()}
    curves = curves_figure(verdicts.values(), report.method)
    return write_page(path, "check.html", report=report, curves=curves, verdicts=verdicts, facts=facts, command=command)
