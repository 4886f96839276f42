"""What the grid holds of sessions, and what is asked of it and answered; see ``sessions``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple, TypeAlias

from gateway.core.immutable import immutable
from gateway.core.types import Attempt, Epoch, NodeRef, SessionId, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.will_packets import EndKind
from gateway.ports.identity import Identity


@immutable(kw_only=True)
class SessionRecord:
    """A session as the grid holds it: all that failover restores. Start time, statistics and queue are not in it.

    Attributes:
        id: of the session.
        principal: who it belongs to.
        properties: the user-defined ones; fixed ones (``$…``) are made anew by each node.
        selections: canonical entries, ``+selector`` or ``-selector``, in order; no selector twice.
        window: seconds it survives without a connection.
        epoch: fencing token; grows by one per claim.
        owner: which run of which node owns it.
        token_generation: of the newest token handed out.
        confirmed: oldest token generation still accepted (P8).
        attempt: of the last resume served; 0 before the first.
        connected: False while its window runs.
        publish_partitions: topic partitions that may hold publish receipts of it.
        roles: of the principal, as its credentials gave them.
        principal_properties: what the credentials vouch for of the principal.
        credential_expires: when the credentials end, in seconds since 1970; None if they do not.
        credential: id of the credentials, by which they can be revoked; None if they have none.
        handlers: selectors of the questions that it handles, and how many of them it takes at a time.

    The last five are empty in a record that a node before these fields wrote.
    """

    id: SessionId
    principal: str
    properties: Mapping[str, str] = field(default_factory=dict)
    selections: tuple[str, ...] = ()
    window: float
    epoch: Epoch = Epoch(1)
    owner: NodeRef
    token_generation: TokenGeneration = TokenGeneration(1)
    confirmed: TokenGeneration = TokenGeneration(1)
    attempt: Attempt = Attempt(0)
    connected: bool = True
    publish_partitions: frozenset[int] = frozenset()
    roles: frozenset[str] = frozenset()
    principal_properties: Mapping[str, str] = field(default_factory=dict)
    credential_expires: float | None = None
    credential: str | None = None
    handlers: Mapping[str, int] = field(default_factory=dict)

    def shows(self, identity: Identity) -> SessionRecord:
        """Return the record with what newer credentials of its principal give in place of the older."""
        return replace(
            self,
            roles=identity.roles,
            principal_properties=dict(identity.properties),
            credential_expires=identity.expires,
            credential=identity.credential,
        )


@immutable
class SelectionChanges:
    """Entries of a list of selections that change; whoever repeats the change has the same list.

    Attributes:
        removed: selectors whose entries go; one that has none is no error.
        added: entries that come at the end, in order; one that is there with the same selector goes.
    """

    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


@immutable(kw_only=True)
class SessionChanges:
    """What to change; None leaves a part as it is.

    Attributes:
        properties: all user-defined properties after the change.
        selections: all selections after the change, no selector twice.
        selection_changes: what changes of them, which costs what these entries cost; not together with *selections*.
        publish_partitions: all partitions after the change.
        confirmed: the new oldest accepted token generation; never lowers the stored one.
        identity: whose roles, properties, expiry and credential take the place of the stored ones; of the same
            principal.
        handlers: all of what it handles after the change.
    """

    properties: Mapping[str, str] | None = None
    selections: tuple[str, ...] | None = None
    selection_changes: SelectionChanges | None = None
    publish_partitions: frozenset[int] | None = None
    confirmed: TokenGeneration | None = None
    identity: Identity | None = None
    handlers: Mapping[str, int] | None = None


@immutable
class Ownership:
    """By which right a node writes for a session.

    Attributes:
        session: the session's id.
        owner: the writing node.
        epoch: of its claim.
    """

    session: SessionId
    owner: NodeRef
    epoch: Epoch


@immutable
class Claimed:
    """A claim succeeded.

    Attributes:
        record: the session as it is now: claimant as owner, epoch and token generation raised by one, ``confirmed`` set
            to the presented generation, connected.
        previous: who owned it before.
        before: who owned it before that one; the same if there was nobody else.
    """

    record: SessionRecord
    previous: NodeRef
    before: NodeRef


class Reclaimed(NamedTuple):
    """The owner has claimed its own session anew, and holds all of it that is not told here.

    Attributes:
        epoch: raised by one.
        token_generation: likewise, or by more if the presented one was ahead of the grid.
        before: who owned it before this owner did for the first time; the owner itself if there was nobody else.
    """

    epoch: Epoch
    token_generation: TokenGeneration
    before: NodeRef


@immutable
class ClaimRefused:
    """A claim was refused and nothing was changed.

    Attributes:
        reason: TOKEN_SUPERSEDED, STALE_ATTEMPT, SESSION_UNKNOWN, SESSION_CLOSED, SESSION_EXPIRED, REVOKED,
            CREDENTIALS_EXPIRED or, for an identity of another principal, UNAUTHENTICATED.
    """

    reason: ErrorCode


ClaimResult: TypeAlias = Claimed | ClaimRefused


class Restored(StrEnum):
    """What became of a session that its node wrote again into a grid that had lost or forgotten it."""

    WRITTEN = "written"
    FENCED = "fenced"
    GONE = "gone"


@immutable
class Ended:
    """A session whose window ended.

    Attributes:
        session: its id.
        owner: the last owner.
        epoch: of its claim.
        principal: whose it was.
    """

    session: SessionId
    owner: NodeRef
    epoch: Epoch
    principal: str = ""


_KINDS: Final[Mapping[ErrorCode, EndKind]] = {
    ErrorCode.SESSION_EXPIRED: EndKind.EXPIRED,
    ErrorCode.REVOKED: EndKind.REMOVED,
}


class SessionEnd(NamedTuple):
    """How a session is to be ended.

    Attributes:
        ownership: the right by which it is.
        reason: as of ``SessionStore.end``.
        removed: an administrator has asked for it.
    """

    ownership: Ownership
    reason: ErrorCode
    removed: bool = False

    @property
    def kind(self) -> EndKind:
        """For which of its wills that counts."""
        return EndKind.REMOVED if self.removed else _KINDS.get(self.reason, EndKind.CLOSED)


class LastWills(NamedTuple):
    """What a session has left that is marked as ended, and in whose name.

    Attributes:
        session: its id.
        owner: the last owner.
        epoch: of its claim.
        principal: whose it was.
        roles: of the principal.
        principal_properties: what its credentials vouched for.
        kind: how it ended.
        wills: as ``gateway.core.wire.codec.will_packets`` writes them, those for other kinds of ends included.
    """

    session: SessionId
    owner: NodeRef
    epoch: Epoch
    principal: str
    roles: frozenset[str]
    principal_properties: Mapping[str, str]
    kind: EndKind
    wills: str


class ReceiptsLeft(NamedTuple):
    """Where somebody who is no session has published, and will not any more.

    Attributes:
        publisher: the name under which it was.
        partition: the topic partition.
    """

    publisher: SessionId
    partition: int


WillExecutor: TypeAlias = "Callable[[Sequence[LastWills]], Awaitable[Mapping[SessionId, Sequence[ReceiptsLeft]]]]"
"""Executes wills, each once, however often it is called with the same ones, by whichever nodes at the same time.

Returns where it has published them, to be forgotten, for each session of which all are executed. A session that is not
named there, as the grid refuses what it has left, stays marked as ended, and is finished later. So are all that it was
given if it raises."""


class SessionPage(NamedTuple):
    """Some sessions of one session partition.

    Attributes:
        sessions: in the order of their ids; those that have just ended are left out.
        last: the last id that was looked at; None if there is nothing after this page.
    """

    sessions: Sequence[SessionRecord]
    last: SessionId | None


class SavedUntil(NamedTuple):
    """Up to when nodes have seen to it that the grid holds all that happened to their sessions, by the grid's clock.

    An end of a window that comes later may be out of date: its client may have come back before it, and have left
    again, while the node could not say so.

    Attributes:
        nodes: when, of each node that has a lease, held or expired, and tells.
        outage_over: when the grid was last reachable again, as far as it knows; minus infinity if it was all the time.
    """

    nodes: Mapping[NodeRef, float]
    outage_over: float = -inf

    def spares(self, owner: NodeRef, deadline: float, *, horizon: float) -> bool:
        """Tell whether the end of a window is not to be believed yet.

        Args:
            owner: of the session.
            deadline: the end of its window.
            horizon: nothing is spared of which everything came before.
        """
        return self.nodes.get(owner, inf) < deadline and max(deadline, self.outage_over) > horizon


ALL_SAVED: Final = SavedUntil({})
"""No end of a window is in doubt."""


class LeftSizes(NamedTuple):
    """What some disconnected sessions of one session partition take in the grid.

    Attributes:
        sizes: bytes by principal, as ``gateway.core.session.stored_size`` counts them.
        next: where the next page begins; None if there is nothing after this one.
    """

    sizes: Mapping[str, int]
    next: int | None
