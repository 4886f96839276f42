"""The requests of one session, in the order in which its client sent them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

from gateway.core.pacing.workload import Workload, weight
from gateway.core.types import RequestNumber, SessionId
from gateway.core.wire.packets import Bye, ClientRequest

Work: TypeAlias = ClientRequest | Bye


class Requester(Protocol):
    """Whose requests a lane executes: a session."""

    id: SessionId


S = TypeVar("S", bound=Requester)
"""A session."""


class Workforce(Generic[S]):
    """What the lanes of a node have in common: how they are executed, and how much there may be (P20).

    Args:
        execute: executes the first requests of a queue, of which the weights are given, too, and returns how many of
            them are answered.
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
        execute: Callable[[S, Sequence[Work], Iterable[int]], Awaitable[int]],
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
    """The unanswered requests of one session, in order.

    It does not hold the session, which holds it: the two would stay, once the session has ended, until the collector of
    cycles comes round, which is seldom (``gateway.garbage``).

    Args:
        workforce: executes them.

    Attributes:
        bytes: of them, about.
    """

    __slots__ = ("_queue", "_space", "_task", "_weights", "_workforce", "bytes")

    def __init__(self, workforce: Workforce[S]) -> None:
        self._workforce = workforce
        self._queue: deque[Work] = deque()
        self._weights: deque[int] = deque()
        """Of those in the queue."""
        self._task: asyncio.Task[None] | None = None
        self._space: asyncio.Event | None = None
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def oldest_open(self) -> RequestNumber | None:
        """Number of the oldest request without an answer; None if there is none."""
        if self._queue and not isinstance(self._queue[0], Bye):
            return self._queue[0].request
        return None

    @property
    def exceeded(self) -> str | None:
        """The setting by which nothing more may be read from the client for now; None if it may."""
        held = self.bytes
        if not held:  # as nearly always
            return None
        workforce = self._workforce
        if len(self._queue) > workforce.requests:
            return "limit_requests"
        if 0 < workforce.request_bytes < held:
            return "limit_request_bytes"
        return "limit_node_request_bytes" if workforce.workload.exceeded_by(held) else None

    def put(self, session: S, work: Work) -> None:
        """Add a request of the session whose lane this is at the end."""
        weighs = weight(work)
        self._queue.append(work)
        self._weights.append(weighs)
        self._workforce.workload.add(self.bytes, weighs)
        self.bytes += weighs
        if self._task is None:
            self._task = asyncio.create_task(self._run(session), name=f"requests-{session.id}")

    async def idle(self) -> None:
        """Wait until every request has been answered."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def room(self) -> None:
        """Wait until more may be read from the client."""
        if self._space is None:
            self._space = asyncio.Event()
        while limit := self.exceeded:
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
        self._queue.clear()
        self._weights.clear()
        self._hold(0)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def _hold(self, held: int) -> None:
        before, self.bytes = self.bytes, held
        self._workforce.change(before, held)
        self.look_again()

    async def _run(self, session: S) -> None:
        queue, weights = self._queue, self._weights
        try:
            while queue:
                answered = await self._workforce.execute(session, queue, weights)
                done = 0
                for _ in range(min(answered, len(queue))):
                    queue.popleft()
                    done += weights.popleft()
                self._hold(self.bytes - done)
                # Not every step waits for the grid, and one client's requests must not hold up everybody else.
                await asyncio.sleep(0)
        finally:
            self._task = None
