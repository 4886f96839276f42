"""Which events a hook gets."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.core.hooks.hook import Hook, HookName, events_of
from gateway.core.journal import Record
from gateway.core.journal.events import NAME_LENGTH, NAMES_TOLD
from gateway.core.topics.selectors import parse_selector


def test_patterns_name_types_and_beginnings() -> None:
    found = events_of(["session_opened", "node_*"])
    assert "session_opened" in found
    assert "node_started" in found
    assert "session_closed" not in found
    assert {"session_opened", "queue_measured"} <= events_of(["*"])


@pytest.mark.parametrize("pattern", ["session_opend", "", "session_*_closed", "x*"])
def test_a_pattern_that_names_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="names no event"):
        events_of(["session_opened", pattern])


def test_every_hook_is_told_that_events_are_missing() -> None:
    hook = Hook(name=HookName("x"), url="https://x", events=frozenset({"session_opened"}), keys=(b"k",))
    assert hook.wants(record("session_opened"))
    assert hook.wants(record("events_dropped"))
    assert not hook.wants(record("session_closed"))


def test_a_hook_gets_events_of_the_principals_that_it_is_for() -> None:
    hook = filtered(principals=("alice", "team-*"))
    for wanted in ("alice", "team-", "team-fx"):
        assert hook.wants(record("session_closed", principal=wanted))
    for other in ("alicea", "Alice", "tea", "*", None):
        assert not hook.wants(record("session_closed", principal=other))
    assert not hook.wants(record("session_closed")), "of an earlier release, which did not tell whose it was"
    assert hook.wants(record("node_started")), "nobody's"
    assert hook.wants(record("events_dropped"))
    assert filtered(principals=("*",)).wants(record("session_opened", principal=""))


@pytest.mark.parametrize(
    ("names", "is_wanted"),
    [
        (["+orders/eu/1"], True),
        (["-orders/**"], True),
        (["+prices/**", "+*/eu/**"], True),
        (["+**"], True),
        (["+prices/**", "-quotes/*"], False),
        ([], False),
        (["+orders"], False),
        (["+prices/*"] * NAMES_TOLD, True),
        (["+" + "x" * (NAME_LENGTH - 1)], True),
        (["+a//b"], True),
        (None, True),
    ],
)
def test_a_hook_gets_changes_of_selections_that_may_be_about_its_topics(
    names: list[str] | None, is_wanted: bool
) -> None:
    hook = filtered(selectors=(parse_selector("orders/eu/**"), parse_selector("trades/1")))
    assert hook.wants(record("session_selections_changed", names=names)) is is_wanted
    assert hook.wants(record("session_properties_changed", names=names)), "these are no selectors"


def record(kind: str, **fields: Any) -> Record:
    made: Any = {"type": kind, **fields}
    return cast("Record", made)


def filtered(**filters: Any) -> Hook:
    return Hook(name=HookName("x"), url="https://x", events=events_of(["*"]), keys=(b"k",), **filters)


def test_neither_keys_nor_the_address_are_shown() -> None:
    hook = Hook(name=HookName("x"), url="https://x/?token=secret", events=frozenset(), keys=(b"secret",))
    assert "secret" not in repr(hook)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://x/", "https://x"),
        ("https://x.example:8443/services/secret?token=secret#secret", "https://x.example:8443"),
        ("https://user:secret@x.example/", "https://x.example"),
        ("http://[::1]:80/secret", "http://[::1]:80"),
    ],
)
def test_of_a_url_only_where_it_leads_is_shown(url: str, shown: str) -> None:
    assert Hook(name=HookName("x"), url=url, events=frozenset(), keys=()).shown_url == shown
