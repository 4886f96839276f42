"""Transactions: implements ``gateway.ports.TransactionStore``.

They are kept beside their session (``transactions.lua``). A commit takes the transaction, which tells its operations,
and then executes them:

```text
one Redis      take ──▶ commit, one script on all keys
Redis Cluster  take ──▶ prepare in each partition ──▶ decide ──▶ finish in each partition ──▶ note that it is done
```

Whoever takes it later goes on from the state that it finds: before the decision by preparing all of it again, which
changes nothing where it is prepared; after the decision by what was decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

from gateway.adapters.redis import scripts
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.history import LogWriter
from gateway.adapters.redis.keys import Keys, short_hash
from gateway.adapters.redis.queues import DELIVERIES_LENGTH, MOST_QUEUES
from gateway.adapters.redis.scripts import Argument, Command, Script
from gateway.adapters.redis.staged import Part, decode_staged, encode_staged, parts_of, read_record
from gateway.core.topics.topics import session_partition, topic_partition
from gateway.core.types import RequestNumber, SessionId, TopicPath
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    FINISH_SECONDS,
    MOST_STAGED,
    MOST_STAGED_BYTES,
    MOST_TRANSACTIONS,
    TRANSACTION_AGE,
    TRANSACTION_WAIT,
    Committed,
    Fenced,
    GridRefused,
    GridUnavailable,
    OpenTransaction,
    Ownership,
    Reaped,
    SessionGone,
    Staged,
    StagedSettle,
    TransactionRefused,
    staged_bytes,
)

TAKEN_MOST: Final = 5
"""Times that a commit is taken before it is left to the others who take it, too."""

LOOKED_AT: Final = 16
"""Sessions whose transactions one look at a partition sees to."""

_OPEN, _PREPARING, _COMMITTED, _ROLLED_BACK, _DONE, _FORGOTTEN = "o", "p", "c", "r", "d", "f"
"""States of a transaction; see ``transactions.lua``."""

_STALE: Final = (b"stale", b"emptied")

_NOTHING: Final = RequestNumber(0)


@dataclass(frozen=True, slots=True)
class _Taken:
    """A transaction that this node brings to its end.

    Attributes:
        session: whose.
        number: which.
        state: one of the above.
        turn: by which it was taken.
        outcome: what was decided, with ``_ROLLED_BACK`` and ``_DONE``.
        count: operations that it has.
        parts: what it does in each partition.
        settled: what of it settles messages.
    """

    session: SessionId
    number: RequestNumber
    state: str
    turn: int
    outcome: str
    count: int
    parts: Sequence[Part]
    settled: tuple[StagedSettle, ...] = ()

    @property
    def committed(self) -> Committed:
        """What is told of it once it is executed."""
        return Committed(self.count, duplicate=False, settled=self.settled)


class RedisTransactions:
    """Transactions in Redis.

    Args:
        grid: the connection.
        keys: names of all keys.
        writer: for topics with history.
        foreign: told of what is not the gateway's.
        depth: leading path segments that decide a partition.
    """

    def __init__(
        self, *, grid: GridConnection, keys: Keys, writer: LogWriter, foreign: ForeignData, depth: int
    ) -> None:
        self._grid = grid
        self._batcher = grid.batcher
        self._keys = keys
        self._writer = writer
        self._foreign = foreign
        self._depth = depth

    async def begin(
        self, ownership: Ownership, transaction: RequestNumber, *, settled: RequestNumber
    ) -> TransactionRefused | None:
        """See ``TransactionStore.begin``."""
        limits = (round(TRANSACTION_WAIT * 1000), round(TRANSACTION_AGE * 1000), MOST_TRANSACTIONS)
        reply = await self._call(scripts.TRANSACTION_BEGIN, ownership, transaction, settled, *limits)
        return None if reply == b"ok" else TransactionRefused(reply.decode())

    async def stage(
        self, ownership: Ownership, transaction: RequestNumber, request: RequestNumber, operation: Staged
    ) -> TransactionRefused | None:
        """See ``TransactionStore.stage``."""
        reply = await self._call(
            scripts.TRANSACTION_STAGE,
            ownership,
            transaction,
            *(request, staged_bytes(operation), MOST_STAGED, MOST_STAGED_BYTES, encode_staged(operation)),
        )
        return None if reply == b"ok" else TransactionRefused(reply.decode())

    async def commit(
        self, ownership: Ownership, transaction: RequestNumber, request: RequestNumber, *, settled: RequestNumber
    ) -> Committed | TransactionRefused:
        """See ``TransactionStore.commit``."""
        return cast(
            "Committed | TransactionRefused",
            await self._end(ownership, transaction, "commit", request=request, settled=settled),
        )

    async def roll_back(self, ownership: Ownership, transaction: RequestNumber) -> None:
        """See ``TransactionStore.roll_back``."""
        await self._end(ownership, transaction, "drop")

    # --- For all sessions of a partition ------------------------------------------------------------------------------

    async def reap(self, partition: int) -> Reaped:
        """See ``TransactionStore.reap``."""
        overdue = self._keys.transactions_due[partition]
        kept = await self._batcher.call(("ZCARD", overdue))
        rolled_back = finished = 0
        names = (
            await self._batcher.call(scripts.QUEUE_DUE(overdue, self._grid.clock.argument(), LOOKED_AT)) if kept else ()
        )
        for name in names:
            session = self._session(partition, overdue, name)
            records = {} if session is None else await self._records(session)
            if session is None or not records:
                await self._batcher.call(("ZREM", overdue, name))
                continue
            for number, record in records.items():
                if record["state"] != _DONE:
                    ended = await self._end(session, number, "reap")
                    rolled_back += ended is TransactionRefused.UNKNOWN and record["state"] == _OPEN
                    finished += ended is not None and record["state"] != _OPEN
        if not self._batcher.undivided:
            await self._undo_forgotten(partition)
        return Reaped(rolled_back, finished, kept)

    async def open(self, partition: int, *, limit: int) -> Sequence[OpenTransaction]:
        """See ``TransactionStore.open``."""
        overdue = self._keys.transactions_due[partition]
        found: list[OpenTransaction] = []
        now = self._grid.clock.estimate() or 0.0
        for name in await self._batcher.call(("ZRANGE", overdue, 0, limit - 1)):
            session = self._session(partition, overdue, name)
            records = {} if session is None else await self._records(session)
            found += [
                OpenTransaction(
                    session=session,
                    number=number,
                    committing=record["state"] != _OPEN,
                    operations=record["count"],
                    size=record["size"],
                    age=max(0.0, (now - record["begun"]) / 1000),
                    idle=max(0.0, (now - record["used"]) / 1000),
                )
                for number, record in records.items()
                if session is not None and record["state"] != _DONE
            ]
        return found

    def _session(self, partition: int, key: str, name: bytes) -> SessionId | None:
        try:
            session = SessionId(name.decode())
            if session_partition(session) != partition:
                raise ValueError("no session of this name is in this partition")
        except ValueError as error:
            self._foreign.skipped(key, repr(name), error)
            return None
        return session

    async def _records(self, session: SessionId) -> dict[RequestNumber, dict[str, Any]]:
        key = self._keys.transactions(session)[0]
        found = await self._batcher.call(("HGETALL", key))
        records: dict[RequestNumber, dict[str, Any]] = {}
        for number, stored in zip(found[::2], found[1::2], strict=True):
            try:
                records[RequestNumber(int(number))] = read_record(stored)
            except ValueError as error:
                self._foreign.skipped(key, repr(number), error)
        return records

    async def _undo_forgotten(self, partition: int) -> None:
        """Undo what is prepared in a topic partition for a transaction that nobody will finish.

        Its session's part of the grid has lost writes, or it was prepared late by a turn that was over.
        """
        prepared = self._keys.prepared[partition]
        now = self._grid.clock.estimate() or 0.0
        found = await self._batcher.call(("HGETALL", prepared))
        for name, note in list(zip(found[::2], found[1::2], strict=True))[:LOOKED_AT]:
            try:
                session, _, number = name.decode().partition(" ")
                head, *queues = note.decode().split("\n")
                turn, when = map(int, head.split(" "))
                transaction = RequestNumber(int(number))
            except ValueError as error:
                self._foreign.skipped(prepared, repr(name), error)
                await self._batcher.call(("HDEL", prepared, name))
                continue
            if now - when < FINISH_SECONDS * 1000:
                continue
            record = (await self._records(SessionId(session))).get(transaction)
            if record is not None and record["state"] != _DONE and record["turn"] <= turn:
                continue  # whoever looks after the session's partition finishes it
            part = Part(partition)
            for queue in queues:
                part.add_queue(TopicPath(queue))
            left = _Taken(SessionId(session), transaction, _ROLLED_BACK, turn, "", 0, (part,))
            await self._finish(left, _FORGOTTEN if record is None else _ROLLED_BACK)

    # --- Bringing one to its end --------------------------------------------------------------------------------------

    async def _end(
        self,
        owner: Ownership | SessionId,
        number: RequestNumber,
        mode: str,
        *,
        request: RequestNumber = _NOTHING,
        settled: RequestNumber = _NOTHING,
    ) -> Committed | TransactionRefused | None:
        """Take a transaction and bring it to its end; returns what became of it, None if it is nobody's turn yet."""
        session = owner.session if isinstance(owner, Ownership) else owner
        for _ in range(TAKEN_MOST):
            reply = await self._call(scripts.TRANSACTION_TAKE, owner, number, mode, request, settled)
            if reply == b"alive":
                return None
            if reply == b"unknown":
                return TransactionRefused.UNKNOWN
            taken = self._taken(session, number, reply)
            if taken.state == _DONE:
                return _outcome(taken.outcome, Committed(taken.count, duplicate=True))
            ended = await self._complete(taken)
            if ended is not None:
                return ended
        raise GridUnavailable(f"others bring transaction {number} of session {session} to its end")

    def _taken(self, session: SessionId, number: RequestNumber, reply: Sequence[bytes]) -> _Taken:
        state, turn, outcome, count, *stored = reply
        operations: list[Staged] = []
        for each in stored:
            try:
                operations.append(decode_staged(each))
            except (ValueError, KeyError, TypeError) as error:
                self._foreign.skipped(self._keys.transactions(session)[1], str(number), error)
        parts = parts_of(operations, lambda path: topic_partition(path, self._depth))
        settled = tuple(each for each in operations if isinstance(each, StagedSettle))
        return _Taken(session, number, state.decode(), int(turn), outcome.decode(), int(count), parts, settled)

    async def _complete(self, taken: _Taken) -> Committed | TransactionRefused | None:
        """Go on from the state in which it was taken; None if somebody else has taken it since."""
        if taken.state == _PREPARING:
            if self._batcher.undivided:
                return await self._commit_at_once(taken)
            outcome = await self._prepare(taken)
            if outcome is None:
                return None
            state = _COMMITTED if outcome == "-" else _ROLLED_BACK
            if not await self._decide(taken, state, outcome):
                return None
        else:
            state, outcome = taken.state, taken.outcome
        if not await self._finish(taken, state) or not await self._decide(taken, _DONE):
            return None
        return _outcome(outcome if state == _ROLLED_BACK else "-", taken.committed)

    async def _commit_at_once(self, taken: _Taken) -> Committed | TransactionRefused | None:
        keys: list[Argument] = []
        said: list[Argument] = [len(taken.parts)]
        for part in taken.parts:
            keys += part.keys(self._keys, self._writer)
            said += part.arguments(self._writer)
        command = scripts.TRANSACTION_COMMIT.across(
            1,
            *(*self._session_keys(taken.session), *keys),
            *(*self._head(taken.session, taken.number), *self._of_parts(taken), *said, *self._writer.bounds()),
            more=len(keys),
        )
        try:
            reply = await self._batcher.call(command, gated=True)
        except GridRefused:
            await self._decide(taken, _OPEN)
            raise
        self._see_to([reply])
        if reply == b"overtaken":
            return None
        return _outcome("-" if reply == b"ok" else reply.decode(), taken.committed)

    async def _prepare(self, taken: _Taken) -> str | None:
        """Prepare it in each partition; returns "-", or why it cannot be, or None if somebody else has taken it."""
        commands = [self._part(scripts.TRANSACTION_PREPARE, taken, part) for part in taken.parts]
        try:
            replies = await self._batcher.call_all(commands, gated=True)
        except GridRefused:
            if await self._finish(taken, _ROLLED_BACK):
                await self._decide(taken, _OPEN)
            raise
        self._see_to(replies)
        if b"overtaken" in replies:
            return None
        refused = [reply.decode() for reply in replies if reply != b"ok"]
        return refused[0] if refused else "-"

    async def _decide(self, taken: _Taken, state: str, outcome: str = "-") -> bool:
        with _in_doubt():
            reply = await self._call(
                scripts.TRANSACTION_DECIDE, taken.session, taken.number, *(taken.turn, state, outcome)
            )
        return bool(reply == b"ok")

    async def _finish(self, taken: _Taken, state: str) -> bool:
        """Execute or undo it in each partition; False if somebody else has taken it and prepared it since."""
        commands = [self._part(scripts.TRANSACTION_FINISH, taken, part, state) for part in taken.parts]
        with _in_doubt():
            replies = await self._batcher.call_all(commands, gated=True)
        self._see_to(replies)
        return b"overtaken" not in replies

    def _part(self, script: Script, taken: _Taken, part: Part, *said: Argument) -> Command:
        keys = part.keys(self._keys, self._writer)
        return script.across(
            1,
            *(self._keys.prepared[part.partition], *keys),
            *(*self._head(taken.session, taken.number), *self._of_parts(taken), *said),
            *(*part.arguments(self._writer), *self._writer.bounds()),
            more=len(keys),
        )

    def _of_parts(self, taken: _Taken) -> tuple[Argument, ...]:
        return (taken.turn, self._grid.stream_length, self._grid.stream_bytes, MOST_QUEUES)

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _call(
        self, script: Script, owner: Ownership | SessionId, number: RequestNumber, *arguments: Argument
    ) -> Any:
        """Take a step in the partition of a session: of its owner, or of nobody in particular.

        Raises:
            Fenced, SessionGone: the owner is not the owner.
            GridUnavailable: see the port.
        """
        session = owner.session if isinstance(owner, Ownership) else owner
        written = owner if isinstance(owner, Ownership) else None
        command = script(*self._session_keys(session), *self._head(session, number, written), *arguments)
        reply = await self._batcher.call(command, gated=True)
        self._see_to([reply])
        if reply == b"fenced":
            raise Fenced(f"another node owns session {session}")
        if isinstance(reply, list) and reply[0] == b"gone":
            raise SessionGone(ErrorCode(reply[1].decode()))
        return reply

    def _session_keys(self, session: SessionId) -> tuple[str, ...]:
        partition = session_partition(session)
        keys = self._keys
        return (
            *(keys.session(session), keys.ended[partition], keys.opened[partition]),
            *keys.transactions(session),
        )

    def _head(
        self, session: SessionId, number: RequestNumber, ownership: Ownership | None = None
    ) -> tuple[Argument, ...]:
        """The first arguments of every step."""
        owner: tuple[Argument, ...] = ("", 0) if ownership is None else (str(ownership.owner), ownership.epoch)
        return (
            *(self._grid.clock.argument(), self._grid.seal, self._grid.generation, DELIVERIES_LENGTH, session),
            *(*owner, short_hash(session), number),
        )

    def _see_to(self, replies: Sequence[Any]) -> None:
        """Have the grid adopted again if it is not what was adopted.

        Raises:
            GridUnavailable: it is not.
        """
        if any(reply in _STALE for reply in replies if isinstance(reply, bytes)):
            raise self._grid.stale(emptied=b"emptied" in replies)


@contextmanager
def _in_doubt() -> Iterator[None]:
    """Once a transaction is taken, a step that is refused says nothing of those before it."""
    try:
        yield
    except GridRefused as refused:
        raise GridUnavailable(str(refused)) from refused


def _outcome(text: str, committed: Committed) -> Committed | TransactionRefused:
    return committed if text == "-" else TransactionRefused(text)
