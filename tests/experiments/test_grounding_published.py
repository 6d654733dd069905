"""The published numbers are those of the paper."""

import re

import pytest

from excite.datasets.flickr30k import GROUPS as FILES_GROUPS
from excite.experiments.published import GROUNDING, GROUP_RECALLS, GROUPS, WORDS, published_groups, published_ranks

NAMES = {"proposals": "MCG_base", "guided": "Deconv", "grad": "Grad", "lrp": "LRP", "cam": "CAM", "mwp": "MWP"}


@pytest.fixture
def paper(shared_data):
    path = shared_data.parent / "paper.tex"
    if not path.is_file():
        pytest.skip(f"no {path}")
    return path.read_text()


def plain(cell):
    """A cell without its commands."""
    cell = re.sub(r"\\cite\{[^}]*\}|\\textbf|\\,|\\\\.*|[{}$^]", "", cell)
    return cell.replace(r"\_", "_").strip()


def lines(text, label):
    """The lines of a table: the name, and its cells."""
    body = text.partition(f"label{{{label}}}")[2].partition(r"\end{tabular}")[0]
    rows = [[plain(cell) for cell in line.split("&")] for line in body.splitlines() if line.count("&") > 5]
    return [(" ".join(row[0].split()), row[1:]) for row in rows[1:]]


def name_in_paper(method, proposals):
    if method == "proposals":
        return "MCG_base"
    return f"{NAMES.get(method, WORDS.get(method, method))} ({proposals})"


def number(text):
    return None if text in {"", "--"} else float(text)


def pair(text):
    every, _, small = text.partition("/")
    return number(every), number(small)


def test_ranks(paper):
    printed = lines(paper, "tab:Flickr_overall")
    assert len(printed) == len(GROUNDING) == 10
    for (name, (gamma, *cells)), ours in zip(printed, GROUNDING, strict=True):
        assert name == name_in_paper(ours.method, ours.proposals)
        assert number(gamma) == ours.gamma
        assert list(map(pair, cells)) == list(ours[3:])


def test_groups(paper):
    printed = lines(paper, "tab:Flickr_perclass")
    assert len(printed) == len(GROUP_RECALLS) == 9
    for (name, cells), (ours, values) in zip(printed, GROUP_RECALLS.items(), strict=True):
        assert name.replace("LRN", "LRP") == name_in_paper(*ours)
        assert tuple(map(float, cells)) == values
        assert sum(values[:-1]) / 8 == pytest.approx(values[-1], abs=0.1)  # theirs are of numbers with more digits


def test_groups_are_those_of_the_data():
    assert [ours.rstrip("s") for ours in GROUPS] == [theirs.rstrip("s") for theirs in FILES_GROUPS]


def test_for_people():
    assert published_ranks()[8] == {
        "method": "CCA (EB)",
        "gamma": "-",
        "R@1": "25.3 / -",
        "R@5": "- / -",
        "R@10": "59.7 / -",
        "mAP group": "11.2 / -",
        "mAP phrase": "- / -",
    }
    assert published_groups()[0]["method"] == "own scores (MCG)"
