"""One client connection. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from typing import Protocol


class Link(Protocol):
    """One client connection as the application sees it. All methods but ``receive`` return at once."""

    @property
    def address(self) -> str:
        """Where the client comes from, as far as trusted proxies tell."""

    async def receive(self) -> bytes | None:
        """Wait for the next text message.

        Returns:
            Its UTF-8 bytes, or None once the connection is over. While nobody waits, the transport is not read: that
            is how a client is slowed down.
        """

    @property
    def close_code(self) -> int | None:
        """The close code with which the connection ended; None while it is open and if it ended without one."""

    def write(self, message: bytes) -> None:
        """Send one text message; its bytes are queued if the transport pushes back. No effect after a close."""

    def backlog(self) -> int:
        """Bytes written and not yet taken by the transport: the measure of push-back."""

    def close(self, code: int, reason: str) -> None:
        """Send a close frame and drop the transport, by force if the client does not take it within a bounded time."""
