"""One client connection. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from typing import Protocol


class Link(Protocol):
    """One client connection as the application sees it. All methods return at once."""

    @property
    def address(self) -> str:
        """Where the client comes from, as far as trusted proxies tell."""

    def write(self, message: bytes) -> None:
        """Send one text message; its bytes are queued if the transport pushes back. No effect after a close."""

    def backlog(self) -> int:
        """Bytes written and not yet taken by the transport: the measure of push-back."""

    def close(self, code: int, reason: str) -> None:
        """Send a close frame and drop the transport, by force if the client does not take it within a bounded time."""
