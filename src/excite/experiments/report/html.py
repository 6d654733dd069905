"""HTML of a results page that is one file: it fetches nothing, fits a phone and paper, and has a dark mode."""

from __future__ import annotations

import io
import re
from itertools import chain
from typing import TYPE_CHECKING, Any

from PIL import Image

from excite.errors import visible
from excite.experiments.report.figures import FAINT, INK, methods_of
from excite.io.files import save_text
from excite.io.text import for_html
from excite.readouts.notebook import data_address, jpeg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.experiments.base import ExperimentRun
    from excite.metrics.statistics import Estimate

    Facts = Iterable[tuple[str, str]]


DASH = "\N{EN DASH}"  # between the ends of an interval, and for a missing value
MOST_LINES = 20
LEAST_SCALE = 0.8  # a figure is not shrunk further, so that its text stays legible
STYLE = """
:root { color-scheme: light dark; --ink: #22252a; --soft: #5d636d; --paper: #ffffff; --card: #f4f5f7; --line: #d9dce1;
  --heat: #56b4e9; --link: #0060a0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #a3a9b3; --paper: #15171a; --card: #1f2226;
  --line: #3a3f46; --heat: #0072b2; --link: #7cc4f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { margin: .5rem 0; font-size: 1.7rem; line-height: 1.2; }
h2 { margin: 2.5rem 0 .5rem; padding-top: .75rem; font-size: 1.25rem; border-top: 1px solid var(--line); }
h3 { margin: 1.5rem 0 .25rem; font-size: 1rem; }
p, li, dd { max-width: 48rem; }
a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: 0; padding: 0; list-style: none; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: 1rem 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
dd ul { margin: 0; padding-left: 1.1rem; }
code, pre { font: .9em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre { padding: .75rem; overflow-x: auto; background: var(--card); border-radius: .4rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
small, .soft { color: var(--soft); }
small { display: block; font-size: .8em; white-space: nowrap; }
.scroll { margin: 1rem 0; overflow-x: auto; }
table { border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; }
caption { padding: .25rem 0; text-align: left; color: var(--soft); }
caption span { position: sticky; left: 0; display: inline-block; max-width: min(48rem, 100vw - 2rem); }
th, td { padding: .3rem .7rem; text-align: center; border-bottom: 1px solid var(--line); vertical-align: baseline; }
thead th { font-weight: 600; vertical-align: bottom; }
td, th[scope=col] { white-space: nowrap; }
thead tr:first-child th { border-top: 1px solid var(--line); }
tbody th, tfoot th, thead th:first-child { position: sticky; left: 0; text-align: left; font-weight: 400;
  background: var(--paper); white-space: nowrap; }
tfoot th, tfoot td { border-top: 1px solid var(--soft); }
.beside { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 0 2.5rem; }
.beside > * { min-width: 0; }
.heat { display: block; margin: -.3rem -.7rem; padding: .3rem .7rem;
  background: color-mix(in srgb, var(--heat) var(--share), transparent); }
figure { margin: 1rem 0; }
figcaption { color: var(--soft); overflow-wrap: anywhere; }
figcaption strong { color: var(--ink); }
svg { max-width: 100%; height: auto; }
img { display: block; max-width: 100%; height: auto; }
.strip { display: grid; grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr)); gap: .75rem;
  margin: .5rem 0 1.5rem; }
.strip figure { margin: 0; min-width: 0; font-size: .9rem; line-height: 1.35; }
.strip img { width: 100%; }
@media (max-width: 40rem) {
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .6rem; }
  .strip { grid-template-columns: repeat(2, 1fr); gap: .5rem; }
  th, td { padding: .3rem .45rem; } tbody th, tfoot th { min-width: 6.5rem; white-space: normal; }
  .heat { margin: -.3rem -.45rem; padding: .3rem .45rem; } }
@media print {
  :root { --ink: #000; --soft: #444; --paper: #fff; --card: #f4f5f7; --line: #bbb; --heat: #56b4e9; }
  body { max-width: none; padding: 0; font-size: 9pt; print-color-adjust: exact; } nav { display: none; }
  .scroll { overflow: visible; } tfoot { display: table-row-group; }
  tr, figure, .strip figure { break-inside: avoid; } h2, h3 { break-after: avoid; } }
"""


class Html(str):
    """Text that is HTML already. Any other text is escaped when it is put into a page."""

    __slots__ = ()


LINE_END = Html("\n")  # between elements


def element(tag: str, *children: str, **attributes: str) -> Html:
    """An element around its children; ``class_`` and ``aria_label`` are written class and aria-label.

    Example:
        >>> element("p", "1 < 2: ", element("b", "yes"), class_="soft")
        '<p class="soft">1 &lt; 2: <b>yes</b></p>'
    """
    named = "".join(f' {name.rstrip("_").replace("_", "-")}="{for_html(value)}"' for name, value in attributes.items())
    return Html(f"<{tag}{named}>{joined(children)}</{tag}>")


def joined(children: Iterable[str]) -> Html:
    """Texts and elements in sequence.

    Example:
        >>> joined(["<", element("i", "a")])
        '&lt;<i>a</i>'
    """
    return Html("".join(child if isinstance(child, Html) else for_html(child) for child in children))


def page(title: str, introduction: str, sections: Sequence[tuple[str, Html]]) -> str:
    """A whole page: title, introduction, and sections with headings that are linked from the top.

    Example:
        >>> page("Results", "Of a game.", [("Table", element("p", "87.6"))]).startswith("<!DOCTYPE html>")
        True
    """
    links = [element("li", element("a", heading, href=f"#s{k}")) for k, (heading, _) in enumerate(sections, 1)]
    blocks = [
        element("section", element("h2", heading, id=f"s{k}"), LINE_END, content, LINE_END)
        for k, (heading, content) in enumerate(sections, 1)
    ]
    viewport = Html('<meta name="viewport" content="width=device-width, initial-scale=1">')
    head = joined([Html('<meta charset="utf-8">'), viewport, element("title", title), element("style", Html(STYLE))])
    header = element("header", element("h1", title), element("p", introduction))
    contents = element("nav", element("ul", *links), aria_label="Contents")
    main = element("main", *chain(*((block, LINE_END) for block in blocks)))
    body = element("body", header, LINE_END, contents, LINE_END, main)
    return f"<!DOCTYPE html>\n{element('html', element('head', head), LINE_END, body, lang='en')}\n"


def write_page(path: Path, title: str, introduction: str, sections: Mapping[str, Html]) -> Path:
    """Write a page; empty sections are left out. The same content gives the same bytes."""
    text = page(title, introduction, [section for section in sections.items() if section[1]])
    return save_text(text, path)


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    groups: Sequence[tuple[str, int]] = (),
    foot: Iterable[Sequence[str]] = (),
) -> Html:
    """A table whose first column names its rows. A wide one scrolls, by keyboard as well, with that column in view.

    Args:
        caption: above the table.
        columns: the headings, also of the first column.
        rows: their cells.
        groups: headings above the others, each with the number of columns it spans.
        foot: rows of totals.

    Example:
        >>> '<th scope="row">c-mwp</th><td>87.6</td>' in table("Hits", ["method", "%"], [["c-mwp", "87.6"]])
        True
    """
    above = [element("th", name, colspan=str(span), scope="colgroup") for name, span in groups]
    heads = [element("tr", *above)] if above else []
    heads.append(element("tr", *(element("th", name, scope="col") for name in columns)))
    ends = [_row(cells) for cells in foot]
    parts = [
        element("caption", element("span", caption)),
        element("thead", *heads),
        element("tbody", *chain(*((_row(cells), LINE_END) for cells in rows))),
        *([element("tfoot", *ends)] if ends else []),
    ]
    return element("div", element("table", *parts), class_="scroll", tabindex="0", role="region", aria_label=caption)


def _row(cells: Sequence[str]) -> Html:
    name, *others = cells
    return element("tr", element("th", name, scope="row"), *(element("td", cell) for cell in others))


def picture(image: Image.Image, alt: str, *, width: int) -> Html:
    """An image inside the page as a JPEG, at most ``width`` pixels wide, with an alternative text.

    Example:
        >>> picture(Image.new("RGB", (64, 48)), "a black image", width=32)[:56]
        '<img alt="a black image" width="32" height="24" src="dat'
    """
    shown = image.convert("RGB")
    if shown.width > width:
        shown = shown.resize((width, max(1, round(shown.height * width / shown.width))), Image.Resampling.LANCZOS)
    source = data_address("image/jpeg", jpeg(shown, quality=80))
    return Html(f'<img alt="{for_html(alt)}" width="{shown.width}" height="{shown.height}" src="{source}">')


def drawing(figure: Any, alt: str) -> Html:
    """A matplotlib figure inside the page as an SVG: its text stays text, its ink and faint lines are the page's own.

    Args:
        figure: drawn in the colours of `excite.experiments.report.figures`.
        alt: alternative text; unique among the figures of a page.
    """
    import matplotlib as mpl

    content = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # the same figure, the same bytes
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": alt}):
        figure.savefig(content, format="svg", transparent=True, metadata=nothing)
    text = content.getvalue()
    text = "\n".join(map(visible, text[text.index("<svg") :].split("\n")))  # labels may hold control characters
    text = text.replace(INK.lower(), "currentColor").replace(FAINT.lower(), "var(--line)")
    names = {name for name in re.findall(r' id="([^"]+)"', text) if f"#{name}" not in text}
    text = re.sub(r' id="([^"]+)"', lambda found: "" if found[1] in names else found[0], text)
    style = f"min-width: {figure.get_figwidth() * 72 * LEAST_SCALE:.0f}pt"
    svg = Html(text.replace("<svg ", f'<svg role="img" aria-label="{for_html(alt)}" style="{style}" ', 1).strip())
    return element("div", svg, class_="scroll", tabindex="0")


def captioned(figure: Any, alt: str, caption: str = "") -> Html:
    """A `drawing` in a figure element, with a caption above if there is one."""
    return element("figure", *([element("figcaption", caption)] if caption else []), drawing(figure, alt))


def bullets(lines: Sequence[str]) -> Html:
    """A list of sentences; empty where there are none.

    Example:
        >>> bullets(["a < b"])
        '<ul><li>a &lt; b</li></ul>'
    """
    return element("ul", *(element("li", line) for line in lines)) if lines else Html("")


def lines_or_nothing(lines: Sequence[str]) -> str:
    """The first of many lines and the number of further ones, or "nothing"."""
    more = [f"and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    return bullets([*lines[:MOST_LINES], *more]) or "nothing"


def facts_list(facts: Facts) -> Html:
    """A definition list of names and contents.

    Example:
        >>> facts_list([("data", "voc")])
        '<dl><dt>data</dt><dd>voc</dd></dl>'
    """
    return element("dl", *(part for name, content in facts for part in (element("dt", name), element("dd", content))))


def measured(runs: Sequence[ExperimentRun], protocol: Facts, details: Callable[[Any], Facts]) -> Html:
    """The section on what was measured: the data, the protocol, networks and methods, and the facts of each network."""
    run = runs[0]
    return facts_list(
        [
            ("data", f"{run.dataset_name}, split {run.split}, in {run.about['data']['folder']}"),
            *protocol,
            ("networks", ", ".join(run.classifier_name for run in runs)),
            ("methods", ", ".join(methods_of(row for run in runs for row in run.rows))),
            *merged_facts({run.classifier_name: details(run) for run in runs}),
        ]
    )


def merged_facts(of_each: Mapping[str, Facts]) -> Iterator[tuple[str, str]]:
    """The facts of each network, once where they are equal.

    Example:
        >>> list(merged_facts({"one": [("pictures", "9"), ("pairs", "8")], "two": [("pictures", "9"), ("pairs", "7")]}))
        [('pictures', '9'), ('pairs, one', '8'), ('pairs, two', '7')]
    """
    facts = {model: dict(each) for model, each in of_each.items()}
    for name in next(iter(facts.values())):
        contents = {model: each[name] for model, each in facts.items()}
        if len(set(contents.values())) == 1:
            yield name, next(iter(contents.values()))
        else:
            yield from ((f"{name}, {model}", content) for model, content in contents.items())


def how_to_read(reading: str, command: str) -> Html:
    """The meaning of the numbers, and the command that gives them again."""
    again = [element("p", "The same command gives the same page again:"), element("pre", command)]
    return joined([element("p", reading), *(again if command else [])])


def best_two(values: Iterable[float], *, highest: bool = True) -> list[str]:
    """The best and the second best of several values as they are shown; what looks equal is ranked equal.

    Example:
        >>> best_two([41.61, 38.7, 41.58], highest=False), best_two([38.7])
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


def marked_column(values: Sequence[float | None], *, highest: bool = True, zeros: bool = True) -> list[str]:
    """A column of values, the best two marked; without ``zeros``, zero is never among the best."""
    best = best_two((value for value in values if value or (zeros and value is not None)), highest=highest)
    return [DASH if value is None else marked(value, best) for value in values]


def estimate_cell(estimate: Estimate | None, best: Sequence[str] = ()) -> str:
    """A value, marked where it is one of the two best, and its interval; a dash for None."""
    if estimate is None:
        return DASH
    interval = element("small", f"{estimate.low:.1f}{DASH}{estimate.high:.1f}")
    return joined([marked(estimate.value, best), interval])


def heat(value: float | None, best: float | None = None) -> str:
    """A cell shaded by its percentage, bold where it is the best; a dash for None."""
    if value is None:
        return DASH
    shown = f"{value:.1f}"
    number = element("strong", shown) if best is not None and value == best > 0 else shown
    return element("span", number, class_="heat", style=f"--share: {0.7 * value:.0f}%")


def difference_words(gap: Estimate) -> str:
    """A difference and its interval in words."""
    return f"{gap.value:+.1f} points ({gap.low:+.1f} to {gap.high:+.1f})"
