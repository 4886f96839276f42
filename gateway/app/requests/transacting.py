"""Begin, stage, commit, roll back: what clients ask of transactions (protocol 16)."""

from __future__ import annotations

from typing import Final

from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.requests.publish import Publishing
from gateway.app.requests.queueing import Queueing
from gateway.app.session.session import Session
from gateway.catalogue import transaction_metrics as catalogue
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Publish, Reply
from gateway.core.wire.queue_packets import Send, Settle
from gateway.core.wire.transaction_packets import Begin, Commit, Rollback, Stage, TransactionRequest
from gateway.ports import (
    MOST_STAGED,
    MOST_STAGED_BYTES,
    MOST_TRANSACTIONS,
    Committed,
    Staged,
    TransactionRefused,
)

REFUSALS: Final[dict[TransactionRefused, tuple[ErrorCode, str]]] = {
    TransactionRefused.UNKNOWN: (
        ErrorCode.NO_SUCH_TRANSACTION,
        "the transaction is not open: it is over, or was rolled back because nobody went on with it",
    ),
    TransactionRefused.TRANSACTIONS: (
        ErrorCode.TOO_MANY_TRANSACTIONS,
        f"a session has {MOST_TRANSACTIONS} transactions open at most",
    ),
    TransactionRefused.SIZE: (
        ErrorCode.TRANSACTION_TOO_LARGE,
        f"a transaction has {MOST_STAGED} operations at most, and all of a session {MOST_STAGED_BYTES} bytes",
    ),
    TransactionRefused.NOT_HELD: (
        ErrorCode.NOT_HELD,
        "the session does not hold a message that the transaction settles; nothing of it was done",
    ),
    TransactionRefused.QUEUE_FULL: (
        ErrorCode.QUEUE_FULL,
        "a queue has no room for what the transaction sends; nothing of it was done",
    ),
    TransactionRefused.ABSENT: (
        ErrorCode.NO_SUCH_QUEUE,
        "a queue to which the transaction sends is no more; nothing of it was done",
    ),
    TransactionRefused.TOPICS: (
        ErrorCode.TOO_MANY_TOPICS,
        "the transaction publishes to a topic that may not be created; nothing of it was done",
    ),
    TransactionRefused.BYTES: (
        ErrorCode.TOO_MANY_BYTES,
        "there is no room for the values that the transaction publishes; nothing of it was done",
    ),
}
"""What clients are told, by what the grid says."""


class Transacting:
    """Does what clients ask of transactions.

    What is staged is judged then, as if it were asked for alone. What only the grid knows, the commit looks at.

    Args:
        context: of the node.
        store: where it is written.
        publishing: makes of publishes what a transaction does.
        queueing: likewise of messages and settlements.
    """

    def __init__(self, context: Context, store: FencedStore, publishing: Publishing, queueing: Queueing) -> None:
        self._metrics = context.metrics
        self._store = store
        self._publishing = publishing
        self._queueing = queueing

    async def execute(self, session: Session, request: TransactionRequest) -> None:
        """Do what a request asks for, and answer it.

        Raises:
            RequestRefused: it cannot be done.
            Outdated, SessionLost: see ``fencing``.
            GridRefused: nothing was done.
            GridUnavailable: it may have been done; asking again does no harm.
        """
        if not self._store.replicated:
            raise RequestRefused(
                "sessions are not replicated here, so that nobody would roll a transaction back",
                code=ErrorCode.NOT_REPLICATED,
            )
        refused: TransactionRefused | None = None
        match request:
            case Begin():
                refused = await self._store.begin_transaction(session, request.request)
            case Stage():
                operation = self._staged(session, request.operation)
                refused = await self._store.stage(session, request.transaction, request.request, operation)
            case Commit():
                refused = await self._commit(session, request)
            case Rollback():
                await self._store.roll_back(session, request.transaction)
                self._metrics.add(catalogue.TRANSACTIONS, label="rolled_back")
        if refused is not None:
            code, why = REFUSALS[refused]
            raise RequestRefused(why, code=code)
        session.reply(Reply(request=request.request))

    def _staged(self, session: Session, operation: Publish | Send | Settle) -> Staged:
        match operation:
            case Publish():
                return self._publishing.staged(session, operation)
            case Send():
                return self._queueing.staged_send(session, operation)
            case Settle():
                return self._queueing.staged_settle(session, operation)

    async def _commit(self, session: Session, request: Commit) -> TransactionRefused | None:
        outcome = await self._store.commit(session, request.transaction, request.request)
        if isinstance(outcome, Committed):
            if not outcome.duplicate:
                for each in outcome.settled:
                    self._queueing.settled(session, each)
            self._metrics.add(catalogue.TRANSACTIONS, label="duplicate" if outcome.duplicate else "committed")
            return None
        self._metrics.add(catalogue.TRANSACTIONS, label="refused")
        return outcome
