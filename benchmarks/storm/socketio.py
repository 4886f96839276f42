"""The same storms for Socket.IO: what its connection state recovery keeps, as far as it has the notion.

Socket.IO has no retained values, so a session counts as served when it has recovered and been sent what it missed, or
has subscribed anew. Protocol: Engine.IO 4 and Socket.IO 5, WebSocket only.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from benchmarks.storm import values
from benchmarks.storm.crowd import allow_descriptors, interest_of
from benchmarks.storm.loop import Connection, Loop

_SECONDS: Final = 60.0
_SPARE_DESCRIPTORS: Final = 200
_OPEN, _PING = b"0", b"2"
_CONNECTED, _EVENT, _ACK = b"40", b"42", b"43"


class SocketIoMember:
    """A client with three subscriptions.

    Attributes:
        served: whether it has what it came for.
        recovered: whether the server took it back as the session it was.
        missing: values that it must be sent before it is served again, by topic-less sequence number.
    """

    __slots__ = (
        "_awaited",
        "_connection",
        "_crowd",
        "_offset",
        "_pid",
        "_topics",
        "connected",
        "missing",
        "recovered",
        "served",
        "wanted",
    )

    def __init__(self, crowd: SocketIoCrowd, topics: Sequence[str]) -> None:
        """Describe it."""
        self._crowd = crowd
        self._topics = topics
        self._connection: Connection | None = None
        self._pid = ""
        self._offset = ""
        self._awaited = 0
        self.connected = self.recovered = self.served = False
        self.missing = 0
        self.wanted = 0

    def arrive(self, address: tuple[str, int], target: str) -> None:
        """Connect, and ask for the session that it had, if any."""
        self.connected = self.recovered = self.served = False
        self._connection = self._crowd.loop.connect(address, target, None, self)

    def cut(self) -> None:
        """Lose the connection."""
        if self._connection is not None:
            self._connection.cut()
            self._connection = None

    def opened(self, connection: Connection) -> None:
        """See ``Owner``; the server speaks first."""

    def received(self, connection: Connection, payload: bytes) -> None:
        """See ``Owner``."""
        if payload == _PING:
            connection.send(b"3")
        elif payload.startswith(_EVENT):
            self._event(orjson.loads(payload[len(_EVENT) :]))
        elif payload.startswith(_ACK):
            self._awaited -= 1
            if not self._awaited:
                self._serve()
        elif payload.startswith(_CONNECTED):
            self._welcome(connection, orjson.loads(payload[len(_CONNECTED) :]))
        elif payload.startswith(_OPEN):
            resume = {"pid": self._pid, "offset": self._offset} if self._pid and self._offset else None
            connection.send(_CONNECTED + (orjson.dumps(resume) if resume else b""))
        else:
            self._crowd.loop.fail(f"was sent {payload[:100]!r}")

    def lost(self, connection: Connection, reason: str) -> None:
        """See ``Owner``."""
        if connection is self._connection:
            self._connection = None
            self._crowd.loop.fail(f"lost its connection: {reason}")

    def _welcome(self, connection: Connection, answer: dict[str, Any]) -> None:
        self.recovered = bool(self._pid) and answer.get("pid") == self._pid
        self._pid = answer.get("pid", "")
        self.connected = True
        if self.recovered:
            if self.missing <= 0:
                self._serve()
            return
        self._offset = ""
        self._awaited = len(self._topics)
        for number, topic in enumerate(self._topics):
            connection.send(b'42%d["subscribe","%b"]' % (number, topic.encode()))

    def _event(self, event: list[Any]) -> None:
        try:
            values.read(event[1])
        except values.CorruptValue as corrupt:
            self._crowd.loop.fail(str(corrupt))
        if len(event) > 2:  # noqa: PLR2004 - name, value, offset
            self._offset = event[2]
        self.missing -= 1
        if self.connected and not self.missing:
            self._serve()

    def _serve(self) -> None:
        if not self.served:
            self.served = True
            self._crowd.served += 1


class SocketIoCrowd:
    """All clients.

    Attributes:
        loop: that serves them.
        members: all of them.
        served: how many are, since the last arrival or publish.
        seconds: until the last was.
        own_cpu: CPU seconds of this process meanwhile.
    """

    def __init__(self, sessions: int, target: str) -> None:
        """Describe them: each with a topic shared with many, one shared with some, one of its own."""
        allow_descriptors(sessions + _SPARE_DESCRIPTORS)
        self.loop = Loop()
        self.members = [SocketIoMember(self, interest_of(number).topics) for number in range(sessions)]
        self.served = 0
        self.seconds = 0.0
        self.own_cpu = 0.0
        self._target = target

    def close(self) -> None:
        """Cut everybody."""
        self.loop.close()

    def arrive(self, address: tuple[str, int], *, missed: int = 0) -> None:
        """Let all connect and wait until they are served.

        Args:
            address: of the server.
            missed: values published while they were away, for each.

        Raises:
            StormFailed: not all were.
        """
        self.served = 0
        began, cpu = time.monotonic(), time.process_time()
        for member in self.members:
            member.missing = missed
            member.arrive(address, self._target)
        self.loop.run(lambda: self.served >= len(self.members), seconds=_SECONDS)
        self.seconds, self.own_cpu = time.monotonic() - began, time.process_time() - cpu

    def cut(self) -> None:
        """Cut everybody's connection."""
        for member in self.members:
            member.cut()

    def publish(self, address: tuple[str, int], topics: Sequence[str], sequence: int, *, listeners: bool) -> None:
        """Give topics a value, and wait until the members have it if they listen; two of each one's topics are shared.

        Raises:
            StormFailed: not in time.
        """
        self.served = 0
        for member in self.members:
            member.served, member.missing = False, 2
        publisher = SocketIoPublisher(self.loop)
        publisher.connect(address, self._target)
        publisher.publish_all((topic, sequence) for topic in topics)
        if listeners:
            self.loop.run(lambda: self.served >= len(self.members), seconds=_SECONDS)
        publisher.leave()

    @property
    def recovered(self) -> int:
        """How many the server took back."""
        return sum(member.recovered for member in self.members)


class SocketIoPublisher:
    """Emits with acknowledgements, at most a window of them outstanding.

    Attributes:
        answered: acknowledgements so far.
        latencies: nanoseconds from each emit to its acknowledgement.
    """

    def __init__(self, loop: Loop, *, window: int = 128) -> None:
        """Describe it."""
        self._loop = loop
        self._window = window
        self._connection: Connection | None = None
        self._queue: deque[tuple[str, int]] = deque()
        self._open: dict[int, int] = {}
        self._number = 0
        self._connected = False
        self.answered = 0
        self.latencies: list[int] = []

    @property
    def done(self) -> bool:
        """Whether everything has been published and acknowledged."""
        return not self._queue and not self._open

    def connect(self, address: tuple[str, int], target: str) -> None:
        """Open the connection.

        Raises:
            StormFailed: not in time.
        """
        self._connection = self._loop.connect(address, target, None, self)
        self._loop.run(lambda: self._connected, seconds=_SECONDS)

    def leave(self) -> None:
        """Cut the connection."""
        if self._connection is not None:
            self._connection.cut()
            self._connection = None

    def publish(self, values_by_topic: Iterable[tuple[str, int]]) -> None:
        """Emit as far as the window allows now, and the rest when it does."""
        self._queue.extend(values_by_topic)
        self._fill()

    def publish_all(self, values_by_topic: Iterable[tuple[str, int]]) -> None:
        """The same, and wait for all acknowledgements.

        Raises:
            StormFailed: not in time.
        """
        self.publish(values_by_topic)
        self._loop.run(lambda: self.done, seconds=_SECONDS)

    def opened(self, connection: Connection) -> None:
        """See ``Owner``; the server speaks first."""

    def received(self, connection: Connection, payload: bytes) -> None:
        """See ``Owner``."""
        if payload == _PING:
            connection.send(b"3")
        elif payload.startswith(_ACK):
            number = int(payload[len(_ACK) : payload.index(b"[")])
            sent = self._open.pop(number, None)
            if sent is None:
                self._loop.fail(f"{number} is acknowledged, but not open")
                return
            self.answered += 1
            self.latencies.append(time.monotonic_ns() - sent)
            self._fill()
        elif payload.startswith(_CONNECTED):
            self._connected = True
        elif payload.startswith(_OPEN):
            connection.send(_CONNECTED)
        else:
            self._loop.fail(f"a publisher was sent {payload[:100]!r}")

    def lost(self, connection: Connection, reason: str) -> None:
        """See ``Owner``."""
        if connection is self._connection:
            self._loop.fail(f"a publisher lost its connection: {reason}")

    def _fill(self) -> None:
        if self._connection is None:
            return
        while self._queue and len(self._open) < self._window:
            topic, sequence = self._queue.popleft()
            now = time.monotonic_ns()
            self._open[self._number] = now
            text = values.make(sequence, now)
            self._connection.send(b'42%d["publish","%b","%b"]' % (self._number, topic.encode(), text.encode()))
            self._number += 1
