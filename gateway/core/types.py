"""Names for the values that travel through the whole system, so that the type checker keeps them apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NewType, TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
"""Any JSON value."""

SessionId = NewType("SessionId", str)
"""The identity of a session in the whole cluster; not secret, but not guessable either."""

NodeId = NewType("NodeId", str)
"""The configured name of a gateway node, for example ``n1``; it doubles as the route hint in URLs."""

Incarnation = NewType("Incarnation", str)
"""Which run of a node it is: new at every start, so that a restarted node is not mistaken for its old self."""

Epoch = NewType("Epoch", int)
"""Grows by one at every claim of a session; the fencing token of every write made for it (P3)."""

TokenGeneration = NewType("TokenGeneration", int)
"""Grows by one at every resume; says which of a session's tokens one is looking at (P8)."""

Attempt = NewType("Attempt", int)
"""Counted by the client over all its resume attempts; tells a delayed resume from the latest one (P3)."""

PacketId = NewType("PacketId", int)
"""Contiguous number of a session packet in one direction, from 1, until the next failover."""

RequestNumber = NewType("RequestNumber", int)
"""Number a client gives a request, from 1; never reused in a session's life, not even across failover (P5)."""

TopicPath = NewType("TopicPath", str)
"""A validated, slash-separated topic path such as ``prices/ACME/bid``."""

Version = NewType("Version", int)
"""Per topic, grows with every publish; never goes back, not even when the grid lost data (P6)."""

EventId = NewType("EventId", str)
"""``<topic partition>-<grid generation>-<sequence>``: one update in the whole cluster, ordered in its partition."""

MessageId = NewType("MessageId", int)
"""Id of a message: rises along its queue, is never used again, and stays what it is wherever the message goes."""

DeliveryTag = NewType("DeliveryTag", int)
"""Number of one assignment of a message to a consumer: rises within a queue. Whoever settles names it, so that nobody
settles by an assignment that was taken back."""

GridGeneration = NewType("GridGeneration", int)
"""Grows by one whenever the grid may have lost writes: restart, promotion of a replica, loss of its data."""

FIRST_GENERATION = GridGeneration(1)
"""The generation of a grid that was never lost."""

LARGEST_GENERATION: Final = 2**20
"""Of the grid: more than any lives to see, and versions of topics are exact up to it. Ids that Redis makes up begin
with a time, which is far above; ``foreign_ids.lua`` has the same number."""


_KNOWN_NODES: Final = 1024
"""Texts remembered of which it is known what node they mean: the grid names an owner with each session."""


@dataclass(frozen=True, slots=True, order=True)
class NodeRef:
    """One run of one node: what owns sessions, holds a lease and can be fenced.

    Attributes:
        node: the configured name.
        incarnation: which run of it.
    """

    node: NodeId
    incarnation: Incarnation

    def __str__(self) -> str:
        return f"{self.node}:{self.incarnation}"

    @classmethod
    @lru_cache(_KNOWN_NODES)
    def parse(cls, text: str) -> NodeRef:
        """Read what ``str()`` wrote.

        Raises:
            ValueError: there is no colon in *text*.
        """
        node, _, incarnation = text.rpartition(":")
        if not node:
            raise ValueError(f"{text!r} is not of the form node:incarnation")
        return cls(NodeId(node), Incarnation(incarnation))
