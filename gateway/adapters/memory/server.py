"""The in-memory stand-in for the grid's server: shared state, a clock, and every way in which a server can fail.

```text
MemoryGrid(n1) ── GridConnection ──┐             ┌── GridData (lost when emptied, copied by snapshot)
MemoryGrid(n2) ── GridConnection ──┴─ MemoryGridServer
                    cut, mend        go_away, come_back, stall, flow, lose_answers
```

Steps run one after another on the event loop of the process, so each is atomic. Nothing here is thread-safe.
"""

from __future__ import annotations

import asyncio
import copy
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from gateway.adapters.memory.journal_table import JournalStream
from gateway.adapters.memory.state import GridData
from gateway.core.types import GridGeneration, NodeRef
from gateway.core.wire.errors import GatewayError
from gateway.ports import (
    DEFAULT_HISTORY_BYTES,
    Assigned,
    Given,
    GridUnavailable,
    Over,
    Ownership,
    StreamPosition,
    TopicValue,
)

DEFAULT_STREAM_LENGTH: Final = 10_000
"""Entries kept per topic partition; the same default as the setting ``stream_length``."""

DEFAULT_STREAM_BYTES: Final = 8 * 1024**2
"""Bytes kept per topic partition; the same default as the setting ``stream_bytes``."""

DEFAULT_JOURNAL_LENGTH: Final = 10_000
"""Entries kept per stream of the journal; the same default as the setting ``journal_length``."""

DEFAULT_TOPIC_DEPTH: Final = 1
"""Leading path segments that decide a topic's partition; the same default as the setting ``topic_depth``."""

NOT_YET: Final = -math.inf
"""A time before every other."""

Step: TypeAlias = Callable[[GridData, float], object]
"""One atomic step: gets the data and the grid's clock."""


class Client(Protocol):
    """What the server tells its connections."""

    def server_changed(self) -> None:
        """The server went away, came back, stalls or flows again."""

    def news(self, partitions: set[int]) -> None:
        """Topic partitions got new entries."""

    def delivered(self) -> None:
        """Messages of queues were assigned, or something happened to questions."""

    def told(self, to: NodeRef, ownership: Ownership) -> None:
        """A message for one node."""

    def tables_changed(self) -> None:
        """Revocations, destinations, zones or interest have changed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a step: a value, or the error it raised."""

    value: object = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class _Held:
    """A step that waits for a stalled server."""

    client: Client
    step: Step
    answer: asyncio.Future[Answer]


class MemoryGridServer:
    """The shared state of one in-memory grid, for any number of ``MemoryGrid`` connections in one process.

    Args:
        now: the grid's clock, in seconds; any origin, never going back.
        wall: what the grid takes for the time, in seconds since 1970, for stamps of values.
        stream_length: entries kept per topic partition.
        stream_bytes: bytes kept per topic partition, about; 0 for no limit.
        history_bytes: bytes that the histories of a topic partition keep together.
        journal_length: entries kept per stream of the journal.
        topic_depth: leading path segments that decide a topic's partition.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        stream_length: int = DEFAULT_STREAM_LENGTH,
        stream_bytes: int = DEFAULT_STREAM_BYTES,
        history_bytes: int = DEFAULT_HISTORY_BYTES,
        journal_length: int = DEFAULT_JOURNAL_LENGTH,
        topic_depth: int = DEFAULT_TOPIC_DEPTH,
    ) -> None:
        self._now = now
        self.wall = wall
        self._origin = wall() - now()
        self._stream_length = stream_length
        self._stream_bytes = stream_bytes
        self._history_bytes = history_bytes
        self._journal_length = journal_length
        self._topic_depth = topic_depth
        self._data = self._no_data()
        self._run_id = 1
        self._clients: list[Client] = []
        self._held: deque[_Held] = deque()
        self._reachable = True
        self._stalled = False
        self._away_since = 0.0
        self._answers_to_lose = 0
        self._publishes_before_loss: int | None = None

    # --- faults -------------------------------------------------------------------------------------------------------

    @property
    def reachable(self) -> bool:
        """Whether connections are accepted."""
        return self._reachable

    @property
    def stalled(self) -> bool:
        """Whether steps wait."""
        return self._stalled

    def go_away(self) -> None:
        """Break every connection and accept none until ``come_back``. What waited for a stalled server is lost."""
        if not self._stalled and self._reachable:
            self._away_since = self._now()
        self._reachable = False
        self._stalled = False
        self._drop_held(lambda _held: True)
        self._tell_all()

    def come_back(self, *, restarted: bool = False, emptied: bool = False, snapshot: GridData | None = None) -> None:
        """Accept connections again; they reconnect at once.

        Args:
            restarted: as another run of the server with the data it had. Otherwise the same run: only the network
                was away.
            emptied: as another run without any data.
            snapshot: as another run with the data that ``snapshot`` returned.
        """
        if self._reachable:
            self.go_away()
        if emptied:
            self._data = self._no_data()
        elif snapshot is not None:
            self._data = copy.deepcopy(snapshot)
            # Nobody knows how long ago the snapshot was taken.
            self._away_since = NOT_YET
        self._data.leases.extend(self._away_since, self._now())
        if restarted or emptied or snapshot is not None:
            self._run_id += 1
        self._reachable = True
        self._tell_all()

    def flush(self) -> None:
        """Lose all data under open connections, as by FLUSHALL: nobody is told, and each finds out when it asks."""
        self._data = self._no_data()

    def snapshot(self) -> GridData:
        """Copy the data as it is now, to ``come_back`` with later."""
        return copy.deepcopy(self._data)

    def fork(self) -> MemoryGridServer:
        """Make a server that is the same run with the same data, and goes on by itself from now on.

        After ``come_back(restarted=True)`` of this one, the copy is what a master is that was replaced and does not
        know it: it answers whoever is still connected to it, and nothing that it is told reaches the others.
        """
        copied = MemoryGridServer(
            now=self._now,
            wall=self.wall,
            stream_length=self._stream_length,
            stream_bytes=self._stream_bytes,
            history_bytes=self._history_bytes,
            journal_length=self._journal_length,
            topic_depth=self._topic_depth,
        )
        copied._data, copied._run_id = self.snapshot(), self._run_id
        return copied

    def stall(self) -> None:
        """Accept steps but execute none, as a stopped process does. Callers wait, at most for their time limit.

        A step whose caller has given up is executed all the same by ``flow``: it was sent, and arrives late.
        """
        if not self._stalled:
            self._away_since = self._now()
        self._stalled = True

    def flow(self) -> None:
        """End ``stall`` and execute what has waited, in the order in which it was asked for."""
        if not self._stalled:
            return
        self._stalled = False
        self._data.leases.extend(self._away_since, self._now())
        while self._held:
            held = self._held.popleft()
            answer = self.execute(held.step)
            if not held.answer.done():
                held.answer.set_result(answer)
        self._tell_all()

    def lose_answers(self, calls: int = 1, *, publishes: int | None = None) -> None:
        """Execute the next *calls* calls and lose their answers: the callers get ``GridUnavailable``.

        Args:
            calls: how many, over all connections.
            publishes: of each of these calls that publishes, execute only so many commands.
        """
        self._answers_to_lose = calls
        self._publishes_before_loss = publishes

    # --- for connections ----------------------------------------------------------------------------------------------

    def attach(self, client: Client) -> None:
        """Begin to tell a connection what happens."""
        if client not in self._clients:
            self._clients.append(client)

    def detach(self, client: Client) -> None:
        """Forget a connection."""
        if client in self._clients:
            self._clients.remove(client)
        self.drop(client)

    def now(self) -> float:
        """Read the grid's clock."""
        return self._now()

    @property
    def generation(self) -> GridGeneration:
        """The generation in force."""
        return self._data.generation

    @property
    def seal(self) -> int:
        """Its seal."""
        return self._data.seal

    def adopt(self, known: GridGeneration, known_seal: int) -> GridGeneration:
        """Adopt the data for a node; see ``GridData.adopt``."""
        return self._data.adopt(self._run_id, known, known_seal, self._now())

    def lost_writes_ago(self) -> float | None:
        """See ``Grid.lost_writes_ago``."""
        return None if self._data.lost_at is None else self._now() - self._data.lost_at

    def generation_raised(self) -> None:
        """Have every connection look at the generation."""
        self._tell_all()

    def execute(self, step: Step) -> Answer:
        """Run one atomic step now, whether or not the server stalls."""
        revisions = self._data.table_revisions
        try:
            answer = Answer(step(self._data, self._now()))
        except GatewayError as error:
            # What a grid says; its trace would hold the answer, and that the error.
            answer = Answer(error=error.with_traceback(None))
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to the caller, who may wait elsewhere
            answer = Answer(error=error)
        if news := self._data.topics.take_news():
            for client in tuple(self._clients):
                client.news(news)
        if self._data.queues.take_news() | self._data.exchanges.take_news():
            for client in tuple(self._clients):
                client.delivered()
        if self._data.table_revisions != revisions:
            for client in tuple(self._clients):
                client.tables_changed()
        if self._answers_to_lose:
            self._answers_to_lose -= 1
            answer = Answer(error=GridUnavailable("the answer was lost on its way"))
        return answer

    def hold(self, client: Client, step: Step) -> asyncio.Future[Answer]:
        """Keep a step until the server flows again."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._held.append(_Held(client, step, answer))
        return answer

    def drop(self, client: Client) -> None:
        """Lose the steps of one connection that wait."""
        self._drop_held(lambda held: held.client is client)

    def publishes_to_execute(self, count: int) -> int:
        """Tell how many of *count* publishes of a call to execute, all but when ``lose_answers`` says otherwise."""
        if self._answers_to_lose and self._publishes_before_loss is not None:
            return min(count, self._publishes_before_loss)
        return count

    def tell(self, to: NodeRef, ownership: Ownership) -> None:
        """Pass a message on to whoever listens for *to* now."""
        for client in tuple(self._clients):
            client.told(to, ownership)

    def after(
        self, partition: int, position: StreamPosition, limit: int
    ) -> tuple[list[TopicValue], StreamPosition] | None:
        """Read a partition's stream; see ``Stream.after``."""
        return self._data.topics.after(partition, position, limit)

    def deliveries_after(self, partition: int, position: StreamPosition) -> list[Assigned] | None:
        """Read a partition's deliveries; see ``Queues.after``."""
        return self._data.queues.after(partition, position)

    def exchanges_after(self, partition: int, position: StreamPosition) -> list[Given | Over] | None:
        """Read a partition's exchanges; see ``Exchanges.after``."""
        return self._data.exchanges.after(partition, position)

    @property
    def data(self) -> GridData:
        """What it holds now, to be read only."""
        return self._data

    # --- looking inside -----------------------------------------------------------------------------------------------

    @property
    def connections(self) -> int:
        """Connections that were started and not closed."""
        return len(self._clients)

    def journal(self, partition: int) -> JournalStream | None:
        """Look into a stream of the journal; None if nothing was ever appended to it."""
        return self._data.journal.stream(partition)

    def inventory(self) -> set[str]:
        """Name everything the grid keeps now, so that a test can show that nothing was left behind."""
        return self._data.inventory(self._now())

    # --- inside -------------------------------------------------------------------------------------------------------

    def _no_data(self) -> GridData:
        return GridData(
            stream_length=self._stream_length,
            stream_bytes=self._stream_bytes,
            history_bytes=self._history_bytes,
            journal_length=self._journal_length,
            depth=self._topic_depth,
            origin=self._origin,
        )

    def _tell_all(self) -> None:
        for client in tuple(self._clients):
            client.server_changed()

    def _drop_held(self, lost: Callable[[_Held], bool]) -> None:
        kept: deque[_Held] = deque()
        for held in self._held:
            if not lost(held):
                kept.append(held)
            elif not held.answer.done():
                held.answer.set_result(Answer(error=GridUnavailable("the connection to the grid broke")))
        self._held = kept
