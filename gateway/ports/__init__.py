"""What the application needs from the outside world, as narrow protocols that state their guarantees.

Every port is implemented by ``gateway.adapters.memory`` and by one real adapter, and one contract suite
(``tests/contract``) runs on both. The words of this module are the contract; the suite quotes them.

Two rules hold for all of the grid's ports:

* **Who may block.** Every coroutine may wait for a network round trip, and for no more than the grid's time limit.
  Then it raises ``GridUnavailable``.
* **What a failure means.** ``GridUnavailable`` leaves it open whether the step happened. Each step is therefore
  idempotent: asking again with the same arguments gives the same result as asking once. Every other error means that
  nothing was changed.
"""

from gateway.ports.admission import Admission, Candidate, ConnectionRejected, CountedConnection
from gateway.ports.connection import Connection, Receiver
from gateway.ports.errors import Fenced, GridRefused, GridUnavailable, LeaseLost, LeaseUnverified, SessionGone
from gateway.ports.grid import Grid, GridChange, GridState
from gateway.ports.identity import (
    AuthenticationUnavailable,
    Authenticator,
    Credentials,
    CredentialsRefused,
    Directory,
    Identity,
    TokenClaims,
    TokenRefused,
    TokenSigner,
    VerificationPool,
    VerificationRefused,
)
from gateway.ports.journal import Appended, JournalBatch, JournalStore
from gateway.ports.nodes import ExpiredLease, LeaseTable, NodeDirectory, NodeEntry, NodeReport
from gateway.ports.process import MemoryUse, ProcessMemory, ServiceManager
from gateway.ports.revocations import AllRevocations, RevocationChanges, RevocationNews, RevocationStore, Unblocked
from gateway.ports.sessions import (
    Claimed,
    ClaimRefused,
    ClaimResult,
    Ended,
    Ownership,
    Restored,
    SelectionChanges,
    SessionChanges,
    SessionPage,
    SessionRecord,
    SessionStore,
)
from gateway.ports.telemetry import NO_TRACER, EventLog, Metrics, NoTracer, Operation, Span, Tracer
from gateway.ports.topics import (
    ENTRY_BYTES,
    NO_NEW_TOPICS,
    VALUE_BYTES,
    NotCreated,
    NotStored,
    PositionLost,
    PublishCommand,
    Published,
    PublishResult,
    StreamPosition,
    TailBatch,
    TailItem,
    TopicPage,
    TopicStore,
    TopicTail,
    TopicValue,
)

__all__ = [
    "ENTRY_BYTES",
    "NO_NEW_TOPICS",
    "NO_TRACER",
    "VALUE_BYTES",
    "Admission",
    "AllRevocations",
    "Appended",
    "AuthenticationUnavailable",
    "Authenticator",
    "Candidate",
    "ClaimRefused",
    "ClaimResult",
    "Claimed",
    "Connection",
    "ConnectionRejected",
    "CountedConnection",
    "Credentials",
    "CredentialsRefused",
    "Directory",
    "Ended",
    "EventLog",
    "ExpiredLease",
    "Fenced",
    "Grid",
    "GridChange",
    "GridRefused",
    "GridState",
    "GridUnavailable",
    "Identity",
    "JournalBatch",
    "JournalStore",
    "LeaseLost",
    "LeaseTable",
    "LeaseUnverified",
    "MemoryUse",
    "Metrics",
    "NoTracer",
    "NodeDirectory",
    "NodeEntry",
    "NodeReport",
    "NotCreated",
    "NotStored",
    "Operation",
    "Ownership",
    "PositionLost",
    "ProcessMemory",
    "PublishCommand",
    "PublishResult",
    "Published",
    "Receiver",
    "Restored",
    "RevocationChanges",
    "RevocationNews",
    "RevocationStore",
    "SelectionChanges",
    "ServiceManager",
    "SessionChanges",
    "SessionGone",
    "SessionPage",
    "SessionRecord",
    "SessionStore",
    "Span",
    "StreamPosition",
    "TailBatch",
    "TailItem",
    "TokenClaims",
    "TokenRefused",
    "TokenSigner",
    "TopicPage",
    "TopicStore",
    "TopicTail",
    "TopicValue",
    "Tracer",
    "Unblocked",
    "VerificationPool",
    "VerificationRefused",
]
