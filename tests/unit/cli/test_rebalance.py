"""Which sessions move so that all nodes have as many, give or take one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.admin.rebalance import Transfer, transfers


def test_the_fullest_gives_to_the_emptiest() -> None:
    assert transfers({"n1": 10, "n2": 0, "n3": 2}) == [Transfer("n1", "n2", 4), Transfer("n1", "n3", 2)]


def test_what_is_within_the_tolerance_stays() -> None:
    assert transfers({"n1": 110, "n2": 90}, 10.0) == []
    assert transfers({"n1": 111, "n2": 89}, 10.0) == [Transfer("n1", "n2", 11)]


def test_nobody_moves_where_there_is_nothing_to_share() -> None:
    assert transfers({}) == transfers({"n1": 7}) == transfers({"n1": 0, "n2": 0}) == []


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 1000), min_size=1, max_size=12))
def test_afterwards_all_have_as_many_give_or_take_one_and_none_has_moved_in_vain(connected: dict[str, int]) -> None:
    after = dict(connected)
    planned = transfers(connected)
    for each in planned:
        after[each.source] -= each.sessions
        after[each.target] += each.sessions
    assert max(after.values()) - min(after.values()) <= 1
    assert not {each.source for each in planned} & {each.target for each in planned}
    assert len(planned) < max(2, len(connected))
