"""Revocation: sessions, principals and credentials that every node refuses from now on (P8: revoked means refused).

```text
revoke ──▶ grid ──▶ every node's follower ──▶ its table ──▶ hello, resume: refused
                                              └──▶ sessions held here: sockets closed at once, then ended in the grid
```

The table of each node is complete before the node serves anybody, and is kept while the grid is away. If the grid comes
back with less than it had, every node puts back what it knows: a revocation is lost only with the last node.

Which sessions are concerned is found by looking at all of them, once for all changes that arrive together. That is
about a millisecond for 10,000 sessions; an index by principal and credential would cost each of them memory all its
life, for something that happens a few times a day.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from gateway.app.context import Context
from gateway.app.persistence import Persistence
from gateway.app.session import Session
from gateway.app.sessions import Sessions
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.codes import ErrorCode
from gateway.core.errors import GatewayError
from gateway.core.revocations import (
    MAX_REVOCATION_REASON,
    MAX_REVOKED_VALUE,
    Revocation,
    RevocationKind,
    RevocationTable,
    name_of,
)
from gateway.core.system_roles import is_of_system
from gateway.core.types import SessionId
from gateway.ports import (
    AllRevocations,
    Directory,
    Fenced,
    GridUnavailable,
    Lifted,
    Ownership,
    RevocationNews,
    SessionRecord,
)

CLOSED_PER_TURN: Final = 100
"""Sessions whose sockets are closed in one turn of the loop: some milliseconds, then others have their turn."""

ENDED_TOGETHER: Final = 100
"""Sessions that are ended in the grid at the same time: some milliseconds of the grid's time."""

RESTORE_RETRY: Final = 0.2
"""Seconds before revocations are put back again after the grid went away in the middle."""

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
    """What is revoked, as this node knows it, and what follows from it.

    Args:
        context: of the node.
        sessions: the sessions held here.
        persistence: ends them in the grid.
        directory: of all principals: those that it does not know any more count as revoked; None if nobody knows all.
        administrators: likewise of those who have consoles; what is vouched for of them must not have changed either.

    Attributes:
        loaded: whether the grid has been read: until then nobody can tell who is to be refused.
    """

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        persistence: Persistence,
        directory: Directory | None = None,
        administrators: Directory | None = None,
    ) -> None:
        self._directory = directory
        self._administrators = administrators
        self._policy = context.policy
        self._clock = context.clock
        self._grid = context.grid
        self._background = context.background
        self._metrics = context.metrics
        self._log = context.log
        self._journal = context.journal
        self._sessions = sessions
        self._persistence = persistence
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
        now = self._clock.wall()
        _check_text("the value", value, least=1, most=MAX_REVOKED_VALUE)
        _check_text("the reason", reason, least=0, most=MAX_REVOCATION_REASON)
        if until is not None and until <= now:
            raise InvalidRevocation("the end of the revocation has passed already; give a time to come, or none")
        name = name_of(kind, value)
        if self._table.get(name) is None and len(self._table) >= self._policy.revocations:
            raise TooManyRevocations(
                f"{len(self._table)} revocations are in force, and nodes hold no more (limit_revocations); "
                "lift some, give those of credentials an end, or raise the limit on all nodes"
            )
        if kind is RevocationKind.SESSION:
            last = now + self._policy.token_life
            until = last if until is None else min(until, last)
        revocation = Revocation(kind=kind, value=value, reason=reason, made=now, until=until)
        await self._change(revocation, self._grid.revocations.add(revocation))
        self._log.emit(events.REVOCATION_MADE, kind=kind.value, revoked=value, reason=reason, until=until)
        return revocation

    async def lift(self, kind: RevocationKind, value: str) -> bool:
        """Refuse it no more. Sessions that were ended stay ended.

        Returns:
            False if there is no such revocation.

        Raises:
            GridUnavailable: to be tried again; it may have been done.
        """
        name = name_of(kind, value)
        known = self._table.get(name) is not None
        # Asked of the grid all the same: this node may not have heard of it yet.
        await self._change(Lifted(name), self._grid.revocations.lift(name))
        if known:
            self._log.emit(events.REVOCATION_LIFTED, kind=kind.value, revoked=value)
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
        found = self._table.find(self._clock.wall(), session=session, principal=principal, credential=credential)
        return found is not None

    def review(self) -> None:
        """End the sessions held here whose principals the directories do not know any more, or know otherwise."""
        concerned = [each for each in self._sessions if self._is_unknown(each)]
        if concerned:
            self._background.once(self._close(concerned), "close-unknown")

    def refuses(self, session: Session | SessionRecord) -> bool:
        """Tell whether a session may not go on: something of it is revoked, or its principal is not there any more."""
        return self._is_unknown(session) or self.is_revoked(
            session=session.id, principal=session.principal, credential=session.credential
        )

    def _is_unknown(self, session: Session | SessionRecord) -> bool:
        if is_of_system(session.roles):
            if self._administrators is None:
                return False
            # A console's rights are those of its hello. If they are others now, it has to sign in again for them.
            known = self._administrators.find(session.principal)
            return known is None or (known.roles, known.properties) != (session.roles, session.principal_properties)
        return self._directory is not None and self._directory.find(session.principal) is None

    def end_claimed(self, right: Ownership) -> None:
        """End a session that this node has claimed and found to be revoked."""
        self._metrics.add(catalogue.SESSIONS_ENDED, label=ErrorCode.REVOKED.value)
        self._log.emit(events.SESSION_ENDED, session=right.session, reason=ErrorCode.REVOKED.value)
        self._journal.ended_elsewhere(right.session, right.epoch, ErrorCode.REVOKED)
        self._background.once(self._end([right]), "end-revoked")

    def end_held(self, session: Session) -> None:
        """End a session that is held here and was found to be revoked."""
        right = self._sessions.revoke(session)
        if right is not None:
            self._background.once(self._end([right]), "end-revoked")

    # --- Background ---------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Hear what is revoked, for ever."""
        async for news in self._grid.revocations.follow():
            await self._hear(news)

    async def forget(self) -> None:
        """Delete revocations that are over, for ever."""
        while True:
            await asyncio.sleep(FORGET_INTERVAL * (0.5 + self._clock.random()))
            over = self._table.due(self._clock.wall() - FORGET_GRACE)
            if over:
                try:
                    await self._grid.revocations.forget(over)
                except GridUnavailable:
                    for each in over:
                        if self._table.get(each.name) is None:
                            self._table.put(each)  # the next look finds it again

    def _count(self, kind: RevocationKind) -> float:
        return float(self._table.count(kind))

    # --- Inside -------------------------------------------------------------------------------------------------------

    async def _change(self, change: Revocation | Lifted, step: Awaitable[None]) -> None:
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

    def _take_in(self, changes: Sequence[Revocation | Lifted]) -> None:
        made: dict[str, Revocation] = {}
        for change in changes:
            if isinstance(change, Lifted):
                self._table.drop(change.name)
                made.pop(change.name, None)
            elif self._table.put(change):
                made[change.name] = change
        if made:
            self._enforce(made.values())

    def _enforce(self, made: Iterable[Revocation]) -> None:
        """Close what is held here and concerned: the first sockets now, all in this and the next turns of the loop."""
        concerned = self._concerned(made)
        if concerned:
            self._background.once(self._close(concerned), "close-revoked")

    def _concerned(self, made: Iterable[Revocation]) -> list[Session]:
        now = self._clock.wall()
        revoked: dict[RevocationKind, set[str]] = {kind: set() for kind in RevocationKind}
        for each in made:
            if each.in_force(now):
                revoked[each.kind].add(each.value)
        sessions, principals, credentials = (
            revoked[kind] for kind in (RevocationKind.SESSION, RevocationKind.PRINCIPAL, RevocationKind.CREDENTIAL)
        )
        if principals or credentials:
            return [
                each
                for each in self._sessions
                if each.principal in principals or each.id in sessions or each.credential in credentials
            ]
        found = (self._sessions.get(SessionId(each)) for each in sessions)
        return [each for each in found if each is not None]

    async def _close(self, concerned: Sequence[Session]) -> None:
        rights: list[Ownership] = []
        for start in range(0, len(concerned), CLOSED_PER_TURN):
            for session in concerned[start : start + CLOSED_PER_TURN]:
                right = self._sessions.revoke(session)
                if right is not None:
                    rights.append(right)
            await asyncio.sleep(0)
        await self._end(rights)

    async def _end(self, rights: Sequence[Ownership]) -> None:
        """End sessions in the grid; those that another node has claimed are that node's to end."""
        if not self._persistence.replicated:
            return
        left = list(rights)
        while left:
            batch = left[:ENDED_TOGETHER]
            ends = await asyncio.gather(
                *(self._persistence.end(right, ErrorCode.REVOKED) for right in batch), return_exceptions=True
            )
            again = []
            for right, end in zip(batch, ends, strict=True):
                if isinstance(end, GridUnavailable):
                    again.append(right)
                elif isinstance(end, BaseException) and not isinstance(end, Fenced):
                    raise end
            left = [*again, *left[ENDED_TOGETHER:]]
            if again:
                await self._persistence.until_available()

    async def _restore(self, missing: Sequence[Revocation]) -> None:
        """Put back what the grid has lost, unless it was lifted meanwhile."""
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
