"""Ratios by values computed by hand, and rounds by a clock that only the candidates move."""

import gc

import pytest

from excite.experiments.speed.timing import Candidate, Case, Rounds, Stopwatch, Timing, reason_of


def test_each_round_is_divided_by_its_own_forward_passes():
    timing = Timing((3.0, 20.0, 4.0), ((1.0, 2.0), (10.0, 10.0), (1.0, 1.0)))
    assert timing.ratios == [2.0, 2.0, 4.0]
    assert timing.value == 2.0


def test_each_further_concept_is_compared_round_by_round():
    one = Timing((2.0, 8.0, 2.0), ((1.0, 1.0), (4.0, 4.0), (1.0, 1.0)))
    five = Timing((4.0, 16.0, 6.0), ((1.0, 1.0), (4.0, 4.0), (1.0, 1.0)))
    assert one.each_further(five, 4) == 0.5
    assert five.times(one) == [2.0, 2.0, 3.0]


class Track:
    """A clock, and a diary of who ran."""

    def __init__(self):
        self.now, self.diary = 0.0, []

    def runner(self, name, *seconds):
        """Takes these seconds, one after the other; the last one for ever."""
        left = list(seconds)

        def run():
            self.diary.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run

    def candidate(self, name, *seconds):
        return Candidate(Case("net", "layer", name), lambda: self.runner(name, *seconds))

    def rounds(self, *forward, seed=0):
        return Rounds(self.runner("forward", *forward), Stopwatch(clock=lambda: self.now), seed)


@pytest.fixture
def track():
    return Track()


def in_rounds(diary, size):
    return [diary[k : k + size] for k in range(0, len(diary), size)]


def test_all_take_turns_between_two_forward_passes(track):
    rounds = track.rounds(1.0)
    rounds.run([track.candidate(name, 1.0) for name in "abcd"], budget=60.0)
    seen = in_rounds(track.diary, 10)
    assert len(seen) == 1 + 6  # the first one warms up; six of ten seconds fill a minute
    assert all(one[0] == one[-1] == "forward" and sorted(one[2:-1:2]) == list("abcd") for one in seen)
    assert all(one[1:-1:2] == ["forward"] * 4 for one in seen)  # one right before each
    assert len({tuple(one) for one in seen}) > 3  # not always in the same order
    assert len(rounds.forwards.seconds) == 6


def test_the_same_seed_gives_the_same_order(track):
    diaries = []
    for seed in (1, 1, 2):
        other = Track()
        other.rounds(1.0, seed=seed).run([other.candidate(name, 1.0) for name in "abcd"], budget=30.0)
        diaries.append(other.diary)
    assert diaries[0] == diaries[1] != diaries[2]


def test_the_first_round_does_not_count(track):
    rounds = track.rounds(1.0)
    rounds.run([track.candidate("a", 100.0, 2.0)], budget=1000.0, least=3)
    (timing,) = rounds.timings.values()
    assert set(timing.seconds) == {2.0}
    assert timing.value == 2.0


def test_where_a_round_is_longer_than_the_budget_it_counts(track):
    rounds = track.rounds(10.0)
    rounds.run([track.candidate("a", 30.0, 20.0, 40.0)], budget=5.0, least=3)
    (timing,) = rounds.timings.values()
    assert timing.seconds == (30.0, 20.0, 40.0)
    assert timing.value == 3.0


def test_a_slow_spell_hits_all_alike(track):
    """The machine is ten times slower in one round: the ratio is the same."""
    rounds = track.rounds(1.0, 1.0, 1.0, 10.0, 10.0, 10.0, 1.0)
    rounds.run([track.candidate("a", 3.0, 30.0, 3.0)], budget=5.0, least=3)
    (timing,) = rounds.timings.values()
    assert timing.seconds == (3.0, 30.0, 3.0)
    assert timing.ratios == [3.0, 3.0, 3.0]


def test_the_forward_pass_beside_itself(track):
    rounds = track.rounds(1.0, 1.0, 2.0, 3.0, 2.0, 2.0, 2.0, 5.0)
    rounds.run([], budget=4.0, least=3)
    assert rounds.forwards.ratios == [1.5, 1.0, 2.5]


def test_who_cannot_start_or_fails_later_is_told_and_the_others_go_on(track):
    def no_start():
        raise ModuleNotFoundError("no module named 'peer'")

    def breaks():
        left = [1, 1]

        def run():
            if not left:
                raise ValueError("first line\nsecond line")
            track.now += left.pop()

        return run

    rounds = track.rounds(1.0)
    candidates = [
        Candidate(Case("net", "layer", "absent"), no_start),
        Candidate(Case("net", "layer", "breaking"), breaks),
        track.candidate("a", 2.0),
    ]
    rounds.run(candidates, budget=50.0)
    assert [case.method for case in rounds.timings] == ["a"]
    assert {case.method: why for case, why in rounds.failed.items()} == {
        "absent": "ModuleNotFoundError: no module named 'peer'",
        "breaking": "ValueError: first line",
    }


def test_no_garbage_is_collected_while_the_clock_runs():
    seen = []
    Stopwatch()(lambda: seen.append(gc.isenabled()))
    assert seen == [False]
    assert gc.isenabled()
    with pytest.raises(ValueError, match="no"):
        Stopwatch()(lambda: (_ for _ in ()).throw(ValueError("no")))
    assert gc.isenabled()


def test_a_device_is_waited_for_before_and_after(track):
    waits = []
    Stopwatch(clock=lambda: track.now, wait=lambda: waits.append(track.now))(track.runner("a", 2.0))
    assert waits == [0.0, 2.0]


def test_a_reason_is_one_line():
    assert reason_of(RuntimeError("one\ntwo")) == "RuntimeError: one"
    assert reason_of(KeyboardInterrupt()) == "KeyboardInterrupt"
