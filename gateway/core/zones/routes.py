"""Which way an event may go from cluster to cluster: one hop within a zone, joins between zones, and no loops.

========================  ===================  ==============================
it came                   to zone members      over joins
========================  ===================  ==============================
from a client here        yes                  yes
from a member             no                   yes
over a join               yes                  yes
========================  ===================  ==============================

Nothing goes over a join to a place where it has been, so that a circle of joins ends. A *place* is a zone, or a cluster
that is in none. The path of an event is the places that it has left over joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NewType, TypeAlias

from gateway.core.topics.topics import is_reserved
from gateway.core.types import TopicPath

ClusterId = NewType("ClusterId", str)
"""Identity of a cluster, which is one grid: random, made when the grid is first used."""

Place = NewType("Place", str)
"""Where events come by: the uid of a zone, or the id of a cluster that is in no zone."""

Path: TypeAlias = tuple[Place, ...]
"""Places that an event has left over joins, the first one first; empty while it is in the zone of its publisher."""

MOST_HOPS: Final = 4
"""Joins that an event may cross. Loops end by the path; this bounds how far a mistake in the joins spreads."""


class Arrival(StrEnum):
    """How an event came into a cluster."""

    CLIENT = "client"
    MEMBER = "member"
    JOIN = "join"


class Crossing(StrEnum):
    """How an event may leave a cluster: to a member of the own zone, or over a join."""

    MEMBER = "member"
    JOIN = "join"

    @property
    def arrival(self) -> Arrival:
        """How it arrives at the other end."""
        return Arrival.MEMBER if self is Crossing.MEMBER else Arrival.JOIN


class Stopped(StrEnum):
    """Why an event goes no further."""

    HOP = "hop"
    """It came from a member of the zone, and each member tells the others itself."""
    LOOP = "loop"
    """It has been there."""
    HOPS = "hops"
    """It has crossed as many joins as it may."""
    SYSTEM = "system"
    """The topic is of the system, whose topics tell of one cluster."""


def why_stopped(
    topic: TopicPath, arrival: Arrival, path: Path, over: Crossing, *, here: Place, there: Place | None
) -> Stopped | None:
    """Tell why an event does not leave a cluster; None if it may.

    Args:
        topic: what it is about.
        arrival: how it came.
        path: what it has left.
        over: how it would leave.
        here: where it is.
        there: where it would come to; None if that is not known, and whoever gets it judges.
    """
    if is_reserved(topic):
        return Stopped.SYSTEM
    if over is Crossing.MEMBER:
        return Stopped.HOP if arrival is Arrival.MEMBER else None
    if there is not None and (there == here or there in path):
        return Stopped.LOOP
    return Stopped.HOPS if len(path) >= MOST_HOPS else None


def path_beyond(path: Path, over: Crossing, here: Place) -> Path:
    """Tell the path of an event that leaves a place."""
    return path if over is Crossing.MEMBER else (*path, here)


def why_refused(topic: TopicPath, path: Sequence[Place], *, here: Place) -> Stopped | None:
    """Tell why an event that has come is not taken, whatever its sender thought; None if it may be."""
    if is_reserved(topic):
        return Stopped.SYSTEM
    if here in path:
        return Stopped.LOOP
    return Stopped.HOPS if len(path) > MOST_HOPS else None
