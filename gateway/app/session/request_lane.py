"""Has the requests of one session executed, in the order in which its client sent them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from gateway.core.pacing.workload import Workload
from gateway.core.session.pending import PendingRequests, Work
from gateway.core.types import SessionId


class Requester(Protocol):
    """Whose requests a lane executes: a session."""

    id: SessionId


S = TypeVar("S", bound=Requester)
"""A session."""


class Workforce(Generic[S]):
    """What the lanes of a node have in common: how they are executed, and how much there may be (P20).

    Args:
        execute: executes a run of requests, of which the weight is given, too; tells whether they have been answered,
            which they are not if the session is lost meanwhile.
        requests: that a session may have unanswered before its client has to wait.
        request_bytes: the same bound in bytes; 0 for none.
        workload: of all sessions.

    Attributes:
        execute: as given.
        requests: as given.
        request_bytes: as given.
        workload: as given.
    """

    def __init__(
        self,
        execute: Callable[[S, Sequence[Work], int], Awaitable[bool]],
        *,
        requests: int,
        request_bytes: int,
        workload: Workload,
    ) -> None:
        self.execute = execute
        self.requests = requests
        self.request_bytes = request_bytes
        self.workload = workload
        self._waiting: dict[RequestLane[S], None] = {}
        self._scheduled = False

    def wait(self, lane: RequestLane[S]) -> None:
        """Have a lane look again when there is less to do for all."""
        self._waiting[lane] = None
        self._see_to_waiting()

    def forget(self, lane: RequestLane[S]) -> None:
        """It does not wait any more."""
        self._waiting.pop(lane, None)

    def change(self, before: int, after: int) -> None:
        """A lane holds other bytes than before."""
        self.workload.change(before, after)
        if self._waiting and after < before:
            self._see_to_waiting()

    def _see_to_waiting(self) -> None:
        if not self._scheduled and self._waiting and not self.workload.is_exceeded:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._let_one_on)

    def _let_one_on(self) -> None:
        """Let those on that wait, one a turn: what each of them sends has come when it is the turn of the next."""
        self._scheduled = False
        if self._waiting and not self.workload.is_exceeded:
            lane = next(iter(self._waiting))
            del self._waiting[lane]
            lane.look_again()
        self._see_to_waiting()


class RequestLane(Generic[S]):
    """Has the pending requests of one session executed, one run after the other.

    It does not hold the session, which holds it: the two would stay, once the session has ended, until the collector of
    cycles comes round, which is seldom (``gateway.garbage``).

    Args:
        workforce: executes them.
        pending: the requests of the session, to which others than the lane add nothing.
    """

    __slots__ = ("_has_left", "_is_halted", "_pending", "_space", "_task", "_workforce")

    def __init__(self, workforce: Workforce[S], pending: PendingRequests) -> None:
        self._workforce = workforce
        self._pending = pending
        self._task: asyncio.Task[None] | None = None
        self._space: asyncio.Event | None = None
        self._is_halted = self._has_left = False

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def bytes(self) -> int:
        """Of the requests, about."""
        return self._pending.bytes

    @property
    def exceeded(self) -> str | None:
        """The setting by which nothing more may be read from the client for now; None if it may."""
        held = self._pending.bytes
        if not held:  # as nearly always
            return None
        workforce = self._workforce
        if len(self._pending) > workforce.requests:
            return "limit_requests"
        if 0 < workforce.request_bytes < held:
            return "limit_request_bytes"
        return "limit_node_request_bytes" if workforce.workload.exceeded_by(held) else None

    def put(self, session: S, work: Work) -> None:
        """Add a request of the session whose lane this is at the end."""
        before = self._pending.bytes
        self._workforce.workload.add(before, self._pending.put(work))
        self._begin(session)

    def take_up(self, session: S) -> None:
        """Execute what is pending already, of a session that another node has handed over."""
        self._workforce.change(0, self._pending.bytes)
        if self._pending:
            self._begin(session)

    def _begin(self, session: S) -> None:
        if self._task is None and not self._is_halted:
            self._task = asyncio.create_task(self._run(session), name=f"requests-{session.id}")

    async def idle(self) -> None:
        """Wait until every request has been answered."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def room(self) -> None:
        """Wait until more may be read from the client, or nothing of it is executed here any more."""
        if self._space is None:
            self._space = asyncio.Event()
        while (limit := self.exceeded) and not self._has_left:
            if limit == "limit_node_request_bytes":
                self._workforce.wait(self)
            self._space.clear()
            await self._space.wait()
        self._workforce.forget(self)

    def look_again(self) -> None:
        """More may be read now, perhaps."""
        if self._space is not None:
            self._space.set()

    def abandon(self) -> None:
        """The session is dropped here: what is unanswered will be asked again elsewhere, or never."""
        held = self._pending.bytes
        self._pending.clear()
        self._changed(held)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def halt(self, within: float) -> None:
        """Begin nothing more: another node is about to go on with the session.

        Args:
            within: seconds to wait for what has been begun.
        """
        self._is_halted = True
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within)

    def go_on(self, session: S) -> None:
        """It was not taken after all: go on with what is pending."""
        self._is_halted = False
        if self._pending:
            self._begin(session)

    def leave(self) -> None:
        """Another node goes on with the session: nothing more is done here, and all that is unanswered stays pending.

        What has been begun may be executed all the same; it stays *started*.
        """
        self._is_halted = self._has_left = True
        self._workforce.change(self._pending.bytes, 0)
        self.look_again()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def _changed(self, before: int) -> None:
        self._workforce.change(before, self._pending.bytes)
        self.look_again()

    async def _run(self, session: S) -> None:
        pending = self._pending
        try:
            while pending and not self._is_halted:
                if not await self._workforce.execute(session, *pending.start()):
                    return
                before = pending.bytes
                pending.finish()
                self._changed(before)
                # Not every step waits for the grid, and one client's requests must not hold up everybody else.
                await asyncio.sleep(0)
        finally:
            self._task = None
