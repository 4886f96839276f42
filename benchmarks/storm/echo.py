"""The reference for what a session costs: a bare WebSocket handshake and one message there and back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from benchmarks.storm.crowd import allow_descriptors
from benchmarks.storm.loop import Connection, Loop

TARGET: Final = "/echo"
"""Of the C floor (benchmarks/peers/c_floor) and the bare aiohttp server (benchmarks/peers/bare_aiohttp)."""
_MESSAGE: Final = b"x" * 300
"""As long as the resume packet of a session, token included."""
_SECONDS: Final = 60.0
_SPARE_DESCRIPTORS: Final = 200


class Echo:
    """One connection that sends one message and gets it back.

    Attributes:
        done: whether it has.
    """

    __slots__ = ("_connection", "_finished", "_loop", "done")

    def __init__(self, loop: Loop, finished: Callable[[], None]) -> None:
        """Describe it; ``finished`` is called when the message is back."""
        self._loop = loop
        self._finished = finished
        self._connection: Connection | None = None
        self.done = False

    def arrive(self, address: tuple[str, int]) -> None:
        """Connect."""
        self._connection = self._loop.connect(address, TARGET, None, self)

    def opened(self, connection: Connection) -> None:
        """See ``Owner``."""
        connection.send(_MESSAGE)

    def received(self, _: Connection, payload: bytes) -> None:
        """See ``Owner``."""
        if payload != _MESSAGE:
            self._loop.fail(f"the echo is {payload[:40]!r}")
        self.done = True
        self._finished()

    def lost(self, _: Connection, reason: str) -> None:
        """See ``Owner``."""
        self._loop.fail(f"an echo connection was lost: {reason}")


class Echoes:
    """Many of them.

    Attributes:
        loop: that serves them.
        seconds: from the first connect to the last echo.
        own_cpu: CPU seconds of this process meanwhile.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.loop = Loop()
        self.seconds = 0.0
        self.own_cpu = 0.0
        self._arrived = 0
        self._waiting: list[Echo] = []
        self._address = ("", 0)

    def arrive(self, address: tuple[str, int], connections: int, *, at_once: int | None = None) -> None:
        """Open connections, and wait until each has its echo.

        Args:
            address: host and port.
            connections: how many.
            at_once: how many may be on their way together; all if None.

        Raises:
            StormFailed: one failed, or took too long.
        """
        allow_descriptors(connections + _SPARE_DESCRIPTORS)
        self._address = address
        self._arrived = 0
        members = [Echo(self.loop, self._finished) for _ in range(connections)]
        first = connections if at_once is None else at_once
        self._waiting = members[first:]
        began, cpu = time.monotonic(), time.process_time()
        for member in members[:first]:
            member.arrive(address)
        self.loop.run(lambda: self._arrived >= connections, seconds=_SECONDS)
        self.seconds, self.own_cpu = time.monotonic() - began, time.process_time() - cpu

    def close(self) -> None:
        """Cut all connections."""
        self.loop.close()

    def _finished(self) -> None:
        self._arrived += 1
        if self._waiting:
            self._waiting.pop().arrive(self._address)
