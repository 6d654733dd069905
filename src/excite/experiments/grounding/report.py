"""Tables, figures and the page of grounding."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from excite.datasets.base import union
from excite.experiments.grounding.measure import CURVE, GAMMAS, OWN, PAPERS_GAMMAS, RANKS, GroundingRow, RankingScores
from excite.experiments.grounding.run import MAIN, GroundingRun
from excite.experiments.published import GROUNDED_DATA, GROUNDED_ON, published_groups, published_ranks
from excite.experiments.report import figures, tables
from excite.experiments.report.examples import Cases, Example, Kinds, Panel, Strip
from excite.experiments.report.page import Report
from excite.experiments.report.tables import DASH, NOTHING, Cell, Lines, Table, main_method, markdown_table, shown
from excite.grounding.voting import SAME
from excite.io.text import for_markdown, markdown_list
from excite.jobs import Entry
from excite.metrics.ranking import phrase_class
from excite.metrics.statistics import Estimate

Rows = Sequence[GroundingRow]

BOXES, WIDTH, TOO_LATE = 5, 900, 10
BLIND = "center"
OWN_NAME = "the proposals' own scores"
GROUP_TITLE = "recall at 5 of each group"
PAPERS_TABLES = {
    f"the paper's own ({GROUNDED_ON}), all phrases / small instances": published_ranks(),
    f"the paper's {GROUP_TITLE}": published_groups(),
}


class GroundingReport(Report[GroundingRun]):
    """The grounding of one or several networks."""

    name = "grounding"
    same, width = SAME, WIDTH

    def __init__(self, runs: Sequence[GroundingRun]) -> None:
        super().__init__(runs)
        self.networks = [row for run in runs for row in run.rows]
        own, *others = self.first.shared  # rows without a network are the same for all, and listed once
        self.rows = [own, *self.networks, *others]
        self.main = main_method(self.networks, MAIN)

    def answer(self) -> dict[str, Any]:
        """All results as plain values for JSON, independent of time and machine."""
        about = self.about
        return {
            "rows": [row.to_dict() for row in self.rows],
            "groups": self._groups(_rounded),
            "leads": [lead.to_dict() for run in self.runs for lead in run.leads],
            "gammas": [
                {"model": row.model, "method": row.method, "gamma": gamma, "mean_recall": round(recall, 2)}
                for row in self.networks
                for gamma, recall in zip(GAMMAS, row.chosen.curve, strict=False)
            ],
            "data": about["data"],
            "split": about["data"]["split"],
            "pictures": about["pictures"],
            "held_out": about["held_out_pictures"],
            "reported": about["reported"],
            "phrases": about["phrases"],
            "protocol": about["protocol"],
            "proposals": round(about["proposals"], 1),
            "reach": round(about["reach"], 2),
            **self.per_network("layers", "left_out"),
            "failures": self.failures(),
        }

    def printed(self) -> dict[str, Any]:
        """The answer, and the shares of time, which are not reproducible."""
        return {**self.answer(), "seconds": self._shares()}

    def _shares(self) -> dict[str, dict[str, float]]:
        """For each network the percentage of time of each step."""
        shares = {}
        for model, seconds in self.per_network("seconds")["seconds"].items():
            total = sum(seconds.values()) or 1.0
            shares[model] = {step: round(100 * spent / total, 1) for step, spent in seconds.items()}
        return shares

    def times(self) -> dict[str, str]:
        """The same in words."""
        return {
            model: ", ".join(f"{step} {share:g} %" for step, share in shares.items())
            for model, shares in self._shares().items()
        }

    def _groups(self, written: Callable[[float | None], Any], nothing: str = "") -> Lines:
        """The recall at 5 of each group and their mean; none where the data have no groups."""
        rows = self.rows if self.first.groups else []
        recalls = [{group: written(recall) for group, recall in row.recalls.items()} for row in rows]
        return [
            {"model": row.model or nothing, "method": row.method, **recall}
            for row, recall in zip(rows, recalls, strict=True)
        ]

    def tables(self) -> list[tuple[str, Lines]]:
        """The recalls over all phrases and over small instances, and of each group; the paper's, of the same data."""
        small = [(row, row.small) for row in self.rows if row.small is not None]
        titled = {
            "": [_columns(row, row.all) for row in self.rows],
            "small instances, below a quarter of the image": [_columns(row, scores) for row, scores in small],
            GROUP_TITLE: self._groups(shown, NOTHING),
            **(PAPERS_TABLES if self.first.dataset_name == GROUNDED_DATA else {}),
        }
        return [(title, lines) for title, lines in titled.items() if lines]

    def sentences(self) -> list[str]:
        """What was measured, and what was left out and why."""
        run, about, protocol, own = self.first, self.about, self.about["protocol"], self.rows[0]
        small = 0 if own.small is None else own.small.phrases
        held = about["held_out_pictures"]
        chosen = f"; images held out to choose gamma on: {held}" if held else ""
        truth = "the box around all that a phrase refers to" if protocol["truth"] == "union" else "any of its boxes"
        right = f"right is a box that overlaps by a half with {truth}"
        data = "; ".join(self.counted(about["left_out"]["data"]))
        reach = f"one of them is right for {about['reach']:.1f} % of the phrases"
        images = f"{about['reported']} images, with 95 % intervals{chosen}"
        return [
            f"{run.dataset_name} {run.split}: {own.all.phrases} phrases, {small} of them small, in {images}; {right}",
            f"proposals: {protocol['proposals']}, {about['proposals']:.0f} in an image; {reach}",
            *(f"{line}: misses" for line in self.missing()),
            *([f"left out of the data: {data}"] if data else []),
            *(f"{run.classifier_name}: {line}" for run in self.runs for line in self.left_out(run)),
        ]

    def missing(self) -> list[str]:
        """A line for each other system that has no result for some phrases."""
        rows = [row for row in self.first.shared if row.missing]
        return [f"{row.method} has no result for {row.missing} of {row.all.phrases} phrases" for row in rows]

    def spoken(self) -> list[str]:
        """The sentences, and where the time went."""
        times = [f"{model}: where the time went: {words}" for model, words in self.times().items()]
        return ["", *self.sentences(), *times]

    def spreadsheets(self) -> dict[str, Lines]:
        """All rows, the groups if there are any, and the recall at each number of boxes."""
        curves = [
            {"model": row.model, "method": row.method, "boxes": number, "recall": round(recall, 2)}
            for row in self.rows
            for number, recall in zip(CURVE, row.all.curve, strict=True)
        ]
        groups = {"groups.csv": self._groups(_rounded)} if self.first.groups else {}
        return {"rows.csv": [tables.flat(row.to_dict()) for row in self.rows], **groups, "curves.csv": curves}

    def markdown(self) -> list[str]:
        """All tables, in any case with the paper's, and the sentences."""
        (_, first), *others = self.tables()
        parts = [markdown_table(first)]
        for title, lines in (dict(others) | PAPERS_TABLES).items():
            parts += [for_markdown(f"{title[0].upper()}{title[1:]}:"), markdown_table(lines)]
        return [*parts, markdown_list(self.sentences())]

    def left_out(self, run: GroundingRun) -> list[str]:
        """What the run of a network left out and why."""
        left_out = run.about["left_out"]
        skipped, empty = (
            ", ".join(f"{name} ({count})" for name, count in left_out[key].items()) for key in ("skipped", "empty")
        )
        more = left_out["skipped_in_all"] - sum(left_out["skipped"].values())
        reasons = {
            "phrases without a word that it knows, for which its own findings stand": left_out["unknown"],
            "words skipped most": skipped + (f" and others ({more})" if more else ""),
            "images without proposals, whose phrases are misses": left_out["without_proposals"],
            "maps without any evidence, which find nothing": empty,
            "methods that cannot be read there (rows.json says why)": ", ".join(left_out["unreadable"]),
        }
        return self.counted({reason: what for reason, what in reasons.items() if what})

    @staticmethod
    def counted(reasons: Mapping[str, object]) -> list[str]:
        """Reasons and how often, or for what, each stands, as lines."""
        return [f"{reason}: {what}" for reason, what in reasons.items()]

    def examples(self) -> dict[str, list[Strip]]:
        """The best and worst cases."""
        rows = {run.classifier_name: sorted(run.rows, key=lambda row: row.method != self.main) for run in self.runs}
        return PhraseCases().strips(self.runs, rows)

    def scores_table(self, *, small: bool = False) -> Table | None:
        """The paper's table: a line for each ranking, over all phrases or small instances, if there are any."""
        scored = [(row, row.small if small else row.all) for row in self.rows]
        there = [(row, scores) for row, scores in scored if scores is not None]
        if not there:
            return None
        measures: list[list[Estimate | float | None]] = [
            [*(scores.recalls[rank] for rank in RANKS), scores.map_group, scores.map_phrase, scores.pointing]
            for _, scores in there
        ]
        columns = [
            [DASH if row.chosen.gamma is None else f"{row.chosen.gamma:g}" for row, _ in there],
            *(tables.ranked(values, zeros=False) for values in zip(*measures, strict=True)),
            [Cell("", row.layer or DASH) for row, _ in there],
        ]
        names = self._names([row for row, _ in there])
        return Table(
            [*names, "gamma", *(f"R@{rank}" for rank in RANKS), "group", "phrase", "pointing", "read at"],
            list(zip(*names.values(), *columns, strict=True)),
            groups=[("", 1 + len(names)), ("recall", len(RANKS)), ("mAP", 2), ("", 2)],
        )

    def _names(self, rows: Rows) -> dict[str, list[str]]:
        """The first columns of a table by their headings: the methods, and the networks if there are several."""
        methods = {"method": [_called(row.method) for row in rows]}
        return {**methods, "network": [row.model or DASH for row in rows]} if self.several else methods

    def leads_table(self) -> Table | None:
        """The lead of the main method over everything else; None where there is nothing else."""
        leads = [lead for run in self.runs for lead in run.leads]
        if not leads:
            return None
        body: list[list[Cell | str]] = [
            [_called(lead.over), *[lead.model] * self.several, _points(lead.r1), _points(lead.r1_small)]
            for lead in leads
        ]
        return Table([f"{leads[0].method} over", *["network"] * self.several, "all phrases", "small instances"], body)

    def groups_table(self) -> Table | None:
        """Recall at 5 of each group and their mean; None where the data have no groups."""
        rows = self.rows
        groups = [group for group in rows[0].groups if any(row.groups[group] is not None for row in rows)]
        if not groups:
            return None
        names = self._names(rows)
        columns = [tables.heated([row.groups[group] for row in rows]) for group in groups]
        columns.append(tables.ranked([row.group_mean or 0.0 for row in rows]))
        return Table([*names, *groups, "mean"], list(zip(*names.values(), *columns, strict=True)))

    def recalls_figure(self) -> Any:
        """R@1 of each method over all phrases and over small instances, a panel for each network."""
        series: dict[str, Callable[[GroundingRow], Estimate | None]] = {
            "all phrases": lambda row: row.all.recalls[1],
            "small instances": lambda row: None if row.small is None else row.small.recalls[1],
        }
        return figures.interval_figure(self.networks, "R@1 [%]", series, shared=self.first.shared)

    def ranks_figure(self, run: GroundingRun) -> Any:
        """The share of phrases with a right box among the first 1, 2 ... 10, a line for each row."""
        curves = [(k, row.method, row.all.curve, None) for k, row in enumerate([*run.rows, *run.shared])]
        figure, axes = figures.curves_figure(CURVE, curves, ("first boxes that count, N", "R@N [%]"))
        axes.set_xticks(CURVE)
        axes.set_ylim(0, None)
        return figure

    def gammas_figure(self, run: GroundingRun) -> Any:
        """The mean of R@1, R@5 and R@10 on held-out images by gamma, with a large open marker at the chosen one."""
        curves = [(k, row.method, row.chosen.curve, row.chosen.gamma) for k, row in enumerate(run.rows)]
        names = "gamma: 0 for the largest regions, 1 for the densest", "mean of R@1, R@5 and R@10 [%]"
        figure, axes = figures.curves_figure(GAMMAS, curves, names)
        axes.set_xticks(PAPERS_GAMMAS)
        return figure


def _columns(row: GroundingRow, scores: RankingScores) -> dict[str, str]:
    gamma = row.chosen.gamma
    return {
        "model": row.model or NOTHING,
        "method": row.method,
        "gamma": NOTHING if gamma is None else f"{gamma:g}",
        **{f"R@{rank}": str(scores.recalls[rank]) for rank in RANKS},
        "mAP group": shown(scores.map_group),
        "mAP phrase": shown(scores.map_phrase),
        "pointing": str(scores.pointing or NOTHING),
    }


def _rounded(recall: float | None) -> float | None:
    return None if recall is None else round(recall, 2)


def _called(method: str) -> str:
    return OWN_NAME if method == OWN else method


def _points(gap: Estimate | None) -> Cell:
    return Cell(DASH) if gap is None else Cell(f"{gap.value:+.1f}", f"{gap.low:+.1f} to {gap.high:+.1f}")


@dataclass(frozen=True)
class PhraseExample(Example):
    """A phrase of an image; its category is its `phrase_class`, so that these take turns."""

    number: int  # of the phrase, from 0
    phrase: Entry
    hits: tuple[int | None, ...]  # the ranks of the first right box of each method, the main one first
    gamma: float  # of the main method

    @property
    def late(self) -> bool:
        """Whether the main method has no right box among the first ten."""
        return self.hits[0] is None or self.hits[0] > TOO_LATE


class PhraseCases(Cases[PhraseExample]):
    """Phrases whose first box is right, long or small ones first, and others that are not found, large ones first."""

    kinds: ClassVar[Kinds[PhraseExample]] = {
        "{main} finds at once what others do not": lambda example, hits: (
            sum(hits[1:]) - 0.01 * min(len(example.phrase["text"]), 60)
            if hits[0] and not all(hits) and example.phrase["known"]
            else None
        ),
        "{main} finds something small at once": lambda example, hits: (
            example.share if hits[0] and example.phrase["known"] else None
        ),
        "{main} points at it, but has no right box among the first ten": lambda example, _: (
            -example.share if example.late and example.maps[0]["pointed"]["any"] else None
        ),
        "{main} looks elsewhere": lambda example, _: (
            -example.share if example.late and not example.maps[0]["pointed"]["union"] else None
        ),
    }

    def candidates(self, run: GroundingRun, rows: Rows) -> tuple[list[PhraseExample], list[list[bool]]]:
        """All phrases; the centre looks at nothing, unless it is the only method."""
        methods = [row.method for k, row in enumerate(rows) if k == 0 or row.method != BLIND]
        truth, gamma = run.about["protocol"]["truth"], rows[0].chosen.gamma or 0.0
        found = []
        for record in run.records:
            width, height = record["size"]
            for number, phrase in enumerate(record["phrases"]):
                of = {one["method"]: one for one in phrase["found"]}
                maps = tuple(of[method] for method in methods)
                area = sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in phrase["boxes"]) / (width * height)
                facts = (record["image"], (width, height), phrase_class(phrase["text"]), area, maps)
                hits = tuple(one["hits"][truth] for one in maps)
                found.append(PhraseExample(*facts, number, phrase, hits, gamma))
        return found, [[hit == 1 for hit in example.hits] for example in found]

    def words(self, _run: GroundingRun, example: PhraseExample) -> tuple[str, str]:
        """The phrase, and the share of the image that it refers to."""
        return example.phrase["text"], f"{example.image}, {100 * example.share:.1f} % of the image"

    def panels(self, run: GroundingRun, example: PhraseExample) -> Iterator[Panel]:
        """One image: the first boxes and the right one, and the maps of the words."""
        text, about = self.words(run, example)
        sentence, skipped = example.phrase["sentence"], example.phrase["skipped"]
        ranks = ["none" if hit is None else f"number {hit}" for hit in example.hits]
        firsts = [f"{found['method']}: {rank}" for found, rank in zip(example.maps, ranks, strict=True)]
        within = [f"in: {sentence}"] if sentence and sentence != text else []
        left_out = f" Skipped: {', '.join(skipped)}." if skipped else ""
        grounded, phrase = run.show(example.image, example.number, example.maps[0]["method"], example.gamma, BOXES)
        boxes = [union(phrase.boxes)] if run.about["protocol"]["truth"] == "union" else phrase.boxes
        yield Panel(
            grounded.figure(true_boxes=boxes, width=WIDTH),
            f"the first boxes for {text} with the right one dashed, and the maps of its words",
            f"\N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK}",
            (*within, f"{about}. First right box: {', '.join(firsts)}.{left_out}"),
        )
