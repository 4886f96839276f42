"""The page of zone links is what the code speaks: every message, field, reason and number, and all examples."""

from __future__ import annotations

import hashlib
import hmac
import inspect
import re
from pathlib import Path
from typing import Final

import orjson
import pytest

from gateway.adapters import acceptor
from gateway.app.zone_links import greeting, judging, linked_clusters, receiver, sender, talk
from gateway.core.zones.compaction import MOST_INTEREST_BYTES, MOST_SELECTORS
from gateway.core.zones.interest import InterestChange, InterestDigest
from gateway.core.zones.messages import Kind, decode, encode
from gateway.core.zones.proofs import NAME_DIGITS, key_name
from gateway.core.zones.protocol import (
    BATCH_BYTES,
    BATCH_EVENTS,
    GREETING_BYTES,
    HEAD_BYTES,
    MESSAGE_BYTES,
    MOST_HEARD,
    MOST_SHARES,
    PROTOCOLS,
    Events,
    Hello,
    Members,
    Welcome,
    ZoneRefusal,
)
from gateway.core.zones.records import MOST_MEMBERS, zone_key
from gateway.core.zones.routes import MOST_HOPS
from gateway.core.zones.window import WINDOW_BYTES, WINDOW_EVENTS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "zone-links.md"
TEXT: Final = PAGE.read_text()
EXAMPLES: Final = [
    (side, int(kind), head, value.strip())
    for side, kind, head, value in re.findall(r"^(sender|receiver) +(\d+) (\{.*\})( .*)?$", TEXT, re.MULTILINE)
]


def table(head: str, *, which: int = 0) -> list[list[str]]:
    """Read the rows of the table that begins with these columns."""
    found = re.findall(rf"^{re.escape(head)}[^\n]*\n\|[- |]+\|\n((?:\|[^\n]*\n)+)", TEXT, re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in found[which].splitlines()]


def encoded(kind: int, head: str, value: str) -> bytes:
    """Make the bytes of an example."""
    if kind == Kind.EVENTS:
        return bytes((kind,)) + len(head).to_bytes(4) + head.encode() + value.encode()
    return bytes((kind,)) + head.encode()


def test_the_title_tells_the_newest_version() -> None:
    assert TEXT.startswith(f"# Zone links, version {PROTOCOLS[-1]}\n")


def test_the_kinds_are_those_of_the_code() -> None:
    rows = table("| Kind | Name | Since |")
    assert [(row[0], row[1]) for row in rows] == [(str(int(each)), f"`{each.name.lower()}`") for each in Kind]
    since = dict(re.findall(r'(\w+) = \d+\n    """Since (\d+)\.', inspect.getsource(Kind)))
    assert {row[1].strip("`").upper(): row[2] for row in rows} == since


def test_the_reasons_are_those_of_the_code() -> None:
    meanings = {
        value: " ".join(meaning.split())
        for value, meaning in re.findall(r'= "(\w+)"\n    """(.*?)"""', inspect.getsource(ZoneRefusal), re.DOTALL)
    }
    assert table("| Reason | Meaning |") == [[f"`{each.value}`", meanings[each.value]] for each in ZoneRefusal]


@pytest.mark.parametrize(("which", "message"), [(0, Hello), (1, Welcome)])
def test_the_fields_of_a_greeting_are_those_that_are_said(which: int, message: type[Hello | Welcome]) -> None:
    assert [row[0].strip("`") for row in table("| Field | Type |", which=which)] == list(message.__slots__)


def test_the_bounds_are_those_of_the_code() -> None:
    assert [float(row[1]) for row in table("| What | Value |")] == [
        MESSAGE_BYTES,
        HEAD_BYTES,
        GREETING_BYTES,
        BATCH_EVENTS,
        BATCH_BYTES,
        WINDOW_BYTES,
        WINDOW_EVENTS,
        receiver.INBOX_BYTES,
        receiver.INBOX_MESSAGES,
        MOST_SELECTORS,
        MOST_INTEREST_BYTES,
        MOST_HEARD,
        MOST_HOPS,
        MOST_MEMBERS,
        talk.MEMBERS_AT_ONCE,
        MOST_SHARES,
        linked_clusters.MOST_RECEIVERS,
        acceptor.STRANGERS,
        acceptor.ACCEPT_RATE,
        greeting.GREETING_SECONDS,
        sender.SCAN_RATE,
        talk.WORK_RATE,
        judging.LATEST,
    ]
    assert f"first {NAME_DIGITS} hexadecimal digits" in TEXT


@pytest.mark.parametrize(("side", "kind", "head", "value"), EXAMPLES)
def test_examples_are_what_is_written_and_read(side: str, kind: int, head: str, value: str) -> None:
    data = encoded(kind, head, value)
    message = decode(data)
    assert encode(message) == data
    said_by = {row[0]: row[3] for row in table("| Kind | Name | Since |")}
    assert said_by[str(kind)] in {side, "both"}
    if not isinstance(message, Events | Members | InterestChange | InterestDigest):
        assert orjson.loads(head).keys() >= {each for each in message.__slots__ if each != "member"}


def test_there_are_examples_of_most_messages() -> None:
    assert len({kind for _, kind, _, _ in EXAMPLES}) >= 9


def test_the_key_is_made_as_the_page_says() -> None:
    secret = b"a secret that is long enough"
    key = hmac.new(secret, b"session gateway zone", hashlib.sha256).hexdigest()
    assert zone_key(secret) == key
    assert key_name(key) == hmac.new(bytes.fromhex(key), b"name", hashlib.sha256).hexdigest()[:32]
