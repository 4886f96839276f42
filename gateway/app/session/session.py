"""A session as its node holds it: the machine, what failover needs, and the connection of the moment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from gateway.app.session.meter import Meter
from gateway.app.session.request_lane import RequestLane
from gateway.core.pacing.accounts import Account
from gateway.core.pacing.rates import TokenBucket
from gateway.core.policy.permissions import Permissions
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.stream.transitions import State
from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.types import (
    Attempt,
    Epoch,
    GridGeneration,
    NodeRef,
    RequestNumber,
    SessionId,
    TokenGeneration,
)
from gateway.core.wire import codec
from gateway.core.wire.codes import Outcome
from gateway.core.wire.packets import Backoff, ClientRequest, Malformed, Reply
from gateway.ports import Identity, Link, Ownership, SessionRecord

CLIENT_TYPE_PROPERTY = "$client"
"""The one fixed property that is replicated: another node has no way to learn it."""

PRINCIPAL_PREFIX = "$principal."
"""Before the names of properties that the credentials vouch for: nobody else can set them."""


class StoredUnder(NamedTuple):
    """Under which generation of the grid and which lease of its node a session was stored.

    It is noted before the grid is asked, so that a change of either while the answer is under way counts as one.

    Attributes:
        grid_generation: of the grid.
        lapsed_leases: how many leases of this node had lapsed before the one under which it was written. Survivors put
            on the clock what was written under a lease that lapsed, whatever the node has taken since (P7).
    """

    grid_generation: GridGeneration
    lapsed_leases: int


class Session:
    """One session that this node owns.

    Args:
        record: as it is in the grid, or would be.
        machine: its packets.
        stored_under: the generation of the grid and the lease under which this state is known to be stored.

    Attributes:
        id: of the session.
        principal: who it belongs to.
        properties: user-defined properties, and ``$client``.
        roles: of the principal.
        principal_properties: what its credentials vouch for.
        credential_expires: when they end, in seconds since 1970; None if they do not.
        credential: their id; None if they have none.
        credential_due: when to look at their end again, on the monotonic clock.
        credential_notice: when to tell the client that they end, in seconds since 1970.
        credential_told: the client has been told on this connection that they end soon.
        selections: what it is sent.
        window: seconds it survives without a connection.
        owner: this node.
        epoch: of the last claim.
        token_generation: of the newest token.
        confirmed: oldest token generation still accepted.
        attempt: of the last resume.
        publish_partitions: topic partitions that may hold publish receipts.
        fixed: properties made by this node for the current connection.
        machine: its packets.
        link: the connection, or None.
        lane: its requests, in order.
        declared: newest generation of the grid before which writes were lost and the client has been told, or had none.
        stored_under: where the state was stored last. If the generation or the lease is another one by now, the state
            has to be written again.
        restores: times it was sent to the grid as it is here.
        on_clock: the grid has been told that the client has gone, and ends the session when its window is over.
        unsaved: a change could not be written and must be, as soon as the grid is back.
        written: the list of selections that the grid is known to hold, so that only what changes of it is written; None
            if nobody knows.
        meter: what the packets of its connection are charged to, and the work that its requests make; None if nothing
            limits them.
        rests_until: when its next selection may be looked at, on the monotonic clock.
        retained: topic partitions that are kept here for its selections.
        moving: it has been told to go away, or is about to be; it is sent no more updates here.
        token_confirmed: the client has shown that it holds the newest token.
        renew_at: when to hand out a token with a new life, on the monotonic clock.
        selecting: held while its selections are put in force, so that a restored list and a request of the client do
            not give up what the other one has just prepared.
        resuming: held while a resume is decided, so that two connections cannot both get the session.
        ending: it is being ended from here; the grid may know it no more, which is no surprise then.
        permissions: what it may do, by the policy that was last looked at.
        dropped: the node no longer holds it.
        outcome: what its last welcome said.
        supports: what of later releases its client understands, as it said on this connection (protocol 4.1.1).
        newest: highest number of a request received here; no other one may come again unmarked (protocol 5.2.1.1).
        paused: its connection is not read at the moment, because the client asks for more than it may.
        account: what its principal uses of this node, if that is limited.
        counted: its selections as far as they are counted there.
        advised_backoff: what its client was last advised about coming back.
        deduplicated: its publishes on this connection that were in the grid already.
        conflated: the machine's count of conflated updates as far as it is in the metrics.
        refreshes: how often it may show fresh credentials; None before it has shown any.
    """

    __slots__ = (
        "_answered",
        "_declaring",
        "_refused",
        "_settled",
        "account",
        "advised_backoff",
        "attempt",
        "confirmed",
        "conflated",
        "counted",
        "credential",
        "credential_due",
        "credential_expires",
        "credential_notice",
        "credential_told",
        "declared",
        "deduplicated",
        "dropped",
        "ending",
        "epoch",
        "fixed",
        "id",
        "lane",
        "link",
        "machine",
        "meter",
        "moving",
        "newest",
        "on_clock",
        "outcome",
        "owner",
        "paused",
        "permissions",
        "principal",
        "principal_properties",
        "properties",
        "publish_partitions",
        "refreshes",
        "renew_at",
        "restores",
        "rests_until",
        "resuming",
        "retained",
        "roles",
        "selecting",
        "selections",
        "stored_under",
        "supports",
        "token_confirmed",
        "token_generation",
        "unsaved",
        "window",
        "written",
    )

    lane: RequestLane[Session]
    permissions: Permissions

    def __init__(self, record: SessionRecord, machine: SessionMachine, *, stored_under: StoredUnder) -> None:
        self.id: SessionId = record.id
        self.principal: str = record.principal
        self.owner: NodeRef = record.owner
        self.window: float = record.window
        self.machine = machine
        self.link: Link | None = None
        self.fixed: dict[str, str] = {}
        self.retained: frozenset[int] = frozenset()
        self.unsaved = False
        self.restores = 0
        self.on_clock = False
        self.moving = False
        self.token_confirmed = True
        self.ending = False
        self.dropped = False
        self.outcome = Outcome.CREATED
        self.supports: frozenset[str] = frozenset()
        self.newest = RequestNumber(0)
        self.paused = False
        self.account: Account | None = None
        self.counted = 0
        self.advised_backoff: Backoff | None = None
        self.refreshes: TokenBucket | None = None
        self.conflated = 0
        self.deduplicated = 0
        self.renew_at = 0.0
        self.rests_until = 0.0
        self.meter: Meter | None = None
        self.selections: Selections = NOTHING
        self.credential_due = inf
        self.credential_notice = 0.0
        self.credential_told = False
        self.selecting = asyncio.Lock()
        self.resuming = asyncio.Lock()
        self._answered: list[tuple[int, RequestNumber, RequestNumber]] = []
        """By which packet id at the latest which requests, the lowest and the highest, are answered; what lies between
        may be answered by other entries."""
        self._settled = RequestNumber(0)
        self._refused = 0
        self.declared = stored_under.grid_generation
        self._declaring: tuple[int, GridGeneration] | None = None
        """By which packet id at the latest the newest loss is declared, and what the client knew before."""
        self.take_over(record, stored_under=stored_under)

    def take_over(self, record: SessionRecord, *, stored_under: StoredUnder) -> None:
        """Take on the state that a claim returned; it is newer than the one here if another node had the session."""
        self.properties: dict[str, str] = dict(record.properties)
        if record.selections != self.selections.to_wire():
            self.selections = Selections.from_wire(record.selections)
        self.written: Selections | None = self.selections
        self.epoch: Epoch = record.epoch
        self.token_generation: TokenGeneration = record.token_generation
        self.confirmed: TokenGeneration = record.confirmed
        self.attempt: Attempt = record.attempt
        self.publish_partitions: frozenset[int] = record.publish_partitions
        self.roles: frozenset[str] = record.roles
        self.principal_properties: Mapping[str, str] = record.principal_properties
        self.credential_expires: float | None = record.credential_expires
        self.credential: str | None = record.credential
        self.stored_under = stored_under

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
        self.attempt = attempt
        self.confirmed = presented
        self.token_generation = TokenGeneration(max(self.token_generation, presented) + 1)
        self.unsaved = True

    def __repr__(self) -> str:
        return f"<Session {self.id} epoch={self.epoch} {self.machine.state.value}>"

    @property
    def connected(self) -> bool:
        """Whether a client is connected."""
        return self.link is not None

    @property
    def ownership(self) -> Ownership:
        """By which right this node writes for it."""
        return Ownership(self.id, self.owner, self.epoch)

    def record(self) -> SessionRecord:
        """Return what the grid should hold."""
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
            connected=self.connected,
            publish_partitions=self.publish_partitions,
            roles=self.roles,
            principal_properties=self.principal_properties,
            credential_expires=self.credential_expires,
            credential=self.credential,
        )

    def all_properties(self) -> dict[str, str]:
        """Return the user's, the principal's and the server's properties."""
        vouched = {f"{PRINCIPAL_PREFIX}{name}": value for name, value in self.principal_properties.items()}
        return self.properties | vouched | self.fixed

    def used_before(self, work: ClientRequest) -> bool:
        """Note the number of a request that has come, and tell whether it may not have it (protocol 5.2.1.1).

        A malformed request does not tell whether it is resubmitted; it is refused either way.
        """
        if work.request > self.newest:
            self.newest = work.request
            return False
        return not (isinstance(work, Malformed) or work.resubmitted)

    # --- Replies and what the client has seen of them -----------------------------------------------------------------

    def reply(self, reply: Reply) -> None:
        """Queue a reply and remember by which packet id at the latest it will have been acknowledged."""
        self.reply_run([codec.encode_reply(reply)], reply.request, reply.request)

    def reply_run(self, bodies: Sequence[bytes], first: RequestNumber, last: RequestNumber) -> None:
        """Queue replies that came together.

        Args:
            bodies: encoded, at least one.
            first: the lowest request that they answer.
            last: the highest one.
        """
        machine = self.machine
        if machine.state is State.CLOSED:
            return
        machine.submit_run(Run(tuple([Outgoing(None, body) for body in bodies])))
        self._forget_acknowledged()
        self._answered.append((machine.last_numbered + machine.waiting, first, last))

    def settled(self) -> RequestNumber:
        """Tell up to which request every answer has been acknowledged: receipts up to it may be forgotten (P5)."""
        self._forget_acknowledged()
        # Answers overtake each other, because refusals need no grid: one that is acknowledged says nothing of others.
        unsettled = [first for _, first, _ in self._answered]
        oldest_open = self.lane.oldest_open
        if oldest_open is not None:
            unsettled.append(oldest_open)
        return RequestNumber(min(self._settled, min(unsettled) - 1)) if unsettled else self._settled

    def _forget_acknowledged(self) -> None:
        if self.machine.state is State.GAP:
            return  # what has left the buffer was dropped, and not acknowledged
        acknowledged = self.machine.oldest - 1
        while self._answered and self._answered[0][0] <= acknowledged:
            _, _, last = self._answered.pop(0)
            self._settled = max(self._settled, last)

    @property
    def refusing(self) -> bool:
        """Whether the client may not have heard of a refusal yet.

        Until it has, nothing else may be executed. Should the answer be lost, another node is asked for the refused
        request again, and takes it for one that was executed if a later one was.
        """
        return self.machine.oldest <= self._refused

    def refused(self) -> None:
        """The last reply refused a request that can be asked again."""
        if self._answered:
            self._refused = self._answered[-1][0]

    def forget_answers(self) -> None:
        """Numbering has begun anew: the packet ids of earlier answers mean nothing any more."""
        self._answered.clear()
        self._refused = 0
        self._declaring = None

    # --- Losses of the grid -------------------------------------------------------------------------------------------

    def loss_declared(self, grid_generation: GridGeneration) -> None:
        """The notice that writes were lost before *grid_generation* of the grid has just been queued."""
        known = self.known_generation
        self.declared = grid_generation
        self._declaring = (self.machine.last_numbered + self.machine.waiting, known)

    @property
    def known_generation(self) -> GridGeneration:
        """The generation of the grid up to which the client is known to have been told of losses; goes into its token.

        Should this node die before the notice arrives, the next one tells it again: better twice than not at all (P2).
        """
        if self._declaring is not None:
            number, before = self._declaring
            if self.machine.state is State.GAP or self.machine.oldest <= number:
                return before
            self._declaring = None
        return self.declared
