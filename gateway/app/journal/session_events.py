"""What happens to sessions, and how it is told; see ``announcer``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from gateway.app.journal.event import Event, Fields, Subject
from gateway.app.journal.node_events import Expiry
from gateway.app.session.session import Session
from gateway.catalogue import log_events, metrics, policy_log_events
from gateway.core.immutable import immutable
from gateway.core.journal import events as happened
from gateway.core.journal.events import NAME_LENGTH, NAMES_TOLD
from gateway.core.policy.system_roles import is_of_system
from gateway.core.types import Epoch, NodeRef, SessionId
from gateway.core.wire.codes import CLOSE_CODES, ErrorCode

CONNECTION_LOST: Final = "connection_lost"
"""The cause of a disconnect without a close code."""

OTHER_CODE: Final = "other"
"""The cause of one with a code that is none of ours; the code is told, too."""

_CAUSES: Final = {each.code: each.name for each in CLOSE_CODES}

_ENDS: Final = {ErrorCode.SESSION_EXPIRED: "expired", ErrorCode.REVOKED: "revoked"}
"""What an end is counted and logged as; each other one is ``closed``."""


class _Held(Event):
    """Something that happened to a session that is held here."""

    __slots__ = ()

    session: Session

    def about(self) -> Subject | None:
        """See ``Event``."""
        return None if is_of_system(self.session.roles) else (self.session.id, self.session.epoch)


# --- Opened, and back -------------------------------------------------------------------------------------------------


@immutable
class SessionOpened(_Held):
    """A client opened a session.

    Attributes:
        session: which.
        client: what the client says it is.
    """

    session: Session
    client: str

    metric = metrics.SESSIONS_OPENED
    log = log_events.SESSION_OPENED
    journal = happened.SESSION_OPENED

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"session": self.session.id, "principal": self.session.principal}

    def told(self) -> Fields:
        """See ``Event``."""
        return {
            "principal": self.session.principal,
            "client": self.client,
            "window_ms": round(self.session.window * 1000),
        }


@immutable(kw_only=True)
class SessionResumed(_Held):
    """A client came back to its session.

    Attributes:
        session: which; its outcome is told, and whether what was missed is replayed.
        reason: of a failover.
        previous: the node that owned the session before.
        away: milliseconds, as the client measured them.
        resent: packets that were sent once more.
        conflated: updates that were left out.
        lost: packets known to be lost.
    """

    session: Session
    reason: str | None
    previous: NodeRef
    away: int | None
    resent: int | None = None
    conflated: int | None = None
    lost: int | None = None

    metric = metrics.RESUMES
    log = log_events.SESSION_RESUMED
    journal = happened.SESSION_RESUMED

    def label(self) -> str:
        """See ``Event``."""
        return self.session.outcome.value

    def logged(self) -> Fields:
        """See ``Event``."""
        return {
            "session": self.session.id,
            "outcome": self.session.outcome.value,
            "reason": self.reason,
            "replayed": self.session.replayed,
            "previous": str(self.previous),
        }

    def told(self) -> Fields:
        """See ``Event``."""
        return {
            "principal": self.session.principal,
            "rung": self.session.outcome.value,
            "reason": self.reason,
            "replayed": self.session.replayed,
            "away_ms": self.away,
            "resent": self.resent,
            "conflated": self.conflated,
            "lost": self.lost,
            "peer": self.previous.node,
            "peer_incarnation": self.previous.incarnation,
        }


@immutable(kw_only=True)
class ResumeRefused(Event):
    """A resume was refused.

    Attributes:
        session: which; None if its token was not genuine.
        reason: why.
        address: of the client.
        away: milliseconds, as the client says.
        at_admin_port: whether it came to the admin port; the journal leaves that out.
    """

    session: SessionId | None
    reason: ErrorCode
    address: str
    away: int | None
    at_admin_port: bool

    metric = metrics.RESUMES
    log = log_events.RESUME_REFUSED
    journal = happened.SESSION_REFUSED

    def label(self) -> str:
        """See ``Event``."""
        return self.reason.value

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"reason": self.reason.value, "address": self.address}

    def about(self) -> Subject | None:
        """See ``Event``."""
        return None if self.at_admin_port else (self.session, None)

    def told(self) -> Fields:
        """See ``Event``."""
        return {"reason": self.reason.value, "away_ms": self.away}


# --- Disconnected -----------------------------------------------------------------------------------------------------


@immutable
class ConnectionReplaced(_Held):
    """A session lost its connection because another one took its place, or failed; that is told of already.

    Attributes:
        session: which.
        code: of the close; None if there was none.
    """

    session: Session
    code: int | None

    journal = happened.SESSION_DISCONNECTED

    def told(self) -> Fields:
        """See ``Event``."""
        return {
            "principal": self.session.principal,
            "cause": CONNECTION_LOST if self.code is None else _CAUSES.get(self.code, OTHER_CODE),
            "code": self.code,
            "deduplicated": self.session.deduplicated,
            "packets": self.session.machine.waiting,
        }


@immutable
class SessionDisconnected(ConnectionReplaced):
    """A session lost its connection, and its window runs; the fields are those of ``ConnectionReplaced``."""

    log = log_events.SESSION_DISCONNECTED

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"session": self.session.id, "code": self.code}


@immutable
class SessionStrayed(Event):
    """A session was found that the grid holds for this node, and the node does not serve; its window runs now.

    Attributes:
        session: which.
        epoch: of it.
    """

    session: SessionId
    epoch: Epoch

    log = log_events.SESSION_DISCONNECTED
    journal = happened.SESSION_DISCONNECTED

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"session": self.session, "code": None}

    def about(self) -> Subject:
        """See ``Event``."""
        return self.session, self.epoch

    def told(self) -> Fields:
        """See ``Event``."""
        return {"cause": CONNECTION_LOST}


@immutable
class SessionOrphaned(Event):
    """A session of a dead node was put on the clock here.

    Attributes:
        session: which.
        epoch: of the dead node's claim.
        expiry: of that node's lease.
    """

    session: SessionId
    epoch: Epoch
    expiry: Expiry

    journal = happened.SESSION_ORPHANED

    def about(self) -> Subject:
        """See ``Event``."""
        return self.session, self.epoch

    def told(self) -> Fields:
        """See ``Event``."""
        return self.expiry.told()


@immutable
class SlowConsumerClosed(_Held):
    """The client read too slowly, and its connection is about to be closed.

    Attributes:
        session: which.
    """

    session: Session

    log = log_events.SLOW_CONSUMER_CLOSED
    journal = happened.SESSION_SLOW_CLOSED

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"session": self.session.id, **self._waiting()}

    def told(self) -> Fields:
        """See ``Event``."""
        return {"principal": self.session.principal, **self._waiting()}

    def _waiting(self) -> Fields:
        return {"packets": self.session.machine.waiting, "bytes": self.session.machine.waiting_bytes}


# --- Over -------------------------------------------------------------------------------------------------------------


@immutable
class SessionFenced(_Held):
    """Another node owns the session; the copy here is dropped.

    Attributes:
        session: which.
    """

    session: Session

    log = log_events.SESSION_FENCED
    journal = happened.SESSION_FENCED

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"session": self.session.id}

    def told(self) -> Fields:
        """See ``Event``."""
        return {"principal": self.session.principal}


@immutable
class SessionClosed(Event):
    """A session was ended on purpose, by this node.

    Attributes:
        session: which.
        epoch: of it.
        reason: why.
        roles: of its principal; None if they are not known, and no console's.
        principal: whose it was; None if that is not known.
    """

    session: SessionId
    epoch: Epoch
    reason: ErrorCode
    roles: Collection[str] = ()
    principal: str | None = None

    metric = metrics.SESSIONS_ENDED
    log = log_events.SESSION_ENDED
    journal = happened.SESSION_CLOSED

    def label(self) -> str:
        """See ``Event``."""
        return _ENDS.get(self.reason, "closed")

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"session": self.session, "reason": self.label()}

    def about(self) -> Subject | None:
        """See ``Event``."""
        return None if is_of_system(self.roles) else (self.session, self.epoch)

    def told(self) -> Fields:
        """See ``Event``."""
        return _whose(self.principal) | {"reason": self.reason.value}


@immutable
class SessionExpired(SessionClosed):
    """The window of a session ended, and nobody had come back; the fields are those of ``SessionClosed``."""

    reason: ErrorCode = ErrorCode.SESSION_EXPIRED

    journal = happened.SESSION_EXPIRED

    def told(self) -> Fields:
        """See ``Event``."""
        return _whose(self.principal)


def ended(session: Session, reason: ErrorCode) -> SessionClosed:
    """Make the event that a session which is held here has ended."""
    kind = SessionExpired if reason is ErrorCode.SESSION_EXPIRED else SessionClosed
    return kind(session.id, session.epoch, reason, session.roles, session.principal)


# --- Changed ----------------------------------------------------------------------------------------------------------


@immutable
class PropertiesChanged(_Held):
    """Properties of a session were set or removed.

    Attributes:
        session: which.
        names: of the properties.
    """

    session: Session
    names: Collection[str]

    journal = happened.SESSION_PROPERTIES_CHANGED

    def told(self) -> Fields:
        """See ``Event``."""
        return {
            "principal": self.session.principal,
            "names": _shortened(self.names),
            "count": len(self.names),
        }


@immutable
class SelectionsChanged(_Held):
    """A client added selections or took some away.

    Attributes:
        session: whose.
        changes: ``+selector`` or ``-selector``.
    """

    session: Session
    changes: Sequence[str]

    journal = happened.SESSION_SELECTIONS_CHANGED

    def told(self) -> Fields:
        """See ``Event``."""
        return {
            "principal": self.session.principal,
            "names": _shortened(self.changes),
            "count": len(self.session.selections),
        }


@immutable
class SelectionsWithdrawn(_Held):
    """A session had selected what it may not select any more, and that was taken away.

    Attributes:
        session: which.
        selectors: that were withdrawn.
    """

    session: Session
    selectors: Sequence[str]

    metric = metrics.SELECTIONS_WITHDRAWN
    log = policy_log_events.SELECTIONS_WITHDRAWN
    journal = happened.SESSION_SELECTIONS_CHANGED

    def amount(self) -> float:
        """See ``Event``."""
        return len(self.selectors)

    def logged(self) -> Fields:
        """See ``Event``."""
        return {
            "session": self.session.id,
            "principal": self.session.principal,
            "selectors": list(self.selectors),
        }

    def told(self) -> Fields:
        """See ``Event``."""
        return {
            "principal": self.session.principal,
            "names": _shortened(f"-{selector}" for selector in self.selectors),
            "count": len(self.session.selections),
        }


def _whose(principal: str | None) -> Fields:
    return {} if principal is None else {"principal": principal}


def _shortened(names: Iterable[str]) -> list[str]:
    return [name[:NAME_LENGTH] for name, _ in zip(names, range(NAMES_TOLD), strict=False)]
