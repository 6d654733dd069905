"""What the pages of several experiments have in common: facts, lists, ranked numbers, and how to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from excite.experiments.published import WORDS
from excite.experiments.report.html import Html, element, joined, picture
from excite.io.files import save_text
from excite.metrics.statistics import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from PIL import Image

    from excite.experiments.report.examples import Case, Drawn
    from excite.experiments.report.figures import Sided
    from excite.jobs import Entry
    from excite.metrics.statistics import Share


DASH = "\N{EN DASH}"  # between the ends of an interval, and where there is nothing
MOST_LINES = 20


class ModelRow(Protocol):
    """What the rows of all experiments have: one method at one layer of one network."""

    @property
    def model(self) -> str:
        """The network's name."""

    @property
    def method(self) -> str:
        """The method's."""

    @property
    def layer(self) -> str:
        """Where it was read."""


AnyRow = TypeVar("AnyRow", bound=ModelRow)


def save_page(text: str, path: Path) -> Path:
    """Write a page; the name of a file in it may hold what is no text."""
    return save_text(text.encode("utf-8", "replace").decode(), path)


def in_percent(share: Share) -> Estimate:
    """A share and its interval.

    Example:
        >>> from excite.metrics.statistics import Share
        >>> in_percent(Share(1, 2)).value
        50.0
    """
    low, high = share.interval
    return Estimate(100 * share.value, 100 * low, 100 * high)


def main_method(rows: Sequence[ModelRow], wanted: Sequence[str]) -> str:
    """The method that the others are compared with: the first of those wanted that is there, or else the first."""
    methods = methods_of(rows)
    return next((method for method in wanted if method in methods), methods[0])


def methods_of(rows: Iterable[ModelRow]) -> list[str]:
    """The methods, in the order in which they come."""
    return list(dict.fromkeys(row.method for row in rows))


def models_of(rows: Iterable[ModelRow]) -> list[str]:
    """The networks, in the order in which they come."""
    return list(dict.fromkeys(row.model for row in rows))


def bullets(lines: Sequence[str]) -> Html:
    """A list of sentences; nothing where there are none.

    Example:
        >>> bullets(["a < b"])
        '<ul><li>a &lt; b</li></ul>'
    """
    return element("ul", *(element("li", line) for line in lines)) if lines else Html("")


def lines_or_nothing(lines: Sequence[str]) -> str:
    """The first of many lines and how many more there are, or the word for none."""
    more = [f"and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    return bullets([*lines[:MOST_LINES], *more]) or "nothing"


def facts_list(facts: Iterable[tuple[str, str]]) -> Html:
    """Names and what there is to say of them.

    Example:
        >>> facts_list([("data", "voc")])
        '<dl><dt>data</dt><dd>voc</dd></dl>'
    """
    return element("dl", *(part for name, content in facts for part in (element("dt", name), element("dd", content))))


def told_once(of_each: Mapping[str, Iterable[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
    """Facts about each network, said once where they are the same.

    Example:
        >>> list(told_once({"one": [("pictures", "9"), ("pairs", "8")], "two": [("pictures", "9"), ("pairs", "7")]}))
        [('pictures', '9'), ('pairs, one', '8'), ('pairs, two', '7')]
    """
    told = {model: dict(facts) for model, facts in of_each.items()}
    for name in next(iter(told.values())):
        contents = {model: facts[name] for model, facts in told.items()}
        if len(set(contents.values())) == 1:
            yield name, next(iter(contents.values()))
        else:
            yield from ((f"{name}, {model}", content) for model, content in contents.items())


def how_to_read(reading: str, command: str) -> Html:
    """What the numbers mean, and how to get them again."""
    again = [element("p", "The same command gives the same page again:"), element("pre", command)]
    return joined([element("p", reading), *(again if command else [])])


def first_two(values: Iterable[float], *, highest: bool = True) -> list[str]:
    """The best and the second best as they are shown: what looks equal is ranked equal; nothing beats only itself.

    Example:
        >>> first_two([41.61, 38.7, 41.58], highest=False), first_two([38.7])
        (['38.7', '41.6'], [])
    """
    shown = {f"{value:.1f}" for value in values}
    return sorted(shown, key=float, reverse=highest)[:2] if len(shown) > 1 else []


def marked(value: float, best: Sequence[str]) -> str:
    """A value: the best in bold, the second best underlined.

    Example:
        >>> marked(38.71, ["38.7", "41.6"])
        '<strong>38.7</strong>'
    """
    shown = f"{value:.1f}"
    tags = dict(zip(best, ("strong", "u"), strict=False))
    return element(tags[shown], shown) if shown in tags else shown


def ranked(estimate: Sided, best: Sequence[str]) -> Html:
    """A value, marked where it is one of the two best, and its interval."""
    interval = element("small", f"{estimate.low:.1f}{DASH}{estimate.high:.1f}")
    return joined([marked(estimate.value, best), interval])


def points(gap: Sided) -> str:
    """A difference and its interval in words."""
    return f"{gap.value:+.1f} points ({gap.low:+.1f} to {gap.high:+.1f})"


# Strips of images for a page: an example's photograph and the methods' maps over it, with words below each.

MOST_MAPS = 10  # for each example
WIDTH = 320  # of an image: with as many as there may be, a page stays below 5 MB


def worth_a_look(rows: Sequence[AnyRow], main: str) -> list[AnyRow]:
    """The rows whose maps are shown, the main method first; of many, those that others published too."""
    shown = sorted(rows, key=lambda row: row.method != main)
    if len(shown) <= MOST_MAPS:
        return shown
    return [shown[0], *(row for row in shown[1:] if row.method in WORDS)][:MOST_MAPS]


def without(rows: Sequence[ModelRow]) -> list[Html]:
    """Whose maps are not among the examples, if anybody's are not."""
    names = ", ".join(dict.fromkeys(row.method for row in rows))
    return [element("p", f"Without the maps of {names}.", class_="soft")] if names else []


def headed_strips(found: Sequence[Case], heading: str, strip_of: Callable[[Case], Html]) -> Iterator[Html]:
    """A heading for a kind of case and its examples, or that there is none."""
    yield element("h3", heading)
    yield from map(strip_of, found)
    if not found:
        yield element("p", "There is no such case among these images.", class_="soft")


def strip(drawn: Drawn[Case], name: str, about: str, verdict: Callable[[Entry], str]) -> Html:
    """An example: the photograph, and the map of each method.

    Args:
        drawn: its images.
        name: what was looked for, in words.
        about: which image it is, and what there is to know of it.
        verdict: what a method's map is worth: by a sign and in words, not by colour.
    """
    if drawn.photograph is None:
        return element("p", f"{name} in {about}: cannot be shown ({drawn.trouble})", class_="soft")
    figures = [_figure(drawn.photograph, "photograph with outlines", name, about)]
    for found, panel in zip(drawn.example.maps, drawn.panels, strict=True):
        figures.append(_figure(panel, f"map for {name}", found["method"], verdict(found)))
    return element("div", *figures, class_="strip")


def _figure(image: Image.Image, what: str, name: str, said: str) -> Html:
    caption = element("figcaption", element("strong", name), Html("<br>"), said)
    return element("figure", picture(image, f"{what}; {name}: {said}", width=WIDTH), caption)
