"""Which other nodes are suspected to have failed, and when to look at their leases (seed 004).

```text
              nothing heard for a while              the grid says that its lease has ended
heard of ──────────────────────────────▶ suspected ────────────────────────────────────────▶ failed
    ▲                                       │ ▲
    └───────── any sign of life ────────────┘ └─ its lease holds: looked at again
```

A suspicion takes nothing from anybody: it hurries the look at the lease. That alone says that a node failed.
While a suspect does not renew its lease, it is looked at every ``confirm`` seconds, and when its lease ends. One that
has renewed it since lives, and is only not heard; then it is looked at when its lease might end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.core.types import NodeRef

MARGIN: Final = 0.005
"""Seconds after the end of a lease at which it is looked at: the grid tells times in whole milliseconds."""

LATE: Final = 2
"""Heartbeats by which this node may look late at who was heard; then it slept itself, and blames nobody."""


TOLERANCE: Final = 0.1
"""Share of a heartbeat by which two readings of one sign of life may differ."""


@dataclass(slots=True)
class Suspect:
    """A node that is suspected.

    Attributes:
        node: which.
        since: when it was suspected.
        heard: when it was last heard.
        look: when its lease is to be looked at.
        ends: when that ends, as the last look said; None before the first.
        renewed: whether it was renewed since the node was suspected: it lives, and is not heard.
        failed: whether it has ended.
    """

    node: NodeRef
    since: float
    heard: float
    look: float
    ends: float | None = None
    renewed: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    """What an observation has changed.

    Attributes:
        suspected: nodes that are suspected from now on.
        cleared: those that are not any more, because they were heard.
    """

    suspected: tuple[Suspect, ...] = ()
    cleared: tuple[Suspect, ...] = ()


class Suspicions:
    """What one node thinks of the others. All times are seconds of one clock that never goes back.

    Args:
        heartbeat: seconds after which every node says something.
        suspect_after: heartbeats without a sign of life after which a node is suspected.
        confirm: seconds between two looks at a suspect's lease.
    """

    def __init__(self, *, heartbeat: float, suspect_after: int, confirm: float) -> None:
        self._heartbeat = heartbeat
        self._patience = heartbeat * suspect_after
        self._confirm = confirm
        self._heard: dict[NodeRef, float] = {}
        self._awake = float("-inf")
        self._observed: float | None = None
        self._suspects: dict[NodeRef, Suspect] = {}

    @property
    def suspects(self) -> Mapping[NodeRef, Suspect]:
        """Those that are suspected."""
        return self._suspects

    def follow(self, alive: Collection[NodeRef]) -> tuple[Suspect, ...]:
        """Only *alive* have a lease: nobody else is suspected any more; returns those that were."""
        for node in self._heard.keys() - alive:
            del self._heard[node]
        return tuple(self._suspects.pop(node) for node in self._suspects.keys() - alive)

    def left(self, node: NodeRef) -> None:
        """It has said good-bye: that it is silent means nothing, until it is heard again."""
        self._heard.pop(node, None)
        self._suspects.pop(node, None)

    def observe(self, heard: Mapping[NodeRef, float], now: float) -> Changed:
        """Take in when nodes were heard last; of those that are missing nothing is new."""
        if self._observed is None or now - self._observed > LATE * self._heartbeat:
            self._awake = now
        self._observed = now
        known, awake, suspects = self._heard, self._awake, self._suspects
        for node, at in heard.items():
            before = known.get(node)
            if before is None or at > before:
                known[node] = at
        least = TOLERANCE * self._heartbeat
        cleared = tuple(
            suspect for node, suspect in suspects.items() if known.get(node, suspect.heard) > suspect.heard + least
        )
        for suspect in cleared:
            del suspects[suspect.node]
        suspected = tuple(
            Suspect(node, since=now, heard=at, look=now)
            for node, at in known.items()
            if now - max(awake, at) >= self._patience and node not in suspects
        )
        suspects |= {suspect.node: suspect for suspect in suspected}
        return Changed(suspected, cleared)

    def due(self, now: float) -> tuple[NodeRef, ...]:
        """List the suspects whose leases are to be looked at now."""
        return tuple(node for node, each in self._suspects.items() if each.look <= now and not each.failed)

    def next_look(self) -> float | None:
        """Tell when the next lease is to be looked at; None if none is."""
        return min((each.look for each in self._suspects.values() if not each.failed), default=None)

    def looked(self, node: NodeRef, left: float | None, now: float) -> bool:
        """Take in what a look at a lease has shown.

        Args:
            node: whose.
            left: seconds until it ends, zero or less if it has; None if there is none, or nobody could look.
            now: when that was.

        Returns:
            Whether it has ended, and the node has failed by that.
        """
        suspect = self._suspects.get(node)
        if suspect is None:
            return False
        if left is None:
            suspect.look = now + self._confirm
            return False
        if left <= 0:
            suspect.failed = True
            return True
        if suspect.ends is not None and now + left > suspect.ends + self._confirm / 2:
            suspect.renewed = True
        suspect.ends = now + left
        until_end = left + MARGIN
        suspect.look = now + (max(self._confirm, until_end) if suspect.renewed else min(self._confirm, until_end))
        return False
