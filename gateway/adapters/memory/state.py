"""Everything an in-memory grid holds, as one value that can be copied; steps that touch more than one table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count

from gateway.adapters.memory.call_key_table import CallKeys
from gateway.adapters.memory.destination_table import Destinations
from gateway.adapters.memory.durable_table import Durables
from gateway.adapters.memory.exchange_table import Exchanges
from gateway.adapters.memory.hook_table import Hooks
from gateway.adapters.memory.journal_table import Journal
from gateway.adapters.memory.lease_table import Leases
from gateway.adapters.memory.presence_table import PresenceTable
from gateway.adapters.memory.revocation_table import Revocations
from gateway.adapters.memory.session_table import SessionTable
from gateway.adapters.memory.topic_table import Topics
from gateway.adapters.memory.transacted_queues import TransactedQueues
from gateway.adapters.memory.transaction_table import TransactionTable
from gateway.adapters.memory.zone_table import Zones
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.topics import topic_partition
from gateway.core.topics.versions import UNSEEN_GENERATIONS
from gateway.core.types import Epoch, GridGeneration, NodeRef, RequestNumber, SessionId, TopicPath
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    AnswerCommand,
    AnswerResult,
    AnswersRead,
    AskCommand,
    AskedAll,
    AskResult,
    AskState,
    Attached,
    AttachRefused,
    Committed,
    DeliveryTag,
    DurableName,
    DurableTerms,
    Ended,
    Enter,
    Entered,
    Fenced,
    Handled,
    HandlerSelectors,
    Handling,
    HandlingRefused,
    HeldQuestion,
    LastWills,
    Leave,
    MessageId,
    NotDeclared,
    OpenResult,
    Ownership,
    PublishCommand,
    Published,
    PublishResult,
    QueueBounds,
    QueueFull,
    ReceiptsLeft,
    SendCommand,
    SendResult,
    Sent,
    SessionEnd,
    SettleCommand,
    SettleResult,
    Staged,
    StagedPublish,
    StagedSend,
    StagedSettle,
    TakenQuestion,
    TopicValue,
    TransactionRefused,
)

NO_RUN = 0
"""The run id stored in a grid that nobody has adopted yet."""

NEVER_ADOPTED = GridGeneration(0)
"""The generation of a grid that nobody has adopted yet, and what a node knows that has not adopted one."""


NO_SEAL = 0
"""In the place of the seal of a generation, where there is none."""

LATE_PUBLISH = 600.0
"""Seconds for which a publish of a will may be under way, as on Redis."""

_NO_ROOM = MessageId(-1)
"""In the place of the id of a message that was not sent."""

_SEND, _SETTLE = "send", "settle"
"""Kinds of requests."""

_SEALS = count(1)
"""Numbers for seals; copies of data share them, as nothing else may."""


class GridData:
    """The data of the grid, which may be lost, copied and brought back.

    Args:
        stream_length: entries kept per topic partition.
        stream_bytes: bytes kept per topic partition, about; 0 for no limit.
        history_bytes: bytes that the histories of a topic partition keep together.
        journal_length: entries kept per stream of the journal.
        depth: leading path segments that decide a topic's partition.
        origin: of the grid's clock, in seconds since 1970.

    Attributes:
        lost_at: when writes were lost for the last time, by the grid's clock in seconds; None if they never were.
    """

    def __init__(
        self,
        *,
        stream_length: int,
        stream_bytes: int,
        history_bytes: int,
        journal_length: int,
        depth: int,
        origin: float,
    ) -> None:
        self.sessions = SessionTable()
        self.leases = Leases()
        self.revocations = Revocations()
        self.call_keys = CallKeys()
        self.topics = Topics(
            stream_length=stream_length, stream_bytes=stream_bytes, history_bytes=history_bytes, depth=depth
        )
        self.destinations = Destinations()
        self.zones = Zones()
        self.queues = TransactedQueues(depth, origin)
        self.exchanges = Exchanges()
        self.presence = PresenceTable(self.topics, depth)
        self.durables = Durables()
        self.transactions = TransactionTable()
        self._depth = depth
        self.journal = Journal(journal_length)
        self.hooks = Hooks()
        self._run_id = NO_RUN
        self._generation = NEVER_ADOPTED
        self._seal = NO_SEAL
        self.lost_at: float | None = None
        self._cluster = ""
        self._closed: dict[SessionId, float] = {}
        """Publishers that are no sessions, and publish nothing any more: until when that is remembered."""

    @property
    def generation(self) -> GridGeneration:
        """The generation in force."""
        return self._generation

    @property
    def table_revisions(self) -> tuple[int, int, int, int]:
        """Change with every change of the tables that nodes follow."""
        zones = self.zones
        return self.revocations.revision, self.destinations.revision, zones.revision, zones.interest_revision

    @property
    def seal(self) -> int:
        """Tells that generation from every other one, also of the same number; ``NO_SEAL`` before the first."""
        return self._seal

    def adopt(self, run_id: int, known: GridGeneration, known_seal: int, now: float) -> GridGeneration:
        """Make the data belong to the run *run_id* of the server, which may not be the one that wrote it.

        Args:
            run_id: of the server that holds the data now.
            known: the generation that the adopting node adopted last.
            now: the grid's clock, in seconds.
            known_seal: its seal. Two nodes that saw different runs come and go, or data lost, may each have given one
                of them the same number; then a new number tells them apart.

        Returns:
            The generation in force: the stored one if this run had been adopted before, else a higher one than anybody
            here knows.
        """
        if known > NEVER_ADOPTED:
            self.leases.outage_over = now
        same_number = self._generation == known and known_seal not in {NO_SEAL, self._seal}
        if self._run_id != run_id or self._generation < known or same_number:
            self._run_id = run_id
            self.leases.outage_over = now
            if max(self._generation, known) > NEVER_ADOPTED:
                self.lost_at = now
            # Who has not seen the stored one cannot know which followed it before the grid went back to it.
            step = UNSEEN_GENERATIONS if known < self._generation else 1
            self._generation = GridGeneration(max(self._generation, known) + step)
            self._seal = next(_SEALS)
        return self._generation

    def cluster(self, suggested: str) -> str:
        """Tell the id of the cluster; see ``NodeDirectory.cluster``."""
        self._cluster = self._cluster or suggested
        return self._cluster

    def publish(self, commands: Sequence[PublishCommand], now: float) -> list[PublishResult]:
        """Execute publishes in order, each one atomic step.

        A publish that arrives after the end of its session is fenced as long as the end is remembered: it must neither
        run again nor leave a receipt behind.
        """
        return [
            Fenced(f"session {each.ownership.session} has ended")
            if self.sessions.has_ended(each.ownership.session, now)
            or self._closed.get(each.ownership.session, 0.0) > now
            else self.topics.publish(each, self._generation, now, held=self.sessions.__contains__)
            for each in commands
        ]

    def send(self, commands: Sequence[SendCommand], now: float) -> list[SendResult]:
        """Put messages into queues in order, each one atomic step, once; fenced as publishes are."""
        return [self._send(each, now) for each in commands]

    def _send(self, command: SendCommand, now: float) -> SendResult:
        ownership = command.ownership
        if self.sessions.has_ended(ownership.session, now):
            return Fenced(f"session {ownership.session} has ended")
        partition = self.queues.partition(command.queue)
        try:
            self.topics.check(partition, ownership)
            if self.queues.is_undeclared(command.queue) and not self.topics.recall(
                partition, ownership, command.request, _SEND
            ):
                return NotDeclared(command.queue)
            number, before = self.topics.once(
                *(partition, ownership, command.request, command.settled, now),
                kind=_SEND,
                held=self.sessions.__contains__,
                step=lambda: self.queues.send(command, self._generation, now) or _NO_ROOM,
            )
        except Fenced as fenced:
            return fenced
        return QueueFull(before) if number == _NO_ROOM else Sent(number or MessageId(0), before)

    def attach(
        self,
        ownership: Ownership,
        queue: TopicPath,
        *,
        credit: int,
        bounds: QueueBounds,
        most_consumers: int,
        now: float,
    ) -> Attached | AttachRefused:
        """Let a session consume; see ``QueueStore.attach``."""
        attached = None
        if not self.sessions.has_ended(ownership.session, now):
            attached = self.queues.attach(
                ownership,
                queue,
                credit=credit,
                bounds=bounds,
                most_consumers=most_consumers,
                generation=self._generation,
                now=now,
            )
        if attached is None:
            raise Fenced(f"session {ownership.session} has a newer owner than epoch {ownership.epoch}, or has ended")
        return attached

    def open_durable(
        self,
        ownership: Ownership,
        name: DurableName,
        terms: DurableTerms,
        *,
        start: str | None,
        instead_of: SessionId | None,
        now: float,
    ) -> OpenResult:
        """Let a session use a durable subscription; see ``DurableStore.open``."""
        if self.sessions.has_ended(ownership.session, now):
            raise Fenced(f"session {ownership.session} has ended")
        return self.durables.open(ownership, name, terms, start=start, instead_of=instead_of, now=now)

    def declare_queue(
        self,
        queue: TopicPath,
        bounds: QueueBounds,
        *,
        owner: Ownership | None,
        most: int,
        source: str,
        fed: str,
        now: float,
    ) -> bool:
        """Make a queue that is there until it is removed; see ``QueueStore.declare``."""
        if owner is not None and self.sessions.has_ended(owner.session, now):
            raise Fenced(f"session {owner.session} has ended")
        session = None if owner is None else owner.session
        return self.queues.declare(queue, bounds, owner=session, most=most, source=source, fed=fed, now=now)

    def settle(self, command: SettleCommand, now: float) -> list[SettleResult]:
        """Settle what a consumer holds, all in one atomic step; see ``QueueStore.settle``."""
        ownership, queue = command.ownership, command.queue
        session = ownership.session
        may = self.queues.may_settle(ownership, queue)
        if may is None or self.sessions.has_ended(session, now):
            raise Fenced(f"session {session} has a newer owner than epoch {ownership.epoch}, or has ended")
        partition = self.queues.partition(queue)
        self.topics.check(partition, ownership)
        results: list[SettleResult] = []
        if not may:
            for each in command.steps:
                known = self.topics.recall(partition, ownership, each.request, _SETTLE) if each.request else None
                if known is None:
                    missing = tuple(message for _, message in each.messages)
                    results.append(SettleResult(missing, duplicate=False, complete=not missing))
                else:
                    results.append(SettleResult((), duplicate=True, complete=known == ()))
            return results
        self.queues.see(session, queue, command.seen)
        for each in command.steps:
            answer, before = self.topics.once(
                *(partition, ownership, each.request, command.settled, now),
                kind=_SETTLE,
                held=self.sessions.__contains__,
                step=partial(self.queues.settle, session, queue, each, now),
            )
            results.append(SettleResult(() if before else answer or (), before, not answer))
        self.queues.close(queue, self._generation, now)
        return results

    def leave(self, ownership: Ownership, queue: TopicPath, seen: DeliveryTag, now: float) -> None:
        """Let a session consume no more; see ``QueueStore.leave``."""
        if not self.queues.leave(ownership.session, queue, self._generation, now, epoch=ownership.epoch, seen=seen):
            raise Fenced(f"session {ownership.session} has a newer owner than epoch {ownership.epoch}")

    def dismiss_consumer(self, queue: TopicPath, session: SessionId, now: float) -> bool:
        """Let a session that there is not any more consume no more; see ``QueueStore.dismiss``."""
        return self.queues.dismiss(queue, session, self._generation, now)

    def handle_questions(
        self, ownership: Ownership, partition: int, principal: str, handling: Handling, now: float
    ) -> Handled | HandlingRefused:
        """Let a session handle questions; see ``ExchangeStore.handle``."""
        self._open_exchanges(ownership, partition, now)
        return self.exchanges.handle(ownership, partition, principal, handling)

    def ask(self, command: AskCommand, now: float) -> AskedAll | HandlerSelectors:
        """Put questions in order, each once; fenced as publishes are; see ``ExchangeStore.ask``."""
        partition, ownership = command.partition, command.ownership
        self._open_exchanges(ownership, partition, now, handles=False)
        if (others := self.exchanges.selectors(partition, command.revision)) is not None:
            return others
        results: list[AskResult] = []
        for each in command.steps:
            state, before = self.topics.once(
                *(partition, ownership, each.request, command.settled, now),
                kind="ask",
                held=self.sessions.__contains__,
                step=partial(self.exchanges.ask, ownership.session, each, command, now),
            )
            if before and (
                state is None
                or (state is AskState.PUT and not self.exchanges.is_known(ownership.session, partition, each.request))
            ):
                state = AskState.FORGOTTEN
            results.append(AskResult(state or AskState.FORGOTTEN, before))
        return AskedAll(self.exchanges.end_of(partition), tuple(results))

    def take_questions(
        self, ownership: Ownership, partition: int, questions: Sequence[HeldQuestion], now: float
    ) -> list[TakenQuestion]:
        """Take questions that a session was given; see ``ExchangeStore.take``."""
        self._open_exchanges(ownership, partition, now)
        return self.exchanges.take(ownership, partition, questions, now)

    def answer(self, command: AnswerCommand, now: float) -> list[AnswerResult]:
        """Answer questions in order, each once; see ``ExchangeStore.answer``."""
        partition, ownership = command.partition, command.ownership
        self._open_exchanges(ownership, partition, now)
        results: list[AnswerResult] = []
        for each in command.steps:
            accepted, before = self.topics.once(
                *(partition, ownership, each.request, command.settled, now),
                kind="answer",
                held=self.sessions.__contains__,
                step=partial(self.exchanges.answer, ownership.session, each, command, now),
            )
            results.append(AnswerResult(accepted is not False, before))
        return results

    def read_answers(
        self, asker: SessionId, partition: int, numbers: Sequence[RequestNumber], now: float
    ) -> AnswersRead:
        """Tell what is known of questions of a session; see ``ExchangeStore.read``."""
        self.exchanges.open(partition, self._generation, now)
        return self.exchanges.read(asker, partition, numbers, now)

    def _open_exchanges(self, ownership: Ownership, partition: int, now: float, *, handles: bool = True) -> None:
        if self.sessions.has_ended(ownership.session, now):
            raise Fenced(f"session {ownership.session} has ended")
        self.topics.check(partition, ownership)
        if handles:
            self.exchanges.check(partition, ownership)
        self.exchanges.open(partition, self._generation, now)

    def enter(self, entry: Enter, now: float) -> Entered | Fenced:
        """Make a session a member of a tree; see ``PresenceStore.enter``."""
        return self._expect_owner(entry.ownership, entry.tree, now) or self.presence.enter(entry, self._generation, now)

    def leave_tree(self, leave: Leave, now: float) -> bool | Fenced:
        """Make it none any more; see ``PresenceStore.leave``."""
        fenced = self._expect_owner(leave.ownership, leave.tree, now)
        return self.presence.leave(leave, self._generation, now) if fenced is None else fenced

    def _expect_owner(self, ownership: Ownership, tree: TopicPath, now: float) -> Fenced | None:
        if self.sessions.has_ended(ownership.session, now):
            return Fenced(f"session {ownership.session} has ended")
        try:
            self.topics.check(self.presence.partition(tree), ownership)
        except Fenced as fenced:
            return fenced
        return None

    def commit(
        self,
        ownership: Ownership,
        number: RequestNumber,
        request: RequestNumber,
        settled: RequestNumber,
        now: float,
    ) -> Committed | TransactionRefused:
        """Execute a transaction as a whole, or nothing of it; see ``TransactionStore.commit``."""
        self.sessions.check(ownership, now)
        session = ownership.session
        known = self.transactions.known(session, number, request, settled)
        if known is not None:
            return known
        found = self.transactions.find(session, number, self._generation, now)
        if found is None:
            return TransactionRefused.UNKNOWN
        operations = found.in_order
        settles = tuple(each for each in operations if isinstance(each, StagedSettle))
        outcome = self._execute(session, operations, now) or Committed(
            len(operations), duplicate=False, settled=settles
        )
        self.transactions.end(session, number, request, outcome)
        return outcome

    def _execute(self, session: SessionId, operations: Sequence[Staged], now: float) -> TransactionRefused | None:
        parts: dict[int, tuple[list[StagedPublish], dict[TopicPath, list[StagedSend | StagedSettle]]]] = {}
        for each in operations:
            path = each.topic if isinstance(each, StagedPublish) else each.queue
            publishes, queues = parts.setdefault(topic_partition(path, self._depth), ([], {}))
            if isinstance(each, StagedPublish):
                publishes.append(each)
            else:
                queues.setdefault(each.queue, []).append(each)
        for partition, (publishes, queues) in parts.items():
            why = self.topics.refuses(partition, publishes)
            for queue, steps in queues.items():
                why = why or self.queues.refuses(session, queue, steps, now)
            if why is not None:
                # What was due in them was done, and others are given what that made ready.
                self._close_queues([queue for _, touched in parts.values() for queue in touched], now)
                return why
        for partition, (publishes, queues) in parts.items():
            for publish in publishes:
                self.topics.execute(partition, publish, self._generation, now)
            for queue, steps in queues.items():
                self.queues.execute(session, queue, steps, self._generation, now)
        return None

    def _close_queues(self, queues: Sequence[TopicPath], now: float) -> None:
        for each in queues:
            self.queues.close(each, self._generation, now)

    def restore(self, values: Sequence[TopicValue], now: float) -> int:
        """Put values back, each one atomic step; see ``TopicStore.restore``."""
        return sum(self.topics.restore(each, self._generation, now) for each in values)

    def remove(
        self, topic: TopicPath, keep: float, now: float, history: HistoryLimits | None = None
    ) -> Published | None:
        """Remove a topic; see ``TopicStore.remove``."""
        return self.topics.remove(topic, self._generation, keep, now, history)

    def end(self, ownership: Ownership, reason: ErrorCode, now: float) -> None:
        """End a session; its receipts and consumers go with it, also what it left behind when it ended before."""
        self.sessions.end(ownership, reason, now)
        self._forget(ownership.session, now)

    def _forget(self, session: SessionId, now: float) -> None:
        self.topics.forget(session)
        self.queues.forget(session, self._generation, now)
        self.exchanges.forget(session, self._generation, now)
        self.presence.forget(session, self._generation, now)
        self.durables.forget(session, now)
        self.transactions.forget(session)

    def mark_all(self, ends: Sequence[SessionEnd], now: float) -> list[LastWills]:
        """Mark those sessions as ended that have wills to be executed; returns these."""
        left = []
        for each in ends:
            with suppress(Fenced):
                left.append(self.sessions.mark(each, now))
        return [each for each in left if each is not None]

    def wills_executed(self, receipts: Mapping[SessionId, Sequence[ReceiptsLeft]], now: float) -> None:
        """The wills of sessions are executed; of their publishers stays what keeps late publishes out for a while."""
        for publisher in [each for each, until in self._closed.items() if until <= now]:
            del self._closed[publisher]
        for session, places in receipts.items():
            self.sessions.wills_executed(session)
            for place in places:
                self.topics.forget(place.publisher)
                self._closed[place.publisher] = now + LATE_PUBLISH

    def end_all(self, ends: Sequence[SessionEnd], now: float, waiting: Collection[SessionId]) -> list[bool]:
        """End sessions, each one atomic step; tells for each whether its ownership was accepted.

        Those that wait stay marked as ended, because their wills have yet to be executed.
        """
        ended = []
        for ownership, reason, *_ in ends:
            try:
                if ownership.session not in waiting:
                    self.end(ownership, reason, now)
            except Fenced:
                ended.append(False)
            else:
                ended.append(True)
        return ended

    def expire(
        self,
        partition: int,
        limit: int,
        now: float,
        executed: Sequence[LastWills] | None = None,
        *,
        spares: Callable[[NodeRef, float], bool],
    ) -> list[Ended]:
        """End sessions whose window is over; their receipts and consumers go with them."""
        done = None if executed is None else [each.session for each in executed]
        ended = self.sessions.expire(partition, limit, now, done, spares=spares)
        for each in ended:
            self._forget(each.session, now)
        return ended

    def orphan(self, expired: NodeRef, sessions: Sequence[SessionId], now: float) -> list[Epoch | None]:
        """Put sessions of an expired node on the clock; none if it has come back, for then they are its own again."""
        if self.leases.holds(expired, now):
            return [None] * len(sessions)
        return [self.sessions.orphan(expired, each, now) for each in sessions]

    def prolong(
        self, expired: NodeRef, partition: int, after: SessionId | None, limit: int, now: float
    ) -> tuple[int, SessionId | None]:
        """Begin windows of an expired node's sessions anew; none if it has come back, as above."""
        if self.leases.holds(expired, now):
            return 0, None
        return self.sessions.prolong(expired, partition, after, limit, now)

    def inventory(self, now: float) -> set[str]:
        """Name everything that is kept."""
        return (
            self.sessions.inventory(now)
            | self.leases.inventory()
            | self.topics.inventory()
            | self.queues.inventory()
            | self.exchanges.inventory()
            | self.presence.inventory()
            | self.durables.inventory()
            | self.transactions.inventory()
            | self.zones.inventory()
            | self.journal.inventory()
        )
