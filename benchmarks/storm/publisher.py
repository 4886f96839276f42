"""A session that publishes with a window of open requests, and checks every receipt."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import orjson

from benchmarks.storm import values
from benchmarks.storm.loop import Connection, Loop
from benchmarks.storm.member import SUBPROTOCOL, TARGET

WINDOW: Final = 128
"""Requests without a reply: half of what a node announces by default."""
_ACK_PACKETS: Final = 64
_PUBLISH_SECONDS: Final = 60.0


class Publisher:
    """Publishes what it is handed, in order, as fast as its window allows.

    Attributes:
        welcomed: whether its session is open.
        versions: highest version that a receipt named, by topic.
        events: event ids of all receipts.
        answered: receipts so far.
        latencies: nanoseconds from each publish to its receipt.
    """

    def __init__(self, loop: Loop, name: str, *, window: int = WINDOW, array: int | None = None) -> None:
        """Describe it; ``connect`` opens its session.

        Args:
            loop: that serves it.
            name: its principal.
            window: requests without a reply, at most.
            array: publishes in a message, exactly that many but for what is left at the end; None for as many as there
                are and the window allows.
        """
        self._array = array
        self._loop = loop
        self._name = name
        self._window = window
        self._connection: Connection | None = None
        self._queue: deque[tuple[str, int]] = deque()
        self._open: dict[int, tuple[str, int]] = {}
        self._request = 0
        self._received = 0
        self._acknowledged = 0
        self._leaving = False
        self.welcomed = False
        self.versions: dict[str, int] = {}
        self.events: set[str] = set()
        self.answered = 0
        self.latencies: list[int] = []

    @property
    def done(self) -> bool:
        """Whether everything has been published and answered."""
        return not self._queue and not self._open

    def connect(self, address: tuple[str, int], *, hint: str | None = None) -> None:
        """Open the session and wait until it is.

        Raises:
            StormFailed: it was not opened.
        """
        target = f"{TARGET}?node={hint}" if hint else TARGET
        self._connection = self._loop.connect(address, target, SUBPROTOCOL, self)
        self._loop.run(lambda: self.welcomed, seconds=_PUBLISH_SECONDS)

    def publish(self, values_by_topic: Iterable[tuple[str, int]]) -> None:
        """Publish a sequence number to each topic, as far as the window allows now, and the rest when it does."""
        self._queue.extend(values_by_topic)
        self._fill()

    def publish_all(self, values_by_topic: Iterable[tuple[str, int]]) -> None:
        """The same, and wait for all receipts.

        Raises:
            StormFailed: a publish was refused, or not answered in time.
        """
        self.publish(values_by_topic)
        self._loop.run(lambda: self.done, seconds=_PUBLISH_SECONDS)

    def leave(self) -> None:
        """End the session and wait for the close.

        Raises:
            StormFailed: it was not closed.
        """
        if self._connection is not None:
            self._leaving = True
            self._connection.send(b'{"type":"bye"}')
            self._loop.run(lambda: self._connection is None, seconds=_PUBLISH_SECONDS)

    def opened(self, connection: Connection) -> None:
        """See ``Owner``."""
        connection.send(orjson.dumps({"type": "hello", "principal": self._name, "client": "storm/1"}))

    def received(self, connection: Connection, payload: bytes) -> None:
        """See ``Owner``."""
        content = orjson.loads(payload)
        numbered = False
        for packet in content if isinstance(content, list) else (content,):
            kind = packet.get("type")
            if kind == "reply":
                number = packet.get("id", self._received + 1 if numbered else None)
                numbered = True
                if number != self._received + 1:
                    self._loop.fail(f"{self._name}: packet {number} came after packet {self._received}")
                self._received += 1
                self._receipt(packet)
            elif kind == "welcome":
                self.welcomed = True
                connection.send(b'{"type":"ack","received":0}')
            elif kind == "ping":
                connection.send(b'{"type":"pong","received":%d}' % self._received)
                self._acknowledged = self._received
            elif kind not in {"ack", "bye"}:
                self._loop.fail(f"{self._name} was sent {payload[:200]!r}")
        self._fill()
        if self._connection is not None and (self._received - self._acknowledged >= _ACK_PACKETS or self.done):
            self._acknowledged = self._received
            connection.send(b'{"type":"ack","received":%d}' % self._received)

    def lost(self, _: Connection, reason: str) -> None:
        """See ``Owner``."""
        self._connection = None
        if not self._leaving:
            self._loop.fail(f"{self._name} lost its connection: {reason}")

    def _fill(self) -> None:
        while self._queue and (room := self._window - len(self._open)) > 0:
            count = min(room if self._array is None else self._array, len(self._queue))
            if count > room:
                return
            self._send(count)

    def _send(self, count: int) -> None:
        packets = []
        now = time.monotonic_ns()
        for _ in range(count):
            topic, sequence = self._queue.popleft()
            self._request += 1
            self._open[self._request] = (topic, now)
            # Text of letters, digits and spaces: nothing in it needs escaping.
            packets.append(
                f'{{"id":{self._request},"type":"publish","request":{self._request},"topic":"{topic}",'
                f'"value":"{values.make(sequence, now)}"}}'
            )
        if self._connection is not None:
            packets[0] = self._with_news(packets[0])
            # A packet alone is sent without an array around it, as clients that publish one value do.
            self._connection.send((packets[0] if self._array == 1 else f"[{','.join(packets)}]").encode())

    def _with_news(self, packet: str) -> str:
        if self._received == self._acknowledged:
            return packet
        self._acknowledged = self._received
        return f'{{"received":{self._received},{packet[1:]}'

    def _receipt(self, packet: dict[str, Any]) -> None:
        topic, sent = self._open.pop(packet.get("request", 0), ("", 0))
        version, event = packet.get("version", 0), packet.get("event", "")
        if not topic or packet.get("error") is not None:
            self._loop.fail(f"{self._name} was answered {packet}")
        elif version <= self.versions.get(topic, 0) or event in self.events:
            self._loop.fail(f"{self._name}: the receipt {packet} is no newer than those before")
        else:
            self.versions[topic] = version
            self.events.add(event)
            self.answered += 1
            self.latencies.append(time.monotonic_ns() - sent)
