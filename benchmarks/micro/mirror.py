"""What a backup adds to each update that a node sends its sessions, and what it costs the backup, without sockets.

``python -m benchmarks.micro.mirror`` prints a table. The real flusher numbers updates for the real sessions of a log,
whose frames the real copies take in; the transports take everything and do nothing. Of several rounds, the least of
each figure counts: whatever else the machine does only adds to it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast

import uvloop

from gateway.adapters.memory import MemoryMetrics
from gateway.app.delivery.flusher import Flusher
from gateway.app.session.session import Session
from gateway.core.mirror.copies import Copies
from gateway.core.mirror.frames import SessionCut, read_frame
from gateway.core.mirror.log import MirrorLog
from gateway.core.session.server_session import ServerSession
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.parameters import StreamParameters
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.stream.transitions import Role
from gateway.core.types import Epoch, EventId, GridGeneration, SessionId, TokenGeneration, Version
from gateway.core.wire import codec
from gateway.ports import Connection

SESSIONS: Final = 1_000
UPDATES: Final = 100
"""For each session in a round."""
ACKNOWLEDGED: Final = 25
"""Updates after which each client acknowledges, as one does that is sent 50 a second."""
ROUNDS: Final = 7
VALUE: Final = b'"%b"' % (b"x" * 98)
PARAMETERS: Final = StreamParameters(
    resend_packets=1_024,
    resend_bytes=1_048_576,
    message_bytes=65_536,
    ack_packets=64,
    ack_delay=0.25,
    ping_interval=20.0,
    ping_timeout=45.0,
)
"""The defaults of a node."""
PARTITION: Final = 7
NANOSECONDS: Final = 1e9

SHARED, COLLECTED, OWN = "one topic", "two topics a turn", "a topic each"
WAYS: Final = (SHARED, COLLECTED, OWN)
"""Sent to all at once; collected, as what follows in the same turn is; and sent to each alone."""


class Cost(NamedTuple):
    """Nanoseconds for each update that a session is sent.

    Attributes:
        deliver: to number it and to hand it to the transport.
        frames: to write frames.
        acknowledge: to take acknowledgements in.
        backup: to take frames in, at the backup.
        size: bytes of frames.
    """

    deliver: float
    frames: float
    acknowledge: float
    backup: float
    size: float

    @property
    def live(self) -> float:
        """All that the live node does."""
        return self.deliver + self.frames + self.acknowledge


class Transport:
    """Takes everything."""

    @property
    def is_closing(self) -> bool:
        """See ``Connection``."""
        return False

    def backlog(self) -> int:
        """See ``Connection``."""
        return 0

    def write(self, message: bytes) -> None:
        """See ``Connection``."""

    @classmethod
    def write_all(cls, connections: Sequence[Connection], messages: Sequence[bytes]) -> None:
        """See ``Connection``."""


class Client(ServerSession):
    """A session with a connection: of a node's session the flusher needs no more."""

    __slots__ = ("connection",)

    def __init__(self, number: int) -> None:
        machine = SessionMachine(Role.SERVER, PARAMETERS)
        machine.open(0.0, generation=TokenGeneration(1))
        super().__init__(
            SessionId(f"s{number}"), principal="alice", window=60.0, machine=machine, declared=GridGeneration(1)
        )
        self.connection = Transport()


def failed(_: object, bug: Exception) -> None:
    """A session could not be sent something."""
    raise bug


def flusher() -> Flusher:
    """Make one without a node."""
    context = SimpleNamespace(
        parameters=SimpleNamespace(high_water=65_536, outbox_packets=1_000, outbox_bytes=1_048_576),
        clock=SimpleNamespace(monotonic=time.monotonic),
        metrics=MemoryMetrics(),
    )
    return Flusher(cast("Any", context), lambda _: sys.exit("a session was too slow"), failed)


class Recorder:
    """Has a frame written before clients are written to, as on a node, and tells what that and the backup cost.

    Args:
        log: what is told.
        write: makes the next frame.
        copies: that take it in.

    Attributes:
        frames: seconds for writing frames so far.
        backup: seconds for taking them in.
        size: bytes of them.
    """

    def __init__(self, log: MirrorLog[Session], write: Callable[[], bytes | None], copies: Copies) -> None:
        self._log = log
        self._write = write
        self._copies = copies
        self.frames = self.backup = 0.0
        self.size = 0

    def sent_together(self, run: Run, sessions: Sequence[Session], others: Iterable[Session]) -> None:
        """See ``DeliveryRecorder``."""
        self._log.sent_together(run, sessions, others)

    def before_writing(self) -> None:
        """See ``DeliveryRecorder``."""
        if self._log.has_news:
            self.tell()

    def tell(self) -> None:
        """Write a frame, and take it in."""
        began = time.thread_time()
        frame = self._write()
        written = time.thread_time()
        self.frames += written - began
        if frame is not None:
            self._copies.apply(read_frame(frame))
            self.backup += time.thread_time() - written
            self.size += len(frame)


class Node:
    """Sessions and their flusher, and a log if they have a backup."""

    def __init__(self, *, is_copied: bool) -> None:
        self.sessions = cast("tuple[Session, ...]", tuple(map(Client, range(SESSIONS))))
        self.alone = [(each,) for each in self.sessions]
        self.flusher = flusher()
        self.copies = Copies()
        self.sent = 0
        self.log: MirrorLog[Session] | None = None
        self.recorder: Recorder | None = None
        if is_copied:
            self._copy()

    def _copy(self) -> None:
        log = self.log = MirrorLog(
            1,
            epoch_of=lambda _: Epoch(1),
            cut_of=lambda _: SessionCut(frozenset({PARTITION}), {}),
            wake=lambda: None,
            wake_later=lambda: None,
            rate=float("inf"),
        )
        for session in self.sessions:
            log.add(session)
        self.recorder = self.flusher.recorder = Recorder(log, self.frame, self.copies)
        while not log.sequence or log.waiting:
            self.copies.apply(read_frame(self.frame() or b""))

    def frame(self) -> bytes | None:
        """Write what has changed."""
        if self.log is None:
            return None
        return self.log.frame({PARTITION: EventId(f"{PARTITION}-1-{self.sent}")}, time.monotonic())

    def run(self) -> Run:
        """Make an update."""
        self.sent += 1
        event = EventId(f"{PARTITION}-1-{self.sent}")
        return Run.of(
            Outgoing("market/17", codec.encode_update("market/17", Version(self.sent), event, VALUE, snapshot=False))
        )

    def deliver(self, way: str) -> int:
        """Send each session updates in the given way; returns how many."""
        deliver = self.flusher.deliver
        if way == OWN:
            for alone in self.alone:
                deliver(self.run(), alone, more=False)
            return 1
        if way == COLLECTED:
            deliver(self.run(), self.sessions, more=True)
        deliver(self.run(), self.sessions, more=False)
        return 1 if way == SHARED else 2


async def measure(way: str, *, is_copied: bool) -> Cost:
    """Send each session some updates."""
    node = Node(is_copied=is_copied)
    told = node.recorder
    if told is not None:
        told.frames = told.backup = told.size = 0
    deliver = acknowledge = 0.0
    sent = owed = 0
    while sent < UPDATES:
        apart = 0.0 if told is None else told.frames + told.backup
        began = time.thread_time()
        owed += (updates := node.deliver(way))
        await asyncio.sleep(0)  # what is collected is written at the end of the turn
        acknowledged = time.thread_time()
        deliver += acknowledged - began
        if told is not None:
            # Frames are written, and taken in, while messages are handed to transports.
            deliver -= told.frames + told.backup - apart
        sent += updates
        if owed >= ACKNOWLEDGED:
            owed = 0
            for session in node.sessions:
                session.machine.receive_ack(session.machine.last_numbered, 0.0)
        acknowledge += time.thread_time() - acknowledged
        if told is not None:
            told.tell()  # what was acknowledged goes by itself if nothing else does
    unit = NANOSECONDS / sent / SESSIONS
    if told is None:
        return Cost(deliver * unit, 0.0, acknowledge * unit, 0.0, 0.0)
    return Cost(deliver * unit, told.frames * unit, acknowledge * unit, told.backup * unit, told.size / sent / SESSIONS)


def least(way: str, rounds: int, *, is_copied: bool) -> Cost:
    """Measure some times, and take the least of each."""
    costs = [uvloop.run(measure(way, is_copied=is_copied)) for _ in range(rounds)]
    return Cost(*map(min, zip(*costs, strict=True)))


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    sys.stdout.write(f"{SESSIONS:,} sessions; nanoseconds for each update that one of them is sent\n")
    names = ("deliver", "frames", "acks", "live node", "backup", "bytes")
    sys.stdout.write(f"{'':<20}{'backup':<8}" + "".join(f"{name:>10}" for name in names) + "\n")
    for way in WAYS:
        for is_copied in (False, True):
            cost = least(way, rounds, is_copied=is_copied)
            values = (cost.deliver, cost.frames, cost.acknowledge, cost.live, cost.backup, cost.size)
            row = "".join(f"{value:>10,.0f}" for value in values)
            sys.stdout.write(f"{way:<20}{'yes' if is_copied else 'no':<8}{row}\n")


if __name__ == "__main__":
    main()
