"""What is newer than the protocol's first version is sent to nobody who does not name it (protocol 4.1.1)."""

from __future__ import annotations

import pytest

from gateway.core.wire import codec, support
from gateway.core.wire.codec.readers import BODIES_FROM_SERVER, LINK_FROM_SERVER
from gateway.core.wire.codes import Outcome
from gateway.core.wire.packets import Hello, NoticeCode
from gateway.core.wire.support import THIS_VERSION, WORDS, understands

SENT = {*map(str, Outcome), *map(str, NoticeCode), *LINK_FROM_SERVER, *BODIES_FROM_SERVER}
"""Names of all that a server of this release can send."""


def test_all_that_is_declared_exists() -> None:
    assert THIS_VERSION | set(WORDS) <= SENT
    assert not THIS_VERSION & set(WORDS)


@pytest.mark.parametrize("supports", [frozenset[str](), frozenset({"beamed_up"})])
def test_clients_of_the_first_version_are_sent_what_they_know(supports: frozenset[str]) -> None:
    assert {name for name in SENT if understands(supports, name)} == THIS_VERSION


def test_what_is_newer_needs_its_own_name_or_a_word_that_it_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not understands(frozenset({"mirrored"}), "handed_over")
    assert understands(frozenset({"mirrored", "handed_over"}), "handed_over")
    monkeypatch.setattr(support, "WORDS", {"all_sent": "replay"})
    assert not understands(frozenset({"all_sent"}), "all_sent")
    assert understands(frozenset({"replay"}), "all_sent")


def test_the_words_of_all_clients_of_a_release_are_one_set() -> None:
    """Ten thousand sets of the same words are two megabytes."""
    hello = b'{"type":"hello","supports":["replay","handed_over","%s"],"client":"c"}'
    first, second = (codec.decode_from_client(hello % word) for word in (b"mirrored", b"mirrored"))
    assert isinstance(first[0], Hello)
    assert isinstance(second[0], Hello)
    assert first[0].supports is second[0].supports
