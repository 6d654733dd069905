"""Tables, figures and the page of grounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from excite.datasets.base import union
from excite.experiments.base import failures_of
from excite.experiments.grounding.measure import GAMMAS, OWN, PAPERS_GAMMAS
from excite.experiments.grounding.run import MAIN
from excite.experiments.grounding.scores import CURVE, RANKS
from excite.experiments.published import GROUNDED_DATA, GROUNDED_ON, published_groups, published_ranks
from excite.experiments.report import figures, tables
from excite.experiments.report.examples import EXAMPLES, Cases, Example, Panel
from excite.experiments.report.figures import main_method
from excite.experiments.report.page import write_page
from excite.experiments.report.tables import DASH, NOTHING, Cell, Table, shown
from excite.grounding.scoring import SAME
from excite.io.text import for_markdown, markdown_list
from excite.metrics.phrases import phrase_class
from excite.metrics.statistics import RESAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from PIL import Image

    from excite.experiments.grounding.run import GroundingRun
    from excite.experiments.grounding.scores import GroundingRow, Lead, RankingScores
    from excite.jobs import Entry
    from excite.metrics.statistics import Estimate

    Hits = Sequence[bool]  # of the main method, and then of the others


FILE = "grounding.html"
MOST_TOLD = 5  # gammas that are listed one by one: the paper's
BOXES, WIDTH, TOO_LATE = 5, 900, 10
BLIND = "center"
OWN_NAME = "the proposals' own scores"
GROUP_TITLE = "recall at 5 of each group"


def all_rows(runs: Sequence[GroundingRun]) -> list[GroundingRow]:
    """The rows of all networks; those without a network are the same for all, and listed once."""
    own, *others = runs[0].shared
    return [own, *(row for run in runs for row in run.rows), *others]


def answer(runs: Sequence[GroundingRun]) -> dict[str, Any]:
    """All results as plain values for JSON, independent of time and machine."""
    about = runs[0].about
    return {
        "rows": [row.to_dict() for row in all_rows(runs)],
        "groups": [group_values(row) for row in all_rows(runs)] if runs[0].groups else [],
        "leads": [lead.to_dict() for run in runs for lead in run.leads],
        "gammas": [line for run in runs for line in _gammas(run)],
        "data": about["data"],
        "split": about["data"]["split"],
        "pictures": about["pictures"],
        "held_out": about["held_out_pictures"],
        "reported": about["reported"],
        "phrases": about["phrases"],
        "protocol": about["protocol"],
        "proposals": round(about["proposals"], 1),
        "reach": round(about["reach"], 2),
        **tables.per_network(runs, "layers", "left_out"),
        "failures": failures_of(run.about for run in runs),
    }


def group_values(row: GroundingRow) -> dict[str, Any]:
    """The recall at 5 of each group and their mean, as plain values."""
    recalls = {**row.groups, "mean": row.group_mean}
    names = {"model": row.model, "method": row.method}
    return names | {group: None if value is None else round(value, 2) for group, value in recalls.items()}


def _gammas(run: GroundingRun) -> Iterator[dict[str, Any]]:
    """The mean recall of each method at each gamma, on the held-out images."""
    for row in run.rows:
        for gamma, recall in zip(GAMMAS, row.chosen.curve, strict=False):
            yield {"model": row.model, "method": row.method, "gamma": gamma, "mean_recall": round(recall, 2)}


def shares_of_time(runs: Sequence[GroundingRun]) -> dict[str, dict[str, float]]:
    """For each network the percentage of time of each step; not reproducible, so no part of `answer`."""
    shares = {}
    for run in runs:
        seconds = run.about["seconds"]
        total = sum(seconds.values()) or 1.0
        shares[run.classifier_name] = {step: round(100 * spent / total, 1) for step, spent in seconds.items()}
    return shares


def time_words(shares: Mapping[str, float]) -> str:
    """The percentages of time of one network in words."""
    return ", ".join(f"{step} {share:g} %" for step, share in shares.items())


def lines(runs: Sequence[GroundingRun], *, small: bool = False) -> list[dict[str, str]]:
    """The rows of the table in the terminal, over all phrases or over small instances."""
    scored = [(row, row.small if small else row.all) for row in all_rows(runs)]
    return [_columns(row, scores) for row, scores in scored if scores is not None]


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


def _group_lines(runs: Sequence[GroundingRun]) -> list[dict[str, str]]:
    """Recall at 5 of each group; empty where the data have no groups."""
    if not runs[0].groups:
        return []
    return [
        {
            "model": row.model or NOTHING,
            "method": row.method,
            **{group: shown(value) for group, value in row.groups.items()},
            "mean": shown(row.group_mean),
        }
        for row in all_rows(runs)
    ]


def titled_tables(runs: Sequence[GroundingRun]) -> dict[str, list[dict[str, str]]]:
    """All further tables by title; with the paper's where the data are the paper's."""
    titled = {
        "small instances, below a quarter of the image": lines(runs, small=True),
        GROUP_TITLE: _group_lines(runs),
    }
    if runs[0].dataset_name == GROUNDED_DATA:
        titled |= _paper_tables()
    return {title: table for title, table in titled.items() if table}


def _paper_tables() -> dict[str, list[dict[str, str]]]:
    return {
        f"the paper's own ({GROUNDED_ON}), all phrases / small instances": published_ranks(),
        f"the paper's {GROUP_TITLE}": published_groups(),
    }


def sentences(runs: Sequence[GroundingRun]) -> list[str]:
    """What was measured, and what was left out and why."""
    run, about = runs[0], runs[0].about
    protocol, own = about["protocol"], runs[0].shared[0]
    small = 0 if own.small is None else own.small.phrases
    held = about["held_out_pictures"]
    chosen = f"; images held out to choose gamma on: {held}" if held else ""
    truth = "the box around all that a phrase refers to" if protocol["truth"] == "union" else "any of its boxes"
    measured = (
        f"{run.dataset_name} {run.split}: {own.all.phrases} phrases, {small} of them small, in {about['reported']} "
        f"images, with 95 % intervals{chosen}; right is a box that overlaps by a half with {truth}"
    )
    proposed = f"proposals: {protocol['proposals']}, {about['proposals']:.0f} in an image; one of them is right for "
    proposed += f"{about['reach']:.1f} % of the phrases"
    missing = [f"{line}: misses" for line in _missing(run.shared)]
    data = "; ".join(counted_lines(about["left_out"]["data"]))
    left_out = [f"left out of the data: {data}"] if data else []
    networks = [f"{run.classifier_name}: {line}" for run in runs for line in left_out_lines(run.about["left_out"])]
    return [measured, proposed, *missing, *left_out, *networks]


def left_out_lines(left_out: Mapping[str, Any]) -> list[str]:
    """What one network left out and why, as sentences."""
    more = left_out["skipped_in_all"] - sum(left_out["skipped"].values())
    reasons = {
        "phrases without a word that it knows, for which its own findings stand": left_out["unknown"],
        "words skipped most": _counted(left_out["skipped"]) + (f" and others ({more})" if more else ""),
        "images without proposals, whose phrases are misses": left_out["without_proposals"],
        "maps without any evidence, which find nothing": _counted(left_out["empty"]),
        "methods that cannot be read there (rows.json says why)": ", ".join(left_out["unreadable"]),
    }
    return [f"{reason}: {what}" for reason, what in reasons.items() if what]


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


def counted_lines(counts: Mapping[str, int]) -> list[str]:
    """Reasons and how often each occurred, as lines."""
    return [f"{why}: {count}" for why, count in counts.items()]


def write_tables(runs: Sequence[GroundingRun], out: Path) -> list[Path]:
    """Write ``rows.json``, ``rows.csv``, ``groups.csv`` (if there are groups), ``curves.csv`` and ``table.md``."""
    rows = all_rows(runs)
    curves = [
        {"model": row.model, "method": row.method, "boxes": number, "recall": round(recall, 2)}
        for row in rows
        for number, recall in zip(CURVE, row.all.curve, strict=True)
    ]
    texts = {
        "rows.csv": tables.csv_table([tables.flat(row.to_dict()) for row in rows]),
        **({"groups.csv": tables.csv_table([group_values(row) for row in rows])} if runs[0].groups else {}),
        "curves.csv": tables.csv_table(curves),
        "table.md": _markdown(runs),
    }
    return tables.write_tables(out, answer(runs), texts)


def _markdown(runs: Sequence[GroundingRun]) -> str:
    """All tables, in any case with the paper's."""
    parts = [tables.markdown_table(lines(runs))]
    for title, table in (titled_tables(runs) | _paper_tables()).items():
        parts += [for_markdown(f"{title[0].upper()}{title[1:]}:"), tables.markdown_table(table)]
    return "\n\n".join([*parts, markdown_list(sentences(runs))]) + "\n"


def _missing(rows: Sequence[GroundingRow]) -> list[str]:
    return [f"{row.method} has no result for {row.missing} of {row.all.phrases} phrases" for row in rows if row.missing]


def write(out: Path, runs: Sequence[GroundingRun], *, command: str = "") -> Path:
    """Write the page, with the command that makes it again; the same records give the same bytes."""
    figures.check_plots()
    about, rows = runs[0].about, all_rows(runs)
    networks = [row for run in runs for row in run.rows]
    main = main_method(networks, MAIN)
    return write_page(
        out / FILE,
        "grounding.html",
        runs=runs,
        rows=rows,
        main=main,
        same=SAME,
        gammas=_gamma_words(about["protocol"]["gamma"]),
        resamples=RESAMPLES,
        counted=counted_lines,
        left_out=left_out_lines,
        times={model: time_words(shares) for model, shares in shares_of_time(runs).items()},
        scores=scores_table(rows),
        recalls=recalls_figure(networks, runs[0].shared),
        leads=leads_table([lead for run in runs for lead in run.leads]),
        missing=[f"{line}: these count as missed" for line in _missing(runs[0].shared)],
        small=scores_table(rows, small=True),
        by_rank={run.classifier_name: ranks_figure([*run.rows, *run.shared]) for run in runs},
        by_gamma={run.classifier_name: gammas_figure(run.rows) for run in runs},
        groups=groups_table(rows),
        paper_on=GROUNDED_ON,
        papers_data=runs[0].dataset_name == GROUNDED_DATA,
        paper_ranks=tables.text_table(published_ranks()),
        paper_groups=tables.text_table(published_groups()),
        cases=PhraseCases().strips(
            runs,
            {run.classifier_name: sorted(run.rows, key=lambda row: row.method != main) for run in runs},
            most=EXAMPLES,
            named=len(runs) > 1,
        ),
        width=WIDTH,
        command=command,
    )


def _gamma_words(gammas: float | Sequence[float]) -> str:
    """The gammas that were tried; of many, the first two and the last."""
    if isinstance(gammas, float):
        return f"{gammas:g}"
    if len(gammas) <= MOST_TOLD:
        return ", ".join(f"{gamma:g}" for gamma in gammas)
    return f"{gammas[0]:g}, {gammas[1]:g} ... {gammas[-1]:g}"


def scores_table(rows: Sequence[GroundingRow], *, small: bool = False) -> Table | None:
    """The paper's table: a line for each ranking; None where there are no phrases.

    Args:
        rows: of all networks, and those without one.
        small: only over small instances.
    """
    scored = [(row, row.small if small else row.all) for row in rows]
    there = [(row, scores) for row, scores in scored if scores is not None]
    if not there:
        return None
    measures: list[list[Estimate | float | None]] = [[scores.recalls[rank] for _, scores in there] for rank in RANKS]
    measures.append([scores.map_group for _, scores in there])
    measures.append([scores.map_phrase for _, scores in there])
    measures.append([scores.pointing for _, scores in there])
    columns = [
        [DASH if row.chosen.gamma is None else f"{row.chosen.gamma:g}" for row, _ in there],
        *(tables.ranked(values, zeros=False) for values in measures),
        [Cell("", row.layer or DASH) for row, _ in there],
    ]
    names, heads = _names([row for row, _ in there])
    return Table(
        [*heads, "gamma", *(f"R@{rank}" for rank in RANKS), "group", "phrase", "pointing", "read at"],
        list(zip(*names, *columns, strict=True)),
        groups=[("", 1 + len(names)), ("recall", len(RANKS)), ("mAP", 2), ("", 2)],
    )


def _names(rows: Sequence[GroundingRow]) -> tuple[list[list[str]], list[str]]:
    """The first columns of a table and their headings: the methods, and the networks if there are several."""
    methods = [_called(row.method) for row in rows]
    if not _several(rows):
        return [methods], ["method"]
    return [methods, [row.model or DASH for row in rows]], ["method", "network"]


def _several(rows: Sequence[GroundingRow] | Sequence[Lead]) -> bool:
    """Whether they are of several networks."""
    return len({row.model for row in rows if row.model}) > 1


def _called(method: str) -> str:
    """The name of a ranking in tables."""
    return OWN_NAME if method == OWN else method


def leads_table(leads: Sequence[Lead]) -> Table | None:
    """The lead of the main method over everything else; None where there is nothing else."""
    if not leads:
        return None
    several = _several(leads)
    return Table(
        [f"{leads[0].method} over", *["network"] * several, "all phrases", "small instances"],
        [[_called(lead.over), *[lead.model] * several, _points(lead.r1), _points(lead.r1_small)] for lead in leads],
    )


def _points(gap: Estimate | None) -> Cell:
    return Cell(DASH) if gap is None else Cell(f"{gap.value:+.1f}", f"{gap.low:+.1f} to {gap.high:+.1f}")


def groups_table(rows: Sequence[GroundingRow]) -> Table | None:
    """Recall at 5 of each group and their mean; None where the data have no groups."""
    groups = [group for group in rows[0].groups if any(row.groups[group] is not None for row in rows)]
    if not groups:
        return None
    names, heads = _names(rows)
    columns = [tables.heated([row.groups[group] for row in rows]) for group in groups]
    columns.append(tables.ranked([row.group_mean or 0.0 for row in rows]))
    return Table([*heads, *groups, "mean"], list(zip(*names, *columns, strict=True)))


def recalls_figure(rows: Sequence[GroundingRow], shared: Sequence[GroundingRow]) -> Any:
    """R@1 of each method over all phrases and over small instances with 95 % intervals, a panel for each network."""
    series: dict[str, Callable[[GroundingRow], Estimate | None]] = {
        "all phrases": lambda row: row.all.recalls[1],
        "small instances": lambda row: None if row.small is None else row.small.recalls[1],
    }
    return figures.interval_figure(rows, "R@1 [%]", series, shared=shared)


def ranks_figure(rows: Sequence[GroundingRow]) -> Any:
    """The share of phrases with a right box among the first 1, 2 ... 10, a line for each row."""
    curves = [(k, row.method, row.all.curve, None) for k, row in enumerate(rows)]
    figure, axes = figures.curves_figure(CURVE, curves, ("first boxes that count, N", "R@N [%]"))
    axes.set_xticks(CURVE)
    axes.set_ylim(0, None)
    return figure


def gammas_figure(rows: Sequence[GroundingRow]) -> Any:
    """The mean of R@1, R@5 and R@10 on held-out images by gamma, with a large open marker at the chosen one.

    None where no gamma was searched.
    """
    curves = [(k, row.method, row.chosen.curve, row.chosen.gamma) for k, row in enumerate(rows) if row.chosen.curve]
    if not curves:
        return None
    names = "gamma: 0 for the largest regions, 1 for the densest", "mean of R@1, R@5 and R@10 [%]"
    figure, axes = figures.curves_figure(GAMMAS, curves, names)
    axes.set_xticks(PAPERS_GAMMAS)
    return figure


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


def _only_main_hits(example: PhraseExample, hits: Hits) -> float | None:
    """The more of the others miss, the better; of equals, the longer phrase."""
    main, *others = hits
    known = example.phrase["known"] and not all(others)
    return sum(others) - 0.01 * min(len(example.phrase["text"]), 60) if main and known else None


def _small_hit(example: PhraseExample, hits: Hits) -> float | None:
    return example.share if hits[0] and example.phrase["known"] else None


def _points_right(example: PhraseExample, _: Hits) -> float | None:
    """The maximum lies in the object, but no box among the first ten fits."""
    return -example.share if example.late and example.maps[0]["pointed"]["any"] else None


def _points_wrong(example: PhraseExample, _: Hits) -> float | None:
    """Neither the maximum nor a box: the larger the object, the better the case."""
    return -example.share if example.late and not example.maps[0]["pointed"]["union"] else None


class PhraseCases(Cases[PhraseExample]):
    """Phrases whose first box is right, and others that are not found."""

    kinds: ClassVar = {
        "{main} finds at once what others do not": _only_main_hits,
        "{main} finds something small at once": _small_hit,
        "{main} points at it, but has no right box among the first ten": _points_right,
        "{main} looks elsewhere": _points_wrong,
    }

    def candidates(
        self, run: GroundingRun, rows: Sequence[GroundingRow]
    ) -> tuple[list[PhraseExample], list[list[bool]]]:
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
        yield Panel(
            self._drawn(run, example),
            f"the first boxes for {text} with the right one dashed, and the maps of its words",
            f"\N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK}",
            (*within, f"{about}. First right box: {', '.join(firsts)}.{left_out}"),
        )

    def _drawn(self, run: GroundingRun, example: PhraseExample) -> Image.Image:
        method = example.maps[0]["method"]
        grounded, phrase = run.show(example.image, example.number, method, example.gamma, BOXES)
        boxes = [union(phrase.boxes)] if run.about["protocol"]["truth"] == "union" else phrase.boxes
        drawn: Image.Image = grounded.figure(true_boxes=boxes, width=WIDTH)
        return drawn
