"""One node's connection to the in-memory grid: its state, its generation, and the order of its steps."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar, cast

from gateway.adapters.memory.server import Answer, MemoryGridServer, Step
from gateway.adapters.memory.state import NEVER_ADOPTED, NO_SEAL, GridData
from gateway.core.types import GridGeneration, NodeRef
from gateway.ports import GridChange, GridState, GridUnavailable, Ownership

T = TypeVar("T")

MAILBOX_LENGTH: Final = 1000
"""Messages kept for a node that does not read them; delivery is best effort, so the oldest may go."""


class Inbox(AsyncIterator[T]):
    """Items for one reader, who may come later; ends when it is closed and empty.

    Args:
        length: items kept; when there are more the oldest is dropped. None for no bound.
    """

    def __init__(self, length: int | None = None) -> None:
        self._items: deque[T] = deque(maxlen=length)
        self._arrived = asyncio.Event()
        self._closed = False

    def put(self, item: T) -> None:
        """Add an item."""
        self._items.append(item)
        self._arrived.set()

    def close(self) -> None:
        """Let the reader end after what is there."""
        self._closed = True
        self._arrived.set()

    async def __anext__(self) -> T:
        while not self._items:
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._items.popleft()


class GridConnection:
    """One node's connection; every part of its ``MemoryGrid`` shares it.

    Args:
        server: what to connect to.
        node: whose connection it is, for error messages.
        timeout: longest time a call waits, in seconds of the event loop.
    """

    def __init__(self, server: MemoryGridServer, node: NodeRef, timeout: float) -> None:
        self.server = server
        self.changes: Inbox[GridChange] = Inbox()
        self._node = node
        self._timeout = timeout
        self._up = False
        self._cut = False
        self._closed = False
        self._started = False
        self._breaks = 0
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._generation = NEVER_ADOPTED
        self._seal = NO_SEAL
        self._heard = NEVER_ADOPTED
        self._mailboxes: dict[NodeRef, Inbox[Ownership]] = {}
        self._listeners: list[Callable[[set[int] | None], None]] = []
        self._on_tables: list[Callable[[], None]] = []
        self._on_deliveries: list[Callable[[], None]] = []

    @property
    def state(self) -> GridState:
        """Whether commands are accepted."""
        return GridState.UP if self._up else GridState.UNREACHABLE

    @property
    def generation(self) -> GridGeneration:
        """The generation this connection has adopted."""
        return self._generation

    @property
    def readable(self) -> bool:
        """Whether streams can be read now."""
        return self._up and not self.server.stalled

    @property
    def closed(self) -> bool:
        """Whether it was closed for good."""
        return self._closed

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect, if that was not begun before.

        Raises:
            GridUnavailable: not now; it will as soon as it can.
        """
        if not self._started and not self._closed:
            self.server.attach(self)
            self._look()
            self._started = True
        if not self._up:
            raise GridUnavailable(f"{self._node} cannot reach the grid")

    async def close(self) -> None:
        """Refuse new calls, finish those under way, disconnect for good."""
        self._closed = True
        self._up = False
        await self._idle.wait()
        self.server.detach(self)
        self.changes.close()
        for mailbox in self._mailboxes.values():
            mailbox.close()
        self._mailboxes.clear()
        self._on_news(None)
        self._look_at_tables()
        self._look_at_deliveries()

    def _on_news(self, partitions: set[int] | None) -> None:
        for listener in self._listeners:
            listener(partitions)

    def cut(self) -> None:
        """Break this one connection until ``mend``."""
        self._cut = True
        self.server.drop(self)
        self._look()

    def mend(self) -> None:
        """End ``cut``."""
        self._cut = False
        self._look()

    # --- calls --------------------------------------------------------------------------------------------------------

    async def run(self, step: Callable[[GridData, float], T]) -> T:
        """Have the server run one atomic step, after all that were started on this connection before.

        Raises:
            GridUnavailable: the connection is down or went down, or the server did not answer in time.
        """
        if not self._up:
            raise GridUnavailable(f"{self._node} is not connected to the grid")
        self._calls += 1
        self._idle.clear()
        try:
            checked = self._checked(step)
            answer = await (self._wait_for(checked) if self.server.stalled else self._execute(checked))
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()
        if answer.error is not None:
            try:
                raise answer.error
            finally:
                del answer  # which holds the error, whose trace holds it
        return cast("T", answer.value)

    def _checked(self, step: Step) -> Step:
        """Make a step that is executed only on the data that was adopted."""

        def checked(data: GridData, now: float) -> object:
            if data.seal != self._seal:
                self._look()
                raise GridUnavailable(f"{self._node} has not adopted the grid as it is now")
            return step(data, now)

        return checked

    async def _execute(self, step: Step) -> Answer:
        breaks = self._breaks
        answer = self.server.execute(step)
        # A grid is a round trip away: others run meanwhile, and the connection may break.
        await asyncio.sleep(0)
        if breaks != self._breaks:
            raise GridUnavailable(f"the connection of {self._node} to the grid broke")
        return answer

    async def _wait_for(self, step: Step) -> Answer:
        waiting = self.server.hold(self, step)
        try:
            async with asyncio.timeout(self._timeout):
                return await waiting
        except TimeoutError:
            raise GridUnavailable(f"the grid did not answer {self._node} within {self._timeout} s") from None

    def listen(self, on_news: Callable[[set[int] | None], None]) -> None:
        """Have *on_news* called with partitions that got entries, and with None when all must be looked at again."""
        self._listeners.append(on_news)

    def watch_tables(self, on_tables: Callable[[], None]) -> None:
        """Have *on_tables* called when revocations or destinations may have changed."""
        self._on_tables.append(on_tables)

    def watch_deliveries(self, on_deliveries: Callable[[], None]) -> None:
        """Have *on_deliveries* called when messages or questions may have been given to somebody."""
        self._on_deliveries.append(on_deliveries)

    def mailbox(self, node: NodeRef) -> Inbox[Ownership]:
        """Open the mailbox of *node*; an earlier one is closed."""
        if (earlier := self._mailboxes.get(node)) is not None:
            earlier.close()
        mailbox: Inbox[Ownership] = Inbox(MAILBOX_LENGTH)
        if self._closed:
            mailbox.close()
        else:
            self._mailboxes[node] = mailbox
        return mailbox

    # --- told by the server -------------------------------------------------------------------------------------------

    def server_changed(self) -> None:
        """See ``Client``."""
        self._look()

    def news(self, partitions: set[int]) -> None:
        """See ``Client``."""
        if self._up:
            self._on_news(partitions)

    def delivered(self) -> None:
        """See ``Client``."""
        if self._up:
            self._look_at_deliveries()

    def told(self, to: NodeRef, ownership: Ownership) -> None:
        """See ``Client``."""
        if self._up and (mailbox := self._mailboxes.get(to)) is not None:
            mailbox.put(ownership)

    def tables_changed(self) -> None:
        """See ``Client``."""
        if self._up:
            self._look_at_tables()

    def heard_of(self, grid_generation: GridGeneration) -> None:
        """See ``Grid.heard_of``."""
        if self._up and grid_generation > self._generation:
            self._heard = max(self._heard, grid_generation)
            self._up = False
            self._breaks += 1
            self.changes.put(GridChange(GridState.UNREACHABLE, self._generation))
            self._look()

    def _look(self) -> None:
        """Find out whether the connection stands, and tell if that has changed."""
        server = self.server
        connected = server.reachable and not self._cut and not self._closed
        if self._up and not (connected and self._seal == server.seal):
            # A grid of another generation has to be adopted before it is used again.
            self._up = False
            self._breaks += 1
            self.changes.put(GridChange(GridState.UNREACHABLE, self._generation))
        if not self._up and connected and not server.stalled:
            self._adopt()
        if self.readable:
            self._on_news(None)
            self._look_at_tables()
            self._look_at_deliveries()

    def _look_at_deliveries(self) -> None:
        for look in self._on_deliveries:
            look()

    def _look_at_tables(self) -> None:
        for look in self._on_tables:
            look()

    def _adopt(self) -> None:
        server, known, in_force = self.server, self._generation, self.server.seal
        # Of one that was only heard of the seal is not known.
        self._generation = server.adopt(max(known, self._heard), NO_SEAL if self._heard > known else self._seal)
        self._seal = server.seal
        self._up = True
        if self._started:
            lost = known not in {NEVER_ADOPTED, self._generation}
            self.changes.put(GridChange(GridState.UP, self._generation, lost))
        if self._seal != in_force:
            server.generation_raised()
