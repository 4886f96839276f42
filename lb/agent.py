"""Answers HAProxy's agent check: whether a gateway node wants new sessions.

Three questions decide what HAProxy sends to a node, and each is asked of one party only, so that no answer can undo
another:

| question | who answers | how | effect of "no" |
|---|---|---|---|
| alive? | the node's ``/healthz`` | health check: UP or DOWN | its connections are cut, nothing is sent to it |
| ready? | this agent | weight: 100 % or 0 % | no new sessions; a client that names the node still gets there |
| wanted? | the operator | ``lb drain``, ``lb maint``, ``lb ready`` | as the operator says |

Why a weight and not the agent's words ``ready`` and ``drain``: these set the very state that the operator sets, so an
agent that says ``ready`` in its steady state cancels ``lb drain`` and ``lb maint`` at its next answer (tried on
HAProxy 2.6.12). A weight of zero has the effect of ``drain`` and leaves the operator's state alone. And the agent has
no word for "down", because a node that is not ready must keep its clients (P10, P12).

Every answer carries ``up`` as well, the complement of a "down" that somebody else's agent may have left behind: only
an agent can take back what an agent said.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self

__all__ = ["AgentServer", "AgentState"]

BACKLOG: Final = 1024
"""Connections that the kernel may hold while others are answered; it holds no more than ``net.core.somaxconn``."""

ANSWERED_AT_ONCE: Final = 32
"""Connections answered before the rest of the node gets its turn: half a millisecond of work."""

SHARE: Final = 0.1
"""Of the event loop's time that answers may take in the long run, whoever asks: some 5,000 answers a second. HAProxy
asks twice a second."""

SHORTEST_PAUSE: Final = 0.001
"""Seconds that they wait at least. uvloop counts in milliseconds and rounds: a shorter pause is none, and whoever comes
in a steady flow of single connections would have as much of the time as he likes."""

LONGEST_PAUSE: Final = 0.1
"""Seconds that connections wait at most before the next are answered, however long the last ones took."""

ACCEPT_PAUSE: Final = 0.05
"""Seconds before accepting is tried again after the system had no descriptor left for a connection."""

_SAID_BYTES: Final = 4096
"""What a peer may have said is taken off the socket before it is closed, as a socket with something unread is reset."""


class AgentState(Enum):
    """What a node tells HAProxy about itself; the value is the line on the wire, words separated by spaces."""

    READY = b"up 100%\n"
    """Send new sessions, and sessions that come back."""

    NOT_READY = b"up 0%\n"
    """Send only clients whose route hint or cookie names this node; leave the connected ones alone."""


class AgentServer:
    """The agent of one node.

    HAProxy connects, reads one line and hangs up, every ``checks.agent_interval`` seconds. If the agent is not
    reachable, HAProxy keeps what it was told last.

    Nobody can hold anything here: a connection is accepted, answered and closed in one go, so none is ever open in this
    process, whether its peer reads or not. What many connections can take is time, of which they get ``SHARE``.

    Args:
        host: address to listen on; the agent tells no secrets, yet has no reason to be public.
        port: TCP port to listen on; 0 lets the system choose, see ``port``.
        state: asked for each check, in the event loop; must not block and must not raise.
    """

    def __init__(self, host: str, port: int, state: Callable[[], AgentState]) -> None:
        self._host = host
        self._port = port
        self._state = state
        self._listeners: list[socket.socket] = []

    @property
    def port(self) -> int:
        """The TCP port that is listened on; the configured one before ``start``."""
        if not self._listeners:
            return self._port
        port: int = self._listeners[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be bound.
            RuntimeError: it was started already.
        """
        if self._listeners:
            raise RuntimeError("the agent was started already")
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
                # A name may have several addresses; a port that the system has chosen for the first is that of all.
                self._listeners.append(_listen(family, (address[0], self.port, *address[2:])))
        except OSError:
            await self.close()
            raise
        for listener in self._listeners:
            self._watch(listener)

    async def close(self) -> None:
        """Stop listening. Harmless if it was not started or is closed already."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener.fileno())
            listener.close()
        self._listeners = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _watch(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener.fileno(), self._answer_some, listener)

    def _answer_some(self, listener: socket.socket) -> None:
        begun = time.perf_counter()
        pause = 0.0
        try:
            for _ in range(ANSWERED_AT_ONCE):
                connection, _ = listener.accept()
                with connection:
                    self._answer(connection)
        except (BlockingIOError, ConnectionAbortedError):
            pass  # there are no more, or the loop tells of them
        except OSError as error:
            self._complain("no connection can be accepted", error)
            pause = ACCEPT_PAUSE
        # Who comes meanwhile waits in the kernel: after a single answer for a millisecond.
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.fileno())
        taken = time.perf_counter() - begun
        share_pause = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, taken / SHARE - taken))
        loop.call_later(max(pause, share_pause), self._watch, listener)

    def _answer(self, connection: socket.socket) -> None:
        try:
            line = self._state().value
        except Exception as error:  # noqa: BLE001 - see below
            # A state that raises is a bug of the caller. HAProxy gets no answer and keeps what it was told last.
            self._complain("the state of the agent cannot be told", error)
            return
        with suppress(OSError):
            connection.setblocking(False)
            connection.send(line)  # the kernel has room for one line, whether it is read or not
            connection.shutdown(socket.SHUT_WR)
            connection.recv(_SAID_BYTES)

    def _complain(self, message: str, error: Exception) -> None:
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})


# gateway.adapters.listeners has the like of it: lb runs without the gateway, and imports nothing of it.
def _listen(family: int, address: Any) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Else it would take the IPv4 port of the same number, for which there is a listener of its own.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.setblocking(False)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise OSError(
            error.errno, f"{address[0]}, port {address[1]}, cannot be listened on: {error.strerror}"
        ) from None
    return listener
