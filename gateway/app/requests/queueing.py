"""Send, consume, cancel, settle: what clients ask of queues (protocol 13)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.history_pages import HistoryPages
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.fencing import Outdated
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.consumers import MOST_TEMPORARY, Consumers
from gateway.app.requests.messages import LONGEST_DELAY, MessageRules, bounds_of, no_queue
from gateway.app.requests.shared_feeder import SharedFeeder
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.consumer import Terms
from gateway.app.session.session import Session
from gateway.catalogue import queue_metrics as catalogue
from gateway.core.destinations.reserved import RESERVED_LIMITS, TEMPORARY, may_consume, temporary_queue
from gateway.core.session.pending import Work as Asked
from gateway.core.session.server_session import number_used
from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.topics.topics import is_reserved, parse_topic, shown, topic_partition
from gateway.core.topics.work import Work
from gateway.core.types import DeliveryTag, TopicPath
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import (
    Reply,
)
from gateway.core.wire.queue_packets import (
    QUEUES,
    Cancel,
    Consume,
    Declare,
    Send,
    Settle,
    Settlement,
)
from gateway.ports import (
    MOST_CREDIT,
    SETTLE_MOST,
    AttachRefused,
    Fenced,
    GridRefused,
    NotDeclared,
    QueueFull,
    SendCommand,
    SendResult,
    Sent,
    SettleResult,
    SettleStep,
    StagedSend,
    StagedSettle,
)

MOST_QUEUES: Final = 100
"""Queues that one session may consume from: each is looked at whenever its client acknowledges something (P20)."""

STEPS_PER_PACKET: Final = 20
"""Steps of judging in the time that a packet takes to be read and executed, as of a reading of history."""

NAMED: Final = 10
"""Messages that a refusal names; more make it no clearer."""


class Queueing:
    """Does what clients ask of queues.

    Args:
        context: of the node.
        store: where it is written.
        sessions: the sessions held here.
        authorisation: judges it.
        pages: where the events of shared subscriptions are found.

    Attributes:
        consumers: of the sessions held here.
        feeder: of the shared subscriptions that they consume from.
    """

    def __init__(
        self,
        context: Context,
        store: FencedStore,
        sessions: Sessions,
        authorisation: Authorisation,
        pages: HistoryPages,
    ) -> None:
        self._parameters = context.parameters
        self._limits = context.limits
        self._metrics = context.metrics
        self._traffic = context.journal.queues
        self._clock = context.clock
        self._destinations = context.destinations
        self._store = store
        self._authorisation = authorisation
        self._rules = MessageRules(context, authorisation)
        replicas = sessions.delivery.replicas
        self.feeder = SharedFeeder(context, store, pages, replicas, bounds_of(RESERVED_LIMITS))
        self.consumers = Consumers(context, store, sessions, self.feeder)
        authorisation.tell_of_change(self.review)

    async def execute(self, session: Session, run: Sequence[Asked]) -> None:
        """Do what one request, or a run of one kind, asks for; see the methods of these.

        Raises:
            RequestRefused: of one that is no run.
            Outdated, SessionLost, GridUnavailable: as of ``send``.
        """
        match run[0]:
            case Send():
                await self.send(session, [work for work in run if isinstance(work, Send)])
            case Settle():
                await self.settle(session, [work for work in run if isinstance(work, Settle)])
            case Consume() as request:
                await self.consume(session, request)
            case Cancel() as request:
                await self.cancel(session, request)
            case Declare() as request:
                await self.declare(session, request)
            case _:
                raise AssertionError(f"{type(run[0]).__name__} is not about queues")

    # --- Send ---------------------------------------------------------------------------------------------------------

    async def send(self, session: Session, run: Sequence[Send]) -> None:
        """Send a run of messages; refusals are answered when the fate of the others is known, so that they come once.

        Raises:
            Outdated, SessionLost: see ``fencing``.
            GridUnavailable: some may have been sent; asking again does no harm.
            GridRefused: nothing was sent.
        """
        refused: list[tuple[Send, RequestRefused]] = []
        accepted: list[Send] = []
        commands: list[SendCommand] = []
        touched: set[int] = set()
        for request in run:
            try:
                command = self._command(session, request, touched)
            except RequestRefused as reason:
                refused.append((request, reason.with_traceback(None)))
            else:
                accepted.append(request)
                commands.append(command)
        if commands:
            if not self._store.is_ready(session, touched):
                try:
                    await self._store.prepare(session, touched)
                finally:
                    self._limits.recount(session)
                # What it was made ready for may be a newer claim of it.
                commands = [each._replace(ownership=session.ownership) for each in commands]
            self._answer(session, accepted, commands, await self._store.send(commands))
        for request, refusal in refused:
            self._metrics.add(catalogue.QUEUE_SENDS, label="refused")
            session.decline(request.request, refusal)

    def staged_send(self, session: Session, request: Send) -> StagedSend:
        """Make of a message what its transaction does.

        Raises:
            RequestRefused: it cannot be sent.
        """
        queue, headers, bounds, expires = self._rules.check(session, request)
        return StagedSend(queue, request.value, headers, bounds, request.delay, expires)

    def _command(self, session: Session, request: Send, touched: set[int]) -> SendCommand:
        queue, headers, bounds, expires = self._rules.check(session, request)
        partition = topic_partition(queue, self._parameters.topic_depth)
        known = session.publish_partitions | touched
        if partition not in known:
            self._limits.check_receipts(session, len(known) + 1)
        touched.add(partition)
        return SendCommand(
            ownership=session.ownership,
            request=request.request,
            settled=session.settled(),
            queue=queue,
            value=request.value,
            headers=headers,
            bounds=bounds,
            delay=request.delay,
            expires=expires,
            stored=self._store.replicated,
        )

    def _answer(
        self,
        session: Session,
        run: Sequence[Send],
        commands: Sequence[SendCommand],
        results: Sequence[SendResult],
    ) -> None:
        ownership = commands[0].ownership
        fenced = next((each for each in results if isinstance(each, Fenced)), None)
        if fenced is not None and self._store.is_outdated(session, ownership):
            raise Outdated
        for request, result in zip(run, results, strict=True):
            if isinstance(result, GridRefused) and request.resubmitted:
                raise result  # another node may have executed it (protocol 5.2.4)
        for request, result in zip(run, results, strict=True):
            match result:
                case Fenced():
                    raise self._store.lost(session, ownership, result)
                case GridRefused():
                    session.decline_for_now(request.request, str(result))
                case Sent(_, True) | QueueFull(True) if not request.resubmitted:
                    session.decline(request.request, number_used(request.request))
                case Sent(message, duplicate):
                    self._count(request, duplicate=duplicate)
                    session.reply(Reply(request=request.request, sent=message))
                case NotDeclared() | QueueFull():
                    self._decline_send(session, request, result)

    def _decline_send(self, session: Session, request: Send, result: NotDeclared | QueueFull) -> None:
        if isinstance(result, NotDeclared):
            session.decline(request.request, no_queue(result.queue))
            return
        self._metrics.add(catalogue.QUEUE_SENDS, label="full")
        why = f"the queue {shown(request.queue)} is full; the message was not sent"
        session.decline(request.request, RequestRefused(why, code=ErrorCode.QUEUE_FULL))

    def _count(self, request: Send, *, duplicate: bool) -> None:
        self._metrics.add(catalogue.QUEUE_SENDS, label="duplicate" if duplicate else "sent")
        if self._traffic is not None and not duplicate:
            self._traffic.sent(TopicPath(request.queue))

    # --- Consume and cancel -------------------------------------------------------------------------------------------

    async def consume(self, session: Session, request: Consume) -> None:
        """Let a session consume.

        Raises:
            RequestRefused: it may not.
            Outdated, SessionLost, GridUnavailable: as of ``send``.
        """
        queue, limits = self._rules.find(request.queue, consumes=True)
        if QUEUES not in session.supports:
            raise RequestRefused(f"a client that consumes names {QUEUES!r} in 'supports' of its hello and resume")
        if not self._store.replicated:
            raise RequestRefused(
                "sessions are not replicated here, so that nobody would give back what they hold",
                code=ErrorCode.NOT_REPLICATED,
            )
        permissions = session.permissions
        selector = await self._check_consume(session, queue)
        consumers = session.consumers or {}
        if queue not in consumers and len(consumers) >= MOST_QUEUES:
            raise RequestRefused(
                f"the session consumes from {MOST_QUEUES} queues already", code=ErrorCode.TOO_MANY_CONSUMERS
            )
        await self._prepare(session, queue)
        terms = Terms(request.mode, min(request.credit, MOST_CREDIT), bounds_of(limits))
        refused = await self.consumers.attach(
            session, queue, terms, selector=selector, declares=session.permissions.declare
        )
        if refused is AttachRefused.ABSENT:
            raise no_queue(queue)
        if refused is not None:
            what = "consumers" if refused is AttachRefused.CONSUMERS else "queues beside it"
            raise RequestRefused(
                f"the queue {shown(queue)} has as many {what} as it may have", code=ErrorCode.TOO_MANY_CONSUMERS
            )
        if session.permissions is not permissions:
            # Whoever judged the session when the right went may not have found the consumer yet.
            await self._check_consume(session, queue)
        session.reply(Reply(request=request.request))

    def review(self, session: Session) -> None:
        """Take from a session the consumers that it may not have any more, and tell its client."""
        consumers = (session.consumers or {}).values()
        withdrawn = [
            each for each in consumers if not each.is_withdrawn and not self._authorisation.may_go_on(session, each)
        ]
        if withdrawn:
            self.consumers.withdraw(session, withdrawn)
            self._authorisation.declare_consumers(session, [each.queue for each in withdrawn])

    async def declare(self, session: Session, request: Declare) -> None:
        """Make a temporary queue; its number is that of the request, so that it is made once.

        Raises:
            RequestRefused: the session may declare none, or no more.
            Outdated, SessionLost, GridUnavailable: as of ``send``.
        """
        if not self._store.replicated:
            raise RequestRefused("sessions are not replicated here", code=ErrorCode.NOT_REPLICATED)
        self._authorisation.check_declare(session)
        queue = temporary_queue(session.id, request.request)
        await self._prepare(session, queue)
        if not await self._store.declare_queue(session, queue, bounds_of(RESERVED_LIMITS), most=MOST_TEMPORARY):
            raise RequestRefused(
                f"the session has {MOST_TEMPORARY} temporary queues, or their partition as many queues as it may have",
                code=ErrorCode.TOO_MANY_CONSUMERS,
            )
        session.reply(Reply(request=request.request, queue=queue))

    async def _check_consume(self, session: Session, queue: TopicPath) -> Selector | None:
        """Judge a consumer, and return the selector of its topics if it is one of a shared subscription.

        A session that may not consume leaves: it may have consumed elsewhere, or before its right was withdrawn, and
        what it holds shall not stay with it.
        """
        if is_reserved(queue) and not may_consume(queue, principal=session.principal, session=session.id):
            raise RequestRefused(f"the queue {shown(queue)} is another one's", code=ErrorCode.FORBIDDEN)
        if queue.startswith(TEMPORARY):
            return None
        selector = parse_selector((await self.feeder.look(queue)).selector) if is_reserved(queue) else None
        try:
            self._judge(session, queue, selector)
        except RequestRefused:
            await self.consumers.leave(session, queue)
            raise
        return selector

    def _judge(self, session: Session, queue: TopicPath, selector: Selector | None) -> None:
        if selector is None:
            self._authorisation.check_consume(session, queue)
            return
        judging = Work()
        try:
            self._authorisation.check_select(session, selector, judging)
        finally:
            self._limits.charge_work(session, judging.taken // STEPS_PER_PACKET)

    async def cancel(self, session: Session, request: Cancel) -> None:
        """Let a session consume no more; no error if it does not.

        Raises:
            RequestRefused: the queue has no valid path.
            Outdated, SessionLost, GridUnavailable: as of ``send``.
        """
        await self.consumers.leave(session, parse_topic(request.queue))
        session.reply(Reply(request=request.request))

    # --- Settle -------------------------------------------------------------------------------------------------------

    async def settle(self, session: Session, run: Sequence[Settle]) -> None:
        """Settle what a session holds; all are answered when the fate of all is known.

        Raises:
            Outdated, SessionLost, GridUnavailable: as of ``send``.
        """
        answers: list[tuple[Settle, SettleResult | RequestRefused]] = []
        for name, requests in groupby(run, key=lambda request: request.queue):
            asked = list(requests)
            try:
                queue = self._checked(session, name, asked)
            except RequestRefused as reason:
                answers += [(request, reason.with_traceback(None)) for request in asked]
                continue
            await self._prepare(session, queue)
            for step in _steps(asked):
                answers += zip(step, await self._settle(session, queue, step), strict=True)
        for request, answer in answers:
            self._reply(session, request, answer)

    def _checked(self, session: Session, name: str, run: Sequence[Settle]) -> TopicPath:
        if not self._store.replicated or QUEUES not in session.supports:
            raise RequestRefused("the session consumes nothing, and holds nothing", code=ErrorCode.NOT_HELD)
        if any(len(each.messages) > SETTLE_MOST or each.delay > LONGEST_DELAY for each in run):
            raise RequestRefused(f"a request settles {SETTLE_MOST} messages at most, and delays them by a year at most")
        return parse_topic(name)

    async def _settle(self, session: Session, queue: TopicPath, run: Sequence[Settle]) -> list[SettleResult]:
        consumer = None if session.consumers is None else session.consumers.get(queue)
        steps = tuple(
            SettleStep(
                each.request,
                each.outcome,
                tuple((tag, message) for message, tag in each.messages),
                self._delay(queue, each),
            )
            for each in run
        )
        seen = max((tag for step in steps for tag, _ in step.messages), default=DeliveryTag(0))
        if consumer is not None:
            consumer.seen = seen = max(seen, consumer.seen)
        results = await self._store.settle(session, queue, seen, steps)
        if self._traffic is not None:
            now = self._clock.wall()
            for step, result in zip(steps, results, strict=True):
                if not result.duplicate:
                    missing = set(result.not_held)
                    tags = [tag for tag, message in step.messages if message not in missing]
                    ages = [None if consumer is None else consumer.age(tag, now) for tag in tags]
                    self._traffic.settled(queue, step.outcome, ages)
        if consumer is not None:
            consumer.forget([tag for step in steps for tag, _ in step.messages])
        self.feeder.settled(queue)
        return results

    def staged_settle(self, session: Session, request: Settle) -> StagedSettle:
        """Make of a settlement what its transaction does.

        Raises:
            RequestRefused: it cannot be settled.
        """
        queue = self._checked(session, request.queue, [request])
        return StagedSettle(
            queue=queue,
            outcome=request.outcome,
            messages=tuple((tag, message) for message, tag in request.messages),
            delay=self._delay(queue, request),
        )

    def settled(self, session: Session, operation: StagedSettle) -> None:
        """A transaction has settled what a consumer of this node held."""
        self._metrics.add(catalogue.QUEUE_SETTLEMENTS, len(operation.messages), label=operation.outcome.value)
        if session.consumers is not None and (consumer := session.consumers.get(operation.queue)) is not None:
            consumer.forget([tag for tag, _ in operation.messages])
        self.feeder.settled(operation.queue)

    def _delay(self, queue: TopicPath, request: Settle) -> float:
        limits = self._destinations.queue(queue)
        pause = 0.0 if limits is None else limits.redelivery_delay
        return max(request.delay, pause) if request.outcome is Settlement.RELEASE else 0.0

    def _reply(self, session: Session, request: Settle, answer: SettleResult | RequestRefused) -> None:
        if isinstance(answer, RequestRefused):
            session.decline(request.request, answer)
            return
        settled = 0 if answer.duplicate else len(request.messages) - len(answer.not_held)
        if settled:
            self._metrics.add(catalogue.QUEUE_SETTLEMENTS, settled, label=request.outcome.value)
        if answer.complete:
            session.reply(Reply(request=request.request))
            return
        named = ", ".join(map(str, answer.not_held[:NAMED])) or "some of them"
        message = f"the session does not hold all of these messages of {shown(request.queue)}: {named}"
        session.decline(request.request, RequestRefused(message, code=ErrorCode.NOT_HELD))

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _prepare(self, session: Session, queue: TopicPath) -> None:
        """Write ahead that the session leaves something in the queue's partition (P7)."""
        partition = topic_partition(queue, self._parameters.topic_depth)
        if not self._store.is_ready(session, {partition}):
            if partition not in session.publish_partitions:
                self._limits.check_receipts(session, len(session.publish_partitions) + 1)
            try:
                await self._store.prepare(session, {partition})
            finally:
                self._limits.recount(session)


def _steps(run: Sequence[Settle]) -> Iterator[list[Settle]]:
    """Part requests into what one step of the grid takes."""
    step: list[Settle] = []
    size = 0
    for each in run:
        if step and size + len(each.messages) > SETTLE_MOST:
            yield step
            step, size = [], 0
        step.append(each)
        size += len(each.messages)
    yield step
