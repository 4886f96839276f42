"""Synthetic sessions live by the gateway's rules from their first event to their last."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from gateway.core.journal import Record

CONNECTED = frozenset({"session_opened", "session_resumed"})
OVER = frozenset({"session_closed", "session_expired"})
ASIDE = frozenset({"session_fenced", "session_refused", "session_selections_changed", "session_properties_changed"})
"""What does not change whether a session is connected."""


@pytest.fixture(scope="module")
def lives(events: list[Record]) -> dict[str, list[Record]]:
    """The events of sessions that were seen to open and whose nodes lost none of their events."""
    found = defaultdict(list)
    for each in events:
        if "session" in each:
            found[each["session"]].append(each)
    gapped = {each["incarnation"] for each in events if each["type"] == "events_dropped"}
    dead = {each["peer_incarnation"] for each in events if each["type"] == "node_expired"}
    return {
        session: life
        for session, life in found.items()
        if life[0]["type"] == "session_opened" and not {each["incarnation"] for each in life} & (gapped | dead)
    }


def test_most_sessions_are_complete(lives: dict[str, list[Record]]) -> None:
    assert len(lives) > 1_000


def test_epochs_rise_by_one_at_every_comeback(lives: dict[str, list[Record]]) -> None:
    for life in lives.values():
        epochs = [each["epoch"] for each in life if each["type"] in CONNECTED]
        assert epochs == list(range(1, len(epochs) + 1))


def test_whoever_is_fenced_has_an_older_epoch(lives: dict[str, list[Record]]) -> None:
    for life in lives.values():
        claims = {each["epoch"]: each for each in life if each["type"] in CONNECTED}
        for each in life:
            if each["type"] == "session_fenced":
                claim = claims[each["epoch"] + 1]
                assert claim["at"] < each["at"]
                assert claim["incarnation"] != each["incarnation"]
                assert claims[each["epoch"]]["incarnation"] == each["incarnation"]


def test_a_session_is_connected_away_and_over_in_turn(lives: dict[str, list[Record]]) -> None:
    for session, life in lives.items():
        state, owner = "new", ""
        for each in life:
            kind = each["type"]
            if kind in CONNECTED:
                assert state == ("new" if kind == "session_opened" else "away"), session
                assert kind == "session_opened" or (each.get("peer_incarnation") == owner)
                state, owner = "connected", each["incarnation"]
            elif kind == "session_disconnected":
                assert state == "connected"
                assert each["incarnation"] == owner
                state = "away"
            elif kind in OVER:
                assert state == ("connected" if kind == "session_closed" else "away")
                state = "over"
            elif kind not in ASIDE | {"session_slow_closed"}:
                pytest.fail(f"{kind} of a session whose nodes all lived")


def test_windows_are_kept(lives: dict[str, list[Record]]) -> None:
    expired = 0
    for life in lives.values():
        window = life[0]["window_ms"] * 1_000
        left = 0
        for each in life:
            if each["type"] == "session_disconnected":
                left = each["at"]
            elif each["type"] == "session_expired":
                expired += 1
                assert each["at"] - left >= window
    assert expired > 100


def test_what_is_taken_over_is_orphaned(events: list[Record]) -> None:
    orphans = Counter(each["peer_incarnation"] for each in events if each["type"] == "session_orphaned")
    taken = {each["peer_incarnation"]: each["count"] for each in events if each["type"] == "node_taken_over"}
    assert taken
    assert orphans == Counter(taken)


def test_a_dead_node_is_silent(events: list[Record]) -> None:
    began = {each["incarnation"] for each in events if each["type"] == "node_started"}
    woke = {each["incarnation"] for each in events if each["type"] == "node_lease_lost"}
    for expiry in (each for each in events if each["type"] == "node_expired"):
        assert expiry["peer_incarnation"] in began
        after = [e for e in events if e["incarnation"] == expiry["peer_incarnation"] and e["at"] >= expiry["until"]]
        assert bool(after) == (expiry["peer_incarnation"] in woke)


def test_traffic_adds_up(events: list[Record]) -> None:
    totals, roots = {}, Counter[tuple[str, int, str]]()
    for each in (each for each in events if each["type"] == "traffic_measured"):
        for name in ("deliveries", "publishes", "bytes"):
            if "root" in each:
                roots[each["incarnation"], each["at"], name] += each[name]
            else:
                totals[each["incarnation"], each["at"], name] = each[name]
                assert each["sessions"] >= each["connections"] >= 0
    assert all(totals[key] >= value for key, value in roots.items())
    assert sum(totals.values()) >= roots.total() > 0
