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
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Self, cast

__all__ = ["AgentServer", "AgentState"]


class AgentState(Enum):
    """What a node tells HAProxy about itself; the value is the line on the wire, words separated by spaces."""

    READY = b"up 100%\n"
    """Send new sessions, and sessions that come back."""

    NOT_READY = b"up 0%\n"
    """Send only clients whose route hint or cookie names this node; leave the connected ones alone."""


class _Answer(asyncio.Protocol):
    """One check: answer at once and hang up; nothing that the peer sends is read."""

    def __init__(self, state: Callable[[], AgentState]) -> None:
        self._state = state

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # create_server promises a stream transport. Not to be checked by isinstance: uvloop's is no subclass.
        transport = cast("asyncio.Transport", transport)
        try:
            transport.write(self._state().value)
            transport.close()
        except BaseException:
            # A state that raises is a bug of the caller. HAProxy gets no answer and keeps what it was told last; the
            # error goes to the loop's exception handler, and no connection is left open.
            transport.abort()
            raise


class AgentServer:
    """The agent of one node.

    HAProxy connects, reads one line and hangs up, every ``checks.agent_interval`` seconds. If the agent is not
    reachable, HAProxy keeps what it was told last.

    Args:
        host: address to listen on; the agent tells no secrets, yet has no reason to be public.
        port: TCP port to listen on; 0 lets the system choose, see ``port``.
        state: asked for each check, in the event loop; must not block and must not raise.
    """

    def __init__(self, host: str, port: int, state: Callable[[], AgentState]) -> None:
        self._host = host
        self._port = port
        self._state = state
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The TCP port that is listened on; the configured one before ``start``."""
        if self._server is None:
            return self._port
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be bound.
            RuntimeError: it was started already.
        """
        if self._server is not None:
            raise RuntimeError("the agent was started already")
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Answer(self._state), self._host, self._port)

    async def close(self) -> None:
        """Stop listening. Harmless if it was not started or is closed already."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            await server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
