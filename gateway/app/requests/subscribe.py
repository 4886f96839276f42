"""Subscribe and unsubscribe: how a session's list of selections changes (protocol 6.3, 6.5).

A change costs what the entries cost that change. What it costs besides, because a selector is hard to judge or to
compare, because many entries go, or because many topics have to be looked at for the values, is bounded and charged to
the session's budget of packets (P20).
"""

from __future__ import annotations

from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.delivery import Delivery
from gateway.app.journal.session_events import SelectionsChanged
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.requests.turns import SELECTOR_COST, STEPS_PER_PACKET, Turns, rest
from gateway.app.runtime.clock import Clock
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.session import Session
from gateway.core.topics.entry_index import Entry, entry_bytes
from gateway.core.topics.selections import MOST_KEPT, ListChanges, Selections
from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.topics.work import Work
from gateway.core.wire.errors import InvalidSelector
from gateway.core.wire.packets import Reply, Subscribe, Unsubscribe

ENTRIES_PER_PACKET: Final = 4
"""Entries that come or go in that time, in the node and in the grid, besides the first."""

BYTES_PER_PACKET: Final = 256
"""Bytes of entries that are written to the grid in that time; usual entries have fewer."""

TOPICS_PER_PACKET: Final = 40
"""Topics that are looked at in that time, to find those whose values follow a subscribe."""


class _Cost:
    """What a request turns out to cost.

    Attributes:
        judging: work of comparing selectors with the policy.
        compacting: work of finding entries that decide nothing any more.
        entries: how many come or go, besides one.
        size: bytes of those that come.
        topics: looked at for their values.
    """

    __slots__ = ("compacting", "entries", "judging", "size", "topics")

    def __init__(self) -> None:
        self.judging = Work()
        self.compacting = Work()
        self.entries = self.size = self.topics = 0

    def changed(self, changes: ListChanges | None, selections: Selections) -> None:
        """Take in what changes of the list; None if all of it is written."""
        added = selections.entries if changes is None else changes.added
        self.entries += max(0, len(added) + (0 if changes is None else len(changes.removed)) - 1)
        self.size += sum(map(entry_bytes, added))

    def effort(self) -> int:
        """Tell how many packets could have been served in that time, besides the one that it was."""
        return (
            (self.judging.taken + self.compacting.taken) // STEPS_PER_PACKET
            + self.entries // ENTRIES_PER_PACKET
            + self.size // BYTES_PER_PACKET
            + self.topics // TOPICS_PER_PACKET
        )


class Selecting:
    """Changes what sessions select.

    Args:
        context: of the node.
        store: where the change is written ahead (P4).
        delivery: where it takes effect.
        authorisation: judges it.
        turns: bounds what is done in one turn of the loop.
    """

    def __init__(
        self,
        context: Context,
        store: FencedStore,
        delivery: Delivery,
        authorisation: Authorisation,
        turns: Turns,
    ) -> None:
        self._turns = turns
        self._clock: Clock = context.clock
        self._limits = context.limits
        self._announce = context.announce
        self._store = store
        self._delivery = delivery
        self._authorisation = authorisation

    async def select(self, session: Session, request: Subscribe | Unsubscribe) -> None:
        """Execute a request, and answer it.

        Raises:
            RequestRefused: the selector is none, is not allowed, or is one too many.
            Outdated, SessionLost: see ``fencing``.
            GridUnavailable: it may have been executed; asking again does no harm.
        """
        selector = parse_selector(request.selector)
        kept = _kept(request)
        await rest(session, self._clock)
        await self._delivery.room(session)
        cost = _Cost()
        try:
            async with session.selecting:
                await self._select(session, request, selector, kept, cost)
        finally:
            self._limits.recount(session)
            self._limits.charge_work(session, cost.effort())

    async def _select(
        self, session: Session, request: Subscribe | Unsubscribe, selector: Selector, kept: list[Entry], cost: _Cost
    ) -> None:
        changes: bool | None = None
        while True:
            before, permissions = session.selections, session.permissions
            wanted = await self._wanted(session, request, selector, kept, cost)
            if changes is None:
                changes = wanted != before
            await self._delivery.prepare(session, wanted)
            if isinstance(request, Subscribe):
                await self._watch(selector)
            if wanted != before:
                cost.changed(wanted.changes_since(before), wanted)
                await self._store.select(session, wanted)
            if session.selections == before and session.permissions is permissions:
                break
            # Something may have been withdrawn meanwhile, and what is written may be more than is allowed.
            self._authorisation.record(session)
        in_force = self._delivery.in_force(session)
        self._delivery.select(session, wanted)
        if changes:
            sign = "+" if isinstance(request, Subscribe) else "-"
            self._announce(SelectionsChanged(session, [sign + selector.text, *map(str, kept)]))
        session.reply(Reply(request=request.request))
        if isinstance(request, Subscribe):
            cost.topics = self._delivery.feed(session, selector, before=in_force, request=request.request)

    async def _watch(self, selector: Selector) -> None:
        """Have it told who is present, if the session wants to know that; the copies here have it then."""
        presence = self._delivery.watchers.presence
        if (numbers := presence.partitions((selector,))) and await presence.watch(numbers):
            await self._delivery.barrier.wait(numbers, self._clock.monotonic())

    async def _wanted(
        self, session: Session, request: Subscribe | Unsubscribe, selector: Selector, kept: list[Entry], cost: _Cost
    ) -> Selections:
        """Tell what the session's list will be, unless it changes meanwhile; many long selectors take several turns.

        Raises:
            RequestRefused: it may not be.
        """
        await self._turns.turn(SELECTOR_COST * len(selector.text), session.principal)
        if isinstance(request, Subscribe):
            self._authorisation.check_select(session, selector, cost.judging)
            wanted = session.selections.select(selector, cost.compacting)
        else:
            wanted = session.selections.deselect(selector, cost.compacting)
            # Nothing needs a permission to stay, but what may not be selected any more must not come back this way.
            for entry in self._authorisation.allowed(session, Selections(kept), cost.judging) if kept else ():
                await self._turns.turn(SELECTOR_COST * len(entry.selector.text), session.principal)
                wanted = wanted.select(entry.selector, cost.compacting)
        self._limits.check_selections(session, wanted)
        return wanted


def _kept(request: Subscribe | Unsubscribe) -> list[Entry]:
    """Read what an unsubscribe leaves selected.

    Raises:
        InvalidSelector: one is none, or there are too many.
    """
    keep = request.keep if isinstance(request, Unsubscribe) else ()
    if len(keep) > MOST_KEPT:
        raise InvalidSelector(f"an unsubscribe keeps at most {MOST_KEPT} selectors, not {len(keep)}")
    return [Entry(selects=True, selector=parse_selector(each)) for each in keep]
