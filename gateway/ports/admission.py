"""Who may connect at all, asked by the client port before a connection becomes a WebSocket.

Its methods return at once; they are called in the loop's thread.
"""

from __future__ import annotations

from typing import Protocol

from gateway.core.wire.errors import GatewayError


class ConnectionRejected(GatewayError):
    """A connection is rejected; the message names the limit, its value, and says when to come back.

    Attributes:
        limit: name of the setting.
        retry_after: seconds after which trying again makes sense.
        elsewhere: whether another node may accept it: the limit is this node's, and not one of the client's.
    """

    def __init__(self, message: str, *, limit: str, retry_after: float, elsewhere: bool) -> None:
        super().__init__(message)
        self.limit = limit
        self.retry_after = retry_after
        self.elsewhere = elsewhere


class CountedConnection(Protocol):
    """One connection that is counted from its arrival to its end."""

    def leave(self) -> None:
        """The connection is over; called once."""


class Candidate(Protocol):
    """A connection whose request has been found good, and that waits until the node accepts it."""

    def accept(self) -> None:
        """The connection becomes a WebSocket now."""

    def reject(self, reason: ConnectionRejected) -> None:
        """The connection does not become a WebSocket."""


class Admission(Protocol):
    """Decides who may connect, and when."""

    def is_paced(self) -> bool:
        """Tell whether others are served meanwhile, so that all who have no session are bounded in what they take."""

    def acceptable(self) -> int:
        """Tell how many connections may be accepted now before the loop gets its turn; at least one."""

    def pause(self, *, more: bool) -> float:
        """Tell for how many seconds no further connections should be accepted, after some were.

        While it lasts, those who come wait in the kernel, where they cost nothing. Only clients that ask for something
        are a reason: who asks for nothing, or has gone, is not, or a crowd of them would keep everybody else waiting.

        Args:
            more: whether others wait there already.
        """

    def arrive(self, address: str) -> CountedConnection:
        """Count a connection that asks for something.

        Args:
            address: where it comes from, as far as trusted proxies tell.

        Raises:
            ConnectionRejected: there are too many of them; nothing is counted.
        """

    def shake_hands(self, peer: str, *, proxy: bool) -> None:
        """Count a handshake of TLS that is about to be computed, where the limits of one address do not apply.

        Args:
            peer: the other end of the connection.
            proxy: whether it is a trusted proxy, whose clients are known only later.

        Raises:
            ConnectionRejected: there are too many from there.
        """

    def admit(self, candidate: Candidate, *, address: str, returning: bool) -> None:
        """Have *candidate* accepted or rejected: before this returns, or later.

        If more wait than are accepted, addresses take turns, and no address keeps the room of another one.

        Args:
            candidate: whose request has been found good.
            address: where it comes from, as for ``arrive``.
            returning: it says that it comes back to a session.
        """

    def withdraw(self, candidate: Candidate) -> None:
        """*candidate* does not wait any more; of no effect if it has been told."""
