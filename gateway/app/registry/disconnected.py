"""Sessions whose clients are away: what they cost this node, and what is given up when it is too much (P20).

A client says how long its session shall wait for it, up to an hour, and need not be there meanwhile. So what sessions
without a client take is counted, for each principal and for the node, and bounded:

```text
too many bytes ──▶ the buffers of those that have been away for longest       (rung 4, gap; the session stays here)
      still ────▶ the copies of those that have been away for longest         (rung 4; the session stays in the grid)
too many sessions, held here or given back to the grid ──▶ no new ones are opened
```

No session ends for it (P7), and what is lost is declared when its client comes back (P2).

Bodies that several sessions wait for are one object, so ten thousand clients of an office that lost its line cost
little more than one. Each is counted once, as far as it is necessary to know: the sum that counts them each time is at
hand, and only where that is above a bound are the sessions looked through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.shared_runs import DistinctRuns, LookedThrough
from gateway.app.runtime.portions import portions
from gateway.app.session.session import Session
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.pacing.accounts import Account
from gateway.core.pacing.timers import Deadlines
from gateway.core.stream.transitions import State
from gateway.core.types import SessionId

LOOK: Final = 1.0
"""Seconds between two looks at what buffers have grown to. A second of updates that nobody else is sent is little
beside the bounds; what a client brings along when it goes away is counted at once."""

SESSION_BYTES: Final = 4 * 1024
"""Bytes of a session that has no connection, no properties, no selections and nothing in its buffers."""

ENTRY_BYTES: Final = 256
"""Bytes of a property or a selection besides its text, with its places in indexes."""

PACKET_BYTES: Final = 16
"""Bytes of a packet in a buffer besides its body, which it may share."""

KEPT: Final = 0.875
"""Share of a bound that is left when it was exceeded, so that not every further byte makes a look through all."""

SLICE: Final = 5_000
"""Buffered runs that are looked at before others get their turn: about a millisecond."""

SESSIONS_SLICE: Final = 1_000
"""Sessions whose buffers are summed up before others get their turn: one or two milliseconds."""

BUFFERS_SLICE: Final = 100
"""Sessions whose buffers are given up before others get their turn: some milliseconds, if each keeps a thousand."""

COPIES_SLICE: Final = 50
"""Copies that are given up before others get their turn: two or three milliseconds."""

SHED_AT_ONCE: Final = 500
"""Sessions that are looked after at once when memory is short, oldest first: some 20 ms, a few times a second."""


def own_bytes(session: Session) -> int:
    """Tell what a session takes that does not change while its client is away, about."""
    size = SESSION_BYTES
    for properties in (session.properties, session.principal_properties):
        size += sum(ENTRY_BYTES + len(name) + len(value) for name, value in properties.items())
    return size + sum(ENTRY_BYTES + len(entry.selector.text) for entry in session.selections.entries)


def buffered_bytes(session: Session) -> int:
    """Tell what its buffers and its unanswered requests refer to, about; shared bodies count as if they were not."""
    machine = session.machine
    packets = machine.unacknowledged + machine.waiting
    return machine.resend_bytes + machine.waiting_bytes + PACKET_BYTES * packets + session.lane.bytes


class _Kept(NamedTuple):
    """A session that the grid holds, and this node does not.

    Attributes:
        account: of its principal.
        principal: whose it is.
        stored: bytes that it takes in the grid, as far as they are counted.
    """

    account: Account | None
    principal: str
    stored: int


@dataclass(slots=True)
class _Absence:
    """One session whose client is away.

    Attributes:
        own: see ``own_bytes``.
        account: of its principal.
    """

    own: int
    account: Account | None


_Away: TypeAlias = list[tuple[Session, _Absence]]
"""Sessions without a client, in the order in which their clients went."""


class Absences:
    """Bounds what sessions without a client take.

    Args:
        context: of the node.
        store: tells whether the grid holds a session as it is here.
        let_go: drops a session here and leaves it as it is in the grid.
    """

    def __init__(self, context: Context, store: FencedStore, *, let_go: Callable[[Session], None]) -> None:
        self._clock = context.clock
        self._metrics = context.metrics
        self._log = context.log
        self._limits = context.limits
        self._node = context.limits.node
        self._store = store
        self._let_go = let_go
        self._away: dict[Session, _Absence] = {}
        """In the order in which their clients went."""
        self._returned_to_grid: Deadlines[SessionId] = Deadlines()
        self._kept: dict[SessionId, _Kept] = {}
        """Those that are held by the grid alone."""
        self._found: dict[Account, LookedThrough] = {}
        self._pressed = asyncio.Event()
        context.metrics.watch(catalogue.DISCONNECTED_BYTES, lambda: self._node.absent_bytes + self._node.buffered_bytes)
        context.metrics.watch(catalogue.SESSIONS_GIVEN_BACK, lambda: len(self._kept))

    # --- What happens to sessions -------------------------------------------------------------------------------------

    def watch(self, session: Session) -> None:
        """The client of a session has gone."""
        absence = self._away[session] = _Absence(own_bytes(session), session.account)
        for account in self._concerned(absence.account):
            account.absent += 1
            account.absent_bytes += absence.own
            most = account.limits.absent_bytes
            if most and account.absent_bytes > most:
                self._pressed.set()

    def forget(self, session: Session) -> None:
        """It is back, or the session is not held here any more."""
        absence = self._away.pop(session, None)
        if absence is not None:
            for account in self._concerned(absence.account):
                account.absent -= 1
                account.absent_bytes -= absence.own

    def found(self, session: SessionId) -> None:
        """A session is held by a node again, this one or another; it may have been given back to the grid by this."""
        if session in self._kept:
            self._returned_to_grid.cancel(session)
            self._forget_returned(session)

    def _forget_returned(self, session: SessionId) -> None:
        kept = self._kept.pop(session)
        self._limits.stored.keep(kept.principal, -kept.stored)
        for account in self._concerned(kept.account):
            account.absent -= 1

    def left_to_grid(self, session: Session) -> None:
        """A session is about to be dropped here that stays in the grid until its window ends: it counts until then."""
        self.found(session.id)
        kept = self._kept[session.id] = _Kept(session.account, session.principal, session.stored)
        self._limits.stored.keep(kept.principal, kept.stored)
        for account in self._concerned(kept.account):
            account.absent += 1  # it is one of the principal's sessions still, which ``forget`` does not know
        # It is over earlier, as it has been running; the node has no more to go by, and need not know exactly.
        self._returned_to_grid.schedule(session.id, self._clock.monotonic() + session.window)

    def _concerned(self, account: Account | None) -> tuple[Account, ...]:
        return (self._node,) if account is None else (self._node, account)

    # --- Bounds -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep to the bounds for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._pressed.wait()
            self._pressed.clear()
            await self.look()

    async def look(self) -> None:
        """Give up what is above the bounds."""
        now = self._clock.monotonic()
        while ended := self._returned_to_grid.due(now, most=SESSIONS_SLICE):
            for session in ended:
                self._forget_returned(session)
            await asyncio.sleep(0)
        sums, away = await self._sums()
        self._node.buffered_bytes = sums.get(self._node, 0)
        buffers = copies = 0
        # Principals first: who exceeds its own bound must not cost others theirs.
        for account in sorted(sums, key=lambda each: each is self._node):
            most = account.limits.absent_bytes
            if most and account.absent_bytes + sums[account] > most and self._may_exceed(account, sums[account], most):
                buffers += await self._give_up_buffers(account, away[account], sums[account], most)
                await asyncio.sleep(0)
            if most and account.absent_bytes > most:
                copies += await self._give_up_copies(account, away[account], round(KEPT * most))
                await asyncio.sleep(0)
        if buffers or copies:
            self._log.emit(events.DISCONNECTED_GIVEN_UP, buffers=buffers, copies=copies, why="limit")

    def give_up(self, session: Session) -> None:
        """Give up what is kept for a session, though it may be little: its client is to be told of a gap."""
        session.machine.give_up()
        session.lane.abandon()

    def shed(self) -> tuple[int, int]:
        """Give up what some take that have been away for longest, because memory is short.

        Returns:
            Of how many sessions the buffers were given up, and of how many the copies; nothing if nothing is left.
        """
        buffers = copies = 0
        for session in list(self._away):
            if buffers + copies >= SHED_AT_ONCE:
                break
            if self._is_held_by_grid(session):
                self._give_back(session)
                copies += 1
            else:
                buffers += self._give_up_buffer(session)
        return buffers, copies

    async def _sums(self) -> tuple[dict[Account, int], dict[Account, _Away]]:
        """Sum up for each account what the buffers of its sessions refer to, and list these.

        So nobody looks through all sessions for each account: as many may exceed their bounds as there are sessions.
        """
        sums: dict[Account, int] = {}
        away: dict[Account, _Away] = {}
        async for some in portions(list(self._away.items()), SESSIONS_SLICE):
            for session, absence in some:
                size = buffered_bytes(session)
                for account in self._concerned(absence.account):
                    sums[account] = sums.get(account, 0) + size
                    away.setdefault(account, []).append((session, absence))
        self._found = {account: found for account, found in self._found.items() if account in sums}
        return sums, away

    def _may_exceed(self, account: Account, counted: int, most: int) -> bool:
        """Tell whether an account can have exceeded its bound since its sessions were last looked through."""
        found = self._found.get(account)
        return found is None or found.may_exceed(counted, most - account.absent_bytes, self._clock.monotonic())

    async def _give_up_buffers(self, account: Account, away: _Away, counted: int, most: int) -> int:
        """Give up the buffers of those that have been away for longest; returns of how many.

        The latest are kept first, as far as the bound reaches, and whatever they share with older ones is counted once.
        """
        # If the sessions themselves are too much, the oldest of them will not be held any more.
        is_crowded = account.absent_bytes > most
        left = round(KEPT * most) - (0 if is_crowded else account.absent_bytes)
        runs = DistinctRuns()
        taken = given_up = 0
        chosen: list[Session] = []
        for session, absence in reversed(away):
            if session not in self._away:
                continue  # back meanwhile
            runs.looked_at += 1
            taken += absence.own if is_crowded else 0
            taken += buffered_bytes(session) - session.machine.resend_bytes - session.machine.waiting_bytes
            taken += runs.add(session.machine.kept())
            if taken > left:
                chosen.append(session)
            if runs.looked_at >= SLICE:
                runs.looked_at = 0
                await asyncio.sleep(0)
        if not is_crowded and account.absent_bytes + taken <= most:
            self._found[account] = LookedThrough(self._clock.monotonic(), counted, taken)
            return 0
        async for some in portions(chosen, BUFFERS_SLICE):
            given_up += sum(map(self._give_up_buffer, some))
        self._found.pop(account, None)
        self._limits.exceeded(self._name(account), self._who(chosen, account))
        return given_up

    def _give_up_buffer(self, session: Session) -> bool:
        """Give up the buffers of a session; its client will be told that there is a gap, and asks again (rung 4)."""
        machine = session.machine
        if session not in self._away or session.resuming.locked() or not buffered_bytes(session):
            return False
        machine.give_up()
        if machine.state is not State.GAP:
            return False  # it is just going on
        session.lane.abandon()
        self._metrics.add(catalogue.DISCONNECTED_GIVEN_UP, label="buffers")
        return True

    async def _give_up_copies(self, account: Account, away: _Away, most: int) -> int:
        """Give up the copies of those that have been away for longest, until what is left takes *most* bytes."""
        given_up = 0
        for looked_at, (session, _) in enumerate(away, 1):
            if account.absent_bytes <= most:
                break
            if not looked_at % SESSIONS_SLICE:
                await asyncio.sleep(0)
            if session in self._away and self._is_held_by_grid(session):
                self._give_back(session)
                given_up += 1
                if not given_up % COPIES_SLICE:
                    await asyncio.sleep(0)
        if given_up:
            self._limits.exceeded(self._name(account))
        return given_up

    def _is_held_by_grid(self, session: Session) -> bool:
        """Tell whether the grid holds a session as it is here, and ends it when its window is over."""
        return (
            session.on_clock
            and not session.ending
            and not session.resuming.locked()
            and self._store.replicated
            and self._store.available
            and not self._store.must_restore(session)
        )

    def _give_back(self, session: Session) -> None:
        self.left_to_grid(session)
        self._metrics.add(catalogue.DISCONNECTED_GIVEN_UP, label="copies")
        self._let_go(session)

    def _name(self, account: Account) -> str:
        return "limit_disconnected_bytes" if account is self._node else "limit_principal_disconnected_bytes"

    def _who(self, sessions: Iterable[Session], account: Account) -> str:
        return "" if account is self._node else next((session.principal for session in sessions), "")
