"""The published numbers are those of the publications."""

import re

import pytest

from excite.experiments.published import (
    CONTRAST,
    GROUNDING,
    GROUP_RECALLS,
    LOCALIZATION,
    POINTING,
    WORDS,
)

PAIR = re.compile(r"(\d+\.\d)\D+?(\d+\.\d)")


def numbers(text):
    return [tuple(map(float, PAIR.search(cell).groups())) if PAIR.search(cell) else None for cell in text]


def columns(data, source):
    return [one for one in POINTING[data] if source in one.source]


@pytest.fixture
def shared(shared_data):
    return shared_data.parent


def test_the_papers_accuracies(shared):
    """Center, Grad, ..., each with CNN-S, VGG16 and GoogleNet on VOC07 and then on COCO."""
    path = shared / "paper.tex"
    if not path.is_file():
        pytest.skip(f"no {path}")
    table = path.read_text().partition("VOC07 Test (All/Diff.)")[2].partition(r"\bottomrule")[0]
    rows = {line.split()[0]: line.split("&") for line in table.splitlines() if "&" in line}
    for method, name in WORDS.items():
        if method != "grad-cam":
            _, *voc, _, cnn_s, vgg16, googlenet = rows[name.split()[0]]
            published = [column.scores.get(method) for data in POINTING for column in columns(data, "paper")]
            assert published == numbers([*voc, cnn_s, vgg16, googlenet])


def test_the_papers_contrast(shared):
    path = shared / "paper.tex"
    if not path.is_file():
        pytest.skip(f"no {path}")
    cells = next(line for line in path.read_text().splitlines() if "Mean Acc." in line).split("&")
    printed = [re.findall(r"\d+\.\d", cell) for cell in cells[1:] if cell.strip()]
    assert [re.findall(r"\d+\.\d", cell) for cell in CONTRAST.values()] == printed


def test_torchrays_numbers(shared):
    path = shared / "FIELD.md"
    if not path.is_file():
        pytest.skip(f"no {path}")
    rows = {
        line.split("|")[1].split()[0]: line.split("|")[6:9]
        for line in path.read_text().splitlines()
        if PAIR.search(line) and "|" in line
    }
    for method, name in WORDS.items():
        published = [column.scores.get(method) for data in POINTING for column in columns(data, "TorchRay")]
        assert published == numbers(rows[name.split()[0]])


def test_the_papers_errors(shared_data):
    path = shared_data.parent / "paper.tex"
    if not path.is_file():
        pytest.skip(f"no {path}")
    table = path.read_text().partition("label{tab:WSL}")[2].partition(r"\toprule")[0]
    names, alphas, errors = (line.split("&")[1:] for line in table.splitlines() if line.count("&") > 6)
    printed = {}
    for name, alpha, error in zip(names, alphas, errors, strict=True):
        number = re.search(r"\d+\.\d", alpha)
        word = re.match(r"[\w-]+", name.strip()).group()
        printed[word] = (float(number.group()) if number else None, float(re.search(r"\d+\.\d", error).group()))
    assert {WORDS.get(method, "Feedback").split()[0]: tuple(found) for method, found in LOCALIZATION.items()} == printed
    assert len(printed) == 7


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
