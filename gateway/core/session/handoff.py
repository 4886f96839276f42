"""What two nodes say to each other when one hands a session over to the other (rung 2, docs/reference/node-links.md).

```text
take:   JSON {session, epoch}                          the question, and the body of the record ``taken``
answer: join( JSON {status, cuts, unfinished}, export of the session )
offer:  JSON {sessions: [{session, epoch}, …]}         by which epochs the asker owns them; the answer: {accepted}
```

The objects may get further fields, which older nodes ignore. The export has a version of its own (``byte_form``), and a
node that does not know it lets the session fail over.

Pure: who may have a session is decided by the grid, and here only by comparing epochs that came from there (P3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

import orjson

from gateway.core.session.server_session import ServerSession
from gateway.core.stream.byte_form import join, part
from gateway.core.stream.transitions import Role, State
from gateway.core.types import Attempt, Epoch, EventId, JsonValue, RequestNumber, SessionId, TokenGeneration
from gateway.core.wire.codec import MAX_NUMBER
from gateway.core.wire.codec.fields import read_positions, read_selectors
from gateway.core.wire.errors import InvalidExport

TAKE: Final = "take"
"""Kind of the question for a session."""

TAKEN: Final = "taken"
"""Kind of the record that a session which was given is served elsewhere now, and need not be kept any more."""

OFFER: Final = "offer"
"""Kind of the question whether a node takes sessions without clients, from one that is about to stop."""

MOST_OFFERED: Final = 1000
"""Sessions of one offer; more are none."""

PASSABLE: Final = frozenset({State.DETACHED, State.GAP})
"""States in which a session has no connection, and can go on at another node."""

MOST_HEAD_BYTES: Final = 1024 * 1024
"""Bytes of what an answer says besides the session: a place for each partition, and far more selectors than a session
may have by default. It is read in one turn of the loop (P20)."""

_HEAD_AND_EXPORT: Final = 2
"""Parts of an answer."""


class GiveStatus(Enum):
    """What becomes of a question for a session."""

    GIVEN = "given"
    """The session follows."""
    GONE = "gone"
    """The node has nothing of the session that could go on, or not for this epoch."""
    UNCLAIMED = "unclaimed"
    """The grid does not say that the asker owns the session by this epoch, or cannot tell now; the node serves on."""


@dataclass(frozen=True, slots=True)
class Take:
    """A session, and the claim by which another node has it.

    Attributes:
        session: which.
        epoch: of the claim.
    """

    session: SessionId
    epoch: Epoch

    def encode(self) -> bytes:
        """Write it."""
        return orjson.dumps(self.fields())

    def fields(self) -> dict[str, JsonValue]:
        """Write it as an object."""
        return {"session": self.session, "epoch": self.epoch}

    @classmethod
    def decode(cls, data: bytes) -> Take:
        """Read it.

        Raises:
            InvalidExport: it is nothing of the kind.
        """
        return cls.of(_object(data))

    @classmethod
    def of(cls, fields: JsonValue) -> Take:
        """Read it from an object; see ``decode``."""
        if isinstance(fields, dict):
            match fields.get("session"), fields.get("epoch"):
                case str(session), int(epoch) if 0 < epoch <= MAX_NUMBER:
                    return cls(SessionId(session), Epoch(epoch))
        raise InvalidExport("a session and its claim have the fields 'session' and 'epoch'")


def encode_offer(sessions: Sequence[Take]) -> bytes:
    """Write an offer: sessions, and by which epochs they are the asker's."""
    return orjson.dumps({"sessions": [each.fields() for each in sessions]})


def decode_offer(data: bytes) -> list[Take]:
    """Read an offer.

    Raises:
        InvalidExport: it is nothing of the kind.
    """
    sessions = _object(data).get("sessions")
    if not isinstance(sessions, list) or len(sessions) > MOST_OFFERED:
        raise InvalidExport(f"an offer has at most {MOST_OFFERED} 'sessions'")
    return [Take.of(each) for each in sessions]


def encode_accepted(count: int) -> bytes:
    """Write the answer to an offer: how many of them the node serves now."""
    return orjson.dumps({"accepted": count})


def decode_accepted(data: bytes) -> int:
    """Read it.

    Raises:
        InvalidExport: it is nothing of the kind.
    """
    match _object(data).get("accepted"):
        case int(count) if count >= 0:
            return count
    raise InvalidExport("the answer to an offer has the field 'accepted'")


@dataclass(frozen=True, slots=True)
class Given:
    """The answer to a question for a session.

    Attributes:
        status: whether there is anything.
        session: as ``export`` wrote it; empty if it is not given.
        cuts: by topic partition, the event up to which the session has been handed all that it is to have. A partition
            that is not here has no such place.
        unfinished: selectors of subscribes of which it has not been handed all current values, by their requests.
    """

    status: GiveStatus
    session: bytes = b""
    cuts: Mapping[int, EventId] = field(default_factory=dict)
    unfinished: Mapping[RequestNumber, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Write it."""
        head = {
            "status": self.status.value,
            "cuts": {str(number): event for number, event in self.cuts.items()},
            "unfinished": {str(number): selector for number, selector in self.unfinished.items()},
        }
        return join([orjson.dumps(head), self.session])

    @classmethod
    def decode(cls, data: bytes) -> Given:
        """Read it.

        Raises:
            InvalidExport: it is nothing of the kind; a status that is not known is ``GONE``.
        """
        parts = part(data)
        if len(parts) < _HEAD_AND_EXPORT:
            raise InvalidExport(f"an answer has {_HEAD_AND_EXPORT} parts, and not {len(parts)}")
        if len(parts[0]) > MOST_HEAD_BYTES:
            raise InvalidExport(f"an answer begins with {len(parts[0])} bytes, and not with {MOST_HEAD_BYTES} at most")
        head = _object(parts[0])
        if head.get("status") == GiveStatus.UNCLAIMED.value:
            return UNCLAIMED
        if head.get("status") != GiveStatus.GIVEN.value:
            return GONE
        # A place that is none counts as absent: then current values are sent, and that is declared.
        return cls(GiveStatus.GIVEN, parts[1], read_positions(head, "cuts"), _selectors(head.get("unfinished")))


GONE: Final = Given(GiveStatus.GONE)
"""Answers who has nothing to give."""

UNCLAIMED: Final = Given(GiveStatus.UNCLAIMED)
"""Answers who serves the session on."""


class ClaimRank(NamedTuple):
    """Which of two claims of a session is the later one: the one that is greater.

    The client counts its attempts, and goes on counting when the grid has lost a claim. Then the epoch of the next one
    is not above that of the one that was lost. Without a client, a session is passed on by the epoch alone.

    Attributes:
        attempt: of the client, for which the session was claimed last.
        epoch: of the claim.
    """

    attempt: Attempt
    epoch: Epoch


def may_give(own: ClaimRank, given: ClaimRank | None, asked: ClaimRank) -> bool:
    """Decide whether a session may be given, as far as claims tell.

    Args:
        own: by which this node has served it.
        given: the latest to which it has been given; None if it has not.
        asked: of who asks, as the grid has confirmed it. Of two who ask, the later claim has the session, whoever comes
            first; and who asks again has not had the answer.
    """
    return asked > own and (given is None or asked >= given)


def is_outdated(given: ServerSession, presented: TokenGeneration) -> bool:
    """Tell whether a session has been served elsewhere since it was as it was given.

    Then its client holds a token that its former owner has not handed out. There, numbering may have begun anew, and
    packet ids alone would not tell: they would seem to go on where the given session is.

    Args:
        given: as it was restored.
        presented: generation of the token that the client has shown.
    """
    return presented > given.token_generation


def assume(session: ServerSession, given: ServerSession) -> None:
    """Have a session, made of its record in the grid, go on with what another node held of it.

    What stands in the record is newer than what that node held, and stays: tokens, selections, properties, handlers,
    credentials, and where there may be receipts. It is the older one only if the grid has lost writes since that node
    wrote it last. Then what a client was promised by an owner counts, and the session has to be written again: its
    selections, its properties, its handlers, and where there may be receipts besides. Tokens were counted on by the
    claim, and rights are given by the grid alone, so these stay.

    What the former owner had started may have been executed, so it is pending as something that was resubmitted
    (protocol 5.2.4).

    Args:
        session: which; its machine, requests and answers are replaced.
        given: as it was restored; it is not to be used any more.

    Raises:
        InvalidExport: it is another session, or one that cannot go on.
    """
    machine = given.machine
    if (given.id, given.principal) != (session.id, session.principal):
        raise InvalidExport(f"session {session.id!r} was asked for, and {given.id!r} was given")
    if machine.role is not Role.SERVER or machine.state not in PASSABLE:
        raise InvalidExport(f"session {session.id!r} was given as a {machine.role.value} that is {machine.state.value}")
    given.pending.restart()
    session.machine = machine
    session.pending = given.pending
    session.answers = given.answers
    session.newest = given.newest
    session.declared = given.declared
    session.declaring = given.declaring
    session.supports = given.supports
    session.from_copy = given.from_copy
    if given.stored_generation < session.stored_generation:
        session.selections = given.selections
        session.properties = given.properties
        session.handlers = given.handlers
        session.publish_partitions |= given.publish_partitions
        session.stored_generation = given.stored_generation


def _object(data: bytes) -> dict[str, JsonValue]:
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidExport(f"what was said of a session is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidExport("what was said of a session is no object")
    return fields


def _selectors(value: JsonValue) -> dict[RequestNumber, str]:
    if isinstance(value, dict):
        found = read_selectors(value)
        if len(found) == len(value):
            return found
    raise InvalidExport("'unfinished' of an answer is no object of selectors by requests")
