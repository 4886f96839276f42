"""The sessions of the cluster, as administrators see, move and close them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gateway.core.types import SessionId
from gateway.ports.administration.pages import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSession:
    """What only the node that holds a session knows of it.

    Attributes:
        address: where its client comes from; None while it has none.
        link: state of the packet layer: ``attached``, ``detached``, …
        received: id of the last packet received from the client in order.
        numbered: id of the last packet numbered for the client.
        resend_packets: packets sent and not acknowledged yet.
        resend_bytes: their bytes.
        waiting_packets: packets that wait for the client or its transport, not numbered yet.
        waiting_bytes: their bytes.
        requests: requests of the client without an answer.
        moving: it has been told to go to another node, or is about to be.
        throttled: it is not read at the moment, because it asks for more than it may.
    """

    address: str | None
    link: str
    received: int
    numbered: int
    resend_packets: int
    resend_bytes: int
    waiting_packets: int
    waiting_bytes: int
    requests: int
    moving: bool
    throttled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """A session as an administrator sees it.

    Attributes:
        session: its id.
        principal: who it belongs to.
        node: who owns it.
        incarnation: which run of that node.
        connected: whether it has a client, as far as is known here.
        properties: the user's, and ``$client``; untrusted text.
        window: seconds it survives without a connection.
        epoch: how often it was claimed.
        selections: canonical entries, in order; None in lists, where they would be the most of the text.
        live: what its node knows; None in lists, and where that node could not be asked.
        note: why ``live`` is missing where it was asked for.
    """

    session: SessionId
    principal: str
    node: str
    incarnation: str
    connected: bool
    properties: Mapping[str, str]
    window: float
    epoch: int
    selections: tuple[str, ...] | None = None
    live: LiveSession | None = None
    note: str | None = None


class SessionAdministration(Protocol):
    """The sessions of the cluster; without replication, those of this node."""

    async def list(self, *, filter_text: str | None, cursor: str | None, limit: int) -> Page[SessionView]:
        """List sessions page by page, in an order that does not change while they live.

        A session that exists from the first page to the last is in exactly one of them.

        Args:
            filter_text: only sessions for which this expression holds (``gateway.core.policy.filters``).
            cursor: of the page before.
            limit: most sessions of a page.

        Raises:
            BadParameter: the filter or the cursor cannot be read.
            GridUnavailable: see the module.
        """

    async def find(self, session: SessionId) -> SessionView:
        """Tell all of one session.

        Raises:
            NotThere: nobody knows it.
            HeldElsewhere: ask that node, which has its buffers.
            GridUnavailable: see the module.
        """

    async def in_grid(self, session: SessionId, *, note: str) -> SessionView:
        """Tell of one session what the grid holds, because its node cannot be asked; *note* says why.

        Raises:
            NotThere: nobody knows it.
            GridUnavailable: see the module.
        """

    async def close(self, session: SessionId) -> None:
        """End a session (P7); its client is closed with the code ``session_closed`` and told by a bye.

        Raises:
            NotThere, HeldElsewhere, GridUnavailable: as for ``find``.
        """

    async def close_in_grid(self, session: SessionId) -> None:
        """End a session whose node cannot be asked: in the grid, and at that node as soon as it hears of it.

        Raises:
            NotThere: nobody knows it.
            Conflict: another node claimed it meanwhile; ask again.
            GridUnavailable: see the module.
        """

    async def move(self, session: SessionId, to: str | None) -> str:
        """Have a connected client go to another node; it keeps its session (P12).

        Args:
            session: which.
            to: name of the node; None for the one with the fewest sessions.

        Returns:
            The name of the node that its client is sent to. It goes within seconds, or not at all.

        Raises:
            NotThere: of the session or the node.
            Conflict: it is not connected, that node does not take sessions, or there is no other one.
            HeldElsewhere, GridUnavailable: as for ``find``.
        """

    async def notify(self, session: SessionId, message: str) -> None:
        """Queue a notice for a session; an absent client gets it when it comes back to this node.

        Raises:
            NotThere, HeldElsewhere, GridUnavailable: as for ``find``.
        """
