"""Images with similar first tags are those that a comparison of all pairs finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from excite.tags.cleaning import survey as similar
from excite.tags.cleaning.survey import candidate_type, equal_rows, similar_to


def one_by_one(pictures, shared, against):
    seen, found = {}, []
    for picture in pictures:
        mine = {int(tag) for tag in picture["tags"] if tag >= 0}
        earlier = seen.setdefault(int(picture["user"]), [])
        like = next((row for row, theirs in earlier if len(mine & theirs) >= shared), -1)
        found.append(like)
        if against == "seen" or like < 0:
            earlier.append((int(picture["row"]), mine))
    return found


@st.composite
def pictures(draw):
    first = draw(st.integers(1, 6))
    lists = draw(st.lists(st.lists(st.integers(-1, 8), min_size=first, max_size=first), max_size=30))
    made = np.zeros(len(lists), candidate_type(first))
    made["row"] = 3 * np.arange(len(lists)) + 7
    made["user"] = draw(st.lists(st.integers(0, 2), min_size=len(lists), max_size=len(lists)))
    if lists:
        made["tags"] = lists
    return made, draw(st.integers(1, first))


@pytest.mark.parametrize("against", ["seen", "kept"])
@given(case=pictures())
def test_as_comparing_all_with_all(case, against):
    made, shared = case
    assert similar_to(made, shared, against).tolist() == one_by_one(made, shared, against)


def test_the_two_readings_differ_where_a_dropped_picture_counts():
    made = np.zeros(3, candidate_type(5))
    made["row"], made["tags"] = [0, 1, 2], [[1, 2, 3, 4, 5], [2, 3, 4, 5, 6], [3, 4, 5, 6, 7]]
    assert similar_to(made, 4, "seen").tolist() == [-1, 0, 1]
    assert similar_to(made, 4, "kept").tolist() == [-1, 0, -1]


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), max_size=50))
def test_equal_rows(rows):
    matrix = np.array(rows, np.int32).reshape(-1, 2)
    assert equal_rows(matrix).tolist() == [rows.index(row) for row in rows]


def test_rows_that_are_mixed_to_the_same_number_are_told_apart(monkeypatch):
    honest, asked = similar._mixed, []

    def careless(rows, seed):
        asked.append(seed)
        return honest(rows, seed) if seed == 2 else np.zeros(len(rows), np.uint64)

    monkeypatch.setattr(similar, "_mixed", careless)
    assert equal_rows(np.array([[1, 2], [3, 4], [1, 2]], np.int32)).tolist() == [0, 1, 0]
    assert asked == [0, 1, 2]
