"""The nodes of the cluster, their leases, and who takes over from whom."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from gateway.core.types import NodeRef
from gateway.ports.sessions import Ownership


@dataclass(frozen=True, slots=True)
class LeaseTable:
    """The nodes of the cluster as one renewal saw them.

    Attributes:
        alive: nodes whose lease holds, sorted; the caller is among them.
        lapsed: nodes whose lease ended and whose sessions nobody has finished putting on the clock.
        watched: whether a node has said that somebody watches the system's topics there, and that is not over.
    """

    alive: tuple[NodeRef, ...]
    lapsed: tuple[NodeRef, ...]
    watched: bool = False


class NodeDirectory(Protocol):
    """Who is there: leases by the grid's clock, and who takes over from whom."""

    async def join(self, node: NodeRef, *, lease: float) -> None:
        """Take a lease of *lease* seconds, also after it lapsed.

        Raises:
            GridUnavailable: see the module.
        """

    async def renew(self, node: NodeRef, *, lease: float, watch: float = 0.0) -> LeaseTable:
        """Extend the lease and look around.

        Args:
            node: which.
            lease: its length in seconds.
            watch: seconds for which everybody who renews shall see ``watched``, from now on; 0 leaves it as it is.

        Raises:
            LeaseLost: the lease lapsed and a survivor may have taken over; ``join`` again, then verify every session.
            GridUnavailable: see the module.
        """

    async def leave(self, node: NodeRef) -> None:
        """Give the lease back after a drain; nobody needs to take over.

        Raises:
            GridUnavailable: see the module.
        """

    async def take_over(self, lapsed: NodeRef, *, by: NodeRef, within: float) -> bool:
        """Win the right to put the sessions of *lapsed* on the clock.

        Exactly one caller gets True; if it has not called ``finish_takeover`` within *within* seconds, the next caller
        may win. False too if the node has come back.

        Raises:
            GridUnavailable: see the module.
        """

    async def finish_takeover(self, lapsed: NodeRef, *, by: NodeRef) -> None:
        """Declare that every session of *lapsed* is on the clock; it will not be listed as lapsed again.

        Raises:
            GridUnavailable: see the module.
        """

    async def tell_claimed(self, to: NodeRef, *rights: Ownership) -> None:
        """Tell a living former owner that sessions were claimed from it, so that it drops its copies now.

        At most once and best effort: fencing does not depend on it. Delivered by ``claimed_elsewhere``.

        Raises:
            GridUnavailable: see the module.
        """

    def claimed_elsewhere(self, node: NodeRef) -> AsyncIterator[Ownership]:
        """Yield what others told *node* by ``tell_claimed``; goes on by itself when the grid was away."""
