"""What other programs, or a fault, have put between the gateway's own data: it is skipped, counted and told."""

from __future__ import annotations

import asyncio
import math
from typing import Final

from gateway.catalogue import log_events
from gateway.catalogue.metrics import GRID_FOREIGN_DATA
from gateway.core.topics.topics import parse_topic
from gateway.core.types import TopicPath, Version
from gateway.ports import EventLog, Metrics

LARGEST_VERSION: Final = 2**53
"""Above it, not every whole number has a JSON text and a Lua number of its own."""

LOG_INTERVAL: Final = 10.0
"""Seconds between two log events: whoever writes foreign data may do so at full speed. The metric counts all."""


_SHOWN: Final = 200
"""Characters of foreign data, and of what is wrong with it, in a log event: it may be of any size."""


class ForeignData:
    """Tells of data that is not the gateway's.

    Args:
        metrics: where all of it is counted.
        log: where it is told, now and then.
    """

    def __init__(self, metrics: Metrics, log: EventLog) -> None:
        self._metrics = metrics
        self._log = log
        self._told = -math.inf

    def skipped(self, key: str, what: str, why: Exception | str, *, amount: int = 1) -> None:
        """Something was skipped.

        Args:
            key: where it is.
            what: which part of it; an id or a name as it can be shown.
            why: how it is known to be foreign.
            amount: how many such parts were skipped; nothing is told of none.
        """
        if not amount:
            return
        self._metrics.add(GRID_FOREIGN_DATA, amount)
        now = asyncio.get_running_loop().time()
        if now - self._told >= LOG_INTERVAL:
            self._told = now
            self._log.emit(log_events.GRID_FOREIGN_DATA, key=key, what=what[:_SHOWN], error=str(why)[:_SHOWN])

    def wrong_type(self, key: str) -> None:
        """A whole key is of a type that the gateway does not write there."""
        self.skipped(key, "the whole key", "it is of another type; delete it, and nodes write what belongs there")

    def swept(self, key: str, amount: int) -> None:
        """Entries that stood in the way of the gateway's own were deleted; none is no news."""
        self.skipped(key, "entries behind the newest", "their ids are not ones that the gateway gives", amount=amount)


def read_topic(raw: bytes) -> TopicPath:
    """Read the name of a topic.

    Raises:
        ValueError, InvalidTopic: it is none.
    """
    return parse_topic(raw.decode())


def read_version(raw: bytes) -> Version:
    """Read a version.

    Raises:
        ValueError: it is none.
    """
    version = int(raw)
    if not 0 < version < LARGEST_VERSION:
        raise ValueError(f"{version} is no version of a topic")
    return Version(version)


def check_text(value: bytes) -> bytes:
    """Return a value that can be sent as text; most are ASCII, which is seen at once.

    Raises:
        ValueError: it is not UTF-8.
    """
    if not value.isascii():
        value.decode()
    return value
