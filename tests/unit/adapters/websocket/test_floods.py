"""Frames that make no message, more than anybody needs: bounded in each turn, slowed down, then closed (P20).

Nothing here is timed: reads, bytes and frames are counted by the loop's turn, by a clock that tests move.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from math import ceil

import pytest
from websockets.frames import Frame, Opcode

from gateway.adapters.websocket import connection as connection_module
from gateway.adapters.websocket.connection import READ_BYTES, READS_AT_ONCE, WebSocketConnection
from gateway.adapters.websocket.frames import FRAMES_AT_ONCE, Breach, FrameReader
from gateway.adapters.websocket.read_scheduler import PacedReader
from gateway.adapters.websocket.work import BYTE_COST, FRAME_COST
from gateway.adapters.work_budget import WorkBudget, WorkLimits
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from tests.support.clock import eventually
from tests.unit.adapters.websocket.conftest import Ear, Peer, Port

pytestmark = pytest.mark.promise("P20")


def frame(opcode: int, payload: bytes = b"", *, final: bool = True) -> bytes:
    return Frame(Opcode(opcode), payload, fin=final).serialize(mask=True)


async def joined(port: Port) -> tuple[WebSocketConnection, Ear, Peer]:
    before = len(port.connections)
    peer = await port.upgraded()
    await eventually(lambda: len(port.connections) > before)
    return port.connections[-1], port.ears[-1], peer


FLOODS = {
    "pings": (b"", frame(9)),
    "pongs": (b"", frame(10)),
    "long pongs": (b"", frame(10, b"x" * 125)),
    "empty fragments": (frame(1, b"x", final=False), frame(0, final=False)),
    "one-byte fragments": (frame(1, b"x", final=False), frame(0, b"x", final=False)),
}
"""What a flood begins with, and what then comes again and again."""

flooded = pytest.mark.parametrize(("begin", "more"), FLOODS.values(), ids=FLOODS)


class TurnCounter:
    """Counts what happens in each turn of the loop."""

    def __init__(self) -> None:
        self.turn = 0
        self.counted: Counter[int] = Counter()
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self.turn += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def add(self, amount: int = 1) -> None:
        self.counted[self.turn] += amount

    @property
    def most(self) -> int:
        return max(self.counted.values(), default=0)

    def close(self) -> None:
        self._handle.cancel()


@pytest.fixture
async def turns() -> AsyncIterator[TurnCounter]:
    counter = TurnCounter()
    yield counter
    counter.close()


class CountedSocket:
    """A socket whose bytes are counted by the turn in which they are read."""

    def __init__(self, connection: WebSocketConnection, turns: TurnCounter) -> None:
        self._socket = connection._socket
        self._turns = turns

    def recv(self, size: int) -> bytes:
        data = self._socket.recv(size)
        self._turns.add(len(data))
        return data

    def __getattr__(self, name: str) -> object:
        return getattr(self._socket, name)


async def flood_until(peer: Peer, data: bytes, is_enough: Callable[[], bool]) -> None:
    """Send *data* without end, as fast as it is taken."""
    peer.socket.setblocking(False)

    async def send() -> None:
        while True:
            await peer.send(data)

    sending = asyncio.create_task(send())
    try:
        await eventually(is_enough)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


@contextmanager
def frames_counted(turns: TurnCounter) -> Iterator[None]:
    """Count every frame that is read."""
    original = FrameReader._read

    def read(self: FrameReader, *arguments: object) -> int | None:
        following = original(self, *arguments)  # type: ignore[arg-type]
        turns.add(following is not None)
        return following

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FrameReader, "_read", read)
        yield


@pytest.fixture
def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections cause as much work as they like: only turns bound it."""
    for name in ("SESSION", "UNAUTHENTICATED"):
        monkeypatch.setattr(connection_module, name, WorkLimits(rate=1e6, burst=1e6, idle_rate=1e6, idle_burst=1e6))


# --- Turns ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unbounded")
@flooded
async def test_what_is_read_of_a_flood_in_one_turn_does_not_grow(
    port: Port, turns: TurnCounter, begin: bytes, more: bytes
) -> None:
    connection, _, peer = await joined(port)
    connection._socket = CountedSocket(connection, turns)  # type: ignore[assignment]
    await peer.send(begin)

    await flood_until(peer, more * 5000 + (frame(0, b"") + begin if begin else b""), lambda: len(turns.counted) > 200)

    assert turns.most <= READS_AT_ONCE * READ_BYTES


@pytest.mark.usefixtures("unbounded")
@flooded
async def test_the_frames_of_one_connection_in_one_turn_are_bounded(
    port: Port, turns: TurnCounter, begin: bytes, more: bytes
) -> None:
    _, _, peer = await joined(port)
    with frames_counted(turns):
        await peer.send(begin)
        await flood_until(
            peer, more * 5000 + (frame(0, b"") + begin if begin else b""), lambda: len(turns.counted) > 200
        )

    assert turns.most <= FRAMES_AT_ONCE


@pytest.mark.usefixtures("unbounded")
async def test_nothing_of_a_flood_piles_up(port: Port) -> None:
    """At any time a connection is watched by the loop, or waits once in a queue, or neither."""
    connection, _, peer = await joined(port)
    waiting: list[int] = []
    original = connection._read

    def read() -> bool:
        waiting.append(len(connection._sessions))
        return original()

    connection._reading.take_over("flood", read)
    await flood_until(peer, frame(10) * 5000, lambda: len(waiting) > 200)

    assert set(waiting) == {0}
    assert len(connection._sessions) <= 1


class MovedClock:
    """Seconds that go on with what is done, and not by themselves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


COST = 0.0011
"""Seconds that a read takes by the clock of these tests."""


@pytest.mark.usefixtures("unbounded")
async def test_a_turn_ends_after_its_time_whatever_the_crowd_and_all_have_theirs(
    port: Port, turns: TurnCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty floods from one address: of each turn they get four reads, and who comes from elsewhere waits for none."""
    floods = [await joined(port) for _ in range(40)]
    connection, ear, witness = await joined(port)
    clock = MovedClock()
    assert port.server._scheduler is not None
    port.server._scheduler.sessions.clock = clock
    served: list[WebSocketConnection] = []
    original = WebSocketConnection._take_in

    def take_in(self: WebSocketConnection, data: bytes) -> None:
        clock.now += COST
        turns.add()
        served.append(self)
        original(self, data)

    monkeypatch.setattr(WebSocketConnection, "_take_in", take_in)
    for flooding, _, _ in floods:
        flooding._reading.take_over("198.51.100.1", flooding._read)
    numbers = [b"%d" % number for number in range(20)]
    sending = asyncio.gather(*(peer.send(frame(10) * 200_000) for _, _, peer in floods))
    queued_in: list[int] = []
    waits: list[int] = []
    defer = PacedReader._queue

    def note(reading: PacedReader) -> None:
        if reading is connection._reading:
            queued_in.append(turns.turn)
        defer(reading)

    monkeypatch.setattr(PacedReader, "_queue", note)
    ear.on_message = lambda _: waits.append(turns.turn - queued_in[-1]) if queued_in else None
    for number in numbers:
        await witness.send(frame(1, number))
        await eventually(lambda number=number: number in ear.heard)  # type: ignore[misc]
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)

    assert ear.heard == numbers
    assert max(waits) <= 1, "whoever it is that floods has no more of the queue than it has"
    assert turns.most <= ceil(port.server._scheduler.sessions.time / COST)
    assert len(set(served)) == 41
    assert port.metrics.count(catalogue.READING_DEFERRED, label="sessions") > 0


async def test_unauthenticated_clients_have_a_share_of_their_own(port: Port) -> None:
    """What unauthenticated clients have used up of a turn takes nothing from those who have a session."""
    _, ear, peer = await joined(port)
    turns = port.server._scheduler
    assert turns is not None
    turns._rest = asyncio.get_running_loop().call_later(3600.0, lambda: None)
    turns.unauthenticated.spent = turns.unauthenticated.time
    unauthenticated = await port.dial()
    await peer.send(frame(1, b"x"))

    await eventually(lambda: ear.heard == [b"x"] and len(turns.unauthenticated) == 1)
    assert not port.server._requests, "nobody is accepted, and nobody read"
    turns._rest.cancel()
    turns._end_rest()
    await eventually(lambda: len(port.server._requests) == 1)
    unauthenticated.socket.close()


async def test_unauthenticated_clients_rest_when_a_node_has_others_to_serve(port: Port) -> None:
    """All of them together have half of its time then; by the clock here each turn takes them more than that."""
    turns = port.server._scheduler
    assert turns is not None
    port.admission.paced = True
    clock = MovedClock()
    turns._clock = turns.unauthenticated.clock = clock
    rests: list[float] = []
    loop = asyncio.get_running_loop()

    def take_long() -> bool:
        clock.now += 0.1
        return False

    turns.unauthenticated.run(take_long)
    await eventually(lambda: turns._rest is not None)
    assert turns._rest is not None
    rests.append(turns._rest.when() - loop.time())
    assert turns.unauthenticated.is_spent
    # It goes on by itself.
    peer = await port.upgraded()
    await peer.send(frame(8))

    assert 0 < rests[0] <= 0.2


# --- Budgets ----------------------------------------------------------------------------------------------------------


SMALL = WorkLimits(rate=0.05, burst=0.002, idle_rate=0.001, idle_burst=0.01)
"""Of which a flood in a test comes to the end soon; its rate leaves pauses of some hundredths of a second."""


@pytest.fixture(params=["sessions", "unauthenticated"])
def whose(request: pytest.FixtureRequest, port: Port, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether those who flood have a session."""
    whose: str = request.param
    port.listens = whose == "sessions"
    lenient = WorkLimits(rate=1e6, burst=1e6, idle_rate=1e6, idle_burst=1e6)
    monkeypatch.setattr(connection_module, "SESSION", SMALL if port.listens else lenient)
    monkeypatch.setattr(connection_module, "UNAUTHENTICATED", lenient if port.listens else SMALL)
    return whose


@flooded
async def test_who_floods_is_read_more_slowly_and_then_closed(
    port: Port, whose: str, begin: bytes, more: bytes
) -> None:
    connection, ear, peer = await joined(port)
    await peer.send(begin)
    flood = asyncio.create_task(peer.send(more * 1_000_000))
    await eventually(lambda: connection.is_closing)

    assert connection.close_code == Breach.POLICY_VIOLATION
    assert port.metrics.counts(catalogue.FRAME_VIOLATIONS) == {"flood": 1}
    assert port.metrics.count(catalogue.READING_SLOWED, label=whose) > 1
    assert list(port.log.events) == [(events.FLOOD_CLOSED, {"address": "127.0.0.1"})]
    assert not flood.done(), "what it could not say yet is not read"
    flood.cancel()
    await asyncio.gather(flood, return_exceptions=True)
    peer.socket.close()
    if whose == "sessions":
        await eventually(lambda: ear.over == 1)
        assert ear.heard == []


@pytest.mark.usefixtures("whose")
async def test_who_goes_on_after_it_was_closed_is_dropped(port: Port) -> None:
    connection, _, peer = await joined(port)
    flood = asyncio.create_task(peer.send(frame(10) * 5_000_000))
    await eventually(lambda: not port.server._connections)

    assert connection._socket.fileno() == -1
    flood.cancel()
    await asyncio.gather(flood, return_exceptions=True)


async def test_who_says_something_in_between_is_slowed_and_not_closed(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        connection_module, "SESSION", WorkLimits(rate=0.05, burst=0.002, idle_rate=1e-6, idle_burst=0.004)
    )
    connection, ear, peer = await joined(port)
    flood = frame(10) * 40 + frame(1, b"x")
    await flood_until(peer, flood, lambda: port.metrics.count(catalogue.READING_SLOWED, label="sessions") > 5)

    # Without the messages it would have been closed at the second pause.
    assert set(ear.heard) == {b"x"}
    assert not connection.is_closing


async def test_messages_cost_a_connection_no_more_than_their_bytes(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are limited as packets, so whoever may send many of them is not limited here."""
    monkeypatch.setattr(
        connection_module, "SESSION", WorkLimits(rate=1e-6, burst=0.002, idle_rate=1e-6, idle_burst=0.002)
    )
    _, ear, peer = await joined(port)
    await peer.send(frame(1, b"x") * 20_000)

    await eventually(lambda: len(ear.heard) == 20_000)
    assert port.metrics.count(catalogue.READING_SLOWED, label="sessions") == 0


WHOLE_TEXT = 0x81
"""Begins a text message in one frame."""

PIECES = FLOODS | {
    "short messages": (b"", frame(1, b"x" * 20)),
    "large messages": (b"", frame(1, b"x" * 60_000)),
    "large messages of two bytes a letter": (b"", frame(1, "\u00fc".encode() * 30_000)),
    "large fragments": (frame(1, b"x", final=False), frame(0, b"x" * 300, final=False)),
}


@pytest.mark.parametrize(("begin", "more"), PIECES.values(), ids=PIECES)
async def test_every_byte_that_is_read_is_charged_whatever_it_is_part_of(
    port: Port, monkeypatch: pytest.MonkeyPatch, begin: bytes, more: bytes
) -> None:
    """Taking it from the kernel, unmasking it and looking at it cost the node the same whether or not it is heard."""
    lenient = WorkLimits(rate=1e6, burst=1e6, idle_rate=1e6, idle_burst=1e6)
    monkeypatch.setattr(connection_module, "SESSION", lenient)
    charged = 0.0
    charge = WorkBudget.charge

    def count(budget: WorkBudget, now: float, work: float) -> float:
        nonlocal charged
        charged += work
        return charge(budget, now, work)

    connection, _, peer = await joined(port)
    monkeypatch.setattr(WorkBudget, "charge", count)
    times = max(1, 50_000 // len(more))
    others = 0 if more[0] == WHOLE_TEXT else times + bool(begin)
    data, before = begin + more * times, connection._work
    expected = len(data) * BYTE_COST + others * FRAME_COST
    sending = asyncio.create_task(peer.send(data))
    await eventually(lambda: charged + connection._work - before >= expected * 0.999)
    await sending
    assert not connection.is_closing


async def test_what_a_paused_connection_has_read_is_heard_when_it_goes_on(port: Port) -> None:
    """More frames than are read at once have come in one read: the descriptor tells of none of them any more."""
    connection, ear, peer = await joined(port)
    connection.pause()
    messages = [b"%d" % number for number in range(10 * FRAMES_AT_ONCE)]
    await peer.send(b"".join(frame(1, message) for message in messages))
    ear.on_message = lambda _: connection.pause() if len(ear.heard) % 7 == 0 else None
    while len(ear.heard) < len(messages):
        before = len(ear.heard)
        connection.resume()
        await eventually(lambda before=before: len(ear.heard) > before)  # type: ignore[misc]

    assert ear.heard == messages


async def test_more_frames_than_are_read_at_once_behind_the_request_are_not_lost(port: Port) -> None:
    messages = [b"%d" % number for number in range(3 * FRAMES_AT_ONCE)]
    await port.upgraded(b"".join(frame(1, message) for message in messages))

    await eventually(lambda: len(port.ears) == 1 and port.ears[0].heard == messages)


async def test_a_break_behind_more_frames_than_are_read_at_once_is_noticed(port: Port) -> None:
    """Uvloop tells of a break once; it is told while the frames before it are not read yet."""
    for _ in range(5):
        _, ear, peer = await joined(port)
        data = frame(10) * (5 * FRAMES_AT_ONCE)
        assert peer.socket.send(data) == len(data)
        peer.reset()
        await eventually(lambda ear=ear: ear.over == 1)  # type: ignore[misc]
