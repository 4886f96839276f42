"""Fields of packets, read with their types (protocol 2.3 and 2.5).

Every function here raises ``BadField`` if the field is not what it must be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from gateway.core.types import EventId, NodeId, RequestNumber
from gateway.core.wire.codes import ErrorCode, FailoverReason, Numbering, Outcome
from gateway.core.wire.packets import Replayed
from gateway.core.wire.publish_packet import FOR_EVER, LONGEST_TTL, SHORTEST_TTL, TTL
from gateway.core.wire.topology_packets import Cluster, ListedNode

MAX_NUMBER: Final = 2**53 - 1
"""Largest number on the wire: what a JavaScript client can count to exactly (RFC 7493 section 2.2)."""

MAX_WORDS: Final = 32
"""Words of a list that are read: many times those there are (protocol 4.1.1)."""

MAX_WORD_BYTES: Final = 64
"""Bytes of UTF-8 of a word that is read."""

WORD_SETS: Final = 128
"""Sets of words that are remembered: far more than there are releases of clients, and half a megabyte at most, as each
word of a client that names something else every time may take hundreds of bytes."""

MAX_MEASURE: Final = 31 * 24 * 3_600_000
"""Largest length of time that is believed, in milliseconds: longer than any session waits for its client."""

MOST_POSITIONS: Final = 64
"""Topic partitions that there are: so many places a client can be at."""

MOST_LISTED: Final = 256
"""Nodes of a list of the cluster that are read: more than any cluster has."""

MOST_URLS: Final = 16
"""URLs of one node that are read: as many as a node has interfaces."""

MOST_UNFINISHED: Final = 16
"""Selectors whose snapshots a client may not have had all of: as many as a server sends to one session at a time."""

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,14}")
"""A number as the name of a field: of so many digits it is below 2^53."""

_EVENT: Final = re.compile(r"(0|[1-9][0-9]?)-(0|[1-9][0-9]{0,14})-(0|[1-9][0-9]{0,14})")
"""An event id: topic partition, generation of the grid, sequence."""

_OUTCOMES: Final[Mapping[str, Outcome]] = {each.value: each for each in Outcome}

_NUMBERINGS: Final[Mapping[str, Numbering]] = {
    Outcome.CREATED: Numbering.RESTARTED,
    Outcome.FAILED_OVER: Numbering.RESTARTED,
    Outcome.REATTACHED: Numbering.KEPT,
}
"""What the outcomes of the first release mean, which did not say it (protocol 4.3.1)."""

Object: TypeAlias = dict[str, Any]
"""A packet, or an object within one, as the parser of JSON makes it."""


class BadField(Exception):
    """A field is missing or of the wrong type; whoever asked knows what that means for the packet.

    Attributes:
        code: with which a packet is refused for it; None for the usual one.
    """

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.code = code


class Unfit:
    """In the place of what a field holds and nobody can pass on (protocol 2.6.1).

    Args:
        reason: what is wrong, as the end of a sentence about the field.
    """

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


_UNFIT_CODES: Final[Mapping[str, ErrorCode]] = {
    "topic": ErrorCode.BAD_TOPIC,
    "selector": ErrorCode.BAD_SELECTOR,
    "set": ErrorCode.BAD_PROPERTIES,
    "properties": ErrorCode.BAD_PROPERTIES,
    "value": ErrorCode.BAD_VALUE,
}
"""How a packet is refused whose field is ``Unfit`` (protocol 2.6.1)."""


def bad_field(name: str, value: object, rule: str) -> BadField:
    """Make the error for a field.

    Args:
        name: of the field.
        value: what it holds.
        rule: what it must be, as the end of a sentence.
    """
    if isinstance(value, Unfit):
        return BadField(f"{name!r} {value.reason}", _UNFIT_CODES.get(name))
    return BadField(f"{name!r} {rule}")


def read_text(packet: Object, name: str) -> str:
    """Read a text that must be there."""
    value = packet.get(name)
    if not isinstance(value, str):
        raise bad_field(name, value, "must be a string")
    return value


def read_optional_text(packet: Object, name: str) -> str | None:
    """Read a text that may be absent or null."""
    return None if packet.get(name) is None else read_text(packet, name)


def read_count(packet: Object, name: str, *, least: int = 0) -> int:
    """Read an integer from *least* to ``MAX_NUMBER``, as ids, counts and versions are."""
    value = packet.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_NUMBER:
        raise bad_field(name, value, f"must be an integer from {least} to {MAX_NUMBER}")
    return value


def read_optional_count(packet: Object, name: str, default: int | None) -> int | None:
    """Read a count; *default* if it is absent, None if it is null, which says that it is unknown."""
    return default if name not in packet else None if packet[name] is None else read_count(packet, name)


def read_measure(packet: Object, name: str, *, most: int = MAX_MEASURE) -> int | None:
    """Read what the other side has measured and nobody relies on: None unless it is an integer from 0 to *most*."""
    value = packet.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def read_seconds(packet: Object, name: str) -> float:
    """Read a length of time that must be there."""
    value = packet.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MAX_NUMBER:
        raise bad_field(name, value, "must be a number of seconds, not negative")
    return float(value)


def read_optional_seconds(packet: Object, name: str) -> float | None:
    """Read a length of time that may be absent or null."""
    return None if packet.get(name) is None else read_seconds(packet, name)


def read_ttl(packet: Object) -> float | None:
    """Read after how many seconds a value ends: ``FOR_EVER`` for never, None if it is absent or null."""
    value = packet.get(TTL)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (value != FOR_EVER and not SHORTEST_TTL <= value <= LONGEST_TTL):
        raise bad_field(TTL, value, f"must be 0 or a number of seconds from {SHORTEST_TTL} to {LONGEST_TTL}")
    return float(value)


def read_flag(packet: Object, name: str, default: bool | None = None) -> bool:
    """Read true or false; *default*, if there is one, stands for absent and null."""
    value = default if packet.get(name) is None else packet[name]
    if not isinstance(value, bool):
        raise bad_field(name, value, "must be true or false")
    return value


def read_object(packet: Object, name: str) -> Object:
    """Read an object that must be there."""
    value = packet.get(name)
    if not isinstance(value, dict):
        raise bad_field(name, value, "must be an object")
    return value


def read_objects(packet: Object, name: str) -> list[Object]:
    """Read an array of objects that must be there."""
    value = packet.get(name)
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise bad_field(name, value, "must be an array of objects")
    return value


def read_texts(packet: Object, name: str) -> dict[str, str]:
    """Read an object of texts; absent and null are an empty one."""
    value = {} if packet.get(name) is None else packet[name]
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise bad_field(name, value, "must be an object of strings")
    return value


def read_outcome(packet: Object) -> str:
    """Read how a session came to be on a connection; one that a later release has added is a mere name (4.3.1)."""
    name = read_text(packet, "outcome")
    return _OUTCOMES.get(name, name)


def read_numbering(packet: Object) -> Numbering | None:
    """Read whether packet numbers go on; None if that cannot be told (protocol 4.3.1)."""
    name = read_optional_text(packet, "numbering")
    if name is None:
        return _NUMBERINGS.get(read_text(packet, "outcome"))
    try:
        return Numbering(name)
    except ValueError:
        return None


def read_words(packet: Object, name: str) -> frozenset[str]:
    """Read words of which unknown ones do no harm; what is no array of texts, or too much of it, does not count."""
    words = packet.get(name)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return frozenset()
    return word_set(tuple([word for word in words[:MAX_WORDS] if len(word.encode()) <= MAX_WORD_BYTES]))


@lru_cache(WORD_SETS)
def word_set(words: tuple[str, ...]) -> frozenset[str]:
    """Make a set of words, the same one for the same words: all clients of a release name the same."""
    return frozenset(words)


def read_positions(packet: Object, name: str) -> dict[int, EventId]:
    """Read the places of topic partitions, as event ids; what is none does no harm, and does not count."""
    positions = packet.get(name)
    if not isinstance(positions, dict) or len(positions) > MOST_POSITIONS:
        return {}
    found: dict[int, EventId] = {}
    for text, event in positions.items():
        place = _EVENT.fullmatch(event) if isinstance(event, str) else None
        if place is not None and place[1] == text and int(text) < MOST_POSITIONS:
            found[int(text)] = EventId(event)
    return found


def read_all_positions(packet: Object, name: str) -> dict[int, EventId]:
    """Read the places of topic partitions likewise, where something that is none is a mistake; none if it is missing.

    Raises:
        BadField: it is no object of event ids by the numbers of their partitions.
    """
    given = {} if packet.get(name) is None else read_object(packet, name)
    places = read_positions(packet, name)
    if len(places) < len(given):
        raise BadField(f"'{name}' must be an object of event ids by the numbers of their topic partitions")
    return places


def named_by_number(by_number: Mapping[int, str]) -> dict[str, str]:
    """Write the numbers of an object as names, which are texts in JSON."""
    return {str(number): text for number, text in sorted(by_number.items())}


def read_unfinished(packet: Object, name: str) -> dict[RequestNumber, str]:
    """Read selectors by the numbers of requests; what is none does not count."""
    selectors = packet.get(name)
    if not isinstance(selectors, dict) or len(selectors) > MOST_UNFINISHED:
        return {}
    return read_selectors(selectors)


def read_selectors(selectors: Object) -> dict[RequestNumber, str]:
    """Read selectors by the numbers of requests from an object; see ``read_unfinished``."""
    return {
        RequestNumber(int(number)): selector
        for number, selector in selectors.items()
        if _NUMBER.fullmatch(number) and isinstance(selector, str)
    }


def read_replayed(packet: Object, name: str) -> Replayed | None:
    """Read whether a failover replays what was missed: yes, or why not by partition; None for anything else."""
    replayed = packet.get(name)
    if replayed is True:
        return True
    if not isinstance(replayed, dict) or not all(
        _NUMBER.fullmatch(number) and isinstance(why, str) for number, why in replayed.items()
    ):
        return None
    return {int(number): why for number, why in replayed.items()}


def read_cluster(packet: Object, name: str) -> Cluster | None:
    """Read the list of the cluster; None for anything else, and what is no node in it does not count."""
    cluster = packet.get(name)
    if not isinstance(cluster, dict) or not isinstance(cluster.get("revision"), str):
        return None
    nodes = cluster.get("nodes")
    if not isinstance(nodes, list):
        return None
    return Cluster(
        cluster["revision"], tuple(node for each in nodes[:MOST_LISTED] if (node := _listed(each)) is not None)
    )


def _listed(entry: object) -> ListedNode | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("node"), str) or not isinstance(entry.get("urls"), list):
        return None
    urls = tuple(url for url in entry["urls"][:MOST_URLS] if isinstance(url, str))
    return ListedNode(NodeId(entry["node"]), urls)


def read_failover_reason(packet: Object) -> FailoverReason | None:
    """Read why a session failed over; a reason that a later release has added is left out (protocol 4.3)."""
    reason = read_optional_text(packet, "reason")
    try:
        return None if reason is None else FailoverReason(reason)
    except ValueError:
        return None


def read_error_code(packet: Object) -> ErrorCode:
    """Read an error code; one that a later release has added counts as INTERNAL (protocol 7)."""
    try:
        return ErrorCode(read_text(packet, "code"))
    except ValueError:
        return ErrorCode.INTERNAL


def request_number(packet: Object) -> RequestNumber:
    """Read the number of a request."""
    return RequestNumber(read_count(packet, "request", least=1))


def read_resubmitted(packet: Object) -> bool:
    """Read whether a request was sent before a failover and never answered."""
    return read_flag(packet, "resubmitted", default=False)
