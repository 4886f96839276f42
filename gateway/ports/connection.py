"""One client connection. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self


class Access(NamedTuple):
    """How a client has reached the node.

    Attributes:
        interface: by which of its interfaces; empty for the only one of a node that names none.
        secure: whether over TLS, at the node or at a proxy before it.
    """

    interface: str = ""
    secure: bool = False


class Receiver(Protocol):
    """Takes what comes over a connection. Its methods return at once and raise nothing."""

    def received(self, message: bytes) -> None:
        """A text message has come; *message* is its UTF-8 bytes."""

    def oversized(self, beginning: bytes, reason: str) -> None:
        """A text message is larger than this connection takes, which closes it next; what is written now goes before.

        Args:
            beginning: of the message: as much as this connection takes, and some more. Less, perhaps nothing, if the
                client does not send it in a bounded time.
            reason: for people.
        """

    def ended(self) -> None:
        """The connection is over; called once, after the last message."""


class Connection(Protocol):
    """One client connection as the application sees it. All methods but ``receive`` return at once.

    Whoever is connected can be waited for by ``receive``, or be heard by a ``Receiver``: that needs no coroutine for
    each of ten thousand connections that have nothing to say.
    """

    @property
    def address(self) -> str:
        """Where the client comes from, as far as trusted proxies tell."""

    @property
    def access(self) -> Access:
        """How the client has reached the node."""

    async def receive(self) -> bytes | None:
        """Wait for the next text message.

        Returns:
            Its UTF-8 bytes, or None once the connection is over. While nobody waits, the transport is not read: that
            is how a client is slowed down.
        """

    def listen(self, receiver: Receiver) -> None:
        """Hand messages to *receiver* from now on, beginning with those that ``receive`` has not returned yet.

        To be called once; ``receive`` must not be called any more. If the connection is over already, the receiver is
        told so soon.
        """

    def pause(self) -> None:
        """Hand no messages to the receiver, and do not read the transport: that is how a client is slowed down."""

    def resume(self) -> None:
        """Go on after ``pause``, with what came before it first."""

    @property
    def close_code(self) -> int | None:
        """The close code with which the connection ended; None while it is open and if it ended without one."""

    @property
    def is_closing(self) -> bool:
        """Whether the connection is over or about to be: nobody reads what is written from now on."""

    def write(self, message: bytes) -> None:
        """Send one text message; its bytes are queued if the transport pushes back. No effect after a close."""

    @classmethod
    def write_all(cls, connections: Sequence[Self], messages: Sequence[bytes]) -> None:
        """Write to many connections, one message each; means the same as ``write`` for one after the other.

        Args:
            connections: of any kind, each at most once; those of this kind may be written to together.
            messages: one for each of them; where neighbours are sent the same object, it is prepared once.
        """

    def backlog(self) -> int:
        """Bytes written and not yet taken by the transport: the measure of push-back."""

    def close(self, code: int, reason: str) -> None:
        """Send a close frame and drop the transport, by force if the client does not take it within a bounded time."""
