"""A session as its node holds it: its pure half (``gateway.core.session.server_session``), and what is of this node."""

from __future__ import annotations

import asyncio
from math import inf
from typing import NamedTuple

from gateway.app.session.consumer import Consumer
from gateway.app.session.cuts import Cuts
from gateway.app.session.exchange import Exchange
from gateway.app.session.meter import Meter
from gateway.app.session.request_lane import RequestLane
from gateway.app.session.resume_lock import ResumeLock
from gateway.core.destinations.membership import Membership
from gateway.core.pacing.accounts import Account
from gateway.core.pacing.rates import TokenBucket
from gateway.core.policy.permissions import Permissions
from gateway.core.session.handoff import ClaimRank
from gateway.core.session.server_session import NO_HANDLERS, ServerSession
from gateway.core.stream.machine import SessionMachine
from gateway.core.topics.selections import Selections
from gateway.core.topics.selectors import NO_PARTITIONS
from gateway.core.types import Attempt, Epoch, GridGeneration, NodeRef, TokenGeneration, TopicPath
from gateway.core.wire.codes import Outcome
from gateway.core.wire.packets import Backoff
from gateway.ports import Connection, Identity, Ownership, Reclaimed, SessionRecord

CLIENT_TYPE_PROPERTY = "$client"
"""The one fixed property that is replicated: another node has no way to learn it."""

PRINCIPAL_PREFIX = "$principal."
"""Before the names of properties that the credentials vouch for: nobody else can set them."""


class StoredUnder(NamedTuple):
    """Under which generation of the grid and which lease of its node a session was stored.

    It is noted before the grid is asked, so that a change of either while the answer is under way counts as one.

    Attributes:
        grid_generation: of the grid.
        expired_leases: how many leases of this node had expired before the one under which it was written. Survivors
            put on the clock what was written under a lease that expired, whatever the node has taken since (P7).
    """

    grid_generation: GridGeneration
    expired_leases: int


class Session(ServerSession):
    """One session that this node owns.

    What would go along to another node is in ``ServerSession``. All that is added here stays behind or is made anew:
    the connection, locks and deadlines, what is counted, and where and by which right it is written to the grid.

    Args:
        record: as it is in the grid, or would be.
        machine: its packets.
        stored_under: the generation of the grid and the lease under which this state is known to be stored.

    Attributes:
        credential_due: when to look at the end of its credentials again, on the monotonic clock.
        owner: this node.
        epoch: of the last claim.
        fixed: properties made by this node for the current connection.
        connection: the connection, or None.
        lane: has its requests executed, in order.
        expired_leases: see ``StoredUnder``.
        restores: times it was sent to the grid as it is here.
        on_clock: the grid has been told that the client has gone, and ends the session when its window is over.
        unsaved: a change could not be written and must be, as soon as the grid is back.
        written: the list of selections that the grid is known to hold, so that only what changes of it is written; None
            if nobody knows.
        meter: what the packets of its connection are charged to, and the work that its requests make; None if nothing
            limits them.
        rests_until: when its next selection may be looked at, on the monotonic clock.
        retained: topic partitions that are kept here for its selections.
        moving: it has been told to go away, or is about to be.
        left_at: when its client left last, on the monotonic clock; minus infinity if it never has.
        muted: it is sent no more updates on this connection, because it is to go on elsewhere with current values.
        renew_at: when to hand out a token with a new life, on the monotonic clock.
        selecting: held while its selections are put in force, so that a restored list and a request of the client do
            not give up what the other one has just prepared.
        resuming: held while it is decided what becomes of the session: by a resume, so that two connections cannot both
            get it, and by what must not come between.
        ending: it is being ended from here; the grid may know it no more, which is no surprise then.
        permissions: what it may do, by the policy that was last looked at.
        present: trees of topics that may know it as a member, and what the grid was told of it there, nothing where
            that is not certain; None if nobody has looked yet.
        trees: of which it should be a member, as far as somebody has looked.
        partitions_asked: topic partitions that this node has asked the grid to note with it, as ``publish_partitions``,
            whether or not there is an answer yet: of two such writes under way neither may undo the other.
        dropped: the node no longer holds it.
        elsewhere_until: until when another node may have sent it updates, on the monotonic clock; minus infinity if
            none has. Before it is sent values here, this node must know what the grid knew then.
        outcome: what its last welcome said.
        replayed: whether every update that was missed followed it; None if nothing can have been missed.
        paused: its connection is not read at the moment, because the client asks for more than it may.
        account: what its principal uses of this node, if that is limited.
        arriving: how far it had come at the node that has handed it over, until it was brought up to where this one is;
            None if it was, or is of no other node.
        counted: its selections as far as they are counted there.
        stored: bytes that it takes in the grid, as far as they are counted.
        advised_backoff: what its client was last advised about coming back.
        deduplicated: its publishes on this connection that were in the grid already.
        consumers: the queues that it consumes from at this node; None for none.
        exchange: what it asks and handles at this node; None for nothing.
        conflated: the machine's count of conflated updates as far as it is in the metrics.
        refreshes: how often it may show fresh credentials; None before it has shown any.
        given_by: the node that has handed it over and keeps a copy until its client has said a word here; None if
            there is none.
    """

    __slots__ = (
        "account",
        "advised_backoff",
        "arriving",
        "conflated",
        "connection",
        "consumers",
        "counted",
        "credential_due",
        "deduplicated",
        "dropped",
        "elsewhere_until",
        "ending",
        "epoch",
        "exchange",
        "expired_leases",
        "fixed",
        "given_by",
        "lane",
        "left_at",
        "meter",
        "moving",
        "muted",
        "on_clock",
        "outcome",
        "owner",
        "partitions_asked",
        "paused",
        "permissions",
        "present",
        "refreshes",
        "renew_at",
        "replayed",
        "restores",
        "rests_until",
        "resuming",
        "retained",
        "selecting",
        "stored",
        "trees",
        "unsaved",
        "written",
    )

    lane: RequestLane[Session]
    permissions: Permissions

    def __init__(self, record: SessionRecord, machine: SessionMachine, *, stored_under: StoredUnder) -> None:
        super().__init__(
            record.id,
            principal=record.principal,
            window=record.window,
            machine=machine,
            declared=stored_under.grid_generation,
        )
        self.owner: NodeRef = record.owner
        self.connection: Connection | None = None
        self.consumers: dict[TopicPath, Consumer] | None = None
        self.exchange: Exchange | None = None
        self.present: dict[TopicPath, bytes] | None = None
        self.trees: Membership | None = None
        self.partitions_asked: frozenset[int] = NO_PARTITIONS
        self.fixed: dict[str, str] = {}
        self.retained: frozenset[int] = NO_PARTITIONS
        self.unsaved = False
        self.restores = 0
        self.on_clock = False
        self.left_at = -inf
        self.moving = self.muted = False
        self.ending = False
        self.dropped = False
        self.elsewhere_until = -inf
        self.given_by: NodeRef | None = None
        self.arriving: Cuts | None = None
        self.outcome = Outcome.CREATED
        self.replayed: bool | None = None
        self.paused = False
        self.account: Account | None = None
        self.counted = 0
        self.stored = 0
        self.advised_backoff: Backoff | None = None
        self.refreshes: TokenBucket | None = None
        self.conflated = 0
        self.deduplicated = 0
        self.renew_at = 0.0
        self.rests_until = 0.0
        self.meter: Meter | None = None
        self.credential_due = inf
        self.selecting = asyncio.Lock()
        self.resuming = ResumeLock()
        self.take_over(record, stored_under=stored_under)

    def take_over(self, record: SessionRecord, *, stored_under: StoredUnder) -> None:
        """Take on the state that a claim returned; it is newer than the one here if another node had the session."""
        self.properties = dict(record.properties)
        self.handlers = dict(record.handlers) or NO_HANDLERS
        if record.selections != self.selections.to_wire():
            self.selections = Selections.from_wire(record.selections)
        self.written: Selections | None = self.selections
        if self.present is not None and record.epoch != self.epoch + 1:
            # Another node has had it meanwhile.
            self.present = None
        self.epoch: Epoch = record.epoch
        self.token_generation = record.token_generation
        self.confirmed = record.confirmed
        self.attempt = record.attempt
        self.publish_partitions = record.publish_partitions
        self.roles = record.roles
        self.principal_properties = record.principal_properties
        self.credential_expires = record.credential_expires
        self.credential = record.credential
        self.stored_under = stored_under

    def go_on(
        self, reclaimed: Reclaimed, presented: TokenGeneration, attempt: Attempt, *, stored_under: StoredUnder
    ) -> None:
        """Take on what has changed by a claim of this node, which had the session already; nobody else has had it."""
        self.epoch = reclaimed.epoch
        self.token_generation = reclaimed.token_generation
        self.confirmed = presented
        self.attempt = attempt
        self.stored_under = stored_under

    @property
    def stored_under(self) -> StoredUnder:
        """Where the state was stored last; if it is another place by now, the state has to be written again."""
        return StoredUnder(self.stored_generation, self.expired_leases)

    @stored_under.setter
    def stored_under(self, stored_under: StoredUnder) -> None:
        self.stored_generation, self.expired_leases = stored_under

    def show(self, identity: Identity) -> None:
        """Take on what newer credentials of the principal give."""
        self.roles = identity.roles
        self.principal_properties = identity.properties
        self.credential_expires = identity.expires
        self.credential = identity.credential

    def go_on_alone(self, presented: TokenGeneration, attempt: Attempt) -> None:
        """Do without the grid what a claim would have done there.

        The epoch grows as well: the claim may have been executed, and only its answer be lost.
        """
        self.epoch = Epoch(self.epoch + 1)
        self.number_token(presented, attempt)
        self.unsaved = True

    def __repr__(self) -> str:
        return f"<Session {self.id} epoch={self.epoch} {self.machine.state.value}>"

    @property
    def connected(self) -> bool:
        """Whether a client is connected."""
        return self.connection is not None

    @property
    def ownership(self) -> Ownership:
        """By which right this node writes for it."""
        return Ownership(self.id, self.owner, self.epoch)

    @property
    def claim_rank(self) -> ClaimRank:
        """How late the claim is by which it is this node's."""
        return ClaimRank(self.attempt, self.epoch)

    def record(self) -> SessionRecord:
        """Return what the grid should hold.

        While a client comes back it is as good as there: else it would be once it is, and the grid would not know.
        """
        return SessionRecord(
            id=self.id,
            principal=self.principal,
            properties=dict(self.properties),
            selections=self.selections.to_wire(),
            window=self.window,
            epoch=self.epoch,
            owner=self.owner,
            token_generation=self.token_generation,
            confirmed=self.confirmed,
            attempt=self.attempt,
            connected=self.connected or self.resuming.locked(),
            publish_partitions=self.publish_partitions,
            roles=self.roles,
            principal_properties=self.principal_properties,
            credential_expires=self.credential_expires,
            credential=self.credential,
            handlers=dict(self.handlers),
        )

    def all_properties(self) -> dict[str, str]:
        """Return the user's, the principal's and the server's properties."""
        vouched = {f"{PRINCIPAL_PREFIX}{name}": value for name, value in self.principal_properties.items()}
        return self.properties | vouched | self.fixed
