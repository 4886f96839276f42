"""Entries of the streams of topic partitions: what their fields say, apart from the tail, which reads most of them."""

from __future__ import annotations

from typing import Final

from gateway.adapters.redis.foreign import check_text, read_topic, read_version
from gateway.core.types import EventId
from gateway.core.zones.routes import Arrival, ClusterId, Path, Place
from gateway.core.zones.stamps import Origin, Stamp
from gateway.ports import NEVER, Arrived, TopicValue

PLAIN_FIELDS: Final = 2
"""Fields of an entry of a value that was published here; a restored one carries its event besides, and one of another
cluster its own, so that older releases read it as restored, and how it came."""

CROSSED_FIELDS: Final = 6
"""Fields of an entry of another cluster."""

NOTHING: Final = "-"
"""In the place of a stamp that an event does not have, or of a path without places."""


def read_entry(partition: int, number: bytes, fields: list[bytes]) -> TopicValue:
    """Read an entry.

    Raises:
        ValueError, IndexError, GatewayError: it is not the gateway's.
    """
    version, _, value = fields[1].partition(b" ")
    event = number if len(fields) == PLAIN_FIELDS else fields[3]
    return TopicValue(
        read_topic(fields[0]),
        read_version(version),
        EventId(f"{partition}-{event.decode()}"),
        check_text(value),
        read_end(fields),
    )


def is_published(number: bytes, fields: list[bytes]) -> bool:
    """Tell whether an entry is of a publish of this cluster, and was not put back: plain, or of a value that ends."""
    return len(fields) == PLAIN_FIELDS or (fields[3] == number and fields[4:5] == [b"ends"])


def read_end(fields: list[bytes]) -> int:
    """Tell when the value of an entry ends, in milliseconds of the time of the grid; ``NEVER`` if it does not.

    Raises:
        ValueError: that cannot be read.
    """
    return int(fields[5]) if fields[4:5] == [b"ends"] else NEVER


def read_arrived(fields: list[bytes]) -> Arrived | None:
    """Tell how an entry that is not plain came; None of a restored value.

    Raises:
        ValueError: that cannot be read.
    """
    if len(fields) < CROSSED_FIELDS or fields[4] != b"zone":
        return None
    arrival, cluster, version, time, stamper, path = fields[5].decode().split(" ")
    stamp = None if time == NOTHING else Stamp(int(time), ClusterId(stamper))
    return Arrived(Arrival(arrival), Origin(ClusterId(cluster), read_version(version.encode())), stamp, read_path(path))


def read_path(text: str) -> Path:
    """Read a path of places."""
    return () if text == NOTHING else tuple(Place(each) for each in text.split(","))
