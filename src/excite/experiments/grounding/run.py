"""Grounding: which region of an image does a phrase refer to? (paper, 4.3: text-to-region association)."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from excite.datasets.base import FARTHEST, Phrase, PhraseDataset, parse_json, read_lines, read_text
from excite.errors import DataError
from excite.experiments import GROUNDING_METHODS, HELD_OUT, base
from excite.experiments.base import ExperimentRun
from excite.experiments.grounding import measure
from excite.experiments.grounding.measure import (
    GAMMAS,
    OWN,
    ChosenGamma,
    GroundingRow,
    Lead,
    Mention,
    PhraseMeasurement,
    PhraseTask,
)
from excite.experiments.report.tables import main_method
from excite.grounding import Scorer
from excite.grounding.ground import Grounded, grounded
from excite.grounding.phrase_maps import SIDE
from excite.grounding.proposals import PROPOSERS, find_proposer
from excite.grounding.scoring import TRUST, checked_trust
from excite.images import PICTURE_SUFFIXES, read_image
from excite.jobs import Entry, Executor
from excite.methods import find_method
from excite.metrics.ranking import first_match
from excite.models import Classifier, Preprocess
from excite.vocabulary import read_phrase

MAIN = ("excite", "c-mwp", "mwp")  # others are compared with the first of these that is there
MOST_WORDS = 20
FIELDS = ("image", "size", "proposals", "trouble", "seconds", "own_scores", "phrases")
FORM = '{"image": ..., "phrase": ..., "boxes": [[x0, y0, x1, y1], ...], "scores": [...]}'
USUAL_SUFFIXES = (".jpg", ".jpeg", ".png")

Ranked = tuple[list[list[float]], list[float]]  # boxes and their scores, best first


@dataclass(frozen=True)
class GroundingRun(ExperimentRun):
    """One network's grounding; its records are of the reported images."""

    rows: Sequence[GroundingRow]
    shared: Sequence[GroundingRow]  # rows without a network: the proposals' own scores, and other systems
    leads: Sequence[Lead]  # of its main method over all other rankings
    groups: Sequence[str]  # of the data


class Grounding:
    """Grounds phrases with several methods, and counts the rank of the right box.

    The arguments are the options of ``excite bench grounding``; ``gamma`` is the exponent of the area, or those of
    `GAMMAS` of which one is chosen for each method on the ``held_out`` share of the images.
    """

    def __init__(  # noqa: PLR0913 - all but two may be left out
        self,
        classifier: Classifier,
        dataset: PhraseDataset,
        methods: Sequence[str] = tuple(GROUNDING_METHODS.split(",")),
        *,
        layer: str | None = None,
        proposals: str | Path = "hierarchy",
        cache: Path | None = None,
        gamma: float | Sequence[float] = GAMMAS,
        held_out: float = HELD_OUT,
        seed: int = 0,
        truth: str = "union",
        trust: float = TRUST,
        side: int = SIDE,
        hints: bool = True,
        skip: int = 0,
        limit: int | None = None,
    ) -> None:
        self.names = base.selected(dataset.names, skip, limit)
        self.classifier, self.dataset = classifier, dataset
        self.truth = measure.checked_truth(truth)
        self.gamma = float(gamma) if isinstance(gamma, (int, float)) else None
        self.among = _checked_gammas(gamma)
        self.share, self.seed = base.checked_share(held_out), seed
        self.cache = cache.absolute() if cache and str(proposals) in PROPOSERS else None  # for any working folder
        self.failures: list[str] = []
        source = find_proposer(proposals, self.cache)
        self.tasks: list[PhraseTask] = []
        for name in self.names:
            try:
                described = dataset.sample(name)
            except DataError as error:
                self.failures.append(str(error))
            else:
                self.tasks += [PhraseTask(described)] if described.phrases else []
        if not self.tasks:
            reason = f": {self.failures[0]}" if self.failures else ""
            raise DataError(f"none of these {len(self.names)} images has phrases to look for{reason}")
        chosen = [find_method(name) for name in dict.fromkeys(methods)]
        prepare, seen = classifier.preprocess, classifier
        if isinstance(prepare, Preprocess) and not prepare.square:  # the best layers depend on the size
            seen = replace(classifier, preprocess=replace(prepare, shorter_side=side))
        self.places = base.ReadableLayers(seen, chosen, None if layer is None else [layer])
        layers = {method: found[:1] for method, found in self.places.layers.items()}
        settings = (source, str(proposals), checked_trust(trust), side, hints, base.labels_of(classifier))
        self.work = PhraseMeasurement(classifier, layers, *settings)
        names = [task.name for task in self.tasks]
        self.held = frozenset() if self.gamma is not None else base.held_out(names, self.share, seed)

    def choosing(self, out: Path, workers: int | Executor = 1) -> Iterator[Entry]:
        """The records of the held-out images with every gamma, kept in ``choosing.jsonl``; none where it was given."""
        tasks = [task for task in self.tasks if task.name in self.held]
        return self._records(self.work, tasks, out / "choosing.jsonl", workers)

    def choose(self, records: Sequence[Entry]) -> dict[str, ChosenGamma]:
        """The gamma of each method: the given one, or the best one on the held-out images."""
        if self.gamma is not None:
            return {method: ChosenGamma(self.gamma) for method in self.work.layers}
        base.check_some_were_read(records, len(self.held), self.failures, "to choose gamma on ")
        return measure.choose(records, self.truth, self.among)

    def records(self, out: Path, chosen: Mapping[str, ChosenGamma], workers: int | Executor = 1) -> Iterator[Entry]:
        """The records of the other images with the gammas of `choose`, kept in ``records.jsonl``."""
        gammas = {method: one.gamma for method, one in chosen.items() if one.gamma is not None}
        return self._records(replace(self.work, gammas=gammas), self.reported, out / "records.jsonl", workers)

    def _records(
        self, work: PhraseMeasurement, tasks: Sequence[PhraseTask], path: Path, workers: int | Executor
    ) -> Iterator[Entry]:
        return base.image_records(work, tasks, path, FIELDS, workers=workers, failures=self.failures, writes=self.cache)

    @property
    def reported(self) -> list[PhraseTask]:
        """The images that are not held out."""
        return [task for task in self.tasks if task.name not in self.held]

    def run(
        self, chosen: Mapping[str, ChosenGamma], records: Sequence[Entry], others: Sequence[SystemResults] = ()
    ) -> GroundingRun:
        """The results for tables and figures; those of other systems are scored on the same phrases."""
        base.check_some_were_read(records, len(self.reported), self.failures)
        name, layers, missing = self.classifier.name, self.work.layers, {OWN: 0}
        mentions = {method: measure.mentions_of(records, method, self.truth) for method in (*layers, OWN)}
        for other in others:
            mentions[other.name], missing[other.name] = other.mentions(records, self.truth)
        table = measure.GroundingTable(mentions, self.dataset.groups)
        rows = [table.row(method, chosen[method], model=name, layer=read[0]) for method, read in layers.items()]
        shared = [table.row(method, ChosenGamma(None), missing=count) for method, count in missing.items()]
        leads = table.leads(name, main_method(rows, MAIN))
        about, data = self.about(records), self.dataset
        return GroundingRun(name, rows, records, data.name, data.split, about, self.show, shared, leads, data.groups)

    def about(self, records: Sequence[Entry]) -> dict[str, Any]:
        """What was measured, and what was left out and why, as plain values for JSON."""
        data, work, phrases = self.dataset, self.work, measure.phrases_of(records)
        skipped = Counter(word.lower() for phrase in phrases for word in phrase["skipped"])
        maps = [found for phrase in phrases for found in phrase["found"]]
        right = [phrase["own_hits"][self.truth] is not None for phrase in phrases]
        seconds: Counter[str] = Counter()
        for record in records:
            seconds.update(record["seconds"])
        return {
            "model": self.classifier.name,
            "data": {"format": data.name, "folder": str(data.folder), "split": data.split},
            "pictures": len(self.names),
            "held_out_pictures": len(self.held),
            "reported": len(records),
            "phrases": len(phrases),
            "protocol": {
                "proposals": work.proposals,
                "truth": self.truth,
                "gamma": list(self.among) if self.gamma is None else self.gamma,
                "held_out": self.share if self.gamma is None else None,
                "seed": self.seed,
                "trust": work.trust,
                "side": work.side,
                "hints": work.hints,
            },
            "layers": {method: list(layers) for method, layers in work.layers.items()},
            "left_out": {
                "data": dict(data.left_out),
                "unknown": sum(not phrase["known"] for phrase in phrases),
                "skipped": dict(skipped.most_common(MOST_WORDS)),
                "skipped_in_all": skipped.total(),
                "without_proposals": sum(not record["proposals"] for record in records),
                "empty": dict(Counter(found["method"] for found in maps if found["point"] is None)),
                "unreadable": self.places.unreadable,
            },
            "proposals": sum(record["proposals"] for record in records) / max(len(records), 1),
            "reach": 100 * sum(right) / max(len(right), 1),
            "seconds": dict(seconds),
            "failures": self.failures,
        }

    def show(self, image: str, number: int, method: str, gamma: float, most: int) -> tuple[Grounded, Phrase]:
        """A phrase grounded again, with its annotation, for drawing. Its maps carry the image."""
        work, task = self.work, next(task for task in self.tasks if task.name == image)
        picture, phrase = read_image(task.described.path), task.described.phrases[number]
        session = work.open_session(picture, [method])
        (found,) = session.phrase_maps(find_method(method), [read_phrase(phrase.text, work.labels)], hints=work.hints)
        proposals, _ = work.proposed(picture, task)
        return grounded(Scorer(proposals, work.trust), found, gamma, most), phrase


def _checked_gammas(gamma: float | Sequence[float]) -> tuple[float, ...]:
    """The gammas to choose from, all of `GAMMAS`; or the given one, which may be any from 0 to 1."""
    given = isinstance(gamma, (int, float))
    gammas = (gamma,) if isinstance(gamma, (int, float)) else tuple(gamma)
    wrong = [one for one in gammas if not (0 <= one <= 1 if given else one in GAMMAS)]
    if wrong or not gammas:
        which = "a number from 0 to 1" if given else "those of GAMMAS (0, 0.05 ... 1)"
        raise DataError(f"gamma cannot be {wrong[0] if wrong else 'one of none'}: give {which}")
    return gammas


@dataclass(frozen=True)
class SystemResults:
    """The ranked boxes of another system."""

    name: str  # of the system
    # by image and folded phrase; several of the same phrase in the order of the file
    answers: Mapping[tuple[str, str], Sequence[Ranked]]

    def mentions(self, records: Sequence[Entry], truth: str) -> tuple[list[Mention], int]:
        """All phrases of the records with its results, and the number of those without one, which are missed."""
        found, missing = [], 0
        for number, record in enumerate(records):
            turns: dict[str, int] = defaultdict(int)
            for phrase in record["phrases"]:
                text = _folded(phrase["text"])
                given = self._answers(record["image"], text)
                boxes, scores = given[min(turns[text], len(given) - 1)] if given else ([], [])
                turns[text] += 1
                missing += not given
                hit = first_match(measure.matches_of(boxes, phrase["boxes"])[truth]) if boxes else None
                groups, small = tuple(phrase["groups"]), phrase["small"][truth]
                found.append(Mention(number, phrase["text"], groups, small, hit, scores, None))
        return found, missing

    def _answers(self, image: str, text: str) -> Sequence[Ranked]:
        path = PurePosixPath(image)  # Flickr30k Entities names its images by their numbers alone
        missing = () if path.suffix.lower() in PICTURE_SUFFIXES else USUAL_SUFFIXES
        names = (image, path.name, path.stem, *(f"{path.name}{one}" for one in missing))
        return next((self.answers[name, text] for name in names if (name, text) in self.answers), ())


def read_results(name: str, path: Path) -> SystemResults:
    """The results of another system: JSON Lines, or one JSON list, of objects with an image, a phrase and boxes."""
    answers: dict[tuple[str, str], list[Ranked]] = defaultdict(list)
    for where, entry in _entries(path):
        image, phrase, ranked = _checked(where, entry)
        answers[image, _folded(phrase)].append(ranked)
    if not answers:
        raise DataError(f"{path}: it has no results; each is {FORM}")
    return SystemResults(name, dict(answers))


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    """The objects of a file, each with its location."""
    text = read_text(path)
    if text.lstrip().startswith("["):
        yield from ((f"{path}, entry {number}", entry) for number, entry in enumerate(parse_json(text, path), 1))
        return
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            yield f"{path}, line {number}", parse_json(line, f"{path}, line {number}")


def _checked(where: str, entry: Any) -> tuple[str, str, Ranked]:
    """An image, a phrase and its boxes, best first; of equal scores, in the order of the file."""
    kinds = {"image": str, "phrase": str, "boxes": list, "scores": list}
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), kind) for key, kind in kinds.items()):
        raise DataError(f"{where}: it is no result; each is {FORM}")
    boxes, scores = entry["boxes"], entry["scores"]
    sides = [side for box in boxes for side in (box if isinstance(box, list) and len(box) == 4 else [None])]
    right = all(map(_is_number, scores)) and all(_is_number(side, FARTHEST) for side in sides)
    if len(boxes) != len(scores) or not right:
        raise DataError(f"{where}: its boxes are not four numbers and a score each; a result is {FORM}")
    if any(x1 < x0 or y1 < y0 for x0, y0, x1, y1 in boxes):
        raise DataError(f"{where}: a box is inside out: are these a corner, width and height? A result is {FORM}")
    order = sorted(range(len(scores)), key=lambda k: -scores[k])
    return entry["image"], entry["phrase"], ([boxes[k] for k in order], [float(scores[k]) for k in order])


def _is_number(value: Any, most: float = sys.float_info.max) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= most  # NaN is not


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
