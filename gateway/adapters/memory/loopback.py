"""A client connection without a socket, for tests: one side is the port ``Connection``, the other plays the client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Self

from gateway.ports import Access, Receiver


class LoopbackConnection:
    """``Connection`` whose other end is the test.

    Args:
        address: where the client seems to come from.
        access: how it seems to have reached the node.

    Attributes:
        written: every message the application wrote, in order.
        closed: code and reason of the application's close; None while it has not closed.
        held_back: bytes that the transport has not taken; a test may set any number.
        pushing_back: while True, what is written adds to ``held_back``.
    """

    def __init__(self, address: str = "192.0.2.1", *, access: Access = Access()) -> None:  # noqa: B008 - a value
        self.written: list[bytes] = []
        self.closed: tuple[int, str] | None = None
        self.held_back = 0
        self.pushing_back = False
        self._address = address
        self._access = access
        self._incoming: deque[bytes] = deque()
        self._over = False
        self._close_code: int | None = None
        self._read = 0
        self._receiver: Receiver | None = None
        self._paused = False
        self._changed = asyncio.Event()

    # --- the port -----------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """See the port."""
        return self._address

    @property
    def access(self) -> Access:
        """See the port."""
        return self._access

    @property
    def close_code(self) -> int | None:
        """See the port."""
        return self._close_code

    async def receive(self) -> bytes | None:
        """See the port; what the client sent before it hung up is received first."""
        while not self._incoming:
            if self._over:
                return None
            await self._next_change()
        return None if self.closed is not None else self._incoming.popleft()

    def listen(self, receiver: Receiver) -> None:
        """See the port."""
        self._receiver = receiver
        self._hand_over()

    def pause(self) -> None:
        """See the port."""
        self._paused = True

    def resume(self) -> None:
        """See the port."""
        self._paused = False
        self._hand_over()

    def _hand_over(self) -> None:
        while self._receiver is not None and not self._paused and self._incoming and self.closed is None:
            self._receiver.received(self._incoming.popleft())
        if self._over and self._receiver is not None and (self.closed is not None or not self._paused):
            receiver, self._receiver = self._receiver, None
            asyncio.get_running_loop().call_soon(receiver.ended)

    @property
    def is_closing(self) -> bool:
        """See the port."""
        return self._over

    def write(self, message: bytes) -> None:
        """See the port."""
        if self._over:
            return
        self.written.append(message)
        if self.pushing_back:
            self.held_back += len(message)
        self._wake()

    @classmethod
    def write_all(cls, connections: Sequence[Self], messages: Sequence[bytes]) -> None:
        """See the port."""
        for connection, message in zip(connections, messages, strict=True):
            connection.write(message)

    def backlog(self) -> int:
        """See the port."""
        return self.held_back

    def close(self, code: int, reason: str) -> None:
        """See the port; the first close counts."""
        if self._over:
            return
        self.closed = (code, reason)
        self._close_code = code
        self._over = True
        self._wake()

    # --- the client's side --------------------------------------------------------------------------------------------

    def send(self, message: bytes) -> None:
        """Send a text message to the application; lost if the connection is over."""
        if not self._over:
            self._incoming.append(message)
            self._wake()

    def hang_up(self, code: int | None = None) -> None:
        """End the connection from the client's side, with a close frame or, if *code* is None, without one."""
        if not self._over:
            self._close_code = code
            self._over = True
            self._wake()

    def take_all(self) -> None:
        """Let the transport take everything that was held back."""
        self.pushing_back = False
        self.held_back = 0

    @property
    def unread(self) -> int:
        """Messages sent and not yet received by the application."""
        return len(self._incoming)

    async def next_written(self) -> bytes | None:
        """Wait for the next message the application wrote that this method has not returned yet.

        Returns:
            The message, or None if the connection is over and all were returned.
        """
        while self._read == len(self.written):
            if self._over:
                return None
            await self._next_change()
        self._read += 1
        return self.written[self._read - 1]

    async def wait_closed(self) -> tuple[int, str] | None:
        """Wait until the connection is over; return the code and reason of the application's close, if it closed."""
        while not self._over:
            await self._next_change()
        return self.closed

    def _wake(self) -> None:
        self._hand_over()
        # A new event each time: several may wait, and none may miss a change while another one looks.
        self._changed.set()
        self._changed = asyncio.Event()

    async def _next_change(self) -> None:
        await self._changed.wait()
