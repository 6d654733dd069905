"""The examples of the Pointing Game's page: photographs, and the methods' maps over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.benchmarks.html import Html, element, joined, picture
from excite.benchmarks.pointing_examples import KINDS, choose, draw
from excite.benchmarks.published import WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from PIL import Image

    from excite.benchmarks.pointing_examples import Drawn
    from excite.benchmarks.pointing_tally import Row, Run
    from excite.ledger import Entry

__all__ = ["examples"]

EXAMPLES = 12
MOST_MAPS = 10  # for each of them
WIDTH = 320  # of a picture: with as many as there may be, the page stays below 5 MB


def examples(runs: Sequence[Run], rows: Sequence[Row], main: str, is_hit: Callable[[float | None], bool]) -> Html:
    """Best and worst cases of each network, a dozen in all.

    Args:
        runs: the games.
        rows: of each network and method the one to show.
        main: the method whose best and worst cases they are.
        is_hit: whether a point so far beside an object, or nowhere, hits it.
    """
    shown = {run.classifier_name: _shown(rows, run.classifier_name, main) for run in runs}
    unseen = [row for row in rows if row not in shown[row.model]]
    parts = [element("p", f"Without the maps of {_names(unseen)}.", class_="soft")] if unseen else []
    each = max(1, EXAMPLES // len(KINDS) // len(runs))
    for run in runs:
        of = f"{run.classifier_name}: " if len(runs) > 1 else ""
        if shown[run.classifier_name]:
            parts += _cases(run, shown[run.classifier_name], is_hit, each, of)
    return joined(parts)


def _shown(rows: Sequence[Row], model: str, main: str) -> list[Row]:
    """The methods whose maps are worth a look, the main one first; of many, those that others published too."""
    pointing = [row for row in rows if row.model == model and row.empty < row.all.pairs]
    pointing.sort(key=lambda row: row.method != main)
    if len(pointing) <= MOST_MAPS:
        return pointing
    return [pointing[0], *(row for row in pointing[1:] if row.method in WORDS)]


def _cases(run: Run, rows: Sequence[Row], is_hit: Callable[[float | None], bool], each: int, of: str) -> Iterator[Html]:
    """For each kind of case a heading and its examples, or that there is none."""

    def hits(found: Entry) -> bool:
        return is_hit(found["distance"])

    chosen = choose(run.records, [(row.method, row.layer) for row in rows], hits, each)
    for kind, found in chosen.items():
        yield element("h3", of + kind.format(main=rows[0].method))
        yield from (_strip(draw(run, example), hits) for example in found)
        if not found:
            yield element("p", "There is no such case among these pictures.", class_="soft")


def _strip(drawn: Drawn, hits: Callable[[Entry], bool]) -> Html:
    """An example: the photograph, and the map of each method."""
    example = drawn.example
    about = f"{example.image}, {100 * example.share:.1f} % of the picture"
    if drawn.photograph is None:
        return element("p", f"{example.category} in {about}: cannot be shown ({drawn.trouble})", class_="soft")
    figures = [_figure(drawn.photograph, "photograph with outlines", example.category, about)]
    for found, panel in zip(example.maps, drawn.panels, strict=True):
        said = _verdict(found, hit=hits(found))
        figures.append(_figure(panel, f"map for {example.category}", found["method"], said))
    return element("div", *figures, class_="strip")


def _verdict(found: Entry, *, hit: bool) -> str:
    """By a sign and in words: not by colour."""
    if found["distance"] is None:
        return "✗ points nowhere"
    verdict = "✓ hit" if hit else "✗ missed"
    return f"{verdict}, {found['distance']:.0f} px beside" if found["distance"] else verdict


def _figure(image: Image.Image, what: str, name: str, said: str) -> Html:
    caption = element("figcaption", element("strong", name), Html("<br>"), said)
    return element("figure", picture(image, f"{what}; {name}: {said}", width=WIDTH), caption)


def _names(rows: Sequence[Row]) -> str:
    return ", ".join(dict.fromkeys(row.method for row in rows))
