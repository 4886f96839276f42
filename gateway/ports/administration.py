"""What administrators can see and do (the admin API). See ``gateway.ports`` for the rules that hold for all.

Everything here may wait for the grid, for no more than its time limit, and raises ``GridUnavailable`` then; what fails
for a reason of its own raises a ``Refused``, whose sentence is meant for the administrator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple, Protocol

from gateway.core.policy.revocations import Revocation, RevocationKind
from gateway.core.types import EventId, SessionId, TopicPath, Version
from gateway.ports.administration_basics import (
    BadParameter,
    Conflict,
    Forbidden,
    HeldElsewhere,
    NotThere,
    Page,
    Refused,
)
from gateway.ports.destination_administration import DestinationAdministration, DestinationView, TreeView
from gateway.ports.durable_administration import DurableAdministration
from gateway.ports.hook_administration import HookAdministration
from gateway.ports.queue_administration import QueueAdministration
from gateway.ports.zone_administration import ZoneAdministration

__all__ = [
    "Administration",
    "BadParameter",
    "CloseResult",
    "Conflict",
    "DestinationAdministration",
    "DestinationView",
    "Forbidden",
    "HeldElsewhere",
    "HistoryView",
    "HookAdministration",
    "LiveSession",
    "NodeAdministration",
    "NodeState",
    "NodeView",
    "NotThere",
    "Page",
    "QueueAdministration",
    "QueuedNotice",
    "Refused",
    "RevocationAdministration",
    "SessionAdministration",
    "SessionView",
    "SettingView",
    "TopicAdministration",
    "TopicView",
    "TopicWritten",
    "TreeView",
]


class NodeState(StrEnum):
    """What a node is fit for."""

    READY = "ready"
    """It takes new sessions."""
    NOT_READY = "not_ready"
    """It keeps its sessions and takes no new ones; its reasons say why."""
    DRAINING = "draining"
    """It moves its sessions to other nodes, or has done so."""
    EXPIRED = "expired"
    """Its lease is over; the others take over from it."""
    LOST = "lost"
    """It died and the others have taken over from it; it is remembered for a while."""
    UNKNOWN = "unknown"
    """Its lease holds, but it has not told of itself: it has just started, or is of an older version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node as an administrator sees it.

    Attributes:
        node: its name.
        incarnation: which run of it.
        state: what it is fit for.
        reasons: why it is not ready, for people.
        listen: where its clients connect; None if unknown, as are all of the following then.
        admin: where other nodes reach its admin port, as a URL without a path.
        version: of the gateway it runs.
        started: when it started, in seconds since 1970 by its own clock.
        connected: sessions with a client.
        disconnected: sessions whose window runs.
        lag: seconds by which its event loop was late when it last looked.
        lost: seconds since its lease ended, of a node that is lost; None of others.
        link: where other nodes have a link to it, as host:port; None if it has none.
        linked: whether the node that answers has a link to it; None if one of the two has none at all.
        heard: seconds since the node that answers heard of it over that link; None without one.
        backup: the node that keeps copies of its sessions; None if none does.
        mirror: what it waits for before packets leave (protocol 10.8.2); None without a backup.
        copied: sessions of which the backup has a whole copy; None likewise.
        to_copy: sessions of which it is to have one; None likewise.
        suspected_by: names of the nodes that do not hear it any more over their links, though its lease holds.
        master: whether it is the master of the cluster.
        here: whether it is the node that answers.
    """

    node: str
    incarnation: str
    state: NodeState
    reasons: tuple[str, ...] = ()
    listen: str | None = None
    admin: str | None = None
    version: str | None = None
    started: float | None = None
    connected: int | None = None
    disconnected: int | None = None
    lag: float | None = None
    lost: float | None = None
    link: str | None = None
    linked: bool | None = None
    heard: float | None = None
    backup: str | None = None
    mirror: str | None = None
    copied: int | None = None
    to_copy: int | None = None
    suspected_by: tuple[str, ...] = ()
    master: bool = False
    here: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverView:
    """A takeover as an administrator sees it.

    Attributes:
        node: name of the node that has failed.
        incarnation: which run of it.
        by: name of the node that takes over, or cleans up; None while what is transient is left alone.
        stage: that is under way; None if none was begun, or all are done.
        step: the first step of it that may not be done.
        sessions: that were put on the clock.
        left: seconds until *by* loses the right, or until the time to clean up.
    """

    node: str
    incarnation: str
    by: str | None
    stage: str | None
    step: int
    sessions: int
    left: float


class NodeAdministration(Protocol):
    """The nodes of the cluster."""

    async def list(self) -> Sequence[NodeView]:
        """Tell of all nodes that hold a lease, or whose lease expired and whose sessions are not on the clock yet.

        And of those that are lost: that died a short while ago, unless a node of that name is back.

        Sorted by name. What a node tells of itself is as old as its last renewal.

        Raises:
            GridUnavailable: see the module.
        """

    async def find(self, node: str) -> NodeView:
        """Tell of one node by its name, with what it knows of itself now.

        Raises:
            NotThere: there is none.
            HeldElsewhere: ask that node, which knows better.
            GridUnavailable: see the module.
        """

    async def as_reported(self, node: str) -> NodeView:
        """Tell of one node what it last told of itself.

        Raises:
            NotThere: there is none.
            GridUnavailable: see the module.
        """

    async def takeovers(self) -> Sequence[TakeoverView]:
        """Tell of all takeovers that are under way, and of those whose transient things are there still; sorted.

        Raises:
            GridUnavailable: see the module.
        """

    async def drain(self, node: str) -> NodeView:
        """Begin to move all clients of a node to others, and return; asked again, nothing more happens.

        Raises:
            NotThere, HeldElsewhere, GridUnavailable: as for ``find``.
        """

    async def undrain(self, node: str) -> NodeView:
        """Take new sessions again; moves that have begun are finished. Harmless if the node does not drain.

        Raises:
            NotThere, HeldElsewhere, GridUnavailable: as for ``find``.
            Conflict: the node is being stopped.
        """


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


class CloseResult(Enum):
    """What became of a session that an administrator closes."""

    ENDED = "ended"
    """The grid has confirmed its end: nothing of it is left, and it cannot be resumed."""
    PENDING = "pending"
    """The grid is unreachable. The session is closed at its node, which ends it in the grid once the grid answers.

    Until then another node that reaches the grid may take the client in again, and if its node stops first, the session
    survives.
    """


@dataclass(frozen=True, slots=True)
class QueuedNotice:
    """A notice waits for the client of a session.

    Attributes:
        node: the node at which it waits; it is lost if the client fails over to another one.
        connected: whether the client is there; if not, it gets the notice when it comes back.
    """

    node: str
    connected: bool


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

    async def close(self, session: SessionId) -> CloseResult:
        """End a session (P7); its client is closed with the code ``session_closed`` and told by a bye.

        One that is held here loses its client even if the grid is unreachable. Asked again meanwhile, the answer is the
        same.

        Returns:
            Whether the grid has confirmed that it has ended.

        Raises:
            NotThere, HeldElsewhere, GridUnavailable: as for ``find``; nothing was done.
            Conflict: another node claimed it meanwhile; ask again.
        """

    async def close_in_grid(self, session: SessionId) -> None:
        """End a session whose node cannot be asked: in the grid, and at that node as soon as it hears of it.

        When this returns, the grid has confirmed the end.

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
            Conflict: it is not connected, it is on its way to another node already, that node does not take sessions,
                or there is no other one.
            HeldElsewhere, GridUnavailable: as for ``find``.
        """

    async def notify(self, session: SessionId, message: str) -> QueuedNotice:
        """Queue a notice for a session; an absent client gets it when it comes back to this node.

        Raises:
            NotThere, HeldElsewhere, GridUnavailable: as for ``find``.
            Conflict: no node holds the session at the moment.
        """


class TopicView(NamedTuple):
    """A topic as an administrator sees it.

    Attributes:
        topic: its path; untrusted text.
        version: of its value.
        event: id of the publish that set it.
        size: bytes of the value's JSON text.
        value: JSON text; None if it was not asked for.
        ends: when it ends, in milliseconds of the time of the grid; 0 for never.
    """

    topic: TopicPath
    version: Version
    event: EventId
    size: int
    value: bytes | None
    ends: int = 0


class HistoryView(NamedTuple):
    """A part of a topic's history.

    Attributes:
        items: its events with their values, the oldest first.
        gap: whether something before the first of them is not kept any more, behind where the list was to begin.
        cursor: where the next part begins; None if that was all.
    """

    items: Sequence[TopicView]
    gap: bool
    cursor: str | None


class TopicWritten(NamedTuple):
    """A topic was set or deleted.

    Attributes:
        topic: its path.
        version: of the new value, or of the removal.
        event: id of the publish.
        duplicate: True if an earlier call with the same key had done it; nothing was written now.
    """

    topic: TopicPath
    version: Version
    event: EventId
    duplicate: bool


class TopicAdministration(Protocol):
    """The topics of the cluster."""

    async def list(self, *, selector: str, cursor: str | None, limit: int, values: bool) -> Page[TopicView]:
        """List topics that a selector matches, page by page.

        A topic that exists from the first page to the last is in one of them at least.

        Args:
            selector: which topics.
            cursor: of the page before.
            limit: most topics of a page.
            values: whether their values are wanted.

        Raises:
            BadParameter: the selector or the cursor cannot be read.
            GridUnavailable: see the module.
        """

    async def find(self, topic: str) -> TopicView:
        """Tell a topic's value.

        Raises:
            BadParameter: this is no topic.
            NotThere: it has no value.
            GridUnavailable: see the module.
        """

    async def history(self, topic: str, *, after: str | None, limit: int) -> HistoryView:
        """List what was published to a topic with history.

        Args:
            topic: which.
            after: event behind which to begin, or the cursor of the part before; None for the earliest that is kept.
            limit: most events.

        Raises:
            BadParameter: this is no topic, or *after* is no event of its partition.
            NotThere: it has no history.
            GridUnavailable: see the module.
        """

    async def set(self, topic: str, value: bytes, *, key: str) -> TopicWritten:
        """Publish a value on behalf of the system, once however often it is asked for with the same *key*.

        Args:
            topic: which.
            value: compact JSON text.
            key: names the request, for an hour.

        Raises:
            BadParameter: this is no topic, or the value is too large.
            Forbidden: the topic is the gateway's own.
            GridUnavailable: ask again with the same key.
        """

    async def delete(self, topic: str) -> TopicWritten:
        """Remove a topic and its value; who selects it is told. A later publish makes it anew, with a higher version.

        Raises:
            BadParameter: this is no topic.
            NotThere: it has no value.
            Forbidden: the topic is the gateway's own.
            GridUnavailable: it may have been done.
        """

    async def subscribers(self, topic: str, *, cursor: str | None, limit: int) -> Page[SessionView]:
        """List the sessions that select a topic, whether or not it has a value; pages are those of sessions.

        Raises:
            BadParameter: this is no topic, or the cursor cannot be read.
            GridUnavailable: see the module.
        """


class RevocationAdministration(Protocol):
    """What is blocked in the cluster."""

    async def list(self, *, cursor: str | None, limit: int) -> Page[Revocation]:
        """List revocations by name, as this node knows them.

        Raises:
            BadParameter: the cursor cannot be read.
        """

    async def add(self, kind: RevocationKind, value: str, *, reason: str, until: float | None) -> Revocation:
        """Block a session, a principal or a credential (``gateway.app.security.revocations``).

        The revocation takes the place of an earlier one of the same.

        Raises:
            BadParameter: this cannot be revoked.
            Conflict: there are too many.
            GridUnavailable: to be tried again.
        """

    async def unblock(self, kind: RevocationKind, value: str) -> None:
        """Unblock a session, a principal or a credential; sessions that were ended stay ended.

        Raises:
            NotThere: there is no such revocation.
            GridUnavailable: to be tried again.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingView:
    """A setting as an administrator sees it.

    Attributes:
        name: of the setting.
        group: to which it belongs.
        value: for people; secrets are masked.
        changed: whether it differs from the default.
        meaning: one sentence.
    """

    name: str
    group: str
    value: str
    changed: bool
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Administration:
    """All use cases of administrators.

    Attributes:
        node: the name of this node.
        nodes: the nodes of the cluster.
        sessions: the sessions of the cluster.
        topics: the topics of the cluster.
        destinations: what paths are.
        durables: durable subscriptions.
        hooks: event hooks.
        queues: the queues of the cluster.
        zones: zones, their members, and joins.
        revocations: what is blocked.
        configuration: what this node runs with.
    """

    node: str
    nodes: NodeAdministration
    sessions: SessionAdministration
    topics: TopicAdministration
    destinations: DestinationAdministration
    durables: DurableAdministration
    hooks: HookAdministration
    queues: QueueAdministration
    zones: ZoneAdministration
    revocations: RevocationAdministration
    configuration: tuple[SettingView, ...] = ()
