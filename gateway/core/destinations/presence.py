"""Presence: which trees of topics tell who has subscribed to them, and by which topics (ADR 0142).

A destination with ``presence`` marks trees. What its selector has in front of a last ``**`` is the *pattern* of their
paths: ``rooms/*/**`` marks a tree for each room, such as ``rooms/7``, and ``prices/**`` the one tree ``prices``.

A session is a *member* of a tree while an entry of its selections selects topics of this tree and of no other one,
because it begins with the path of the tree: ``rooms/7``, ``rooms/7/chat`` and ``rooms/7/**`` do, ``rooms/*/chat`` and
``rooms/**`` do not. However many entries do, it is a member once.

```text
$presence/rooms/7/$count                  {"count": 12, "listed": 12}
$presence/rooms/7/$members/<session>      {"session": "…", "principal": "alice", "properties": {"name": "Alice"}}
```
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import orjson

from gateway.core.topics.selectors import ANY, ONE, Selector
from gateway.core.topics.topics import PRESENCE_COUNT, PRESENCE_MEMBERS, PRESENCE_ROOT, SEPARATOR
from gateway.core.types import SessionId, TopicPath

MOST_TREE_BYTES: Final = 768
"""Bytes of the path of a tree; a longer one has no members. With all that is around it, it is the path of a topic."""

MOST_TREE_SEGMENTS: Final = 28
"""Segments of it, likewise."""


def pattern_of(selector: Selector) -> tuple[str, ...]:
    """Return the pattern of the paths of the trees that a destination's selector marks; empty if it marks none.

    None are marked by a selector with a ``**`` in another place than the last, as it would not be known where the path
    of a tree ends; nor by one whose trees would all be too long.
    """
    segments = selector.segments
    pattern = segments[:-1] if segments[-1] == ANY else segments
    if ANY in pattern or len(pattern) > MOST_TREE_SEGMENTS:
        return ()
    return () if len(SEPARATOR.join(pattern).encode()) > MOST_TREE_BYTES else pattern


def literal_beginnings(selector: Selector) -> Iterator[TopicPath]:
    """Yield the paths with which all topics of a selector begin, as far as they can be those of trees."""
    literal: list[str] = []
    for segment in selector.segments[:MOST_TREE_SEGMENTS]:
        if segment in {ANY, ONE}:
            return
        literal.append(segment)
        path = SEPARATOR.join(literal)
        if len(path.encode()) > MOST_TREE_BYTES:
            return
        yield TopicPath(path)


def count_topic(tree: TopicPath) -> TopicPath:
    """Name the topic that tells how many members a tree has."""
    return TopicPath(f"{PRESENCE_ROOT}{SEPARATOR}{tree}{SEPARATOR}{PRESENCE_COUNT}")


def member_topic(tree: TopicPath, session: SessionId) -> TopicPath:
    """Name the topic that tells of one member."""
    return TopicPath(f"{PRESENCE_ROOT}{SEPARATOR}{tree}{SEPARATOR}{PRESENCE_MEMBERS}{SEPARATOR}{session}")


def count_value(count: int, listed: int) -> bytes:
    """Write how many members there are, and of how many there are topics."""
    return b'{"count":%d,"listed":%d}' % (count, listed)


def member_value(session: SessionId, principal: str, properties: Mapping[str, str], shown: Iterable[str]) -> bytes:
    """Write what is told of a member.

    Args:
        session: who.
        principal: whose it is.
        properties: all that it has.
        shown: names of those that are told.
    """
    told = {name: properties[name] for name in shown if name in properties}
    return orjson.dumps({"session": session, "principal": principal, "properties": told})


def watching(pattern: str) -> tuple[str, str]:
    """Write the selectors of all that is told of the trees that a selector matches, counts and members."""
    begins = f"{PRESENCE_ROOT}{SEPARATOR}{pattern}{SEPARATOR}"
    return f"{begins}{PRESENCE_COUNT}", f"{begins}{PRESENCE_MEMBERS}{SEPARATOR}{ONE}"
