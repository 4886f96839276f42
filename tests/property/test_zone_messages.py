"""Messages of zone links: what is written is read, what is none is refused; proofs; and what is under way."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.topics.selectors import parse_selector
from gateway.core.types import TopicPath, Version
from gateway.core.zones.interest import InterestChange, InterestDigest
from gateway.core.zones.messages import LARGEST, decode, encode, parse_selectors
from gateway.core.zones.proofs import Meeting, Role, key_name, proof, proves
from gateway.core.zones.protocol import (
    BATCH_EVENTS,
    Beat,
    Challenge,
    Events,
    EventsAck,
    Gap,
    Hello,
    InterestAll,
    InterestAsk,
    Members,
    Purpose,
    Refuse,
    SentEvent,
    ValuesAsk,
    Welcome,
    ZoneMessage,
    ZoneProtocolError,
    ZoneRefusal,
)
from gateway.core.zones.records import Member, ZoneUid, zone_key
from gateway.core.zones.routes import ClusterId, Place
from gateway.core.zones.stamps import Origin, Stamp, StreamPlace
from gateway.core.zones.values import normal_value
from gateway.core.zones.window import SendWindow
from tests.property.topic_strategies import selector_texts

WORDS = st.text("abcXYZ019_-", min_size=1, max_size=64)
NAMES = st.text("abc.-_9", max_size=8).map(lambda text: f"n{text}")
NUMBERS = st.integers(0, LARGEST)
SELECTORS = selector_texts().map(parse_selector)
MEMBERS = st.builds(
    Member,
    zone=WORDS.map(ZoneUid),
    cluster=WORDS.map(ClusterId),
    name=NAMES,
    urls=st.lists(st.just("wss://example.org:8400"), max_size=3).map(tuple),
    fingerprints=st.lists(st.just("ab" * 32), max_size=3).map(tuple),
    revision=st.integers(1, 2**40 - 1),
    left=st.booleans(),
)
EVENTS = st.builds(
    SentEvent,
    topic=st.sampled_from(["a", "a/b", "prices/ACME/bid", "ä/ö"]).map(TopicPath),
    value=st.sampled_from([b"", b"1", b'{"a":[1,2]}', b'"' + b"x" * 1000 + b'"']),
    origin=st.builds(Origin, WORDS.map(ClusterId), NUMBERS.map(Version)),
    stamp=st.none() | st.builds(Stamp, NUMBERS, WORDS.map(ClusterId)),
    path=st.lists(WORDS.map(Place), max_size=4).map(tuple),
)
HELLOS = st.builds(
    Hello,
    protocol=NUMBERS,
    purpose=st.sampled_from(Purpose),
    reference=NAMES,
    cluster=WORDS.map(ClusterId),
    name=NAMES,
    place=WORDS.map(Place),
    share=st.integers(0, 3),
    shares=st.integers(4, 64),
    term=NUMBERS,
    nonce=WORDS,
    proof=WORDS,
    member=st.none() | MEMBERS,
)
MESSAGES: st.SearchStrategy[ZoneMessage] = st.one_of(
    st.builds(Challenge, st.lists(NUMBERS, max_size=5).map(tuple), WORDS),
    HELLOS,
    st.builds(
        Welcome,
        cluster=WORDS.map(ClusterId),
        name=NAMES,
        place=WORDS.map(Place),
        zone=st.just("") | WORDS,
        zone_name=NAMES,
        proof=WORDS,
    ),
    st.builds(Refuse, st.sampled_from(ZoneRefusal), NAMES),
    st.builds(Members, st.lists(MEMBERS, max_size=3).map(tuple)),
    st.builds(InterestAll, NUMBERS, st.lists(selector_texts(), max_size=5).map(tuple)),
    st.builds(InterestChange, NUMBERS, st.frozensets(SELECTORS, max_size=4), st.frozensets(SELECTORS, max_size=4)),
    st.builds(InterestDigest, NUMBERS, WORDS),
    st.just(InterestAsk()),
    st.just(ValuesAsk()),
    st.builds(Events, st.lists(EVENTS, max_size=5).map(tuple), st.booleans()),
    st.builds(EventsAck, NUMBERS),
    st.builds(Gap, st.integers(0, 63)),
    st.builds(Beat, NUMBERS),
)

KEY = zone_key(b"a secret that is long enough")
MEETING = Meeting("zone", "a", "b", "nonce-a", "nonce-b", "aa" * 32, "bb" * 32)


def is_read_or_refused(data: bytes) -> bool:
    """Read a message; any other error than the one for what is none is a bug."""
    try:
        decode(data)
    except ZoneProtocolError as error:
        return bool(str(error))
    return True


@given(message=MESSAGES)
def test_what_is_written_is_read(message: ZoneMessage) -> None:
    assert decode(encode(message)) == message


@given(message=MESSAGES, cut=st.data())
def test_a_message_that_is_cut_or_altered_is_refused_or_is_another_one(
    message: ZoneMessage, cut: st.DataObject
) -> None:
    data = bytearray(encode(message))
    for _ in range(cut.draw(st.integers(1, 4))):
        data[cut.draw(st.integers(0, len(data) - 1))] = cut.draw(st.integers(0, 255))
    for each in (bytes(data), bytes(data[: cut.draw(st.integers(0, len(data)))])):
        assert is_read_or_refused(each)


@given(kind=st.integers(0, 255), data=st.binary(max_size=200))
def test_whatever_comes_is_refused_in_one_way(kind: int, data: bytes) -> None:
    assert is_read_or_refused(bytes((kind,)) + data)


_SHAPES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**60) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(message=MESSAGES, field=st.data(), shape=_SHAPES)
def test_a_field_of_another_shape_is_refused_in_one_way(
    message: ZoneMessage, field: st.DataObject, shape: object
) -> None:
    data = encode(message)
    if isinstance(message, Events):
        length = int.from_bytes(data[1:5])
        head = orjson.loads(data[5 : 5 + length])
    else:
        head = orjson.loads(data[1:])
    if not head:
        return
    head[field.draw(st.sampled_from(sorted(head)))] = shape
    try:
        text = orjson.dumps(head)
    except TypeError:  # integers that JSON has no room for
        return
    altered = data[:1] + text if not isinstance(message, Events) else data[:1] + len(text).to_bytes(4) + text
    assert is_read_or_refused(altered)


def test_fields_of_later_versions_are_ignored() -> None:
    data = encode(Beat(5))
    assert decode(data[:1] + orjson.dumps({"time": 5, "load": 0.5})) == Beat(5)


def test_a_reason_of_a_later_version_is_shown() -> None:
    data = encode(Refuse(ZoneRefusal.ZONE))[:1] + orjson.dumps({"why": "moon", "detail": "it is full"})
    assert decode(data) == Refuse(ZoneRefusal.PROTOCOL, "moon: it is full")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "an empty message"),
        (b"\xff{}", "unknown kind 255"),
        (b"\x0c[]", "no JSON object"),
        (b'\x0c{"time":-1}', "'time' of a beat"),
        (b'\x0c{"time":1e3}', "'time' of a beat"),
        (b'\x0c{"time":true}', "'time' of a beat"),
        (b'\x08{"revision":1,"digest":"a b"}', "'digest'"),
        (b'\x06{"revision":1,"selectors":[7]}', "no text"),
        (b'\x07{"revision":1,"added":["a/b*"],"dropped":[]}', "'added'"),
    ],
)
def test_what_is_wrong_is_named(data: bytes, what: str) -> None:
    with pytest.raises(ZoneProtocolError, match=what):
        decode(data)


def test_a_message_has_no_more_events_than_it_may() -> None:
    event = SentEvent(TopicPath("a"), b"1", Origin(ClusterId("c"), Version(1)), None)
    assert decode(encode(Events((event,) * BATCH_EVENTS)))
    with pytest.raises(ZoneProtocolError, match="the most"):
        decode(encode(Events((event,) * (BATCH_EVENTS + 1))))


def test_selectors_that_are_none_are_refused() -> None:
    with pytest.raises(ZoneProtocolError):
        parse_selectors(("a/**", "b*"))


def test_values_stay_what_they_are_and_what_is_no_value_is_refused() -> None:
    for text in (b"1", b'{"a":[1,2.5,null]}', b'"\xc3\xa4"', b""):
        assert normal_value(text) == text
    assert normal_value(b'{ "a" : 1 }\n') == b'{"a":1}'
    for text in (b"{", b"nan", b'"\xff"', b"[" * 500 + b"]" * 500, b"1 2", b" "):
        assert normal_value(text) is None


# --- Proofs -----------------------------------------------------------------------------------------------------------


def test_a_proof_is_right_only_for_its_key_its_role_and_all_that_was_said() -> None:
    told = proof(KEY, Role.DIALS, MEETING)
    assert proves(told, KEY, Role.DIALS, MEETING)
    assert not proves(told, zone_key(b"another secret, as long"), Role.DIALS, MEETING)
    assert not proves(told, KEY, Role.LISTENS, MEETING)
    for field in Meeting._fields:
        assert not proves(told, KEY, Role.DIALS, MEETING._replace(**{field: "other"})), field
    assert not proves("ä" * 64, KEY, Role.DIALS, MEETING)


def test_two_parts_cannot_be_cut_in_another_way() -> None:
    told = proof(KEY, Role.DIALS, MEETING._replace(dialer="ab", listener="c"))
    assert not proves(told, KEY, Role.DIALS, MEETING._replace(dialer="a", listener="bc"))


def test_the_name_of_a_key_is_not_the_key() -> None:
    assert key_name(KEY) not in KEY
    assert key_name(KEY) != key_name(zone_key(b"another secret, as long"))


# --- What is under way ------------------------------------------------------------------------------------------------


@given(steps=st.lists(st.tuples(st.sampled_from(["send", "skip", "ack"]), st.integers(0, 2)), max_size=60))
def test_a_cursor_never_passes_what_is_under_way(steps: list[tuple[str, int]]) -> None:
    window = SendWindow(size=1000, events=100)
    at = dict.fromkeys(range(3), 0)
    under_way: list[tuple[int, int]] = []  # partition, sequence
    cursor = dict.fromkeys(range(3), 0)
    acknowledged = 0
    for what, partition in steps:
        if what == "ack":
            count = min(partition, len(under_way))
            acknowledged += count
            del under_way[:count]
            for number, place in window.acknowledged(acknowledged).items():
                assert place.sequence >= cursor[number]
                cursor[number] = place.sequence
        else:
            at[partition] += 1
            if what == "send":
                window.sent(10, 1, partition)
                under_way.append((partition, at[partition]))
            place_now = window.reached(partition, StreamPlace(1, at[partition]))
            if place_now is not None:
                cursor[partition] = place_now.sequence
        for number in range(3):
            waiting = [sequence for each, sequence in under_way if each == number]
            assert cursor[number] < min(waiting, default=at[number] + 1)
            if not waiting:
                assert cursor[number] == at[number]
        assert window.bytes == 10 * len(under_way)
        assert window.events == len(under_way)


@pytest.mark.parametrize(("size", "events", "has_room"), [(99, 9, True), (500, 1, False), (1, 10, False)])
def test_a_window_has_room_until_it_is_full(size: int, events: int, has_room: bool) -> None:
    window = SendWindow(size=100, events=10)
    window.sent(size, events, 0)
    assert window.has_room is has_room
    window.acknowledged(1)
    assert window.has_room is True


@pytest.mark.parametrize("count", [3, -1, 0])
def test_nobody_acknowledges_what_was_not_sent_or_less_than_before(count: int) -> None:
    window = SendWindow()
    window.sent(1, 1, 0)
    window.sent(1, 1, 0)
    window.acknowledged(1)
    with pytest.raises(ZoneProtocolError):
        window.acknowledged(count)


def test_a_hello_of_too_many_shares_is_refused() -> None:
    hello = Hello(
        protocol=1,
        purpose=Purpose.MEMBER,
        reference="z",
        cluster=ClusterId("a"),
        name="a",
        place=Place("z"),
        share=0,
        shares=1,
        term=1,
        nonce="n",
        proof="p",
    )
    with pytest.raises(ZoneProtocolError, match="'share' of a hello"):
        decode(encode(replace(hello, share=1)))
    with pytest.raises(ZoneProtocolError, match="'shares' of a hello"):
        decode(encode(replace(hello, shares=1000)))
