"""Strips of pictures for a page: an example's photograph and the methods' maps over it, with words below each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.experiments.published import WORDS
from excite.experiments.report.html import Html, element, picture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from PIL import Image

    from excite.experiments.report.cases import Case
    from excite.experiments.report.examples import Drawn
    from excite.experiments.report.page import AnyRow, ModelRow
    from excite.jobs.ledger_init import Entry

__all__ = ["WIDTH", "headed_strips", "strip", "without", "worth_a_look"]

MOST_MAPS = 10  # for each example
WIDTH = 320  # of a picture: with as many as there may be, a page stays below 5 MB


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
        yield element("p", "There is no such case among these pictures.", class_="soft")


def strip(drawn: Drawn[Case], name: str, about: str, verdict: Callable[[Entry], str]) -> Html:
    """An example: the photograph, and the map of each method.

    Args:
        drawn: its pictures.
        name: what was looked for, in words.
        about: which picture it is, and what there is to know of it.
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
