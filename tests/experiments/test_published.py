"""The published numbers are those of the publications."""

import re

import pytest

from excite.experiments.published import CONTRAST, GROUNDING, GROUP_RECALLS, LOCALIZATION, POINTING, WORDS

PAIR = re.compile(r"(\d+\.\d)\D+?(\d+\.\d)")
NAMES = {"proposals": "MCG_base", "guided": "Deconv", "grad": "Grad", "lrp": "LRP", "cam": "CAM", "mwp": "MWP"}


@pytest.fixture
def shared(shared_data):
    """Reads a file beside the shared data."""

    def read(name):
        path = shared_data.parent / name
        if not path.is_file():
            pytest.skip(f"no {path}")
        return path.read_text()

    return read


@pytest.fixture
def paper(shared):
    return shared("paper.tex")


def numbers(cells):
    return [tuple(map(float, PAIR.search(cell).groups())) if PAIR.search(cell) else None for cell in cells]


def published(method, source):
    return [one.scores.get(method) for data in POINTING.values() for one in data if source in one.source]


def test_the_papers_accuracies(paper):
    """Center, Grad, ..., each with CNN-S, VGG16 and GoogleNet on VOC07 and then on COCO."""
    table = paper.partition("VOC07 Test (All/Diff.)")[2].partition(r"\bottomrule")[0]
    rows = {line.split()[0]: line.split("&") for line in table.splitlines() if "&" in line}
    for method in WORDS.keys() - {"grad-cam"}:
        _, *voc, _, cnn_s, vgg16, googlenet = rows[WORDS[method].split()[0]]
        assert published(method, "paper") == numbers([*voc, cnn_s, vgg16, googlenet])


def test_the_papers_contrast(paper):
    cells = next(line for line in paper.splitlines() if "Mean Acc." in line).split("&")
    printed = [re.findall(r"\d+\.\d", cell) for cell in cells[1:] if cell.strip()]
    assert [re.findall(r"\d+\.\d", cell) for cell in CONTRAST.values()] == printed


def test_torchrays_numbers(shared):
    lines = [line.split("|") for line in shared("FIELD.md").splitlines() if PAIR.search(line) and "|" in line]
    rows = {cells[1].split()[0]: cells[6:9] for cells in lines}
    for method, name in WORDS.items():
        assert published(method, "TorchRay") == numbers(rows[name.split()[0]])


def test_the_papers_errors(paper):
    table = paper.partition("label{tab:WSL}")[2].partition(r"\toprule")[0]
    names, alphas, errors = (line.split("&")[1:] for line in table.splitlines() if line.count("&") > 6)
    printed = {}
    for name, *both in zip(names, alphas, errors, strict=True):
        found = [re.search(r"\d+\.\d", cell) for cell in both]
        printed[re.match(r"[\w-]+", name.strip()).group()] = tuple(each and float(each.group()) for each in found)
    assert {WORDS.get(method, "Feedback").split()[0]: tuple(found) for method, found in LOCALIZATION.items()} == printed
    assert len(printed) == 7


def lines(text, label):
    """The lines of a table: the name, and its cells, without commands."""
    body = text.partition(f"label{{{label}}}")[2].partition(r"\end{tabular}")[0]
    body = re.sub(r"\\cite\{[^}]*\}|\\textbf|\\,|\\\\.*|[{}$^]", "", body).replace(r"\_", "_")
    rows = [[cell.strip() for cell in line.split("&")] for line in body.splitlines() if line.count("&") > 5]
    return [(" ".join(row[0].split()), row[1:]) for row in rows[1:]]


def name_in_paper(method, proposals):
    return "MCG_base" if method == "proposals" else f"{NAMES.get(method, WORDS.get(method, method))} ({proposals})"


def number(text):
    return None if text in {"", "--"} else float(text)


def test_ranks(paper):
    printed = lines(paper, "tab:Flickr_overall")
    assert len(printed) == len(GROUNDING) == 10
    for (name, (gamma, *cells)), ours in zip(printed, GROUNDING, strict=True):
        assert (name, number(gamma)) == (name_in_paper(ours.method, ours.proposals), ours.gamma)
        pairs = [cell.partition("/") for cell in cells]
        assert [(number(every), number(small)) for every, _, small in pairs] == list(ours.measures)


def test_groups(paper):
    printed = lines(paper, "tab:Flickr_perclass")
    assert len(printed) == len(GROUP_RECALLS) == 9
    for (name, cells), (ours, values) in zip(printed, GROUP_RECALLS.items(), strict=True):
        assert (name.replace("LRN", "LRP"), tuple(map(float, cells))) == (name_in_paper(*ours), values)
        assert sum(values[:-1]) / 8 == pytest.approx(values[-1], abs=0.1)  # theirs are of numbers with more digits
