"""From files to overlays and JSON: ``excite attend FOLDER`` beside plain torch that decodes and classifies the same.

Both take turns in one process, a few photographs each, so that whatever else the machine does hits both alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from excite.autolabel.batch import AttendQuery, AttendTask, AttendWork, Drawing
from excite.errors import ConceptError
from excite.experiments.speed.timing import Stopwatch, peak_of
from excite.io.drawn import file_names
from excite.jobs import Executor, Job, ResultStore
from excite.jobs.executor import one_thread
from excite.metrics.statistics import median_interval
from excite.models import Choice, Classifier

TURN, LEAST = 10, 6  # photographs of a turn; turns
WORDS = ("dog", "person", "car", "cat", "bird")  # concepts, as far as the classifier knows them
NUMBERS, WORKERS = (1, 3), (1, 2)  # of concepts, of workers
AT_LEAST = (0.5, 0.0)  # boxes and overlays of what is probable (the default of the command), and of everything
PARTS = ("reading", "preparing", "forward", "maps", "boxes", "drawing and writing")


@dataclass(frozen=True)
class EndToEnd:
    """The whole way of some photographs, for a number of concepts and workers.

    Attributes:
        at_least: boxes and overlays of concepts that are so probable, as in ``excite attend``.
    """

    model: Choice
    classifier: Classifier
    photos: Sequence[Path]
    concepts: int = 1
    workers: int = 1
    at_least: float = AT_LEAST[0]

    def row(self, out: Path, seconds: float) -> dict[str, Any]:
        """The measurements: every photograph once, more often until so many seconds have passed."""
        with TemporaryDirectory(dir=out) as scratch, one_thread():
            work = AttendWork(
                self.classifier, self._query, Path(scratch), Drawing(self.at_least, sheet=False), False, self.at_least
            )
            names = file_names(self.photos)
            tasks = [AttendTask(photo, names[photo]) for photo in self.photos]
            rounds, answers = self._rounds(work, tasks, seconds)
            parts = self._parts(work, tasks[:TURN]) if self.workers == 1 else {}
            both = (
                lambda: [classified(self.classifier, task.photo) for task in tasks[:TURN]],
                lambda: list(map(work, tasks[:TURN])),
            )
            peak = round(peak_of(*both, self.classifier.device), 1) if self.workers == 1 else None
        maps = [row for answer in answers.values() for row in answer["maps"]]
        ratios = [ours / plain for ours, plain, _ in rounds]
        interval = median_interval(ratios)
        return {
            "network": self.classifier.name,
            "photographs": len(self.photos),
            "concepts": self.concepts,
            "at_least": self.at_least,
            "workers": self.workers,
            "per_second": round(median(count / ours for ours, _, count in rounds), 2),
            "plain_per_second": round(median(count / plain for _, plain, count in rounds), 2),
            "ratio_to_plain": round(median(ratios), 3),
            "low": round(interval.low, 3),
            "high": round(interval.high, 3),
            "confidence": round(interval.confidence, 3),
            "turns": len(rounds),
            "overlays": sum(row["overlay"] is not None for row in maps),
            "milliseconds": parts,
            "peak_mb": peak,
        }

    @property
    def _query(self) -> AttendQuery:
        return AttendQuery(self.model, tuple(known_words(self.classifier, self.concepts)))

    def _rounds(
        self, work: AttendWork, tasks: Sequence[AttendTask], seconds: float
    ) -> tuple[list[tuple[float, float, int]], dict[str, Any]]:
        """For each turn the seconds of ours, those of plain torch and the number of photographs; and the answers."""
        answers: dict[str, Any] = {}
        rounds: list[tuple[float, float, int]] = []
        store = ResultStore(work.out / "answers.jsonl", ("image",))
        with closing(store), Executor(workers=self.workers).start(work) as runner:

            def ours(some: Sequence[AttendTask]) -> None:
                for job, answer in runner([Job(task, work.key(task)) for task in some]):
                    if isinstance(answer, Exception):
                        raise answer
                    store.add({"key": job.key, **answer})
                    answers[str(job.task.photo)] = answer

            def plain(some: Sequence[AttendTask]) -> None:
                for task in some:
                    classified(self.classifier, task.photo)

            size = min(len(tasks), TURN * self.workers)
            ours(tasks[:size])  # both warm up
            plain(tasks[:size])
            endless, begin = cycle(tasks), time.perf_counter()
            least = max(LEAST, -(-len(tasks) // size))
            while len(rounds) < least or time.perf_counter() - begin < seconds:
                some = list(islice(endless, size))
                both = [partial(ours, some), partial(plain, some)]
                order = (0, 1) if len(rounds) % 2 else (1, 0)
                taken = {k: Stopwatch()(both[k]) for k in order}
                rounds.append((taken[0], taken[1], size))
        return rounds, answers

    def _parts(self, work: AttendWork, tasks: Sequence[AttendTask]) -> dict[str, float]:
        """Milliseconds of CPU time of each part for one photograph, one after the other, without threads beside."""
        spent = dict.fromkeys(PARTS, 0.0)
        read, prepare, _, write = work.stages

        def part(name: str, call: Callable[..., Any], *given: Any) -> Any:
            begin = time.thread_time()
            answer = call(*given)
            spent[name] += time.thread_time() - begin
            return answer

        for task in tasks:
            prepared = part("preparing", prepare, part("reading", read, task))
            part("forward", self.classifier.logits, prepared.inputs[1.0])
            maps = part("maps", work.maps, prepared)
            seen = part("boxes", work.told, prepared, maps)
            part("drawing and writing", write, seen)
        spent["maps"] -= spent["forward"]  # a forward pass is in it
        return {name: round(1000 * spent[name] / len(tasks), 1) for name in PARTS}


def classified(classifier: Classifier, photo: Path) -> int:
    """Plain torch: decode a photograph, prepare it, run the network, take the most probable class."""
    with Image.open(photo) as image:
        picture = image.convert("RGB")
    return int(classifier.logits(classifier.prepared(picture)[None]).flatten(1).argmax())


def known_words(classifier: Classifier, number: int) -> Iterator[str]:
    """So many concepts that a classifier knows: everyday words, or else its first units."""
    found = 0
    for word in (*WORDS, *map(str, range(number))):
        try:
            if classifier.labels is not None:
                classifier.labels.find(word)
        except ConceptError:
            continue
        if found < number and (classifier.labels is not None or word.isdecimal()):
            found += 1
            yield word


def columns(row: Mapping[str, Any]) -> dict[str, str]:
    """A row of the table in the terminal."""
    mark = "" if row["confidence"] >= 0.95 else "~"
    parts = {name: f"{row['milliseconds'][name]:.1f}" if row["milliseconds"] else "" for name in PARTS}
    return {
        "network": row["network"],
        "concepts": str(row["concepts"]),
        "at least": f"{row['at_least']:g}",
        "workers": str(row["workers"]),
        "photos/s": f"{row['per_second']:.1f}",
        "plain": f"{row['plain_per_second']:.1f}",
        "x plain": f"{row['ratio_to_plain']:.2f} ({mark}{row['low']:.2f}-{row['high']:.2f})",
        "overlays": str(row["overlays"]),
        **parts,
        "MB": "" if row["peak_mb"] is None else f"{row['peak_mb']:.0f}",
    }
