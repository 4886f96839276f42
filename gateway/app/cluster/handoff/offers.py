"""Sessions without clients are offered to other nodes before a planned stop: they keep what they are owed (P12).

```text
A stops ── offer {sessions, epochs} ─▶ C: passes each on to itself in the grid (window runs on, epoch + 1)
   ▲                                       │
   └────────────── take, as for any other session that C has claimed
```
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from gateway.app.cluster.handoff.giver import SessionGiver
from gateway.app.cluster.node_links import NodeLinks
from gateway.app.context import Context
from gateway.app.registry.sessions import Sessions
from gateway.app.session.session import Session
from gateway.catalogue import log_events as events
from gateway.core.policy.system_roles import is_of_system
from gateway.core.session.handoff import OFFER, Take, decode_accepted, encode_offer
from gateway.core.stream.transitions import State
from gateway.core.types import NodeRef
from gateway.core.wire.errors import InvalidExport
from gateway.ports import GridUnavailable
from gateway.ports.peers import Declined, NoLink, Silent

OFFERED_AT_ONCE: Final = 20
"""Sessions of one offer: a few milliseconds of work for the node that accepts them, and some hundred kibibytes."""

OFFER_SECONDS: Final = 5.0
"""Seconds to wait for an answer: a session that is accepted is read, copied and brought up to date meanwhile."""

LEAST_SECONDS: Final = 5.0
"""Seconds that there are for it even if the drain has used up its time, because a client did not leave. With the last
answers, a planned stop takes 15 s more than ``drain_timeout`` at most; process managers are told to wait longer."""


class SessionOffers:
    """Offers the sessions of a node that stops.

    Args:
        context: of the node.
        links: to the other nodes.
        sessions: the sessions held here.
        giver: gives those that are accepted.
    """

    def __init__(self, context: Context, links: NodeLinks, sessions: Sessions, giver: SessionGiver) -> None:
        self._me = context.me
        self._clock = context.clock
        self._grid = context.grid
        self._log = context.log
        self._links = links
        self._sessions = sessions
        self._giver = giver

    async def offer(self, until: float) -> None:
        """Offer all that can go on elsewhere to all nodes that stay, as evenly as they accept them.

        Args:
            until: when to stop, by the monotonic clock; there are some seconds in any case.
        """
        waiting = deque(session for session in self._sessions if self._is_offered(session))
        if not waiting:
            return
        until = max(until, self._clock.monotonic() + LEAST_SECONDS)
        accepted = 0
        accepting = await self._staying()
        # What one node has not accepted is there for those that go on accepting.
        while waiting and accepting and self._clock.monotonic() < until:
            answers = await asyncio.gather(*(self._offer_to(node, waiting, until) for node in accepting))
            accepted += sum(count for count, _ in answers)
            accepting = [node for node, (_, goes_on) in zip(accepting, answers, strict=True) if goes_on]
        left = sum(map(self._is_offered, self._sessions))
        self._log.emit(events.SESSIONS_PASSED_ON, sessions=accepted, left=left)

    def _is_offered(self, session: Session) -> bool:
        return (
            session.on_clock
            and not session.dropped
            and not session.connected
            and session.machine.state is State.DETACHED
            and not is_of_system(session.roles)
            and self._giver.may_give(session)
        )

    async def _staying(self) -> list[NodeRef]:
        """List the nodes that have a link and do not drain themselves."""
        try:
            entries = await self._grid.nodes.entries()
        except GridUnavailable:
            return []  # nothing can be passed on either
        return [
            entry.node
            for entry in entries
            if entry.alive
            and entry.node != self._me
            and (entry.report is None or not entry.report.draining)
            and self._links.state(entry.node).up
        ]

    async def _offer_to(self, node: NodeRef, waiting: deque[Session], until: float) -> tuple[int, bool]:
        """Offer sessions to one node until none are left, or it accepts none of some.

        Returns:
            How many it has accepted, and whether it may accept more.
        """
        accepted = 0
        while waiting and self._clock.monotonic() < until:
            some = [waiting.popleft() for _ in range(min(OFFERED_AT_ONCE, len(waiting)))]
            offered = [session for session in some if self._is_offered(session)]
            if not offered:
                continue
            count = await self._ask(node, [Take(session.id, session.epoch) for session in offered])
            if not count:
                waiting.extend(offered)
                return accepted, False
            accepted += count
        return accepted, True

    async def _ask(self, node: NodeRef, offered: Sequence[Take]) -> int:
        try:
            answer = await self._links.links.ask(node, OFFER, encode_offer(offered), within=OFFER_SECONDS)
            return min(decode_accepted(answer), len(offered))
        except (NoLink, Declined, Silent, InvalidExport):
            return 0
