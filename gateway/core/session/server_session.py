"""The node's half of a session: all that has to go along when another node takes the session over.

```text
client's packets ─▶ machine.receive ─▶ admit ─▶ pending ─▶ (executed by the node) ─▶ reply ─▶ machine.flush
                                         └── refused at once ──────────────────────────┘
```

Nothing here knows of a connection, of a clock or of the grid. What is to be sent comes out of the machine, what is to
be executed out of ``pending``; times go in as arguments. So a history of inputs can be repeated, and the session can be
exported at any point of it (see ``export``).

Whose the session is, and by which epoch, is not here: the grid alone decides that (P3). What a session has besides on
its node, such as the connection, is in ``gateway.app.session.session``, whose ``Session`` is derived from this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

from gateway.core.session.answers import Answers
from gateway.core.session.pending import PendingRequests, Work
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.stream.transitions import State
from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.topics.selectors import NO_PARTITIONS
from gateway.core.types import Attempt, GridGeneration, RequestNumber, SessionId, TokenGeneration
from gateway.core.wire import codec
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Bye, ClientRequest, Malformed, Notice, NoticeCode, Reply

NO_HANDLERS: Final[dict[str, int]] = {}
"""Of sessions that handle no questions, as nearly all: one for all of them, which nobody changes."""

RETRY_AFTER: Final = 0.5
"""Seconds after which a client may repeat a request that was refused because the grid is unreachable: about the time in
which a restarted Redis is adopted again."""


def number_used(number: RequestNumber) -> RequestRefused:
    """Make the refusal of a request whose number the session has used before (protocol 5.2.1.1)."""
    return RequestRefused(
        f"request number {number} is not above those that the session has used before, and the request is not "
        "'resubmitted'; nothing was done"
    )


class ServerSession:
    """The node's half of a session.

    Args:
        id: of the session.
        principal: who it belongs to.
        window: seconds it survives without a connection.
        machine: its packets.
        declared: generation of the grid before which there is nothing to declare to the client.

    Attributes:
        id: as given.
        principal: as given.
        window: as given.
        machine: as given.
        pending: its unanswered requests.
        answers: what of its replies the client has not seen.
        newest: highest number of a request that has come; no other one may come again unmarked (protocol 5.2.1.1).
        selections: what it is sent.
        properties: user-defined properties, and ``$client``.
        handlers: selectors of the questions that it handles, and how many it takes at a time.
        supports: what of later releases its client understands, as it said on this connection (protocol 4.1.1).
        roles: of the principal.
        principal_properties: what its credentials vouch for.
        credential: their id; None if they have none.
        credential_expires: when they end, in seconds since 1970; None if they do not.
        credential_notice: when to tell the client that they end, in seconds since 1970.
        credential_told: the client has been told on this connection that they end soon.
        token_generation: of the newest token.
        confirmed: oldest token generation still accepted (P8).
        attempt: of the last resume.
        token_confirmed: the client has shown that it holds the newest token.
        publish_partitions: topic partitions that may hold publish receipts.
        declared: newest generation of the grid before which writes were lost and the client has been told, or had none.
        declaring: by which packet at the latest the notice of the newest loss has arrived, and what the client knew
            before; None if it has.
        stored_generation: newest generation of the grid in which it is known to be stored as it is here. In a later one
            the grid may hold an older state of it.
        from_copy: it has gone on from a copy that a backup had, here or at a node before. Its client may send a request
            as if for the first time that its dead node has executed, and of which the backup has not heard.
    """

    # One flat object, from which the node's own is derived: ten thousand idle sessions have no further object each, and
    # an attribute is found as fast as if there were no two halves (figures: ADR 0060).
    __slots__ = (
        "answers",
        "attempt",
        "confirmed",
        "credential",
        "credential_expires",
        "credential_notice",
        "credential_told",
        "declared",
        "declaring",
        "from_copy",
        "handlers",
        "id",
        "machine",
        "newest",
        "pending",
        "principal",
        "principal_properties",
        "properties",
        "publish_partitions",
        "roles",
        "selections",
        "stored_generation",
        "supports",
        "token_confirmed",
        "token_generation",
        "window",
    )

    def __init__(
        self,
        id: SessionId,  # noqa: A002 - a session's id is called so everywhere
        *,
        principal: str,
        window: float,
        machine: SessionMachine,
        declared: GridGeneration,
    ) -> None:
        self.id = id
        self.principal = principal
        self.window = window
        self.machine = machine
        self.pending = PendingRequests()
        self.answers = Answers()
        self.newest = RequestNumber(0)
        self.selections: Selections = NOTHING
        self.properties: dict[str, str] = {}
        self.handlers: dict[str, int] = NO_HANDLERS
        self.supports: frozenset[str] = frozenset()
        self.roles: frozenset[str] = frozenset()
        self.principal_properties: Mapping[str, str] = {}
        self.credential: str | None = None
        self.credential_expires: float | None = None
        self.credential_notice = 0.0
        self.credential_told = False
        self.token_generation = TokenGeneration(1)
        self.confirmed = TokenGeneration(1)
        self.attempt = Attempt(0)
        self.token_confirmed = True
        self.publish_partitions: frozenset[int] = NO_PARTITIONS
        self.declared = declared
        self.declaring: tuple[int, GridGeneration] | None = None
        self.stored_generation = declared
        self.from_copy = False

    # --- Requests -----------------------------------------------------------------------------------------------------

    def admit(self, work: Work, *, grid_available: bool) -> bool:
        """Decide what becomes of something that the client asks for.

        Args:
            work: what it asks for.
            grid_available: whether the grid can be asked at the moment.

        Returns:
            True if it has to be executed, after all that is pending; False if it has been refused, and the reply has to
            be written.
        """
        if isinstance(work, Bye):
            return True
        if self.used_before(work):
            self.decline(work.request, number_used(work.request))
        elif isinstance(work, Malformed):
            self.decline(work.request, RequestRefused(work.message, code=work.code))
        elif work.resubmitted:
            return True
        elif self.refusing or not grid_available:
            self.decline_for_now(work.request, "the grid is unreachable")
        else:
            return True
        return False

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
        self._look_at_acknowledgements()
        self.answers.unseen.append((machine.last_numbered + machine.waiting, first, last))

    def decline(self, number: RequestNumber, refusal: RequestRefused) -> None:
        """Refuse a request for good."""
        self.reply(Reply(request=number, error=refusal.code, message=str(refusal)))

    def decline_for_now(self, number: RequestNumber, why: str) -> None:
        """Refuse a request for which certainly nothing has been done, so that it can be asked again as a new one."""
        self.reply(
            Reply(
                request=number,
                error=ErrorCode.GRID_UNAVAILABLE,
                message=f"{why}; nothing was done, ask again",
                retry_after=RETRY_AFTER,
            )
        )
        self.answers.refuse()

    def settled(self) -> RequestNumber:
        """Tell up to which request every answer has been acknowledged: receipts up to it may be forgotten (P5)."""
        self._look_at_acknowledgements()
        return self.answers.settled_before(self.pending.oldest)

    @property
    def refusing(self) -> bool:
        """Whether the client may not have heard of a refusal yet.

        Until it has, nothing else may be executed. Should the answer be lost, another node is asked for the refused
        request again, and takes it for one that was executed if a later one was.
        """
        refused = self.answers.refused
        return refused > 0 and self.machine.oldest <= refused

    def begin_anew(self) -> None:
        """Numbering has begun anew (rung 4): the client asks again for all that it has no answer to."""
        self.pending = PendingRequests()
        self.answers.forget()
        self.declaring = None
        self.from_copy = False  # what may have been executed comes as resubmitted

    def _look_at_acknowledgements(self) -> None:
        machine = self.machine
        if self.answers.unseen and machine.state is not State.GAP:
            # In a gap, what has left the buffer was dropped, and not acknowledged.
            self.answers.seen(machine.oldest - 1)

    # --- Tokens -------------------------------------------------------------------------------------------------------

    def number_token(self, presented: TokenGeneration, attempt: Attempt) -> None:
        """Number the token of a resume that is served without the grid.

        Args:
            presented: generation of the token that the client has shown, and thereby holds.
            attempt: of the resume.
        """
        self.attempt = attempt
        self.confirmed = presented
        self.token_generation = TokenGeneration(max(self.token_generation, presented) + 1)

    # --- Credentials --------------------------------------------------------------------------------------------------

    def watch_credentials(self, now: float, *, notice: float) -> float:
        """Look after the end of the credentials anew: there is a new connection, or they are fresh (protocol 5.9).

        Args:
            now: seconds since 1970.
            notice: seconds before their end at which the client is told. It is told when half of their time is over if
                that is later: else a client would fetch those that live for less as fast as it can.

        Returns:
            Seconds until ``look_at_credentials`` has something to do; infinite for never.
        """
        self.credential_told = False
        if self.credential_expires is not None:
            left = self.credential_expires - now
            self.credential_notice = self.credential_expires - min(notice, max(0.0, left) / 2)
        return self._credential_wait(now)

    def look_at_credentials(self, now: float) -> float | None:
        """Tell the client that its credentials end, if that is due.

        Args:
            now: seconds since 1970.

        Returns:
            Seconds until it has something to do again, infinite for never; None if they have ended, so that the
            connection has to be closed.
        """
        if self.credential_expires is None:
            return inf
        left = self.credential_expires - now
        if left <= 0:
            return None
        if not self.credential_told and self.credential_notice <= now:
            self.credential_told = True
            notice = Notice(
                NoticeCode.CREDENTIALS_EXPIRING,
                f"The session's credentials end in {left:.0f} s; show fresh ones, or the connection is closed then.",
            )
            self.machine.submit(Outgoing(None, codec.encode_notice(notice)))
        return self._credential_wait(now)

    def _credential_wait(self, now: float) -> float:
        if self.credential_expires is None:
            return inf
        until = self.credential_expires if self.credential_told else self.credential_notice
        return max(0.0, until - now)

    # --- Losses of the grid -------------------------------------------------------------------------------------------

    def loss_declared(self, grid_generation: GridGeneration) -> None:
        """The notice that writes were lost before *grid_generation* of the grid has just been queued."""
        known = self.known_generation
        self.declared = grid_generation
        self.declaring = (self.machine.last_numbered + self.machine.waiting, known)

    @property
    def known_generation(self) -> GridGeneration:
        """The generation of the grid up to which the client is known to have been told of losses; goes into its token.

        Should this node die before the notice arrives, the next one tells it again: better twice than not at all (P2).
        """
        if self.declaring is not None:
            number, before = self.declaring
            if self.machine.state is State.GAP or self.machine.oldest <= number:
                return before
            self.declaring = None
        return self.declared
