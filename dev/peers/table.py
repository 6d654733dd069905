"""The tables between the marks of a page: written, read again, and held against what the packages answer."""

from __future__ import annotations

import warnings
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from peers.around import ROWS as AROUND
from peers.arriving import ROWS as ARRIVING
from peers.asking import PEERS
from peers.cells import attempt, same
from peers.excitation import ROWS as EXCITATION
from peers.manners import ROWS as MANNERS
from peers.methods import ROWS as METHODS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peers.asking import Peer
    from peers.cells import Row

    Answers = dict[tuple[str, str], str]  # by question and name of the package

__all__ = ["GROUPS", "answers", "differences", "headings", "read", "rewritten", "written"]

GROUPS = {
    "Excitation Backprop": EXCITATION,
    "Well-known networks": ARRIVING,
    "Manners": MANNERS,
    "Other methods": METHODS,
    "Around the maps": AROUND,
}
MARKS = ("<!-- compare_peers.py writes from here -->", "<!-- to here -->")
HEAD, GROUP = "package", "**"  # the corner of the table; what the names of groups stand between
UNVERIFIED = "?"


def answers(peers: Iterable[Peer], rows: Iterable[Row]) -> Answers:
    """What the packages answer, each row at once for all."""
    asked = list(peers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # packages warn of much that is not asked here
        return {(row.question, peer.name): attempt(partial(row.check, peer)) for row in rows for peer in asked}


def headings(peers: Iterable[Peer]) -> dict[str, str]:
    """What stands above each column: the package and its version, but for our own, which is the one of this page."""
    return {peer.name: peer.name if peer.name == "excite" else f"{peer.name} {peer.version}" for peer in peers}


def written(found: Answers, heads: dict[str, str]) -> str:
    """The table in Markdown, a row for the name of each group."""
    lines = [[HEAD, *(heads[peer.name] for peer in PEERS)], ["---"] * (len(PEERS) + 1)]
    for group, rows in GROUPS.items():
        lines.append([f"{GROUP}{group}{GROUP}", *("" for _ in PEERS)])
        lines += [[row.question, *(found[row.question, peer.name] for peer in PEERS)] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def read(page: str) -> tuple[Answers, dict[str, str]]:
    """The answers and the headings that stand on a page; none where it has no tables yet."""
    found: Answers = {}
    heads: dict[str, str] = {}
    for line in _between(page).splitlines():
        question, *cells = (cell.strip() for cell in line.strip().strip("|").split("|"))
        if question == HEAD:
            heads = {peer.name: cell for peer, cell in zip(PEERS, cells, strict=True)}
        elif cells and not question.startswith(("---", GROUP)):
            found |= {(question, peer.name): cell for peer, cell in zip(PEERS, cells, strict=True)}
    return found, heads


def rewritten(page: str, found: Answers, heads: dict[str, str]) -> str:
    """The page with new tables; a column that nobody answered for stays as it stands there."""
    stood, stood_heads = read(page)
    every = {(row.question, peer.name): UNVERIFIED for rows in GROUPS.values() for row in rows for peer in PEERS}
    kept = {key: stood[key] for key in every if key in stood}
    names = {peer.name: peer.name for peer in PEERS}
    tables = written(every | kept | found, names | stood_heads | heads)
    above, below = page.partition(MARKS[0])[0], page.partition(MARKS[1])[2]
    asked = f"Asked beside torch {version('torch')} and torchvision {version('torchvision')}."
    return f"{above}{MARKS[0]}\n\n{tables}\n\n{asked}\n\n{MARKS[1]}{below}"


def differences(page: str, found: Answers, heads: dict[str, str]) -> list[str]:
    """Where the page says something else than the packages, a phrase for each place."""
    stood, stood_heads = read(page)
    wrong = [
        f"the page is of {stood_heads.get(name, 'no ' + name)!r}, here is {head!r}"
        for name, head in heads.items()
        if stood_heads.get(name) != head
    ]
    for (question, name), answer in found.items():
        said = stood.get((question, name), "nothing")
        if not same(said, answer):
            wrong.append(f"{question!r} of {name} is {said!r} on the page and {answer!r} here")
    questions = {row.question for rows in GROUPS.values() for row in rows}
    wrong += [
        f"nobody asks {question!r}"
        for question in dict.fromkeys(asked for asked, _ in stood)
        if question not in questions
    ]
    return wrong


def _between(page: str) -> str:
    return page.partition(MARKS[0])[2].partition(MARKS[1])[0]
