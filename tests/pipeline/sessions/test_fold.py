"""The row of a session is a function of the set of its events."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.schemas import INTERVAL_COLUMNS, SILVER_COLUMNS
from pipeline.sessions import Fact, SessionState, tell
from pipeline.sessions.rules import CLOSED, EXPIRED, FENCED, REFUSED, SLOW_CLOSED
from pipeline.sessions.tell import Told
from tests.pipeline.sessions.lives import SECOND, START, Teller, lives

NOT_YET = 0
MUCH_LATER = (START + 10**6 * SECOND) // 1000


def told(facts: list[Fact], heard_until_ms: int = NOT_YET) -> Told | None:
    return tell("s", SessionState(facts), heard_until_ms)


def row(facts: list[Fact], heard_until_ms: int = NOT_YET) -> dict[str, Any]:
    found = told(facts, heard_until_ms)
    assert found is not None
    return found.row


def shape(facts: list[Fact], heard_until_ms: int = NOT_YET) -> list[tuple[Any, ...]]:
    """Tell the timeline in seconds after the start: kind, begin, end, node."""

    def seconds(moment: int | None) -> float | None:
        return None if moment is None else (moment - START) / SECOND

    return [
        (each["kind"], seconds(each["begins"]), seconds(each["ends"]), each["node"])
        for each in row(facts, heard_until_ms)["intervals"]
    ]


def test_a_life() -> None:
    teller = Teller()
    teller.opened(0)
    teller.disconnected(10, "n1", 1, deduplicated=3)
    teller.resumed(14, "n2", 2, peer="n1", away_ms=4500, reason="other_node", replayed=True, lost=None)
    teller.tell(CLOSED, 20, "n2", 2, reason="done")
    found = row(teller.facts)
    assert list(found) == [each.name for each in SILVER_COLUMNS]
    assert shape(teller.facts) == [
        ("connected", 0, 9.5, "n1"),
        ("away", 9.5, 14, "n1"),
        ("connected", 14, 20, "n2"),
    ]
    first, away, second = found["intervals"]
    assert all(list(each) == [column.name for column in INTERVAL_COLUMNS] for each in found["intervals"])
    assert (first["rung"], first["cause"], first["deduplicated"]) == ("created", "connection_lost", 3)
    assert (away["cause"], away["rung"]) == ("connection_lost", None)
    assert [each["replayed"] for each in (first, away, second)] == [None, None, True]
    assert (second["rung"], second["reason"], second["peer"]) == ("failed_over", "other_node", "n1")
    assert second["cause"] == "closed"
    assert (second["away_ms"], second["measured_by"], second["uncertain_ms"]) == (4500, "client", None)
    assert found["state"] == "ended"
    assert (found["end"], found["end_reason"]) == ("closed", "done")
    assert (found["connected_ms"], found["away_ms"], found["comebacks"], found["deduplicated"]) == (15_500, 4500, 1, 3)
    assert (found["nodes"], found["first_node"], found["epoch"], found["release"]) == (["n1", "n2"], "n1", 2, "1.0")
    assert (found["principal"], found["client"], found["window_ms"]) == ("alice", "test/1", 60_000)
    assert found["complete"]
    assert (found["first_event_at"], found["last_event_at"], found["events"]) == (START, START + 20 * SECOND, 4)


def test_it_is_connected_until_somebody_tells_otherwise() -> None:
    teller = Teller()
    teller.opened(0)
    assert row(teller.facts, MUCH_LATER)["state"] == "connected"
    assert shape(teller.facts, MUCH_LATER) == [("connected", 0, None, "n1")]


def test_an_unended_absence_goes_on() -> None:
    teller = Teller()
    teller.opened(0)
    teller.disconnected(10, "n1", 1)
    assert row(teller.facts)["state"] == "away"
    assert shape(teller.facts)[-1] == ("away", 10, None, "n1")


def test_without_the_clients_word_the_nodes_events_measure() -> None:
    teller = Teller()
    teller.opened(0)
    teller.disconnected(10, "n1", 1)
    teller.resumed(14, "n2", 2)
    comeback = row(teller.facts)["intervals"][-1]
    assert (comeback["away_ms"], comeback["measured_by"]) == (4000, "node")


def test_of_a_dead_node_survivors_tell_and_say_how_uncertain_it_is() -> None:
    teller = Teller()
    teller.opened(0)
    teller.orphaned(16, "n2", "n1", 1, since=10, until=13)
    teller.resumed(20, "n3", 2, peer="n1")
    assert shape(teller.facts) == [("connected", 0, 10, "n1"), ("away", 10, 20, "n1"), ("connected", 20, None, "n3")]
    first, _, comeback = row(teller.facts)["intervals"]
    assert first["cause"] == "node_died"
    assert (comeback["away_ms"], comeback["measured_by"], comeback["uncertain_ms"]) == (10_000, "survivors", 3000)


def test_a_client_that_came_back_before_its_nodes_death_was_noticed_is_never_orphaned() -> None:
    teller = Teller()
    teller.opened(0)
    teller.resumed(11, "n2", 2, peer="n1", away_ms=700)
    assert shape(teller.facts)[:2] == [("connected", 0, 10.3, "n1"), ("away", 10.3, 11, "n1")]
    assert row(teller.facts)["intervals"][0]["cause"] is None


def test_what_a_fenced_copy_tells_later_measures_nothing() -> None:
    teller = Teller()
    teller.opened(0)
    teller.resumed(14, "n2", 2, peer="n1")
    teller.disconnected(19, "n1", 1, cause="ping_timeout")
    teller.tell(FENCED, 19, "n1", 1)
    assert shape(teller.facts) == [("connected", 0, 14, "n1"), ("away", 14, 14, "n1"), ("connected", 14, None, "n2")]
    first, _, comeback = row(teller.facts)["intervals"]
    assert first["cause"] == "ping_timeout"
    assert (comeback["away_ms"], comeback["measured_by"]) == (None, None)


def test_a_fenced_copy_without_a_word_of_its_client_was_fenced() -> None:
    teller = Teller()
    teller.opened(0)
    teller.resumed(14, "n2", 2)
    teller.tell(FENCED, 19, "n1", 1)
    assert row(teller.facts)["intervals"][0]["cause"] == "fenced"


def test_epochs_are_right_against_clocks() -> None:
    teller = Teller(skew={"n1": 100 * SECOND})
    teller.opened(0)
    teller.disconnected(10, "n1", 1)
    teller.resumed(14, "n2", 2)
    teller.disconnected(20, "n2", 2)
    assert [kind for kind, *_ in shape(teller.facts)] == ["connected", "away", "connected", "away"]
    assert [begins for _, begins, *_ in shape(teller.facts)] == [100, 100, 100, 100]


def test_an_impossible_word_of_the_client_is_not_believed() -> None:
    for away_ms in (-1, 8 * 86_400_000):
        teller = Teller()
        teller.opened(0)
        teller.disconnected(10, "n1", 1)
        teller.resumed(14, "n2", 2, away_ms=away_ms)
        assert row(teller.facts)["intervals"][-1]["measured_by"] == "node"


def test_a_client_was_not_away_before_it_was_there() -> None:
    teller = Teller()
    teller.opened(0)
    teller.disconnected(10, "n1", 1)
    teller.resumed(14, "n2", 2, away_ms=60_000)
    assert shape(teller.facts)[:2] == [("connected", 0, 0, "n1"), ("away", 0, 14, "n1")]


def test_too_slow_is_told_once() -> None:
    teller = Teller()
    teller.opened(0)
    teller.tell(SLOW_CLOSED, 10, "n1", 1)
    assert row(teller.facts)["intervals"][0]["cause"] == "slow_consumer"
    teller.disconnected(10.5, "n1", 1, cause="slow_consumer")
    assert row(teller.facts)["slow_closes"] == 1
    assert shape(teller.facts) == [("connected", 0, 10.5, "n1"), ("away", 10.5, None, "n1")]


def test_a_missing_opening_leaves_what_is_known() -> None:
    teller = Teller()
    teller.resumed(14, "n2", 7, peer="n1", away_ms=4000)
    assert shape(teller.facts) == [("away", 10, 14, "n1"), ("connected", 14, None, "n2")]
    found = row(teller.facts)
    assert (found["complete"], found["opened_at"]) == (False, None)
    assert (found["principal"], found["first_node"], found["comebacks"]) == ("alice", "n2", 1)
    assert found["intervals"][-1]["away_ms"] == 4000


def test_only_an_end_is_known() -> None:
    teller = Teller()
    teller.tell(EXPIRED, 14, "n2", 7)
    found = row(teller.facts)
    assert (found["state"], found["end"], found["intervals"], found["complete"]) == ("ended", "expired", [], False)


def test_refusals_and_fences_alone_make_no_session() -> None:
    teller = Teller()
    teller.tell(REFUSED, 14, "n2", 7, reason="session_closed")
    teller.tell(FENCED, 15, "n2", 7)
    assert told(teller.facts) is None


def test_who_was_told_to_try_again_was_held_up() -> None:
    teller = Teller()
    teller.tell(REFUSED, 0, "n2", 1, reason="try_later")
    teller.opened(1)
    teller.disconnected(10, "n1", 1)
    for at, reason in ((12, "grid_unavailable"), (13.5, "token_superseded"), (15, "try_later")):
        teller.tell(REFUSED, at, "n2", 1, reason=reason)
    teller.resumed(20, "n2", 2, peer="n1")
    teller.disconnected(30, "n2", 2)
    teller.resumed(31, "n2", 3, peer="n2")
    found = row(teller.facts)
    assert (found["refused"], found["put_off"]) == (4, 3)
    assert [(each["put_off"], each["held_up_ms"]) for each in found["intervals"]] == [
        (None, None), (None, None), (2, 8_000), (None, None), (0, None),
    ]  # fmt: skip


def test_what_nobody_ends_has_ended_when_its_window_has_passed() -> None:
    teller = Teller()
    teller.opened(0, window_ms=30_000)
    teller.disconnected(10, "n1", 1)
    due = (START + 40 * SECOND) // 1000
    before = told(teller.facts, due - 1)
    assert before is not None
    assert (before.row["state"], before.due_ms) == ("away", due)
    after = told(teller.facts, due)
    assert after is not None
    assert (after.row["state"], after.row["end"], after.row["end_reason"]) == ("ended", None, "presumed")
    assert after.due_ms is None
    assert shape(teller.facts, due)[-1] == ("away", 10, 40, "n1")


def test_whoever_comes_back_after_all_has_not_ended() -> None:
    teller = Teller()
    teller.opened(0, window_ms=30_000)
    teller.disconnected(10, "n1", 1)
    teller.resumed(50, "n1", 2)
    assert row(teller.facts, MUCH_LATER)["state"] == "connected"


def test_a_node_that_is_cut_off_from_the_grid_counts_epochs_of_its_own() -> None:
    teller = Teller()
    teller.opened(0)
    teller.disconnected(5, "n1", 1)
    teller.resumed(6, "n1", 2)
    teller.disconnected(9, "n1", 2)
    teller.resumed(10, "n2", 2)
    assert [node for kind, _, _, node in shape(teller.facts) if kind == "connected"] == ["n1", "n1", "n2"]


def test_a_state_of_a_newer_release_is_not_misread() -> None:
    with pytest.raises(ValueError, match="format 2"):
        SessionState.decode(b"[2]")


def test_a_state_of_an_older_release_lacks_what_nodes_did_not_tell_then() -> None:
    resumed = '["session_resumed",2000000,"n2","i2",1,2,"1.0",null,"failed_over","other_node","n1","i1"]'
    (fact,) = SessionState.decode(f"[1,{resumed}]".encode())
    assert (fact.rung, fact.peer, fact.replayed) == ("failed_over", "n1", None)


@given(lives(), st.data())
def test_order_duplicates_and_pieces_make_no_difference(facts: list[Fact], data: st.DataObject) -> None:
    heard = data.draw(st.sampled_from([NOT_YET, START // 1000 + 60_000, MUCH_LATER]))
    expected = told(facts, heard)
    shuffled = data.draw(st.permutations(facts))
    assert told(shuffled, heard) == expected
    again = shuffled + data.draw(st.lists(st.sampled_from(facts)))
    cut = data.draw(st.integers(0, len(again)))
    state = SessionState.decode(SessionState(again[:cut]).encode())
    for each in again[cut:]:
        state.add(each)
    assert tell("s", state, heard) == expected
    assert state.encode() == SessionState(facts).encode()


@given(lives(), st.sampled_from([NOT_YET, MUCH_LATER]))
def test_the_timeline_has_no_holes_and_no_overlaps(facts: list[Fact], heard: int) -> None:
    found = told(facts, heard)
    if found is None:
        return
    intervals = found.row["intervals"]
    for one, other in itertools.pairwise(intervals):
        assert one["ends"] == other["begins"]
        assert {one["kind"], other["kind"]} == {"connected", "away"}
    assert all(each["ends"] is None or each["begins"] <= each["ends"] for each in intervals)
    if found.row["state"] == "ended":
        assert found.due_ms is None
        if intervals:
            assert intervals[-1]["ends"] == found.row["ended_at"]
            life = intervals[-1]["ends"] - intervals[0]["begins"]
            assert sum(each["ends"] - each["begins"] for each in intervals) == life
            assert 0 <= life // 1000 - found.row["connected_ms"] - found.row["away_ms"] <= 1
    else:
        assert intervals[-1]["ends"] is None
        assert intervals[-1]["kind"] == found.row["state"]
    for each in intervals:
        assert each["away_ms"] is None or each["away_ms"] >= 0
        assert (each["away_ms"] is None) == (each["measured_by"] is None)
    assert found.row["comebacks"] == sum(each["rung"] not in {None, "created"} for each in intervals)
