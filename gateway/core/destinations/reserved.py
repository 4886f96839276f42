"""Queues that nobody describes: of shared subscriptions, and those that sessions declare for themselves.

Their first segment says whose they are by a hash, so that any node can tell who may consume, and they are spread over
the partitions.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

import orjson

from gateway.core.destinations.limits import QueueLimits
from gateway.core.topics.topics import SYSTEM_SIGN
from gateway.core.types import SessionId, TopicPath

SHARED: Final = f"{SYSTEM_SIGN}shared-"
"""Begins the path of the queue of a shared subscription."""

TEMPORARY: Final = f"{SYSTEM_SIGN}tmp-"
"""Begins the path of a temporary queue."""

RESERVED_LIMITS: Final = QueueLimits()
"""Of all these queues."""

_HASH_BYTES: Final = 12
"""Of the name of a principal, or a session: nobody finds another one with the same hash by trying."""


class Source(NamedTuple):
    """For what the queue of a shared subscription is.

    Attributes:
        principal: whose subscription it is.
        name: of it.
        selector: its topics.
    """

    principal: str
    name: str
    selector: str

    def text(self) -> str:
        """Write it as the grid holds it."""
        return orjson.dumps(list(self)).decode()

    @classmethod
    def read(cls, text: str) -> Source:
        """Read it."""
        return cls(*orjson.loads(text))


def shared_queue(principal: str, name: str) -> TopicPath:
    """Name the queue of a principal's shared subscription."""
    return TopicPath(f"{SHARED}{_hash(principal)}/{_hash(name)}")


def temporary_queue(session: SessionId, number: int) -> TopicPath:
    """Name a temporary queue of a session."""
    return TopicPath(f"{TEMPORARY}{_hash(session)}/{number}")


def may_consume(queue: TopicPath, *, principal: str, session: SessionId) -> bool:
    """Tell whether a queue that nobody describes is of a session or its principal."""
    owner, _, _ = queue.partition("/")
    return owner in {SHARED + _hash(principal), TEMPORARY + _hash(session)}


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_HASH_BYTES).hexdigest()
