"""Messages of zone links in bytes, and back (docs/reference/zone-links.md, section 2).

```text
kind u8 │ head: a JSON object                                       all but events
kind u8 │ length of the head u32 │ head: a JSON object │ values     events: the values as they were published, one
                                                                    behind the other; the head tells their lengths
```

Values are not part of the JSON, as they must arrive byte for byte. Fields that are not known are ignored, for later
versions; a kind that is not known is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, TypeVar

import orjson

from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.topics.topics import parse_topic
from gateway.core.types import Version
from gateway.core.wire.errors import GatewayError
from gateway.core.zones.interest import InterestChange, InterestDigest
from gateway.core.zones.protocol import (
    BATCH_EVENTS,
    HEAD_BYTES,
    MOST_HEARD,
    MOST_SHARES,
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
    ZoneTooMuch,
)
from gateway.core.zones.records import MOST_MEMBERS, MOST_URLS, InvalidRecord, Member, ZoneUid, check_member
from gateway.core.zones.routes import MOST_HOPS, ClusterId, Place
from gateway.core.zones.stamps import Origin, Stamp

T = TypeVar("T")

LARGEST: Final = 2**53 - 1
"""Of whole numbers, as JSON of every language has them."""

MOST_PARTITIONS: Final = 2**16
"""Topic partitions of a sender; beyond what any release has."""

_WORD_CHARACTERS: Final = 128
"""Of ids, nonces, proofs and fingerprints."""

_NAME_CHARACTERS: Final = 128
"""Of names for people."""

_DETAIL_CHARACTERS: Final = 200
"""Of a sentence of a peer that is shown to people."""

_LENGTH: Final = struct.Struct(">I")


class Kind(IntEnum):
    """What a message is. Each is told with the version of the protocol since which there is one."""

    CHALLENGE = 1
    """Since 1."""
    HELLO = 2
    """Since 1."""
    WELCOME = 3
    """Since 1."""
    REFUSE = 4
    """Since 1."""
    MEMBERS = 5
    """Since 1."""
    INTEREST_ALL = 6
    """Since 1."""
    INTEREST_CHANGE = 7
    """Since 1."""
    INTEREST_DIGEST = 8
    """Since 1."""
    INTEREST_ASK = 9
    """Since 1."""
    EVENTS = 10
    """Since 1."""
    EVENTS_ACK = 11
    """Since 1."""
    BEAT = 12
    """Since 1."""
    GAP = 13
    """Since 1."""
    VALUES_ASK = 14
    """Since 1."""


def encode(message: ZoneMessage) -> bytes:
    """Write a message."""
    if isinstance(message, Events):
        return _encode_events(message)
    kind, head = _WRITERS[type(message)]
    return bytes((kind,)) + orjson.dumps(head(message))


def decode(data: bytes) -> ZoneMessage:
    """Read what ``encode`` wrote.

    Raises:
        ZoneTooMuch: it is longer, or has more in it, than a message may.
        ZoneProtocolError: it is no message.
    """
    if not data:
        raise ZoneProtocolError("an empty message")
    kind = data[0]
    if kind == Kind.EVENTS:
        return _decode_events(data)
    read = _READERS.get(kind)
    if read is None:
        raise ZoneProtocolError(f"a message of the unknown kind {kind}")
    return read(_Head(_object(json_of(data)), Kind(kind)))


def json_of(data: bytes) -> bytes:
    """Return the JSON of a message, which is all of it but its kind and the values of events.

    Raises:
        ZoneTooMuch: it is longer than it may be.
        ZoneProtocolError: it is cut off.
    """
    begin, end = 1, len(data)
    if data[0] == Kind.EVENTS:
        begin += _LENGTH.size
        if end < begin or end < (end := begin + _LENGTH.unpack_from(data, 1)[0]):
            raise ZoneProtocolError("events that are cut off")
    if end - begin > HEAD_BYTES:
        raise ZoneTooMuch(f"a message with {end - begin:,} bytes of JSON, and {HEAD_BYTES:,} are the most")
    return data[begin:end]


class _Head:
    """The fields of a message, each of which is checked when it is asked for."""

    __slots__ = ("_fields", "_kind")

    def __init__(self, fields: dict[str, Any], kind: Kind) -> None:
        self._fields = fields
        self._kind = kind

    def number(self, name: str, *, least: int = 0, most: int = LARGEST) -> int:
        """Read a whole number."""
        return _number(self._fields.get(name), self._name(name), least=least, most=most)

    def word(self, name: str, *, may_be_empty: bool = False) -> str:
        """Read an id, a nonce or something like that: a short text without spaces."""
        return _word(self._fields.get(name), self._name(name), may_be_empty=may_be_empty)

    def flag(self, name: str) -> bool:
        """Read whether something is so; it is not if nothing is said."""
        value = self._fields.get(name, False)
        if not isinstance(value, bool):
            raise ZoneProtocolError(f"{self._name(name)} is neither true nor false")
        return value

    def text(self, name: str, *, most: int) -> str:
        """Read a text for people; it is cut, and what cannot be shown is replaced."""
        value = self._fields.get(name, "")
        if not isinstance(value, str):
            raise ZoneProtocolError(f"{self._name(name)} is no text")
        return "".join(each if each.isprintable() else "?" for each in value[:most])

    def items(self, name: str, read: Callable[[Any, str], T], *, most: int) -> list[T]:
        """Read a list."""
        value = self._fields.get(name)
        if not isinstance(value, list):
            raise ZoneProtocolError(f"{self._name(name)} is no list")
        if len(value) > most:
            raise ZoneTooMuch(f"{self._name(name)} has {len(value)} items, and {most} are the most")
        return [read(each, self._name(name)) for each in value]

    def optional(self, name: str, read: Callable[[Any, str], T]) -> T | None:
        """Read something that may be missing."""
        value = self._fields.get(name)
        return None if value is None else read(value, self._name(name))

    def _name(self, name: str) -> str:
        return f"{name!r} of a {self._kind.name.lower()}"


# --- Single values ----------------------------------------------------------------------------------------------------


def _number(value: Any, name: str, *, least: int = 0, most: int = LARGEST) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ZoneProtocolError(f"{name} is no whole number from {least} to {most}")
    return value


def _word(value: Any, name: str, *, may_be_empty: bool = False) -> str:
    if not isinstance(value, str) or not (value or may_be_empty):
        raise ZoneProtocolError(f"{name} is missing or is no text")
    if len(value) > _WORD_CHARACTERS or not value.isascii() or not value.isprintable() or " " in value:
        raise ZoneProtocolError(f"{name} is no word of at most {_WORD_CHARACTERS} characters")
    return value


def _plain(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ZoneProtocolError(f"{name} has something that is no text")
    return value


def _selector(value: Any, name: str) -> Selector:
    try:
        return parse_selector(_plain(value, name))
    except GatewayError as error:
        raise ZoneProtocolError(f"{name}: {error}") from None


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(data)
    except ValueError:
        raise ZoneProtocolError("a message that is no JSON") from None
    if not isinstance(found, dict):
        raise ZoneProtocolError("a message that is no JSON object")
    return found


# --- Records within messages ------------------------------------------------------------------------------------------


def _hello(hello: Hello) -> dict[str, Any]:
    head = {name: getattr(hello, name) for name in Hello.__slots__ if name != "member"}
    if hello.member is not None:
        head["member"] = _member(hello.member)
    return head


def _member(member: Member) -> dict[str, Any]:
    return {
        "zone": member.zone,
        "cluster": member.cluster,
        "name": member.name,
        "urls": list(member.urls),
        "fingerprints": list(member.fingerprints),
        "revision": member.revision,
        "left": member.left,
    }


def _read_member(value: Any, name: str) -> Member:
    if not isinstance(value, dict):
        raise ZoneProtocolError(f"{name} has something that is no member")
    head = _Head(value, Kind.MEMBERS)
    member = Member(
        zone=ZoneUid(head.word("zone")),
        cluster=ClusterId(head.word("cluster")),
        name=head.text("name", most=_NAME_CHARACTERS),
        urls=tuple(head.items("urls", _plain, most=MOST_URLS)),
        fingerprints=tuple(head.items("fingerprints", _plain, most=MOST_URLS)),
        revision=head.number("revision"),
        left=head.flag("left"),
    )
    try:
        return check_member(member)
    except InvalidRecord as error:
        raise ZoneProtocolError(f"{name}: {error}") from None


def _read_hello(head: _Head) -> Hello:
    shares = head.number("shares", least=1, most=MOST_SHARES)
    return Hello(
        protocol=head.number("protocol"),
        purpose=_purpose(head.word("purpose")),
        reference=head.text("reference", most=_NAME_CHARACTERS),
        cluster=ClusterId(head.word("cluster")),
        name=head.text("name", most=_NAME_CHARACTERS),
        place=Place(head.word("place")),
        share=head.number("share", most=shares - 1),
        shares=shares,
        term=head.number("term"),
        nonce=head.word("nonce"),
        proof=head.word("proof"),
        member=head.optional("member", _read_member),
    )


def _read_welcome(head: _Head) -> Welcome:
    return Welcome(
        cluster=ClusterId(head.word("cluster")),
        name=head.text("name", most=_NAME_CHARACTERS),
        place=Place(head.word("place")),
        zone=head.word("zone", may_be_empty=True),
        zone_name=head.text("zone_name", most=_NAME_CHARACTERS),
        proof=head.word("proof"),
    )


def _read_refuse(head: _Head) -> Refuse:
    why, detail = head.word("why"), head.text("detail", most=_DETAIL_CHARACTERS)
    try:
        return Refuse(ZoneRefusal(why), detail)
    except ValueError:
        # A reason of a later version.
        return Refuse(ZoneRefusal.PROTOCOL, f"{why}: {detail}"[:_DETAIL_CHARACTERS])


def _purpose(value: str) -> Purpose:
    try:
        return Purpose(value)
    except ValueError:
        raise ZoneProtocolError(f"the purpose of a hello is none that is known: {value}") from None


_READERS: Final[dict[int, Callable[[_Head], ZoneMessage]]] = {
    Kind.CHALLENGE: lambda head: Challenge(
        tuple(head.items("protocols", _number, most=_WORD_CHARACTERS)), head.word("nonce")
    ),
    Kind.HELLO: _read_hello,
    Kind.WELCOME: _read_welcome,
    Kind.REFUSE: _read_refuse,
    Kind.MEMBERS: lambda head: Members(tuple(head.items("members", _read_member, most=MOST_MEMBERS))),
    Kind.INTEREST_ALL: lambda head: InterestAll(
        head.number("revision"), tuple(head.items("selectors", _plain, most=MOST_HEARD))
    ),
    Kind.INTEREST_CHANGE: lambda head: InterestChange(
        head.number("revision"),
        frozenset(head.items("added", _selector, most=MOST_HEARD)),
        frozenset(head.items("dropped", _selector, most=MOST_HEARD)),
    ),
    Kind.INTEREST_DIGEST: lambda head: InterestDigest(head.number("revision"), head.word("digest")),
    Kind.INTEREST_ASK: lambda _: InterestAsk(),
    Kind.VALUES_ASK: lambda _: ValuesAsk(),
    Kind.EVENTS_ACK: lambda head: EventsAck(head.number("messages")),
    Kind.GAP: lambda head: Gap(head.number("partition", most=MOST_PARTITIONS - 1)),
    Kind.BEAT: lambda head: Beat(head.number("time")),
}


def _slots(message: Any) -> dict[str, Any]:
    """Write a message whose fields are JSON as they are."""
    return {name: getattr(message, name) for name in message.__slots__}


def _change(change: InterestChange) -> dict[str, Any]:
    added, dropped = (sorted(each.text for each in some) for some in (change.added, change.dropped))
    return {"revision": change.revision, "added": added, "dropped": dropped}


_WRITERS: Final[dict[type, tuple[Kind, Callable[[Any], dict[str, Any]]]]] = {
    Challenge: (Kind.CHALLENGE, _slots),
    Hello: (Kind.HELLO, _hello),
    Welcome: (Kind.WELCOME, _slots),
    Refuse: (Kind.REFUSE, _slots),
    Members: (Kind.MEMBERS, lambda message: {"members": [_member(each) for each in message.members]}),
    InterestAll: (Kind.INTEREST_ALL, _slots),
    InterestChange: (Kind.INTEREST_CHANGE, _change),
    InterestDigest: (Kind.INTEREST_DIGEST, lambda message: message._asdict()),
    InterestAsk: (Kind.INTEREST_ASK, _slots),
    ValuesAsk: (Kind.VALUES_ASK, _slots),
    EventsAck: (Kind.EVENTS_ACK, _slots),
    Gap: (Kind.GAP, _slots),
    Beat: (Kind.BEAT, _slots),
}


def parse_selectors(texts: tuple[str, ...]) -> frozenset[Selector]:
    """Read selectors of an ``InterestAll``.

    Raises:
        ZoneProtocolError: one is none.
    """
    return frozenset(_selector(each, "'selectors' of an interest_all") for each in texts)


# --- Events -----------------------------------------------------------------------------------------------------------


def _encode_events(message: Events) -> bytes:
    head = orjson.dumps(
        {
            "current": message.current,
            "events": [
                [
                    each.topic,
                    len(each.value),
                    each.origin.cluster,
                    each.origin.version,
                    None if each.stamp is None else list(each.stamp),
                    list(each.path),
                ]
                for each in message.events
            ],
        }
    )
    return b"".join((bytes((Kind.EVENTS,)), _LENGTH.pack(len(head)), head, *[each.value for each in message.events]))


def _decode_events(data: bytes) -> Events:
    told = json_of(data)
    head = _Head(_object(told), Kind.EVENTS)
    values = _Values(memoryview(data)[1 + _LENGTH.size + len(told) :])
    events = tuple(head.items("events", values.event, most=BATCH_EVENTS))
    values.finish()
    return Events(events, head.flag("current"))


class _Values:
    """The values of events, which are taken one after the other."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._taken = 0

    def event(self, value: Any, name: str) -> SentEvent:
        """Read the next event."""
        try:
            topic, length, cluster, version, stamp, path = value
            topic = parse_topic(topic)
        except (TypeError, ValueError):
            raise ZoneProtocolError(f"{name} has something that is no event") from None
        except GatewayError as error:
            raise ZoneProtocolError(f"{name}: {error}") from None
        if not isinstance(path, list) or len(path) > MOST_HOPS + 1:
            raise ZoneProtocolError(f"{name} has an event whose path is none")
        end = self._taken + _number(length, name)
        if end > len(self._data):
            raise ZoneProtocolError("events whose values are cut off")
        text = bytes(self._data[self._taken : end])
        self._taken = end
        return SentEvent(
            topic,
            text,
            Origin(ClusterId(_word(cluster, name)), Version(_number(version, name))),
            None if stamp is None else _stamp(stamp, name),
            tuple(Place(_word(each, name)) for each in path),
        )

    def finish(self) -> None:
        """Make sure that nothing is left."""
        if self._taken != len(self._data):
            raise ZoneProtocolError("events with something behind their values")


def _stamp(value: Any, name: str) -> Stamp:
    if not isinstance(value, list) or len(value) != len(Stamp._fields):
        raise ZoneProtocolError(f"{name} has an event whose stamp is none")
    return Stamp(_number(value[0], name), ClusterId(_word(value[1], name)))
