"""What the admin API gives and takes about destinations, and about who is in trees with presence."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from gateway.adapters.admin.models.base import Given, Told
from gateway.core.destinations.destination import Origin
from gateway.core.destinations.limits import LEAST_BYTES, LONGEST_AGE, LONGEST_PAUSE, MOST_PRESENCE_MEMBERS
from gateway.core.wire.publish_packet import LONGEST_TTL, SHORTEST_TTL


class Destination(Told):
    """What somebody says of paths."""

    selector: str = Field(description="Which paths.")
    kind: str = Field(
        description="What they are. `value`: topics of which the newest value is kept. `history`: topics whose events "
        "are kept, too. `queue`: messages, each of which is given to one consumer."
    )
    limits: dict[str, JsonValue] = Field(description="Of a history or a queue; seconds and bytes as numbers.")
    origin: Origin = Field(description="Who says so: an administrator, or the file that nodes read.")
    made: float = Field(description="When, in seconds since 1970.")
    in_force: bool = Field(
        description="Whether it counts for its selector. What an administrator says replaces what the file says."
    )


class DestinationPage(Told):
    """Some destinations."""

    items: list[Destination]
    cursor: str | None = Field(description="Where the next page begins; null if this was the last.")


class DestinationPath(Given):
    """Which paths."""

    selector: str = Field(
        min_length=1,
        max_length=1024,
        description="Selector or path as one segment: each `/` in it is written `%2F`.",
        examples=["log/**"],
    )


class DestinationLimits(Given):
    """Limits of a value, a history or a queue, in seconds and bytes; what is left out is as by default."""

    count: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Most events kept of one topic, at most a million; or most messages of the queue, dead letters "
        "aside.",
    )
    age: float | None = Field(
        default=None, ge=1, le=LONGEST_AGE, description="Of a history: longest time that an event is kept."
    )
    bytes: int | None = Field(
        default=None,
        ge=LEAST_BYTES,
        le=16 * 1024**3,
        description="Most bytes of the kept events of one topic, at most 1 GiB; the newest is kept whatever its "
        "size. Or most bytes of the messages of the queue.",
    )
    full: Literal["refuse", "drop_oldest"] | None = Field(
        default=None,
        description="Of a queue: what it does with the next message when it is full; the oldest becomes a dead letter.",
    )
    deliveries: int | None = Field(
        default=None, ge=1, le=1_000, description="Of a queue: deliveries of a message before it becomes a dead letter."
    )
    redelivery_delay: float | None = Field(
        default=None, ge=0, le=LONGEST_PAUSE, description="Of a queue: time between a failed delivery and the next one."
    )
    ack_within: float | None = Field(
        default=None,
        ge=1,
        le=LONGEST_PAUSE,
        description="Of a queue: time in which a consumer settles a message before it goes to another one; null for no "
        "limit.",
    )
    expires: float | None = Field(
        default=None,
        ge=1,
        le=LONGEST_AGE,
        description="Of a queue: time after which a waiting message becomes a dead letter; null for never.",
    )
    exclusive: bool | None = Field(default=None, description="Of a queue: whether one consumer gets all messages.")
    dead_count: int | None = Field(
        default=None, ge=0, le=1_000_000, description="Of a queue: most dead letters that are kept."
    )
    dead_age: float | None = Field(
        default=None, ge=1, le=LONGEST_AGE, description="Of a queue: how long a dead letter is kept."
    )
    ttl: float | None = Field(
        default=None,
        ge=SHORTEST_TTL,
        le=LONGEST_TTL,
        description="Time after which a value ends, in seconds, unless its publisher says otherwise; null for never.",
    )
    presence: bool | None = Field(
        default=None,
        description="Of topics: whether it is told who has subscribed to these trees, such as `rooms/*/**`.",
    )
    presence_members: int | None = Field(
        default=None,
        ge=0,
        le=MOST_PRESENCE_MEMBERS,
        description="Most members of such a tree that are listed; more are counted only.",
    )
    presence_properties: str | None = Field(
        default=None,
        max_length=2_048,
        description="Names of properties that are told of a member besides its principal, with commas between them.",
    )


class DestinationWrite(Given):
    """What the paths shall be."""

    kind: Literal["value", "history", "queue"] = Field(
        description="What they are. A queue is one path, without wildcards."
    )
    limits: DestinationLimits = Field(default_factory=DestinationLimits)


class Tree(Told):
    """A tree of topics with members."""

    tree: str = Field(description="Its path.", examples=["rooms/7"])
    members: int = Field(description="How many sessions have subscribed to it, of all nodes.")


class TreePage(Told):
    """Some trees."""

    items: list[Tree]
    cursor: str | None = Field(description="Where the next page begins; null if this was the last.")
