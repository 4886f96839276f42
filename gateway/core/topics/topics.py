"""Topic paths and the partitions that spread topics and sessions over the grid (protocol section 6.1).

A topic path is one or more *segments* joined by ``/``, such as ``prices/ACME/bid``. It is kept exactly as it was
written: no case folding, and no Unicode normalisation. Normalising would make the same bytes name different topics on
nodes whose runtimes know different versions of Unicode, and a client in another language could not predict which key
its publish lands on. Two spellings of ``é`` are therefore two topics; whoever names topics chooses one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from gateway.core.types import SessionId, TopicPath
from gateway.core.wire.errors import InvalidTopic, RequestRefused

SEPARATOR: Final = "/"
"""Between segments; it can be part of none."""

SYSTEM_SIGN: Final = "$"
"""Begins the first segment of the topics that belong to the system; see ``is_reserved``."""

SYSTEM_ROOT: Final = "$gateway"
"""The root of the topics by which the gateway tells of itself."""

PRESENCE_ROOT: Final = "$presence"
"""The root of the topics that tell who has subscribed to a tree of topics; behind it comes the path of the tree. It is
no segment by which such topics are spread over the partitions: else all of them would be in one."""

PRESENCE_COUNT: Final = "$count"
"""The segment behind the path of a tree that names the topic of how many members it has."""

PRESENCE_MEMBERS: Final = "$members"
"""Likewise, in front of the id of a session: the topic of one member."""

PRESENCE_PARTS: Final = frozenset({PRESENCE_COUNT, PRESENCE_MEMBERS})
"""What ends the path of a tree in these topics."""

MAX_PATH_BYTES: Final = 1024
"""Longest topic path or selector, in bytes of UTF-8: long enough for any hierarchy that people read, and short enough
that a path never outweighs the value it names by much. It is a key in the grid and travels with every update."""

MAX_SEGMENTS: Final = 32
"""Most segments of a topic path or selector. It bounds the work of matching, which is done segment by segment."""

TOPIC_PARTITIONS: Final = 64
"""Streams over which topics are spread. Part of every event id and grid key, so it can never change in a live grid."""

SESSION_PARTITIONS: Final = 64
"""Hash tags over which sessions are spread: at least four per shard of a Redis Cluster of up to 16 shards."""

_SHOWN_CHARACTERS: Final = 60
"""How much of a refused path an error message repeats: enough to find it, too little to flood a log."""

_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""C0, DEL, C1, line and paragraph separator: they forge lines in logs and terminals. Lone surrogates: not UTF-8."""


def parse_topic(text: str) -> TopicPath:
    """Validate a topic path.

    Args:
        text: what a client or an application wrote.

    Returns:
        The same text, now known to be a path.

    Raises:
        InvalidTopic: it is empty, too long, has too many or empty segments, a character that may not occur, or a ``*``,
            which only selectors may use. The message names the rule and the offender.
    """
    for segment in split_path(text, noun="topic", refusal=InvalidTopic):
        if "*" in segment:
            raise InvalidTopic(f"a topic names one thing, so '*' cannot be in it, but is in segment {shown(segment)}")
    return TopicPath(text)


def segments(topic: TopicPath) -> list[str]:
    """Split a validated path into its segments; there is at least one."""
    return topic.split(SEPARATOR)


def is_reserved(path: str) -> bool:
    """Tell whether a topic path, or a selector with a literal first segment, belongs to the system.

    Nobody but the system publishes there, and no wildcard in the first place of a selector stands for its root.
    """
    return path.startswith(SYSTEM_SIGN)


def split_path(text: str, *, noun: str, refusal: type[RequestRefused]) -> list[str]:
    """Split a path by the rules that topics and selectors share.

    Args:
        text: what somebody wrote.
        noun: what it is meant to be, for the error message.
        refusal: the error to raise.

    Returns:
        Its segments, 1 to ``MAX_SEGMENTS``, none of them empty.

    Raises:
        RequestRefused: of the given type; the message names the rule and the offender.
    """
    if not text:
        raise refusal(f"a {noun} has at least one segment, but this one is empty")
    if found := _FORBIDDEN.search(text):
        raise refusal(
            f"a {noun} has no control characters, line separators or lone surrogates, "
            f"but character {found.start() + 1} is U+{ord(found[0]):04X}"
        )
    # A character is at least one byte: the first comparison spares encoding a text that is far too long.
    if len(text) > MAX_PATH_BYTES or len(text.encode()) > MAX_PATH_BYTES:
        raise refusal(f"a {noun} has at most {MAX_PATH_BYTES} bytes of UTF-8, but {shown(text)} has more")
    found_segments = text.split(SEPARATOR)
    if len(found_segments) > MAX_SEGMENTS:
        raise refusal(f"a {noun} has at most {MAX_SEGMENTS} segments, but {shown(text)} has {len(found_segments)}")
    if "" in found_segments:
        raise refusal(
            f"a {noun} does not begin or end with '/' and has nothing empty between two, "
            f"but segment {found_segments.index('') + 1} of {shown(text)} is empty"
        )
    return found_segments


def shown(text: str) -> str:
    """Quote *text* for an error message, cut to a length that cannot flood a log."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…")


def topic_partition(topic: TopicPath, depth: int) -> int:
    """Tell which partition's stream carries a topic.

    Args:
        topic: the path.
        depth: how many leading segments decide, at least 1; shorter topics are decided by all of theirs. Topics that
            agree in them share a partition and thereby an order of events.

    Returns:
        A number from 0 to ``TOPIC_PARTITIONS - 1``; CRC-32 because every language and every node computes the same.

    Raises:
        ValueError: *depth* is below 1.
    """
    return partition_of(topic.split(SEPARATOR, depth + 1), depth)


def deciding(leading: Sequence[str], depth: int) -> int:
    """Tell how many leading segments of a path decide its partition.

    Behind ``PRESENCE_ROOT`` it is one more, but no more than are of the tree: all topics of one tree are together.
    """
    if leading[0] != PRESENCE_ROOT:
        return depth
    for place in range(1, min(len(leading), depth + 1)):
        if leading[place] in PRESENCE_PARTS:
            return place
    return depth + 1


def partition_of(leading: Sequence[str], depth: int) -> int:
    """Tell which partition's stream carries the topics that begin with *leading*; see ``topic_partition``.

    Raises:
        ValueError: *depth* is below 1.
    """
    if depth < 1:
        raise ValueError(f"at least one segment must decide the partition of a topic, not {depth}")
    return crc32(SEPARATOR.join(leading[: deciding(leading, depth)]).encode()) % TOPIC_PARTITIONS


def session_partition(session: SessionId) -> int:
    """Tell in which of the ``SESSION_PARTITIONS`` the grid keeps a session."""
    return crc32(session.encode()) % SESSION_PARTITIONS


def principal_partition(principal: str) -> int:
    """Tell in which of the ``TOPIC_PARTITIONS`` the grid keeps the durable subscriptions of a principal."""
    return crc32(principal.encode()) % TOPIC_PARTITIONS
