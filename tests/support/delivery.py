"""The delivery of a node without the node: real partitions, feeds and flusher between a scripted stream and readers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.app.delivery.delivery import Delivery
from gateway.app.delivery.flusher import Flusher
from gateway.app.delivery.partition import Partition
from gateway.app.journal.announcer import Announcer
from gateway.app.runtime.background import Background
from gateway.app.runtime.clock import Clock
from gateway.app.session.session import Session, StoredUnder
from gateway.core.destinations.table import DestinationTable
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.parameters import StreamParameters
from gateway.core.stream.transitions import Role
from gateway.core.topics.selections import Selections
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import topic_partition
from gateway.core.types import (
    Epoch,
    EventId,
    GridGeneration,
    NodeId,
    NodeRef,
    PacketId,
    SessionId,
    TopicPath,
    Version,
)
from gateway.core.wire import codec
from gateway.core.wire.packets import SessionPacket, Update
from gateway.ports import GridState, SessionRecord, StreamPosition, TailBatch, TopicValue
from tests.support.machines import PLENTY

GENERATION = GridGeneration(1)
ME = NodeRef(NodeId("n1"), "i1")  # type: ignore[arg-type]
STORED_UNDER = StoredUnder(GENERATION, 0)
WINDOW = 600.0
"""The longest window that a session may have."""
PARAMETERS = StreamParameters(
    resend_packets=1_000,
    resend_bytes=1_000_000,
    message_bytes=65_536,
    ack_packets=1_000,
    ack_delay=1e6,
    ping_interval=1e6,
    ping_timeout=2e6,
)


class SteppingClock:
    """Each look at it takes time, so that portions of work end after some looks; the same in every run.

    Args:
        step: seconds that a look takes.
    """

    def __init__(self, step: float) -> None:
        self.step = step
        self.now = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class Reader:
    """A connection whose client reads as much as it is told to, and what came over it.

    Attributes:
        room: whether the transport takes anything.
        updates: that came, with the ids of their packets.
    """

    def __init__(self) -> None:
        self.room = True
        self.updates: list[tuple[PacketId, Update]] = []
        self.close_code: int | None = None
        self.last = PacketId(0)

    def backlog(self) -> int:
        return 0 if self.room else PLENTY

    def write(self, message: bytes) -> None:
        for packet in codec.decode_from_server(message):
            if isinstance(packet, SessionPacket):
                self.last = packet.id
                if isinstance(packet.body, Update):
                    self.updates.append((packet.id, packet.body))

    @classmethod
    def write_all(cls, connections: Sequence[Reader], messages: Sequence[bytes]) -> None:
        for connection, message in zip(connections, messages, strict=True):
            connection.write(message)


class Published:
    """What the grid has: values, and streams.

    Attributes:
        kept: entries that a stream keeps.
        reads: stretches of streams that were read again.
        forgotten: by partition, the highest version of a removal that it has forgotten.
        asked: how many topics were read together, each time.
    """

    def __init__(self) -> None:
        self.streams: defaultdict[int, list[TopicValue]] = defaultdict(list)
        self.kept = 1_000_000
        self.reads = 0
        self.values_of: defaultdict[int, dict[TopicPath, TopicValue]] = defaultdict(dict)
        self.ends: defaultdict[int, int] = defaultdict(int)
        self.forgotten: defaultdict[int, int] = defaultdict(int)
        self.asked: list[int] = []
        self.follows: list[int] = []

    def publish(self, topics: Sequence[str], text: bytes = b"0") -> TailBatch:
        """Publish to topics of one partition; returns what the stream brings of it."""
        number = topic_partition(TopicPath(topics[0]), 1)
        batch: list[TopicValue] = []
        for path in topics:
            topic = TopicPath(path)
            known = self.values_of[number].get(topic)
            self.ends[number] += 1
            event = EventId(f"{number}-{GENERATION}-{self.ends[number]}")
            version = Version((self.forgotten[number] if known is None else known.version) + 1)
            value = self.values_of[number][topic] = TopicValue(topic, version, event, text)
            batch.append(value)
        self.streams[number] += batch
        return TailBatch(number, tuple(batch), StreamPosition(GENERATION, self.ends[number]))

    def forget(self, *topics: str) -> None:
        """Forget removals; topics that come later have versions above theirs (ADR 0021)."""
        for path in topics:
            number = topic_partition(TopicPath(path), 1)
            removal = self.values_of[number].pop(TopicPath(path))
            assert not removal.value
            self.forgotten[number] = max(self.forgotten[number], removal.version)

    # What ``TopicStore`` and ``TopicTail`` do.

    async def position(self, partition: int) -> StreamPosition:
        return StreamPosition(GENERATION, self.ends[partition])

    async def between(self, partition: int, after: StreamPosition, upto: StreamPosition) -> list[TopicValue] | None:
        self.reads += 1
        await asyncio.sleep(0)
        stream = self.streams[partition]
        return None if len(stream) - after.sequence > self.kept else stream[after.sequence : upto.sequence]

    async def values(self, partition: int) -> AsyncIterator[Sequence[TopicValue]]:
        yield list(self.values_of[partition].values())

    async def restore(self, values: Sequence[TopicValue]) -> int:
        for value in values:
            number = topic_partition(value.topic, 1)
            if value.topic not in self.values_of[number]:
                self.values_of[number][value.topic] = value._replace(version=Version(value.version + 2))
        return len(values)

    async def read(self, topics: Sequence[TopicPath]) -> list[TopicValue | None]:
        self.asked.append(len(topics))
        await asyncio.sleep(0)
        return [self.values_of[topic_partition(topic, 1)].get(topic) for topic in topics]

    def follow(self, partition: int, _: StreamPosition) -> None:
        self.follows.append(partition)

    def unfollow(self, partition: int) -> None: ...

    def pause(self, partition: int) -> None: ...

    def resume(self, partition: int) -> None: ...


class DeliveryBench:
    """A delivery, and sessions that it sends to.

    Args:
        step: seconds that a look at the clock takes.
        parameters: of the sessions.
        outbox_packets: that may wait before a session counts as slow.

    Attributes:
        too_slow: sessions that were found to be.
        failures: bugs that were met.
        clock: time.
        time: of that clock, to be moved.
        log: what the delivery told.
    """

    def __init__(
        self, *, step: float = 0.0, parameters: StreamParameters = PARAMETERS, outbox_packets: int = 100_000
    ) -> None:
        self.too_slow: list[Session] = []
        self.failures: list[object] = []
        self.grid = Published()
        self.metrics = MemoryMetrics()
        self._parameters = parameters
        self.time = SteppingClock(step)
        self.clock = Clock(monotonic=self.time)
        self.log = log = MemoryEventLog()
        journal: Any = SimpleNamespace(traffic=None)
        surroundings: Any = SimpleNamespace(
            clock=self.clock,
            metrics=self.metrics,
            log=log,
            announce=Announcer(metrics=self.metrics, log=log, journal=journal),
            grid=SimpleNamespace(
                topics=self.grid, tail=self.grid, history=None, generation=GENERATION, state=GridState.UP
            ),
            destinations=DestinationTable(),
            journal=journal,
            background=Background(log),
            parameters=SimpleNamespace(
                topic_depth=1,
                max_window=WINDOW,
                replay_events=5_000,
                counted_roots=frozenset(),
                high_water=65_536,
                outbox_packets=outbox_packets,
                outbox_bytes=PLENTY,
            ),
        )
        self.flusher = Flusher(surroundings, self.too_slow.append, lambda _, bug: self.failures.append(bug))
        self.delivery = Delivery(surroundings, self.flusher)
        self._sessions = 0

    def partition(self, topic: str) -> Partition:
        """Return the copy of a topic's partition; it is held."""
        partition = self.delivery.replicas.get(topic_partition(TopicPath(topic), 1))
        assert partition is not None
        return partition

    def publish(self, *topics: str, text: bytes = b"0", applied: Callable[[], None] = lambda: None) -> TailBatch:
        """Publish to topics of one partition, and bring it by the stream."""
        batch = self.grid.publish(topics, text)
        self.delivery.replicas.take_in(batch, applied)
        return batch

    def session(self, reader: Reader | None = None) -> Session:
        """Make a session, with a client if there is a reader."""
        self._sessions += 1
        name = SessionId(f"s{self._sessions}")
        record = SessionRecord(id=name, principal="ann", window=60.0, owner=ME, epoch=Epoch(1))
        session = Session(record, SessionMachine(Role.SERVER, self._parameters), stored_under=STORED_UNDER)
        session.machine.open(0.0)
        session.connection = cast("Any", reader)
        return session

    async def subscribe(self, session: Session, text: str) -> int:
        """Do what a subscribe does."""
        selector = parse_selector(text)
        wanted = session.selections.select(selector)
        await self.delivery.prepare(session, wanted)
        in_force = self.delivery.in_force(session)
        self.delivery.select(session, wanted)
        return self.delivery.feed(session, selector, before=in_force)

    async def unsubscribe(self, session: Session, text: str) -> Selections:
        """Do what an unsubscribe does."""
        wanted = session.selections.deselect(parse_selector(text))
        await self.delivery.prepare(session, wanted)
        self.delivery.select(session, wanted)
        return wanted

    async def turns(self, count: int = 1) -> None:
        """Let the loop turn so often."""
        for _ in range(count):
            await asyncio.sleep(0)

    async def all_sent(self, session: Session, reader: Reader) -> None:
        """Let a client read and acknowledge until it has been sent everything."""
        reader.room = True
        machine, waiting = session.machine, self.delivery.replicas._queues
        while waiting or session in self.flusher.feeds or machine.has_output or machine.unacknowledged:
            machine.receive_ack(reader.last, 0.0)
            self.flusher.mark(session)
            await self.turns()

    async def close(self) -> None:
        """Stop timers and readers."""
        self.flusher.close()
        self.delivery.replays.close()
        await self.delivery.replicas.close()
