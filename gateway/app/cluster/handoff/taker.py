"""The side of a handoff that has claimed the session, and takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Final

from gateway.app.cluster.mirror.holder import MirrorHolder
from gateway.app.cluster.node_links import NodeLinks
from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.session.cuts import Cuts
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue
from gateway.catalogue import mirror_metrics as mirror_catalogue
from gateway.catalogue.metric import Metric
from gateway.core.session.export import restore
from gateway.core.session.handoff import GONE, TAKE, TAKEN, Given, GiveStatus, Take, assume, is_outdated
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.transitions import State
from gateway.core.types import NodeRef, TokenGeneration
from gateway.core.wire.errors import InvalidExport
from gateway.core.wire.packets import Resume, Subscribe
from gateway.ports import GridUnavailable
from gateway.ports.peers import Declined, NoLink, Silent

TAKE_SECONDS: Final = 0.25
"""Seconds in which the former owners have to answer, all together: five times what one waits for requests that it has
begun. Then the session fails over; its client, which waits for a welcome meanwhile, hardly notices."""

COPY_SECONDS: Final = 2.0
"""Seconds in which a node that is heard has to answer for a copy that it keeps. All clients of a node that has died ask
together, and the one that answers serves most of them itself. Nobody else has what the client is owed, so that it is
worth waiting for: twice as long as it takes to see that a node hangs."""

BACKUPS_KNOWN: Final = 0.5
"""Seconds for which it is remembered who the backup of a node is: its clients come together when it has died."""

BACKUPS_REMEMBERED: Final = 1000
"""Nodes of which that is remembered, at most."""

LINK_SECONDS: Final = 0.5
"""Seconds for which clients wait together until there is a link to the node that has copies. One that has just started
may have none yet, and is the one that a load balancer sends most clients to."""

JUST_STARTED: Final = 5.0
"""Seconds from the start of this node within which it may have no links at all yet."""

FIRST_LINK_SECONDS: Final = 1.5
"""Seconds for which clients wait then: a node looks after a second who the others are."""

LINKS_IN_TURN: Final = 5
"""Links to a node by which it is asked, one after the other: one that has just started may have several in turn."""

LINK_PAUSE: Final = 0.01
"""Seconds between two of these."""

_BROKEN: Final = frozenset({"no_link", "silent"})
"""What comes of a question whose link breaks."""

LINK_AGAIN: Final = 5.0
"""Seconds until clients wait once more for a link to a node to which there was none."""

SILENCE_SECONDS: Final = 1.0
"""Seconds since another node was heard, after which it is not asked: two heartbeats, so that it hangs or is cut off."""


class SessionTaker:
    """Asks the nodes that have served a session for what it was there.

    Args:
        context: of the node.
        links: to the other nodes; None if there are none.
        sessions: the sessions held here, and those that were.
        store: writes those again of which the grid has lost something.
        holder: the copies that are held here of other nodes' sessions; None if there are no links.
    """

    def __init__(
        self,
        context: Context,
        links: NodeLinks | None,
        sessions: Sessions,
        store: FencedStore,
        holder: MirrorHolder | None,
    ) -> None:
        self._me = context.me
        self._clock = context.clock
        self._metrics = context.metrics
        self._session_parameters = context.parameters.session
        self._grid = context.grid
        self._links = links
        self._limits = context.limits
        self._sessions = sessions
        self._store = store
        self._holder = holder
        self._began = context.clock.monotonic()
        self._changed = asyncio.Event()
        """Set whenever a link comes or goes."""
        self._given_up: dict[NodeRef, float] = {}
        """When waiting for a link to a node ends, or has ended."""
        if links is not None:
            links.on_change(lambda _: self._changed.set())
        self._backups: dict[NodeRef, tuple[float, NodeRef | None]] = {}
        """Who has copies of a node's sessions, and when the grid was asked."""

    def may_take(self, session: Session, former: Sequence[NodeRef]) -> bool:
        """Tell whether one of the former owners of a session can be asked for it."""
        return self._links is not None and any(self._is_reachable(each, session) for each in dict.fromkeys(former))

    @property
    def has_links(self) -> bool:
        """Whether there may be other nodes to ask."""
        return self._links is not None

    async def take(
        self, session: Session, former: Sequence[NodeRef], presented: TokenGeneration | None = None
    ) -> Cuts | None:
        """Have a session that was claimed go on with what a former owner held of it.

        Args:
            session: as it was made of its record, without a connection; its machine, requests and answers are replaced.
            former: the owners before, the last one first.
            presented: generation of the token that its client has shown; None if it is away.

        Returns:
            How far it has come, now detached; None if nobody gave it and it is as it was, or if it was lost meanwhile.
        """
        until = self._clock.monotonic() + TAKE_SECONDS
        for node in dict.fromkeys(former):
            if not self._is_reachable(node, session):
                continue
            given = await self._ask(node, session, until, catalogue.HANDOFFS)
            if session.dropped:
                return None
            if isinstance(given, Given) and self._assume(session, given, presented):
                session.given_by = None if node == self._me else node
                return await self._go_on(session, given)
        return None

    # --- Copies -------------------------------------------------------------------------------------------------------

    async def find_copies(self, session: Session, former: Sequence[NodeRef]) -> list[NodeRef]:
        """Find the nodes that may have a copy of a session: the backups of its former owners, then this one.

        What the grid says comes first. A node that was parted from another one keeps the copies that it had, and knows
        not whether that one has found another backup since, which has newer ones.

        Args:
            session: which.
            former: the owners before, the last one first.
        """
        now = self._clock.monotonic()
        nodes = list(dict.fromkeys(node for node in former if node != self._me))
        unknown = [node for node in nodes if self._backups.get(node, (-inf, None))[0] < now - BACKUPS_KNOWN]
        if unknown:
            with suppress(GridUnavailable):
                found = await self._grid.nodes.backups(*unknown)
                if len(self._backups) > BACKUPS_REMEMBERED:
                    self._backups.clear()
                for node in unknown:
                    backup = found.get(node)
                    self._backups[node] = now, None if backup is None else backup.node
        backups = [self._backups.get(node, (0.0, None))[1] for node in nodes]
        is_here = self._holder is not None and session.id in self._holder
        return [
            node for node in dict.fromkeys((*backups, self._me)) if node is not None and (is_here or node != self._me)
        ]

    async def take_copy(
        self, session: Session, backups: Sequence[NodeRef], packet: Resume, presented: TokenGeneration
    ) -> Cuts | None:
        """Have a session that was claimed go on with a copy of it, if that has all that its client knows of.

        Args:
            session: as for ``take``.
            backups: the nodes that may have one.
            packet: what its client has said of its packets.
            presented: generation of the token that it has shown.

        Returns:
            As ``take``.
        """
        for node in backups:
            given: Given | str = "no_link"
            for _ in range(LINKS_IN_TURN):
                if session.dropped or not await self._wait_for_link(node):
                    break
                until = self._clock.monotonic() + self._copy_patience(node)
                given = await self._ask(node, session, until, mirror_catalogue.MIRROR_TAKES)
                if isinstance(given, Given) or given not in _BROKEN or self._clock.monotonic() >= until:
                    break
                # That it has broken is told a moment later.
                await asyncio.sleep(LINK_PAUSE)
            if session.dropped:
                return None
            if isinstance(given, Given) and self._assume(session, given, presented, packet):
                session.given_by = None if node == self._me else node
                session.from_copy = True
                if node == self._me and self._holder is not None:
                    self._holder.taken(session.ownership)
                return await self._go_on(session, given)
        return None

    def _copy_patience(self, node: NodeRef) -> float:
        """Tell for how many seconds a node may be asked for a copy."""
        if self._links is not None and node != self._me and self._links.state(node).silence >= SILENCE_SECONDS:
            return TAKE_SECONDS
        return COPY_SECONDS

    async def _wait_for_link(self, node: NodeRef) -> bool:
        """Wait until there is a link to a node, for as long as all who need it wait together; tells if there is one."""
        if self._links is None or node == self._me:
            return True
        now = self._clock.monotonic()
        until = self._given_up.get(node, -inf)
        if until + LINK_AGAIN < now:
            if len(self._given_up) > BACKUPS_REMEMBERED:
                self._given_up.clear()
            is_new = now < self._began + JUST_STARTED
            until = self._given_up[node] = now + (FIRST_LINK_SECONDS if is_new else LINK_SECONDS)
        while not self._links.state(node).up and (left := until - self._clock.monotonic()) > 0:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()
        return self._links.state(node).up

    # --- Both ---------------------------------------------------------------------------------------------------------

    def confirm(self, session: Session) -> None:
        """Tell the node that gave a session that its client is served here: it need not be kept there any more."""
        node, session.given_by = session.given_by, None
        if node is not None and self._links is not None:
            with suppress(NoLink):  # then it is kept there for some seconds more
                self._links.links.send(node, TAKEN, Take(session.id, session.epoch).encode())

    async def _go_on(self, session: Session, given: Given) -> Cuts | None:
        """See to it that the grid holds a session as it was given, before its client is told that it goes on (P1).

        It is asked only if it has lost writes that the former owner had made; if that fails it is done as soon as it
        can be, as for all sessions that are held here.

        Returns:
            How far the session has come; None if it was lost meanwhile.
        """
        # A subscribe that was under way may be in the grid's list, and its values were not in line: they are owed, too.
        pending = (each for each in session.pending if isinstance(each, Subscribe))
        begun = {each.request: each.selector for each in pending if each.resubmitted}
        session.arriving = cuts = Cuts(given.cuts, {**begun, **given.unfinished})
        if self._store.must_restore(session):
            self._limits.recount(session)
            await self._store.attempt(partial(self._store.write_again, (session,)))
        return None if session.dropped else cuts

    def _is_reachable(self, node: NodeRef, session: Session) -> bool:
        if self._links is None:
            return False
        if node == self._me:
            return session.id in self._sessions.former
        state = self._links.state(node)
        return state.up and state.silence < SILENCE_SECONDS

    async def _ask(self, node: NodeRef, session: Session, until: float, counter: Metric) -> Given | str:
        """Ask one node; counts why it has given nothing, and tells it by the label of the metric."""
        began = self._clock.monotonic()
        try:
            given = await self._asked(node, session, until - began)
        except NoLink:
            result = "no_link"
        except Declined:
            result = "declined"
        except Silent:
            result = "silent"
        except InvalidExport:
            result = "invalid"
        else:
            if given.status is GiveStatus.GIVEN:
                self._metrics.observe(catalogue.HANDOFF_SECONDS, self._clock.monotonic() - began)
                return given
            result = given.status.value
        self._metrics.add(counter, label=result)
        return result

    async def _asked(self, node: NodeRef, session: Session, within: float) -> Given:
        if node == self._me:
            claim = session.ownership
            if session.id in self._sessions.former:
                # It has been elsewhere, and nobody there had a word with its client.
                return self._sessions.former.give(claim, session.attempt)
            return GONE if self._holder is None else self._holder.give(claim, session.attempt)
        if self._links is None or within <= 0:
            raise NoLink("there is no time left to ask")
        take = Take(session.id, session.epoch)
        return Given.decode(await self._links.links.ask(node, TAKE, take.encode(), within=within))

    def _assume(
        self, session: Session, given: Given, presented: TokenGeneration | None, packet: Resume | None = None
    ) -> bool:
        """Have a session go on with what was given, detached; False if it cannot.

        Args:
            session: which.
            given: what it is to go on with.
            presented: see ``take``.
            packet: what its client has said, for a copy: that may lack what its node did last.
        """
        result = "given"
        try:
            restored = restore(given.session, self._clock.monotonic())
            if presented is not None and is_outdated(restored, presented):
                result = "outdated"
            elif packet is not None and not _has_all(restored.machine, packet, presented):
                result = "behind"
            else:
                assume(session, restored)
                session.machine.adopt(self._session_parameters)
        except InvalidExport:
            result = "invalid"
        self._metrics.add(catalogue.HANDOFFS if packet is None else mirror_catalogue.MIRROR_TAKES, label=result)
        return result == "given"


def _has_all(machine: SessionMachine, packet: Resume, presented: TokenGeneration | None) -> bool:
    """Tell whether a copy has all packets that its client says it has had, or cannot send again."""
    if machine.state is not State.DETACHED:
        return False
    machine.resume()
    has_all = machine.can_reattach(received=packet.received, oldest=packet.oldest, generation=presented)
    machine.detach()
    return has_all
