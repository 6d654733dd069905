"""Memory that is known beforehand is seen."""

import os

import pytest
import torch

from excite.experiments.speed.candidates import SpeedTask
from excite.experiments.speed.memory import STATUS, endurance, in_own_process, measure_memory, peak_of

MIB = 2**20
linux = pytest.mark.skipif(not STATUS.exists(), reason="only Linux tells the high-water mark of a while")


def fill(megabytes):
    return torch.ones(megabytes * MIB // 4)


def peak_of_filling(megabytes):
    """For a process of its own."""
    peak = peak_of(lambda: fill(300), lambda: fill(megabytes), torch.device("cpu"))
    return {"peak_mb": peak}


def peak_of_keeping(megabytes):
    kept = []
    return {"peak_mb": peak_of(lambda: None, lambda: kept.append(fill(megabytes)), torch.device("cpu"))}


def growth_while_keeping(pictures):
    kept = []
    early, end = endurance(lambda number: kept.append(fill(1)), pictures)
    return {"growth": end - early}


def failing():
    raise ValueError("no such layer\nat all")


def dying():
    os._exit(9)


@linux
def test_what_a_call_needs_is_seen_though_it_was_given_back():
    """The forward pass before it had more, which must not hide it."""
    assert in_own_process(peak_of_filling, 128)["peak_mb"] == pytest.approx(128, abs=8)


@linux
def test_what_is_kept_counts_twice():
    assert in_own_process(peak_of_keeping, 64)["peak_mb"] == pytest.approx(128, abs=8)


def test_failures_and_deaths_are_told():
    assert in_own_process(failing) == {"note": "ValueError: no such layer"}
    assert "memory ran out" in in_own_process(dying)["note"]


@linux
def test_endurance_sees_what_is_kept():
    """In a process of its own: other tests leave free memory behind, in which all that is kept would find room."""
    assert in_own_process(growth_while_keeping, 160)["growth"] == pytest.approx(60, abs=8)


@linux
def test_a_real_map():
    """The embedded network, in a process of its own."""
    answer = in_own_process(measure_memory, SpeedTask("memory", "efficientnet-lite0", method="c-mwp"), 1, "cpu")
    assert 5 < answer["peak_mb"] < 500
