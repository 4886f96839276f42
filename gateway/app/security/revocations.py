"""What is revoked, as a node knows it: complete before it serves anybody, kept in step with the grid."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from gateway.app.context import Context
from gateway.app.security.enforcement import Enforcement
from gateway.app.session.session import Session
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.policy.revocations import (
    MAX_REVOCATION_REASON,
    MAX_REVOKED_VALUE,
    Revocation,
    RevocationKind,
    RevocationTable,
    name_of,
)
from gateway.core.wire.errors import GatewayError
from gateway.ports import (
    AllRevocations,
    GridUnavailable,
    RevocationNews,
    SessionRecord,
    Unblocked,
)

RESTORE_RETRY: Final = 0.2
"""Seconds before revocations are put back again after the grid became unreachable in the middle."""

FORGET_INTERVAL: Final = 30.0
"""Seconds between two looks for revocations that are over. Nothing depends on it: they refuse nobody by then."""

FORGET_GRACE: Final = 300.0
"""Seconds after its end until a revocation is deleted: longer than the clocks of two nodes may ever differ, so that
the one that is ahead does not end what the other still enforces."""

_UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of what can forge lines of a log, or cannot be encoded."""


class InvalidRevocation(GatewayError):
    """What was asked for cannot be revoked; the message says why."""


class TooManyRevocations(GatewayError):
    """As many revocations as every node may hold are there already."""


@dataclass(frozen=True, slots=True)
class RevocationPage:
    """A part of the list of revocations.

    Attributes:
        revocations: in the order of their names.
        after: the name to go on from; None if there are no more.
    """

    revocations: tuple[Revocation, ...]
    after: str | None


@dataclass(slots=True, eq=False)
class _Changing:
    """A change that the grid has been asked for and has not answered yet.

    Attributes:
        name: of the revocation.
        heard: whether news of it have come meanwhile.
    """

    name: str
    heard: bool = False


class Revocations:
    """What is revoked, as this node knows it.

    Args:
        context: of the node.
        enforcement: sees to it that it is heeded.

    Attributes:
        loaded: whether the grid has been read: until then nobody can tell who is to be refused.
    """

    def __init__(self, context: Context, enforcement: Enforcement) -> None:
        self._enforcement = enforcement
        self._parameters = context.parameters
        self._clock = context.clock
        self._grid = context.grid
        self._background = context.background
        self._log = context.log
        self._started = self._clock.wall() - self._clock.monotonic()
        self._table = RevocationTable()
        self._changing: list[_Changing] = []
        self.loaded = False
        for kind in RevocationKind:
            context.metrics.watch(catalogue.REVOCATIONS, partial(self._count, kind), label=kind.value)

    # --- For administrators -------------------------------------------------------------------------------------------

    async def revoke(
        self, kind: RevocationKind, value: str, *, reason: str = "", until: float | None = None
    ) -> Revocation:
        """Refuse a session, a principal or a credential from now on, everywhere.

        When this returns, the grid holds the revocation and this node begins to close what it concerns; all others do
        within a second.

        Args:
            kind: what *value* is.
            value: to be revoked.
            reason: for people; shown to administrators and in logs, never to the client.
            until: when it ends, in seconds since 1970; None for never. That of a session ends when the last of its
                tokens has expired at the latest, as nothing is left then that could be refused.

        Returns:
            The revocation, in the place of an earlier one of the same.

        Raises:
            InvalidRevocation, TooManyRevocations: see there; nothing was done.
            GridUnavailable: to be tried again. It may have been done, and if so, everywhere.
        """
        now = self._now()
        _check_text("the value", value, least=1, most=MAX_REVOKED_VALUE)
        _check_text("the reason", reason, least=0, most=MAX_REVOCATION_REASON)
        if until is not None and until <= now:
            raise InvalidRevocation("the end of the revocation has passed already; give a time to come, or none")
        name = name_of(kind, value)
        if self._table.get(name) is None and len(self._table) >= self._parameters.revocations:
            raise TooManyRevocations(
                f"{len(self._table)} revocations are in force, and nodes hold no more (limit_revocations); "
                "unblock some, give those of credentials an end, or raise the limit on all nodes"
            )
        if kind is RevocationKind.SESSION:
            last = now + self._parameters.token_life
            until = last if until is None else min(until, last)
        revocation = Revocation(kind=kind, value=value, reason=reason, made=now, until=until)
        await self._change(revocation, self._grid.revocations.add(revocation))
        self._log.emit(events.REVOCATION_MADE, kind=kind.value, revoked=value, reason=reason, until=until)
        return revocation

    async def unblock(self, kind: RevocationKind, value: str) -> bool:
        """Refuse it no more. Sessions that were ended stay ended.

        Returns:
            False if there is no such revocation.

        Raises:
            GridUnavailable: to be tried again; it may have been done.
        """
        name = name_of(kind, value)
        known = self._table.get(name) is not None
        # Asked of the grid all the same: this node may not have heard of it yet.
        await self._change(Unblocked(name), self._grid.revocations.unblock(name))
        if known:
            self._log.emit(events.UNBLOCKED, kind=kind.value, revoked=value)
        return known

    def find(self, kind: RevocationKind, value: str) -> Revocation | None:
        """Return one revocation, or None."""
        return self._table.get(name_of(kind, value))

    def page(self, *, limit: int, after: str = "") -> RevocationPage:
        """List revocations in the order of their names.

        Args:
            limit: most in this page.
            after: where the page before ended; '' for the first.
        """
        found = self._table.after(after, limit + 1)
        page = tuple(found[:limit])
        return RevocationPage(page, page[-1].name if len(found) > limit else None)

    # --- For the handshake --------------------------------------------------------------------------------------------

    def is_revoked(
        self, *, session: str | None = None, principal: str | None = None, credential: str | None = None
    ) -> bool:
        """Tell whether any of these is revoked."""
        if self._table.empty:
            return False
        found = self._table.find(self._now(), session=session, principal=principal, credential=credential)
        return found is not None

    def refuses(self, session: Session | SessionRecord) -> bool:
        """Tell whether a session may not go on: something of it is revoked, or its principal is not there any more."""
        return self._enforcement.is_unknown(session) or self.is_revoked(
            session=session.id, principal=session.principal, credential=session.credential
        )

    # --- Background ---------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Hear what is revoked, for ever."""
        async for news in self._grid.revocations.follow():
            await self._hear(news)

    async def forget(self) -> None:
        """Delete revocations that are over, for ever."""
        while True:
            await asyncio.sleep(self._clock.about(FORGET_INTERVAL))
            over = self._table.due(self._now() - FORGET_GRACE)
            if over:
                try:
                    await self._grid.revocations.forget(over)
                except GridUnavailable:
                    for each in over:
                        if self._table.get(each.name) is None:
                            self._table.put(each)  # the next look finds it again

    def _now(self) -> float:
        """Tell the time of day by which revocations end: no clock that is set ahead ends one (P8).

        What this node forgets is forgotten in the grid, for all nodes and for good. Where the clock was set right by
        that, revocations end later here, and others forget them.
        """
        return min(self._clock.wall(), self._started + self._clock.monotonic())

    def _count(self, kind: RevocationKind) -> float:
        return float(self._table.count(kind))

    # --- Inside -------------------------------------------------------------------------------------------------------

    async def _change(self, change: Revocation | Unblocked, step: Awaitable[None]) -> None:
        """Have the grid changed, and then what is known here, without waiting for the news of it."""
        changing = _Changing(change.name)
        self._changing.append(changing)
        try:
            await step
        finally:
            self._changing.remove(changing)
        # The news may have been faster than the answer, and have told already of a later change by somebody else.
        if not changing.heard:
            self._take_in([change])

    async def _hear(self, news: RevocationNews) -> None:
        for changing in self._changing:
            changing.heard |= isinstance(news, AllRevocations) or changing.name in {each.name for each in news.changes}
        if not isinstance(news, AllRevocations):
            self._take_in(news.changes)
            return
        known = self._table
        self._table = RevocationTable(news.revocations)
        if news.lost_writes:
            held = {each.name: each for each in news.revocations}
            missing = [each for each in known if each.name not in held or held[each.name].made < each.made]
            for each in missing:
                self._table.put(each)
            if missing:
                self._background.once(self._restore(missing), "restore-revocations")
        if not self.loaded or news.lost_writes:
            self._log.emit(events.REVOCATIONS_READ, revocations=len(self._table), lost_writes=news.lost_writes)
        self.loaded = True
        self._enforce(self._table)

    def _take_in(self, changes: Sequence[Revocation | Unblocked]) -> None:
        made: dict[str, Revocation] = {}
        for change in changes:
            if isinstance(change, Unblocked):
                self._table.drop(change.name)
                made.pop(change.name, None)
            elif self._table.put(change):
                made[change.name] = change
        if made:
            self._enforce(made.values())

    def _enforce(self, made: Iterable[Revocation]) -> None:
        now = self._now()
        self._enforcement.enforce([each for each in made if each.in_force(now)])

    async def _restore(self, missing: Sequence[Revocation]) -> None:
        """Put back what the grid has lost, unless it was unblocked meanwhile."""
        while True:
            left = [each for each in missing if self._table.get(each.name) == each]
            try:
                written = await self._grid.revocations.restore(left)
            except GridUnavailable:
                await asyncio.sleep(RESTORE_RETRY)
                continue
            self._log.emit(events.REVOCATIONS_RESTORED, revocations=written)
            return


def _check_text(what: str, text: str, *, least: int, most: int) -> None:
    if not least <= len(text) <= most:
        raise InvalidRevocation(f"{what} has {len(text)} characters; {least} to {most} are allowed")
    if any(unicodedata.category(character) in _UNPRINTABLE for character in text):
        raise InvalidRevocation(f"{what} holds characters that cannot be printed")
