"""The loop of all experiments: stopped, resumed, shared out."""

import json
from dataclasses import dataclass, field
from itertools import islice

import pytest
import torch

from excite.errors import ExciteError, ImageError, LayerError
from excite.jobs import JsonLinesStore
from excite.jobs.loop import run


@dataclass
class Doubling:
    """Doubles numbers; has trouble with some."""

    unreadable: tuple = ()
    wrong: tuple = ()
    asked: list = field(default_factory=list)

    def key(self, task):
        if task < 0:
            raise ImageError(f"{task} is not there")
        return f"k{task}"

    def __call__(self, task):
        self.asked.append(task)
        if task in self.unreadable:
            raise ImageError(f"{task} cannot be read")
        if task in self.wrong:
            raise LayerError(f"{task} has no such layer")
        return {"double": 2 * task, "threads": torch.get_num_threads()}


@pytest.fixture
def store(tmp_path):
    return JsonLinesStore(tmp_path / "records.jsonl", required=("double",))


def doubles(*arguments, **options):
    return [record["double"] for record in run(*arguments, **options)]


def test_in_order(store):
    assert doubles(Doubling(), [3, 1, 2], store) == [6, 2, 4]
    assert [json.loads(line)["key"] for line in store.path.read_text().splitlines()] == ["k3", "k1", "k2"]


def test_resumed(store):
    first = run(Doubling(), [3, 1, 2, 5], store)
    assert [record["double"] for record in islice(first, 2)] == [6, 2]
    first.close()
    with store.path.open("a") as file:
        file.write('{"key": "k2", "dou')  # a line cut off by a kill
    work = Doubling()
    assert doubles(work, [3, 1, 2, 5], store) == [6, 2, 4, 10]
    assert work.asked == [2, 5]


def test_lines_without_what_is_required_are_outdated(store):
    store.add({"key": "k3", "other": 1})
    assert doubles(Doubling(), [3], store) == [6]
    assert set(store.read()) == {"k3"}


def test_failures_are_told_and_not_kept(store):
    failures = []
    assert doubles(Doubling(unreadable=(1,)), [3, 1, -2, 2], store, failures=failures) == [6, 4]
    assert failures == ["1 cannot be read", "-2 is not there"]
    assert doubles(Doubling(), [3, 1, 2], store) == [6, 2, 4]  # mended meanwhile


def test_failures_that_nobody_collects_are_errors(store):
    with pytest.raises(ImageError, match="1 cannot be read"):
        doubles(Doubling(unreadable=(1,)), [3, 1], store)


def test_what_is_wrong_with_the_question_stops_it(store):
    with pytest.raises(LayerError):
        doubles(Doubling(wrong=(1,)), [3, 1], store, failures=[])
    assert set(store.read()) == {"k3"}


def test_one_thread_and_as_many_as_before_afterwards(store):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert [record["threads"] for record in run(Doubling(), [1], store)] == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


class TestWorkers:
    @pytest.mark.usefixtures("quick_workers")
    def test_several(self, store):
        """The same answers and failures in the same order."""
        failures = []
        work = Doubling(unreadable=(1,))
        records = list(run(work, [3, 1, 2, 7], store, workers=2, failures=failures))
        assert [(record["double"], record["threads"]) for record in records] == [(6, 1), (4, 1), (14, 1)]
        assert failures == ["1 cannot be read"]
        assert work.asked == []  # not here
        assert list(store.read()) == ["k3", "k2", "k7"]

    def test_none(self, store):
        with pytest.raises(ExciteError, match="0 workers"):
            doubles(Doubling(), [1], store, workers=0)

    def test_work_that_cannot_be_sent(self, store):
        work = Doubling()
        work.asked = lambda: None
        with pytest.raises(ExciteError, match=r"cannot be sent to other processes .*: use one worker"):
            doubles(work, [1, 2], store, workers=2)
