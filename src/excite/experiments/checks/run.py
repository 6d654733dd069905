"""All checks of a classifier on some images, and what they come to."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from excite import __version__
from excite.errors import ImageError, MethodError
from excite.experiments.checks.base import STANDINGS, Check, Seen, worst
from excite.experiments.checks.mass import MASS, VALUES
from excite.experiments.checks.randomization import CLASSES, RANDOMISATION
from excite.experiments.checks.removal import REMOVAL
from excite.experiments.checks.stability import STABILITY
from excite.experiments.readable_layers import ReadableLayers
from excite.images import file_state, find_images, read_image
from excite.jobs import Executor, open_results
from excite.jobs.loop import run
from excite.methods import find_method
from excite.metrics.statistics import FEW
from excite.models.classifier import identity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from excite.experiments.checks.base import Standing, Verdict
    from excite.jobs import Entry
    from excite.models import Classifier


# Every check by its name. A new one is one file beside this one and one line in `CHECKS`.

CHECKS: Mapping[str, Check] = {
    check.name: check for check in (MASS, VALUES, RANDOMISATION, CLASSES, REMOVAL, STABILITY)
}


def chosen_checks(names: str | None) -> list[str]:
    """The checks that somebody has named, or all of them.

    Example:
        >>> chosen_checks("values,mass"), len(chosen_checks(None))
        (['values', 'mass'], 6)
    """
    chosen: Sequence[str] = list(CHECKS) if names is None else list(dict.fromkeys(names.split(",")))
    for name in chosen:
        if name not in CHECKS:
            raise MethodError(f"there is no check {name!r}: use some of {','.join(CHECKS)}")
    return list(chosen)


# What is done for each image: every check, and the facts that it found.

ODD_NAMES = ("utf-8", "surrogateescape")
AS_MEASURED = 2  # goes up when a check measures otherwise, so that older facts do not count any more


@dataclass(frozen=True, eq=False)
class Checking:
    """The work done for each image.

    Attributes:
        classifier: who is checked.
        layers: for each method, by name, the layer at which it is read; the checked one first.
        checks: the names of the checks.
        seed: whatever is drawn at random is drawn by it.
        question: all of that as text.
    """

    classifier: Classifier
    layers: Mapping[str, tuple[str, ...]]
    checks: Sequence[str]
    seed: int = 0
    question: str = field(init=False)

    def __post_init__(self) -> None:
        facts = [AS_MEASURED, list(self.layers.items()), list(self.checks), self.seed, __version__]
        object.__setattr__(self, "question", json.dumps([facts, identity(self.classifier)]))

    def key(self, task: Path) -> str:
        """Changes when the image, the classifier, the question or the program does."""
        return hashlib.sha256(json.dumps([self.question, *file_state(task)]).encode()).hexdigest()[:16]

    def __call__(self, task: Path) -> dict[str, Any]:
        """Look at the image, and measure. Each has weights and noise of its own: a single draw may be odd."""
        seen = Seen(
            self.classifier, self.layers, read_image(task), self.seed + zlib.crc32(task.name.encode(*ODD_NAMES))
        )
        return {
            "image": str(task),
            "finding": seen.finding.name,
            "probability": float(seen.probabilities.max()),
            "checks": {name: CHECKS[name].measure(seen) for name in self.checks},
        }


# All checks of a classifier on some images, and what they come to.

PEERS = ("mwp", "grad", "grad-cam", "lrp")  # what every method is seen beside; a random map too, where that says much


@dataclass(frozen=True)
class SanityReport:
    """What the checks say.

    Attributes:
        model: the classifier's name.
        method: the one that was checked,
        layer: and where it was read.
        pictures: on how many images.
        verdicts: what each check says, by its name.
    """

    model: str
    method: str
    layer: str
    pictures: int
    verdicts: Mapping[str, Verdict]

    @property
    def standing(self) -> Standing:
        """The least reassuring of all checks."""
        return worst([verdict.standing for verdict in self.verdicts.values()])

    def summary(self) -> str:
        """Whether the maps can be relied on, in a sentence."""
        asked = f"the maps of {self.method} at {self.layer} of {self.model}"
        told = "1 image" if self.pictures == 1 else f"{self.pictures} images"
        few = " So few images say little: name more of them." if self.pictures < FEW else ""
        if self.standing == "holds":
            return f"Yes: {asked} passed all {len(self.verdicts)} checks on {told}.{few}"
        opening = "No" if self.standing == "fails" else "With care"
        words = [
            f"{standing}: {', '.join(names)}" for standing in reversed(STANDINGS) if (names := self._names(standing))
        ]
        return f"{opening}: {asked}, checked on {told}. {'; '.join(words).capitalize()}.{few}"

    def _names(self, standing: Standing) -> list[str]:
        return [name for name, verdict in self.verdicts.items() if verdict.standing == standing]

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


class Sanity:
    """Checks the maps of a method on a classifier, beside those of others.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        pictures: the files to check it on.
        method: a name from `excite.METHODS`.
        layer: where to read it and the maps without contrast; None for where they should be.
        checks: names from `CHECKS`.
        seed: whatever is drawn at random is drawn by it.

    Attributes:
        layers: for each method, by name, where it is read; the checked one first.
        unreadable: why a method of comparison is left out.
        failures: a line for each image that could not be read.

    Example:
        >>> sanity = Sanity(excite.load(), find_images("photos"))                    # doctest: +SKIP
        >>> sanity.report(list(sanity.records(Path("out")))).summary()               # doctest: +SKIP
        'Yes: the maps of c-mwp at blocks.14 of efficientnet-lite0 passed all 6 checks on 8 images.'
    """

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
        self.classifier = classifier
        self.pictures = pictures
        self.checks = checks
        self.seed = seed
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
        """Check image by image, kept in ``records.jsonl``: started again, it goes on where it was.

        Args:
            out: the folder for it.
            workers: who does it: how many processes of this machine, or a crew. A cluster keeps ``records.parquet``.
        """
        executor = Executor.of(workers)
        store = open_results(out / "records.jsonl", ("image", "finding", "checks"), parquet=executor.is_cluster)
        work = Checking(self.classifier, self.layers, self.checks, self.seed)
        return run(work, self.pictures, store, workers=executor, failures=self.failures)

    def facts(self) -> list[tuple[str, str]]:
        """What was checked, and what was left out and why."""
        read = ", ".join(f"{method} at {layers[0]}" for method, layers in self.layers.items())
        facts = [("classifier", self.classifier.name), ("read", read), ("seed", str(self.seed))]
        facts += [("left out", f"{place}: {why}") for place, why in self.unreadable.items()]
        return facts + [("could not be read", failure) for failure in self.failures]

    def report(self, records: Sequence[Entry]) -> SanityReport:
        """What the records say."""
        if not records:
            raise ImageError(f"none of the {len(self.pictures)} images could be read; the first: {self.failures[0]}")
        method = next(iter(self.layers))
        verdicts = {
            name: CHECKS[name].judge([record["checks"][name] for record in records], method) for name in self.checks
        }
        return SanityReport(self.classifier.name, method, self.layers[method][0], len(records), verdicts)


# The images of a check: a few of those that somebody has, or photographs that are there without asking anybody.

PHOTOGRAPHS = ("chelsea.png", "coffee.png", "astronaut.png", "rocket.jpg")  # inside scikit-image, with free licences


def pictures_of(patterns: Sequence[str], limit: int) -> list[Path]:
    """The files of images, folders and patterns, each once; of more than ``limit`` some, evenly among them.

    Example:
        >>> [file.name for file in pictures_of([], 2)]
        ['chelsea.png', 'astronaut.png']
    """
    if not patterns:
        return _evenly(_photographs(), limit)
    return _evenly(find_images(patterns), limit)


def _photographs() -> list[Path]:
    spec = find_spec("skimage")
    if spec is None or spec.origin is None:
        raise ImageError("name some images, or install photographs to check on: pip install 'excite[demo]'")
    return [Path(spec.origin).parent / "data" / name for name in PHOTOGRAPHS]


def _evenly(files: list[Path], limit: int) -> list[Path]:
    """Some of the files, from all parts of the list: those of one folder are often all alike."""
    if len(files) <= limit:
        return files
    return [files[k * len(files) // limit] for k in range(limit)]
