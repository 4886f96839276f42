"""Clients as applications have them, by the project's own Python client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random
from typing import Final

from gateway.client import Session, UpdateStream, connect
from gateway.core.client.errors import (
    ConnectFailed,
    RequestRefused,
    RequestTimedOut,
    SessionClosed,
    SessionEnded,
    SessionExpired,
)
from gateway.core.client.types import SessionState, Update
from gateway.core.wire.codes import ErrorCode
from tests.chaos.account.recoveries import Recovery
from tests.chaos.account.sessions import Identity
from tests.chaos.account.updates import SessionUpdates
from tests.chaos.deadlines import Stuck, ended
from tests.chaos.load.crowd import ROOTS, Crowd

SLACK: Final = 1.0
"""Seconds by which the tasks of one client may notice things in another order than they came."""

SLOW_SLACK: Final = 20.0
"""The same of a client that rests while updates wait for it."""

CLOSING: Final = 20.0
"""Seconds that a client waits for the end of its session to be confirmed; longer than most faults."""

CONNECTING: Final = 5.0
"""Seconds after which a client that finds no node tries anew."""

PACE: Final = (0.05, 0.25)
"""Seconds between two publishes of a publisher, from and to."""

LIFE: Final = (15.0, 45.0)
"""Seconds after which a client says bye and opens a new session, from and to."""

SILENT: Final = 5.0
"""Seconds after which a client gives a node up that says nothing: the setting ``ping_timeout`` of the run."""

HALF_A_REQUEST: Final = "HTTP status 400"
"""What HAProxy answers where a link that breaks has passed on only the first part of a request."""

_GONE: Final = frozenset({ErrorCode.SESSION_CLOSED, ErrorCode.SESSION_UNKNOWN, ErrorCode.SESSION_EXPIRED})
"""What a client is told that asks for a session which has ended."""


class Application:
    """A client with one session at a time.

    Args:
        crowd: what it shares with the others.
        name: for violations, also its principal unless that is shared.

    Attributes:
        life: seconds after which it says bye and opens a new session, from and to.
        window: seconds that its sessions survive without a connection; as those of the others if None.
        shared_principal: the principal that it has together with others; None for one of its own.
        stays: whether it has a session when the run has ended, as somebody waits for what it is handed.
        session: the one it has now; None between two.
        heard: when it was last told something by its node.
        promised: when it was last promised to have these properties.
        properties: user-defined ones that its session was promised to have; None while that is unknown.
    """

    slack = SLACK
    life = LIFE
    window: float | None = None
    stays = False
    shared_principal: str | None = None

    def __init__(self, crowd: Crowd, name: str) -> None:
        self.crowd = crowd
        self.name = name
        self.session: Session | None = None
        self.heard = 0.0
        self.properties: dict[str, str] | None = None
        self.promised = 0.0
        self.random: Random = crowd.random(name)
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False

    # --- For the run ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Have one session after the other until the run ends; the last one is left open."""
        try:
            await self._sessions()
        finally:
            self._over = True

    async def _sessions(self) -> None:
        # Who says bye just before the end opens one more session if it is to be there.
        while not self.crowd.ending.is_set() or (self.stays and self.session is None):
            session = await self._open()
            if session is None:
                continue
            try:
                await self._live(session, self.crowd.now() + self.random.uniform(*self.life))
            except SessionEnded:
                await session.wait_closed()
            if self.session is not session:
                continue  # it was left behind
            if session.closed_reason is not None or session.state is SessionState.CLOSED:
                self._lost(session)
            elif not self.crowd.ending.is_set():
                await self.close()

    async def close(self) -> None:
        """End the session there is."""
        session, self.session = self.session, None
        if session is None:
            return
        await session.close(timeout=CLOSING)
        reason = session.closed_reason
        if reason is not None and not self._on_purpose(reason):
            self.session = session
            self._lost(session)
            return
        self.crowd.account.sessions.left(self.crowd.now(), session.id, confirmed=False)
        await self._stop()

    @property
    def connected(self) -> bool:
        """Whether it has a session that is connected, or wants none any more."""
        if self.session is None:
            return self._over
        return self.session.state is SessionState.CONNECTED

    def look(self) -> None:
        """Note whether its session has died since it has nothing more to do with it."""
        if self._over and self.session is not None and self.session.closed_reason is not None:
            self._lost(self.session)

    # --- For applications -----------------------------------------------------------------------------------------

    async def _live(self, session: Session, until: float) -> None:
        """Do what this client does, until a time or the end of the run."""
        raise NotImplementedError

    async def _subscribe(self, session: Session, selector: str, *, queue: int = 10_000) -> None:
        stream = await session.subscribe(selector, queue_size=queue)
        self.crowd.account.selected(self.crowd.now(), session.id, selector)
        self._spawn(self._read(session.id, stream))

    async def _unsubscribe(self, session: Session, selector: str) -> None:
        self.crowd.account.deselected(session.id, selector)
        await session.unsubscribe(selector)
        self.crowd.account.deselected(session.id, selector)

    async def _set(self, session: Session, changes: dict[str, str]) -> None:
        before, self.properties = self.properties, None
        await session.set_properties(changes)
        self.properties = {**(before or {}), **changes}
        self.promised = self.crowd.now()
        self.heard = self.crowd.now()

    async def _read(self, session: str, stream: UpdateStream) -> None:
        updates = self.crowd.account.updates[session]
        async for update in stream:
            self.heard = self.crowd.now()
            self._take(updates, update)

    def _take(self, updates: SessionUpdates, update: Update) -> None:
        topic, value = update.topic, update.value
        if type(value) is not int:
            self.crowd.violated("P2", self.name, f"{topic} has the value {value!r}, which nobody published")
            return
        now = self.crowd.now()
        updates.update(
            now,
            topic,
            value,
            update.version,
            snapshot=update.snapshot,
            event=update.event_id,
            folded=update.folded,
        )

    # --- Inside ---------------------------------------------------------------------------------------------------

    async def _open(self) -> Session | None:
        properties = {"of": self.name}
        try:
            session = await connect(
                self.crowd.url,
                principal=self.shared_principal or self.name,
                properties=properties,
                window=self.window or self.crowd.window,
                connect_timeout=CONNECTING,
            )
        except ConnectFailed as failed:
            if not failed.retryable and HALF_A_REQUEST not in str(failed):
                self.crowd.violated("P7", self.name, f"a new session was refused: {failed}")
            await self.crowd.rest(0.2)
            return None
        now = self.heard = self.crowd.now()
        self.crowd.account.opened(now, session.id, self.name, window=session.window, slack=self.slack)
        self.properties = dict(properties)
        self.session = session
        self._spawn(self._hear_recoveries(session, session.id))
        self._spawn(self._hear_notices(session, session.id))
        return session

    async def _hear_recoveries(self, session: Session, identity: str) -> None:
        node = session.node
        async for recovery in session.recoveries():
            now = self.heard = self.crowd.now()
            account = self.crowd.account
            account.recovered(
                Recovery(
                    at=now,
                    heard=now - recovery.gap_seconds - SILENT,
                    away=recovery.gap_seconds,
                    session=identity,
                    who=self.name,
                    outcome=recovery.outcome,
                    reason=recovery.reason or "",
                    former=node,
                    node=recovery.node,
                    named=True,
                    replayed=recovery.replayed,
                )
            )
            node = recovery.node
            # Its properties and selections the client restores by itself; at the end the grid is compared with them.
            allowed = Identity(identity, self.shared_principal or self.name, {})
            account.sessions.compare(now, self.name, [allowed], Identity(session.id, session.principal, {}))

    async def _hear_notices(self, session: Session, identity: str) -> None:
        async for notice in session.notices():
            self.heard = self.crowd.now()
            self.crowd.account.notice(self.heard, identity, notice.code)

    def _lost(self, session: Session) -> None:
        """The session has ended, and nobody here wanted that."""
        reason = session.closed_reason
        now = self.crowd.now()
        self.session = None
        account = self.crowd.account
        expired = isinstance(reason, SessionExpired) or (
            reason is not None and reason.code is ErrorCode.SESSION_EXPIRED
        )
        opened = account.sessions.lives[session.id].opened
        excused = self.crowd.excused(opened)
        account.sessions.died(now, session.id, repr(reason), heard=self.heard, expired=expired, excused=excused)
        for task in self._tasks:
            task.cancel()

    @staticmethod
    def _on_purpose(reason: SessionEnded) -> bool:
        # A session of which the client did not hear that it has ended is asked for again, and has ended then.
        return isinstance(reason, SessionClosed | SessionExpired) or reason.code in _GONE

    def _spawn(self, work: object) -> None:
        async def guarded() -> None:
            with suppress(SessionEnded):
                await work  # type: ignore[misc]

        task = asyncio.create_task(guarded(), name=f"chaos-{self.name}")
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.crowd.violated("bug", self.name, f"the client failed: {error!r}")

    async def _stop(self) -> None:
        for end in await ended(*self._tasks):
            if isinstance(end, Stuck):
                self.crowd.violated("bug", self.name, str(end))


class Publisher(Application):
    """Counts on a topic of its session; some of its requests it does not wait for to the end."""

    async def _live(self, session: Session, until: float) -> None:
        number = int(self.name.rpartition("-")[2])
        account = self.crowd.account
        topic = f"{ROOTS[number % len(ROOTS)]}/{self.name}/{session.id[:8]}"
        patient = number % 4 != 0
        while session.state is not SessionState.CLOSED:
            if self.crowd.ending.is_set():
                return
            if self.crowd.now() >= until and self.crowd.publishing.is_set():
                return
            if not self.crowd.publishing.is_set():
                await self.crowd.rest(0.1)
                continue
            value = account.publishes.ask(self.crowd.now(), topic, session.id)
            try:
                receipt = await session.publish(topic, value, timeout=None if patient else 2.0)
            except RequestTimedOut:
                continue
            except RequestRefused as refused:
                self.crowd.violated("P4", self.name, f"a publish was refused: {refused!r}")
                continue
            self.heard = self.crowd.now()
            account.publishes.acknowledge(self.heard, topic, value, receipt.version, receipt.event_id)
            await self.crowd.rest(self.random.uniform(*PACE))


class Listener(Application):
    """Selects two roots, and now and then a third one; sets a property at times; some leave and come back anew."""

    async def _live(self, session: Session, until: float) -> None:
        number = int(self.name.rpartition("-")[2])
        roots = [ROOTS[(number + step) % len(ROOTS)] for step in range(4)]
        await self._subscribe(session, f"{roots[0]}/**")
        await self._subscribe(session, f"{roots[1]}/*/*")
        fickle, third = f"{roots[2]}/**", False
        count = 0
        while session.state is not SessionState.CLOSED and not self.crowd.ending.is_set():
            await self.crowd.rest(self.random.uniform(1.0, 5.0))
            if self.crowd.ending.is_set():
                return
            if self.crowd.now() >= until and number % 3 == 0 and self.crowd.publishing.is_set():
                return
            count += 1
            if self.random.random() < 0.5:
                await self._set(session, {"count": str(count)})
            elif third:
                await self._unsubscribe(session, fickle)
                third = False
            else:
                await self._subscribe(session, fickle)
                third = True


class SlowReader(Application):
    """Reads its stream now and then, which folds meanwhile and marks it; it must end at the current values too."""

    slack = SLOW_SLACK

    async def _live(self, session: Session, until: float) -> None:
        number = int(self.name.rpartition("-")[2])
        await self._subscribe(session, f"{ROOTS[number % len(ROOTS)]}/**", queue=10)
        await self.crowd.ending.wait()

    async def _read(self, session: str, stream: UpdateStream) -> None:
        updates = self.crowd.account.updates[session]
        async for update in _rarely(stream, self):
            self.heard = self.crowd.now()
            self._take(updates, update)


async def _rarely(stream: UpdateStream, reader: Application) -> AsyncIterator[Update]:
    async for update in stream:
        yield update
        if reader.crowd.publishing.is_set() and reader.random.random() < 0.2:
            await reader.crowd.rest(reader.random.uniform(0.2, 1.5))
