"""Which events a hook gets."""

from __future__ import annotations

import pytest

from gateway.core.hooks.hook import Hook, HookName, events_of


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
    assert hook.wants("session_opened")
    assert hook.wants("events_dropped")
    assert not hook.wants("session_closed")


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
