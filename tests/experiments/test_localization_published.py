"""The published errors of localisation are those of the paper."""

import re

import pytest

from excite.experiments.published import LOCALIZATION, WORDS


def test_the_papers_table(shared_data):
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
