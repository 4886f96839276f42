"""Ask, await: what clients ask that put questions (protocol 18.3, 18.5).

```text
client ──ask──▶ grid: a handler is given it ──▶ reply
                 │
                 └──▶ it is over ──▶ exchanges ──▶ read ──▶ packet ──▶ client ──acknowledges──▶ forgotten
```

A question and its answer are in the grid. What is kept here is which of them the clients of this node wait for, and is
nothing that goes along with a session: a client says what it waits for where it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.followed_partitions import FollowedPartitions
from gateway.app.requests.handling import exchange_of, write_text
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.exchange import Asked, Exchange
from gateway.app.session.session import Session
from gateway.catalogue import exchange_metrics as catalogue
from gateway.core.session.server_session import number_used
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.stream.transitions import State
from gateway.core.topics.selector_map import SelectorMap
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import is_reserved, parse_topic, shown, topic_partition
from gateway.core.types import RequestNumber, SessionId, TopicPath
from gateway.core.wire.codec import encode_answered
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import InvalidSelector, RequestRefused
from gateway.core.wire.exchange_packets import AWAIT_MOST, QUESTIONS, Answered, Ask, Await
from gateway.core.wire.packets import Reply
from gateway.ports import (
    ASK_MOST,
    TAKE_WITHIN,
    AnswerRead,
    AnswersRead,
    AnswerState,
    AskedAll,
    AskResult,
    AskState,
    Given,
    GridRefused,
    GridUnavailable,
    HandlerSelectors,
    Over,
    QuestionStep,
)

SHORTEST_TIMEOUT: Final = 0.05
"""Seconds; below, no answer could have come in time."""

MOST_MATCHING: Final = 32
"""Selectors by which the handlers of one question are found, the longest first: each costs the grid microseconds."""

REVISIONS: Final = 10
"""Times that a question is put anew because the handlers of its partition have changed; then they are called busy."""

READ_MOST: Final = 16
"""Answers that are read in one step, with the largest values by default half a mebibyte."""

DUE_AFTER: Final = 0.02
"""Seconds after a deadline at which it is looked after: clocks of nodes and of the grid go apart a little."""

_REFUSALS: Final[dict[AskState, tuple[ErrorCode, str, str]]] = {
    AskState.NO_HANDLER: (ErrorCode.NO_HANDLER, "nobody who is there handles", "no_handler"),
    AskState.BUSY: (ErrorCode.HANDLERS_BUSY, "there are too many questions at a time for who handles", "busy"),
    AskState.FULL: (
        ErrorCode.TOO_MANY_QUESTIONS,
        "there is no room (limit_partition_questions, limit_partition_question_bytes) until others are answered for",
        "full",
    ),
}

_ENDS: Final[dict[AnswerState, tuple[ErrorCode, str, bool, str]]] = {
    AnswerState.TIMED_OUT: (ErrorCode.QUESTION_TIMEOUT, "nobody was sent the question in time", False, "timed_out"),
    AnswerState.TIMED_OUT_TAKEN: (ErrorCode.QUESTION_TIMEOUT, "its handler did not answer in time", True, "timed_out"),
    AnswerState.LOST: (ErrorCode.HANDLER_LOST, "the session for which it was has ended", False, "handler_lost"),
    AnswerState.LOST_TAKEN: (ErrorCode.HANDLER_LOST, "the session that had it has ended", True, "handler_lost"),
    AnswerState.TOO_LARGE: (ErrorCode.ANSWER_LOST, "there was no room for the answer", True, "answer_lost"),
    AnswerState.UNKNOWN: (ErrorCode.ANSWER_LOST, "the grid does not know the question any more", True, "answer_lost"),
}


class _Selectors:
    """The selectors of a partition's handlers, as a node knows them.

    Args:
        told: by the grid.
    """

    def __init__(self, told: HandlerSelectors) -> None:
        self.revision = told.revision
        self._map: SelectorMap[str] = SelectorMap()
        for text in told.selectors:
            try:
                self._map.setdefault(parse_selector(text), lambda selector: selector.text)
            except InvalidSelector:
                continue  # of a later release, or no gateway's

    def matching(self, path: TopicPath) -> tuple[str, ...]:
        """Tell which of them match a path."""
        found = self._map.match(path)
        return tuple(sorted(found, key=len, reverse=True)[:MOST_MATCHING])


class Asking:
    """The questions of all sessions of a node.

    Args:
        context: of the node.
        store: where they are put.
        sessions: the sessions held here.
        authorisation: judges what may be asked.
        followed: the partitions that are read.
    """

    def __init__(
        self,
        context: Context,
        store: FencedStore,
        sessions: Sessions,
        authorisation: Authorisation,
        followed: FollowedPartitions[Given | Over],
    ) -> None:
        self._exchanges = context.grid.exchanges
        self._depth = context.parameters.topic_depth
        self._value_bytes = context.parameters.limits.value_bytes
        self._most = context.parameters.limits.questions
        self._most_at_node = context.parameters.exchanges.questions or inf
        self._longest = context.parameters.exchanges.longest
        self._limits = context.limits
        self._background = context.background
        self._metrics = context.metrics
        self._clock = context.clock
        self._store = store
        self._sessions = sessions
        self._authorisation = authorisation
        self._followed = followed
        self._selectors: dict[int, _Selectors] = {}
        self._open: dict[int, dict[tuple[SessionId, RequestNumber], Asked]] = {}
        """What is not over, by partition, the oldest first."""
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._count = 0
        context.metrics.watch(catalogue.QUESTIONS_OPEN, lambda: self._count)

    # --- Asked --------------------------------------------------------------------------------------------------------

    async def ask(self, session: Session, run: Sequence[Ask]) -> None:
        """Put questions; all are replied to when the fate of all is known.

        Raises:
            Outdated, SessionLost, GridUnavailable: see ``fencing``; some may have been put, and asking again does no
                harm.
        """
        results: list[tuple[Ask, AskResult | RequestRefused | GridRefused]] = []
        by_partition: dict[int, list[Ask]] = {}
        room = self._most - (len(session.exchange.asked) if session.exchange is not None else 0)
        for request in run:
            try:
                partition = self._checked(session, request, room)
            except RequestRefused as refused:
                results.append((request, refused.with_traceback(None)))
            else:
                room -= 1
                by_partition.setdefault(partition, []).append(request)
        if by_partition:
            await self._prepare(session, set(by_partition))
        for partition, asked in by_partition.items():
            with self._followed.expecting(partition):
                for start in range(0, len(asked), ASK_MOST):
                    results += await self._put_some(session, partition, asked[start : start + ASK_MOST])
        for request, result in results:
            self._reply(session, request, result)

    def refused(self, session: Session, run: Sequence[Ask]) -> None:
        """Requests have been refused although some of their questions may have been put: nobody waits for these."""
        exchange = session.exchange
        if exchange is None:
            return
        for request in run:
            asked = exchange.asked.get(request.request)
            if asked is not None and not asked.replied:
                del exchange.asked[request.request]
                self._count -= 1
                self._close(session, request.request, asked)
                self._leave(session, exchange, asked.partition)

    async def _put_some(
        self, session: Session, partition: int, run: Sequence[Ask]
    ) -> list[tuple[Ask, AskResult | RequestRefused | GridRefused]]:
        try:
            told = await self._put(session, partition, run)
        except GridRefused as refused:
            if any(request.resubmitted for request in run):
                raise
            return [(request, refused) for request in run]
        # Before anything else is waited for, and before the replies: what is told meanwhile is for these.
        self._begin(session, partition, run, told)
        return list(zip(run, told.results, strict=True))

    def _checked(self, session: Session, request: Ask, room: int) -> int:
        if QUESTIONS not in session.supports:
            raise RequestRefused(f"a client that asks names {QUESTIONS!r} in 'supports' of its hello and resume")
        if not self._store.replicated:
            raise RequestRefused("sessions are not replicated here", code=ErrorCode.NOT_REPLICATED)
        path = parse_topic(request.path)
        if is_reserved(path):
            raise RequestRefused("nobody answers anything below '$'", code=ErrorCode.BAD_TOPIC)
        if len(request.value) > self._value_bytes:
            raise RequestRefused(
                f"the value has {len(request.value)} bytes; limits.value_bytes is {self._value_bytes}",
                code=ErrorCode.VALUE_TOO_LARGE,
            )
        if not SHORTEST_TIMEOUT <= request.timeout <= self._longest:
            raise RequestRefused(
                f"a timeout is from {SHORTEST_TIMEOUT:g} to {self._longest:g} seconds (question_timeout_maximum); ask "
                "for an answer within them, or send what takes longer to a queue"
            )
        addressed = request.principal is not None or request.session is not None
        self._authorisation.check_request(session, path, addressed=addressed)
        if not request.resubmitted and room <= 0:
            self._limits.exceeded("limit_questions", session.principal)
            raise RequestRefused(
                f"limit_questions: the session has {self._most} questions without an answer, as many as it may; wait "
                "for some of them",
                code=ErrorCode.TOO_MANY_QUESTIONS,
            )
        if not request.resubmitted and self._count >= self._most_at_node:
            self._limits.exceeded("limit_node_questions", session.principal)
            raise RequestRefused(
                f"limit_node_questions: this node has {self._most_at_node} questions without an answer, as many as it "
                "may; ask again when some are answered",
                code=ErrorCode.TOO_MANY_QUESTIONS,
            )
        return topic_partition(path, self._depth)

    async def _put(self, session: Session, partition: int, run: Sequence[Ask]) -> AskedAll:
        for _ in range(REVISIONS):
            known = self._selectors.get(partition)
            steps = tuple([_step(session, request, known) for request in run])
            told = await self._store.ask(session, partition, "" if known is None else known.revision, steps)
            if isinstance(told, AskedAll):
                return told
            self._selectors[partition] = _Selectors(told)
        raise GridRefused("the handlers of this partition change all the time")

    def _begin(self, session: Session, partition: int, run: Sequence[Ask], told: AskedAll) -> None:
        now = self._clock.monotonic()
        exchange = exchange_of(session)
        for request, result in zip(run, told.results, strict=True):
            if result.state is AskState.PUT and (not result.duplicate or request.resubmitted):
                asked = Asked(partition, told.position, now, now + request.timeout)
                self._enter(session, exchange, request.request, asked)

    def _enter(self, session: Session, exchange: Exchange, number: RequestNumber, asked: Asked) -> None:
        if number in exchange.asked or session.dropped:
            return
        exchange.asked[number] = asked
        self._count += 1
        self._open.setdefault(asked.partition, {})[session.id, number] = asked
        for item in self._followed.enter(session, asked.partition, asked.position):
            if isinstance(item, Over) and item.asker == session.id:
                self._ended(session, exchange, item.partition, item.number)
        self._arm(asked.partition, min(TAKE_WITHIN, asked.deadline - asked.since + DUE_AFTER))

    def _replied(self, session: Session, request: Ask) -> None:
        """A question has its reply: what became of it may be told from now on, and may have happened already."""
        exchange = session.exchange
        asked = None if exchange is None else exchange.asked.get(request.request)
        if exchange is not None and asked is not None:
            asked.replied = True
            if asked.over or request.resubmitted:  # put long ago, perhaps
                self._ended(session, exchange, asked.partition, request.request)

    def _reply(self, session: Session, request: Ask, result: AskResult | RequestRefused | GridRefused) -> None:
        match result:
            case RequestRefused():
                self._metrics.add(catalogue.QUESTIONS_ASKED, label="refused")
                session.decline(request.request, result)
            case GridRefused():
                session.decline_for_now(request.request, str(result))
            case AskResult(_, True) if not request.resubmitted:
                session.decline(request.request, number_used(request.request))
            case AskResult(AskState.PUT, duplicate):
                self._metrics.add(catalogue.QUESTIONS_ASKED, label="duplicate" if duplicate else "put")
                session.reply(Reply(request=request.request))
                self._replied(session, request)
            case AskResult(AskState.FORGOTTEN):
                session.reply(Reply(request=request.request))
                self._tell(session, request.request, AnswerRead(AnswerState.UNKNOWN, b"", 0.0))
            case AskResult(state):
                code, why, label = _REFUSALS[state]
                self._metrics.add(catalogue.QUESTIONS_ASKED, label=label)
                session.decline(
                    request.request, RequestRefused(f"{why} {shown(request.path)}; it was not put", code=code)
                )

    async def wait(self, session: Session, request: Await) -> None:
        """Tell the answers to what a session asked before, when there are any.

        Raises:
            RequestRefused: there are too many, or they have no paths.
            SessionLost, GridUnavailable: as of ``ask``.
        """
        if QUESTIONS not in session.supports or len(request.asks) > AWAIT_MOST:
            raise RequestRefused(
                f"a client names {QUESTIONS!r} in 'supports', and asks for {AWAIT_MOST} answers at most in one request"
            )
        by_partition: dict[int, list[RequestNumber]] = {}
        for number, path in request.asks:
            by_partition.setdefault(topic_partition(parse_topic(path), self._depth), []).append(number)
        found: list[tuple[int, list[RequestNumber], AnswersRead]] = []
        exchange = exchange_of(session)
        for partition, numbers in by_partition.items():
            with self._followed.expecting(partition):
                read = await self._exchanges.read(session.id, partition, numbers)
                found.append((partition, numbers, read))
                now = self._clock.monotonic()
                for number, answer in zip(numbers, read.answers, strict=True):
                    if answer.state is not AnswerState.UNKNOWN:
                        asked = Asked(partition, read.position, now, now + answer.left, replied=True)
                        self._enter(session, exchange, number, asked)
        session.reply(Reply(request=request.request))
        for _, numbers, read in found:
            for number, answer in zip(numbers, read.answers, strict=True):
                if answer.state is not AnswerState.WAITING:
                    self._tell(session, number, answer)

    # --- Over ---------------------------------------------------------------------------------------------------------

    def over(self, item: Over) -> None:
        """A question is over."""
        session = self._sessions.get(item.asker)
        if session is not None and session.exchange is not None:
            self._ended(session, session.exchange, item.partition, item.number)

    def _ended(self, session: Session, exchange: Exchange, partition: int, number: RequestNumber) -> None:
        asked = exchange.asked.get(number)
        if asked is None or asked.packet is not None or not asked.may_be_told():
            return
        exchange.ended.setdefault(partition, []).append(number)
        if partition not in exchange.reading:
            exchange.reading.add(partition)
            self._background.once(self._read(session, exchange, partition), f"read-answers-{session.id}")

    async def _read(self, session: Session, exchange: Exchange, partition: int) -> None:
        """Read how questions ended, and tell the client."""
        try:
            while exchange.ended.get(partition) and session.exchange is exchange and not session.dropped:
                waiting = exchange.ended[partition]
                numbers, exchange.ended[partition] = waiting[:READ_MOST], waiting[READ_MOST:]
                try:
                    read = await self._exchanges.read(session.id, partition, numbers)
                except GridUnavailable:
                    exchange.ended[partition][:0] = numbers
                    await self._store.until_available()
                    continue
                if session.exchange is not exchange or session.dropped:
                    return
                for number, answer in zip(numbers, read.answers, strict=True):
                    if answer.state is not AnswerState.WAITING:
                        self._tell(session, number, answer)
        finally:
            exchange.reading.discard(partition)
            exchange.ended.pop(partition, None)

    def _tell(self, session: Session, number: RequestNumber, answer: AnswerRead) -> None:
        exchange = exchange_of(session)
        asked = exchange.asked.get(number)
        if asked is not None and (asked.packet is not None or not asked.may_be_told()):
            return
        if answer.state is AnswerState.VALUE:
            body = encode_answered(Answered(ask=number), answer.text)
            outcome = "answered"
        elif answer.state is AnswerState.FAILED:
            body = encode_answered(Answered(ask=number, error=ErrorCode.HANDLER_FAILED, message=_failure(answer.text)))
            outcome = "failed"
        else:
            code, why, uncertain, outcome = _ENDS[answer.state]
            body = encode_answered(Answered(ask=number, error=code, message=why, uncertain=uncertain))
        self._metrics.add(catalogue.QUESTIONS_ENDED, label=outcome)
        machine = session.machine
        machine.submit_run(Run((Outgoing(None, body),)))
        if asked is not None:
            asked.packet = machine.last_numbered + machine.waiting
            self._close(session, number, asked)
            if answer.state is AnswerState.VALUE:
                self._metrics.observe(catalogue.QUESTION_SECONDS, self._clock.monotonic() - asked.since)
        self._sessions.flusher.mark(session)

    def acknowledged(self, session: Session, exchange: Exchange) -> None:
        """The client of a session has said something: forget what it knows the end of."""
        machine = session.machine
        if machine.state is State.GAP or not exchange.asked:
            return
        upto = machine.oldest - 1 if machine.waiting or machine.unacknowledged else inf
        known = [
            number for number, asked in exchange.asked.items() if asked.packet is not None and asked.packet <= upto
        ]
        by_partition: dict[int, list[RequestNumber]] = {}
        for number in known:
            asked = exchange.asked.pop(number)
            self._count -= 1
            by_partition.setdefault(asked.partition, []).append(number)
        for partition, numbers in by_partition.items():
            self._leave(session, exchange, partition)
            self._background.once(self._forget_answers(session.id, partition, numbers), f"forget-answers-{session.id}")

    async def _forget_answers(self, session: SessionId, partition: int, numbers: list[RequestNumber]) -> None:
        try:
            await self._exchanges.forget(session, partition, numbers)
        except GridUnavailable:
            return  # they are forgotten by themselves when their time is over

    # --- Due ----------------------------------------------------------------------------------------------------------

    def _arm(self, partition: int, delay: float) -> None:
        """Look after a partition in so many seconds, or earlier if that is intended already."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(partition)
        if timer is not None:
            if timer.when() <= loop.time() + delay:
                return
            timer.cancel()
        self._timers[partition] = loop.call_later(delay, self._look_after, partition)

    def _look_after(self, partition: int) -> None:
        """Have done what is due, if there may be something: not while questions are answered within a second (P11)."""
        del self._timers[partition]
        waiting = self._open.get(partition)
        if not waiting:
            return
        now = self._clock.monotonic()
        deadline = min(asked.deadline for asked in waiting.values())
        oldest = next(iter(waiting.values())).since
        if deadline <= now or now - oldest >= TAKE_WITHIN:
            self._background.once(self._fire(partition), f"questions-due-{partition}")
        until_due = deadline + DUE_AFTER - now
        self._arm(partition, max(DUE_AFTER, min(TAKE_WITHIN, until_due)))

    async def _fire(self, partition: int) -> None:
        try:
            await self._exchanges.fire(partition)
        except GridUnavailable:
            return  # looked after again in a moment

    # --- Ended here ---------------------------------------------------------------------------------------------------

    def lost(self, session: Session, partition: int) -> None:
        """The grid has lost writes, or this node its place: ask what has become of what a session asked."""
        self._background.once(self._ask_again(session, partition), f"asked-{session.id}")

    async def _ask_again(self, session: Session, partition: int) -> None:
        exchange = session.exchange
        while exchange is not None and session.exchange is exchange and not session.dropped:
            numbers = [
                number
                for number, asked in exchange.asked.items()
                if asked.partition == partition and asked.packet is None
            ]
            if not numbers:
                return
            with self._followed.expecting(partition):
                try:
                    read = await self._exchanges.read(session.id, partition, numbers)
                except GridUnavailable:
                    await self._store.until_available()
                    continue
                self._followed.enter(session, partition, read.position)
                for number, answer in zip(numbers, read.answers, strict=True):
                    if answer.state is not AnswerState.WAITING:
                        self._tell(session, number, answer)
            return

    def forget(self, session: Session, exchange: Exchange) -> None:
        """The session is not this node's any more, or its client says again what it waits for."""
        partitions = set()
        for number, asked in exchange.asked.items():
            partitions.add(asked.partition)
            if asked.packet is None:
                self._close(session, number, asked)
        self._count -= len(exchange.asked)
        exchange.asked.clear()
        for partition in partitions:
            self._leave(session, exchange, partition)

    def _close(self, session: Session, number: RequestNumber, asked: Asked) -> None:
        waiting = self._open.get(asked.partition)
        if waiting is not None:
            waiting.pop((session.id, number), None)
            if not waiting:
                del self._open[asked.partition]

    def _leave(self, session: Session, exchange: Exchange, partition: int) -> None:
        if partition not in exchange.handlers and not any(
            asked.partition == partition for asked in exchange.asked.values()
        ):
            self._followed.leave(session, partition)

    async def _prepare(self, session: Session, partitions: Iterable[int]) -> None:
        """Write ahead that the session leaves something in partitions (P7)."""
        wanted = set(partitions)
        if not self._store.is_ready(session, wanted):
            fresh = wanted - session.publish_partitions
            if fresh:
                self._limits.check_receipts(session, len(session.publish_partitions) + len(fresh))
            try:
                await self._store.prepare(session, wanted)
            finally:
                self._limits.recount(session)


def _step(session: Session, request: Ask, known: _Selectors | None) -> QuestionStep:
    path = TopicPath(request.path)
    return QuestionStep(
        request=request.request,
        selectors=() if known is None else known.matching(path),
        text=write_text(path, session.principal, request.value),
        timeout=request.timeout,
        principal=request.principal,
        session=None if request.session is None else SessionId(request.session),
    )


def _failure(text: bytes) -> str:
    """Read why there is no answer: a JSON text of this node's release, or whatever it is."""
    return text.decode(errors="replace").strip('"')
