"""The published numbers are those of the publications: each of our rows is a line of the paper's source."""

import re

import pytest

from excite.experiments.published import CONTRAST, GROUNDING, GROUP_RECALLS, LOCALIZATION, POINTING, WORDS

NAMES = {"proposals": "MCG", "guided": "Deconv", "grad": "Grad", "lrp": "LRP", "cam": "CAM", "mwp": "MWP"}


@pytest.fixture
def shared(shared_data):
    """Reads a file beside the shared data."""

    def read(name):
        path = shared_data.parent / name
        if not path.is_file():
            pytest.skip(f"no {path}")
        return path.read_text()

    return read


def numbers(text):
    return [float(found) for found in re.findall(r"\d+\.\d+", text)]


def flat(pairs):
    return [value for pair in pairs if pair for value in pair if value is not None]


def printed(text, begin, end):
    """The lines of a table that hold numbers: their first words, and the numbers."""
    table = text.partition(begin)[2].partition(end)[0]
    lines = [line.strip() for line in table.splitlines() if line.count("&") > 5 and numbers(line)]
    return [(first_word(line), "(EB)" in line, numbers(line)) for line in lines]


def first_word(text):
    return re.match(r"[\w-]+", text).group()


def published(method, source):
    return flat(one.scores.get(method) for data in POINTING.values() for one in data if source in one.source)


def test_pointing(shared):
    paper, field = shared("paper.tex"), shared("FIELD.md")
    accuracies = printed(paper, "VOC07 Test (All/Diff.)", r"\bottomrule")
    for method, name in WORDS.items():
        (torchray,) = [line.split("|") for line in field.splitlines() if re.match(rf"\| {name.split()[0]} .*\d/", line)]
        assert published(method, "TorchRay") == numbers(" ".join(torchray[6:9]))
        if method != "grad-cam":
            assert (first_word(name), False, published(method, "paper")) in accuracies
    (contrast,) = [line for line in paper.splitlines() if "Mean Acc." in line]
    assert numbers(" ".join(CONTRAST.values())) == numbers(contrast)


def test_localization(shared):
    table = shared("paper.tex").partition("label{tab:WSL}")[2].partition(r"\toprule")[0]
    _, alphas, errors = (line for line in table.splitlines() if line.count("&") > 6)
    assert [found.error for found in LOCALIZATION.values()] == numbers(errors)
    assert [found.alpha for found in LOCALIZATION.values() if found.alpha is not None] == numbers(alphas)
    assert len(LOCALIZATION) == 7


def test_grounding(shared):
    def line(method, proposals, values):
        return first_word(NAMES.get(method, WORDS.get(method, method))), proposals == "EB", list(values)

    paper, end = shared("paper.tex"), r"\end{tabular}"
    ranks = [line(ours.method, ours.proposals, flat([(ours.gamma,), *ours.measures])) for ours in GROUNDING]
    assert ranks == printed(paper, "label{tab:Flickr_overall}", end)
    groups = [line(*names, values) for names, values in GROUP_RECALLS.items()]
    assert groups == printed(paper.replace("LRN", "LRP"), "label{tab:Flickr_perclass}", end)
    for values in GROUP_RECALLS.values():
        assert sum(values[:-1]) / 8 == pytest.approx(values[-1], abs=0.1)  # theirs are of numbers with more digits
