from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.pacing.fair_line import FairLine


def line_of(*keys: str) -> FairLine[int]:
    """Return a line in which numbers wait, from 0, by these keys."""
    line: FairLine[int] = FairLine()
    for number, key in enumerate(keys):
        line.push(key, number, float(number))
    return line


def drained(line: FairLine[int]) -> list[int]:
    return [line.pop() for _ in range(len(line))]


def test_keys_take_turns_whatever_each_has() -> None:
    assert drained(line_of(*"aaaabb", "c")) == [0, 4, 6, 1, 5, 2, 3]


@pytest.mark.parametrize("keys", ["aaaaa", "abcde"], ids=["one key", "a key each"])
def test_all_keep_their_order_if_nobody_has_more_than_others(keys: str) -> None:
    assert drained(line_of(*keys)) == [0, 1, 2, 3, 4]


def test_whose_turn_was_goes_behind_the_others() -> None:
    line = line_of(*"ab")
    assert line.pop() == 0
    line.push("a", 2, 2.0)
    assert drained(line) == [1, 2]


def test_nobody_waits() -> None:
    line = line_of()
    assert not len(line)
    assert line.crowding("a") is None
    with pytest.raises(StopIteration):
        line.pop()


def test_the_newest_of_the_key_that_has_most_makes_room_for_one_that_has_less() -> None:
    line = line_of(*"aaab")
    assert line.crowding("a") is None
    assert line.crowding("b") == 2
    assert line.crowding("c") == 2
    line.remove(2)
    assert line.crowding("b") is None, "they would only change places"
    assert line.crowding("c") == 1
    line.remove(1)
    assert line.crowding("c") is None


def test_who_leaves_has_no_turn() -> None:
    line = line_of(*"aab")
    line.remove(0)
    line.remove(0)
    line.remove(99)
    assert line.oldest == (1, 1.0)
    assert drained(line) == [1, 2]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.sampled_from("abcd")),
        st.tuples(st.just("pop"), st.just("")),
        st.tuples(st.just("remove"), st.integers(0, 30).map(str)),
    ),
    max_size=80,
)


@given(STEPS)
def test_it_does_what_a_plain_list_does_that_is_searched(steps: list[tuple[str, str]]) -> None:
    line: FairLine[int] = FairLine()
    waiting: list[tuple[str, int]] = []
    turns: list[str] = []
    """Keys that wait, in the order of their turns."""
    for number, (step, what) in enumerate(steps):
        if step == "push":
            line.push(what, number, float(number))
            waiting.append((what, number))
            if what not in turns:
                turns.append(what)
        elif step == "remove":
            line.remove(int(what))
            waiting = [each for each in waiting if each[1] != int(what)]
        elif waiting:
            key = turns.pop(0)
            mine = next(item for other, item in waiting if other == key)
            waiting.remove((key, mine))
            turns.append(key)
            assert line.pop() == mine
        turns = [key for key in turns if any(other == key for other, _ in waiting)]
        counts = {key: sum(other == key for other, _ in waiting) for key in turns}
        most = max(counts.values(), default=0)

        assert len(line) == len(waiting)
        if waiting:
            assert line.oldest == (waiting[0][1], float(waiting[0][1]))
        for key in "abcde":
            crowding = line.crowding(key)
            if crowding is None:
                assert most < counts.get(key, 0) + 2
            else:
                crowd = next(other for other, item in waiting if item == crowding)
                assert counts[crowd] == most >= counts.get(key, 0) + 2
                assert crowding == [item for other, item in waiting if other == crowd][-1]
