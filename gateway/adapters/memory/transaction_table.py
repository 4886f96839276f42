"""The transactions that an in-memory grid holds; a commit is one step of ``GridData``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.core.topics.topics import session_partition
from gateway.core.types import GridGeneration, RequestNumber, SessionId
from gateway.ports import (
    MOST_STAGED,
    MOST_STAGED_BYTES,
    MOST_TRANSACTIONS,
    TRANSACTION_AGE,
    TRANSACTION_WAIT,
    Committed,
    OpenTransaction,
    Staged,
    TransactionRefused,
    staged_bytes,
)

_NO_REQUEST: Final = RequestNumber(0)
"""Below the first request of every session."""


@dataclass(slots=True)
class _Transaction:
    """A transaction.

    Attributes:
        begun: when.
        used: when something was asked of it last.
        operations: by the requests that asked for them.
        size: bytes of them.
        request: that asked for its commit, once it is done.
        outcome: what became of it; None while it is open.
        generation: of the grid, when it was begun; in a later one it may have lost operations.
    """

    generation: GridGeneration
    begun: float
    used: float
    operations: dict[RequestNumber, Staged] = field(default_factory=dict)
    size: int = 0
    request: RequestNumber = _NO_REQUEST
    outcome: Committed | TransactionRefused | None = None

    @property
    def in_order(self) -> list[Staged]:
        """What it is to do, in the order of the requests: one that was refused first may have been added later."""
        return [self.operations[request] for request in sorted(self.operations)]

    @property
    def due(self) -> float:
        """When it is rolled back."""
        return min(self.used + TRANSACTION_WAIT, self.begun + TRANSACTION_AGE)


class TransactionTable:
    """All transactions of the grid, by session and number; *now* is the grid's clock in seconds."""

    def __init__(self) -> None:
        self._of: dict[SessionId, dict[RequestNumber, _Transaction]] = {}

    def begin(
        self,
        session: SessionId,
        number: RequestNumber,
        settled: RequestNumber,
        generation: GridGeneration,
        now: float,
    ) -> TransactionRefused | None:
        """See ``TransactionStore.begin``."""
        held = self._of.setdefault(session, {})
        if number in held:
            return None
        self._forget_settled(session, settled)
        if sum(each.outcome is None for each in held.values()) >= MOST_TRANSACTIONS:
            return TransactionRefused.TRANSACTIONS
        held[number] = _Transaction(generation, now, now)
        return None

    def stage(
        self,
        session: SessionId,
        number: RequestNumber,
        request: RequestNumber,
        operation: Staged,
        *,
        generation: GridGeneration,
        now: float,
    ) -> TransactionRefused | None:
        """See ``TransactionStore.stage``."""
        found = self.find(session, number, generation, now)
        if found is None:
            return TransactionRefused.UNKNOWN
        if request in found.operations:
            return None
        found.used = now
        size = staged_bytes(operation)
        held = sum(each.size for each in self._of[session].values() if each.outcome is None)
        if len(found.operations) >= MOST_STAGED or held + size > MOST_STAGED_BYTES:
            return TransactionRefused.SIZE
        found.operations[request] = operation
        found.size += size
        return None

    def find(
        self, session: SessionId, number: RequestNumber, generation: GridGeneration, now: float
    ) -> _Transaction | None:
        """Look up one that is open; it is rolled back if it is overdue, or of an earlier generation."""
        found = self._of.get(session, {}).get(number)
        if found is None or found.outcome is not None:
            return None
        if found.due <= now or found.generation < generation:
            self.drop(session, number)
            return None
        return found

    def known(
        self, session: SessionId, number: RequestNumber, request: RequestNumber, settled: RequestNumber
    ) -> Committed | TransactionRefused | None:
        """Tell what became of a commit by the same request; None if there was none."""
        self._forget_settled(session, settled)
        found = self._of.get(session, {}).get(number)
        if found is None or found.outcome is None or found.request != request:
            return None
        outcome = found.outcome
        return outcome._replace(duplicate=True, settled=()) if isinstance(outcome, Committed) else outcome

    def end(
        self,
        session: SessionId,
        number: RequestNumber,
        request: RequestNumber,
        outcome: Committed | TransactionRefused,
    ) -> None:
        """Note what became of one."""
        found = self._of[session][number]
        found.request, found.outcome = request, outcome
        found.operations.clear()

    def drop(self, session: SessionId, number: RequestNumber) -> None:
        """Forget one that is open."""
        held = self._of.get(session, {})
        if number in held and held[number].outcome is None:
            del held[number]

    def forget(self, session: SessionId) -> None:
        """Forget all of a session that has ended."""
        self._of.pop(session, None)

    def reap(self, partition: int, now: float) -> tuple[int, int]:
        """Roll back what is overdue; returns how many that were, and how many sessions had any open."""
        mine = [session for session in self._of if session_partition(session) == partition]
        kept = [session for session in mine if any(each.outcome is None for each in self._of[session].values())]
        overdue = [
            (session, number)
            for session in kept
            for number, each in self._of[session].items()
            if each.outcome is None and each.due <= now
        ]
        for session, number in overdue:
            self.drop(session, number)
        return len(overdue), len(kept)

    def open(self, partition: int, limit: int, now: float) -> Sequence[OpenTransaction]:
        """See ``TransactionStore.open``."""
        found = [
            (each.due, session, number, each)
            for session, held in self._of.items()
            if session_partition(session) == partition
            for number, each in held.items()
            if each.outcome is None
        ]
        first: list[SessionId] = []
        for _, session, _, _ in sorted(found, key=lambda each: each[:3]):
            if session not in first:
                first.append(session)
        return [
            OpenTransaction(
                session=session,
                number=number,
                committing=False,
                operations=len(each.operations),
                size=each.size,
                age=now - each.begun,
                idle=now - each.used,
            )
            for _, session, number, each in found
            if session in first[:limit]
        ]

    def inventory(self) -> set[str]:
        """Name everything that is kept."""
        return {f"transactions of {session}" for session, held in self._of.items() if held}

    def _forget_settled(self, session: SessionId, settled: RequestNumber) -> None:
        held = self._of.get(session, {})
        for number in [number for number, each in held.items() if each.outcome is not None and each.request <= settled]:
            del held[number]
