"""Handle, unhandle, answer: what clients ask that answer questions (protocol 18.2, 18.4).

```text
exchanges ──▶ given ──▶ take, as fast as the client reads ──▶ packets ──▶ client
                                                                            │ answer
grid ◀──────────────────────────────────────────────────────────────────────┘
```

What a session handles is written ahead, in its record, before the partition of each selector is told. So whoever goes
on with the session tells the partitions anew, and is told what the session has. An idle handler costs nothing (P11).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.fencing import Outdated, SessionLost
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.followed_partitions import FollowedPartitions
from gateway.app.requests.turns import STEPS_PER_PACKET
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.exchange import Exchange, Handler, Told
from gateway.app.session.session import Session
from gateway.catalogue import exchange_log_events as events
from gateway.catalogue import exchange_metrics as catalogue
from gateway.core.session.server_session import number_used
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.stream.transitions import State
from gateway.core.topics.selectors import Selector, parse_selector, partitions
from gateway.core.topics.topics import TOPIC_PARTITIONS, is_reserved, shown
from gateway.core.topics.work import Work
from gateway.core.types import RequestNumber, SessionId
from gateway.core.wire.codec import encode_question, json_text
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.exchange_packets import QUESTIONS, Answer, Handle, Question, Unhandle
from gateway.core.wire.packets import Reply
from gateway.ports import (
    ASK_MOST,
    MOST_CONCURRENCY,
    AnswerResult,
    AnswerStep,
    Given,
    GridRefused,
    GridUnavailable,
    Handled,
    Handling,
    HandlingRefused,
    HeldQuestion,
    Over,
    TakenQuestion,
)

FAILURE_BYTES: Final = 1024
"""Bytes of UTF-8 of why there is no answer."""

PAGE: Final = 16
"""Questions that are taken in one step; with the largest values by default half a mebibyte."""

WAITING_MOST: Final = 16
"""Packets that may wait in a session's outbox for questions to be added, as of messages of queues."""

BLOCKED: Final = 0.01
"""Seconds after which it is looked again whether the client has taken something, likewise."""

_ID_PARTS: Final = 4
"""Of the id of a question: partition, tag, number, session."""


class QuestionHandling:
    """The handlers of all sessions of a node.

    Args:
        context: of the node.
        store: where it is written.
        sessions: the sessions held here.
        authorisation: judges what may be handled.
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
        self._depth = context.parameters.topic_depth
        self._value_bytes = context.parameters.limits.value_bytes
        self._most = context.parameters.limits.handlers
        self._limits = context.limits
        self._background = context.background
        self._metrics = context.metrics
        self._log = context.log
        self._store = store
        self._sessions = sessions
        self._authorisation = authorisation
        self._followed = followed
        self._count = 0
        context.metrics.watch(catalogue.HANDLERS, lambda: self._count)

    # --- Begun and ended ----------------------------------------------------------------------------------------------

    async def handle(self, session: Session, request: Handle) -> None:
        """Let a session handle questions.

        Raises:
            RequestRefused: it may not.
            Outdated, SessionLost, GridUnavailable: see ``fencing``; it may have been done.
        """
        selector, partition = self._selector(request.selector)
        if QUESTIONS not in session.supports:
            raise RequestRefused(f"a client that handles questions names {QUESTIONS!r} in 'supports'")
        if not self._store.replicated:
            raise RequestRefused("sessions are not replicated here", code=ErrorCode.NOT_REPLICATED)
        work = Work()
        try:
            self._authorisation.check_handle(session, selector, work)
        finally:
            self._limits.charge_work(session, work.taken // STEPS_PER_PACKET)
        before = session.handlers
        handlers = {**before, selector.text: min(request.concurrency, MOST_CONCURRENCY)}
        if len(handlers) > max(self._most, len(before)):
            self._limits.exceeded("limit_handlers", session.principal)
            raise RequestRefused(
                f"limit_handlers: the session handles {len(before)} selectors; limits.handlers is {self._most}. Use "
                "wider selectors, or handle less first.",
                code=ErrorCode.TOO_MANY_HANDLERS,
            )
        self._limits.check_handlers(session, handlers)
        try:
            await self._prepare(session, partition)
            await self._store.handle(session, handlers)
        finally:
            self._limits.recount(session)
        if await self.register(session):
            session.reply(Reply(request=request.request))
            return
        await self._store.handle(session, before)
        await self.register(session)
        raise RequestRefused(
            f"there are as many handlers in the partition of {shown(selector.text)} as there may be",
            code=ErrorCode.TOO_MANY_HANDLERS,
        )

    async def unhandle(self, session: Session, request: Unhandle) -> None:
        """Let a session handle them no more; no error if it does not.

        Raises:
            RequestRefused: the selector is none.
            Outdated, SessionLost, GridUnavailable: as of ``handle``.
        """
        selector, _ = self._selector(request.selector)
        if selector.text in session.handlers:
            handlers = {text: count for text, count in session.handlers.items() if text != selector.text}
            await self._store.handle(session, handlers)
            self._limits.recount(session)
            await self.register(session)
        session.reply(Reply(request=request.request))

    async def register(self, session: Session) -> bool:
        """Tell the partitions what a session handles, as it is now; tells whether all of them had room.

        Raises:
            Outdated, SessionLost, GridUnavailable: as of ``handle``.
        """
        exchange = exchange_of(session)
        complete = True
        async with exchange.registering:
            wanted = self._wanted(session)
            for partition in {*wanted, *exchange.handlers}:
                handling = wanted.get(partition) or _nothing(session)
                complete &= await self._register(session, exchange, partition, handling)
        return complete

    def _wanted(self, session: Session) -> Mapping[int, Handling]:
        """Tell what a session handles in each partition, of what it may: nothing where it may none of it.

        These partitions are told so, too. They may still know the session from a time, or a node, when it might.
        """
        present = session.connected and QUESTIONS in session.supports
        wanted: dict[int, Handling] = {}
        for text, concurrency in session.handlers.items():
            try:
                selector, partition = self._selector(text)
            except RequestRefused:
                continue  # nodes that are configured otherwise by now find its questions elsewhere
            known = wanted.setdefault(partition, _nothing(session))
            if session.permissions.may_handle(selector):
                most = max(known.concurrency, concurrency)
                wanted[partition] = Handling((*known.selectors, selector.text), most, present)
        return wanted

    async def _register(self, session: Session, exchange: Exchange, partition: int, handling: Handling) -> bool:
        handler = exchange.handlers.get(partition)
        if handler is not None and handler.told == (session.epoch, handling):
            return True
        with self._followed.expecting(partition):
            epoch = session.epoch
            answer = await self._store.handle_questions(session, partition, handling)
            if session.dropped or session.exchange is not exchange:
                return True
            if isinstance(answer, HandlingRefused):
                return False
            # The client may have answered meanwhile the last question of what it handles no more.
            handler = exchange.handlers.setdefault(partition, Handler(partition))
            self._told(session, exchange, handler, Told(epoch, handling), answer)
        return True

    def _told(self, session: Session, exchange: Exchange, handler: Handler, told: Told, answer: Handled) -> None:
        self._count += _present(told) - _present(handler.told)
        handler.told, handler.position = told, answer.position
        told_since = self._followed.enter(session, handler.partition, answer.position)
        # What was told before this answer came, and was given after it was made, is not over.
        given = [item.held for item in told_since if isinstance(item, Given) and item.session == session.id]
        held = {each.tag for each in (*answer.held, *given)}
        for tag in [tag for tag in handler.known if tag not in held]:
            del handler.known[tag]
        for each in (*answer.held, *given):
            handler.give(each)
        self._wake(session, handler)
        self._drop_if_done(session, exchange, handler)

    def presence_changed(self, session: Session) -> None:
        """The client of a session that handles questions has come, or gone."""
        self._background.once(self._register_again(session), f"handlers-{session.id}")

    def rights_changed(self, session: Session) -> None:
        """A session may handle something else than before: more of what its record names, or less."""
        if session.handlers:
            self.presence_changed(session)

    def lost(self, session: Session, partition: int) -> None:
        """The grid has lost writes, or this node its place: tell it again what the session handles."""
        if session.exchange is not None and (handler := session.exchange.handlers.get(partition)) is not None:
            self._count -= _present(handler.told)
            handler.told = None
            self.presence_changed(session)

    async def _register_again(self, session: Session) -> None:
        def is_wanted() -> bool:
            return not session.dropped and not self._is_registered(session)

        complete: bool | None = True
        while complete:  # what it handles can have changed meanwhile
            complete = await self._store.until_taken(is_wanted, lambda: self.register(session))
        if complete is False:
            self._log.emit(events.HANDLERS_NOT_RESTORED, session=session.id)

    def _is_registered(self, session: Session) -> bool:
        exchange, wanted = exchange_of(session), self._wanted(session)
        told = {partition: each.told for partition, each in exchange.handlers.items()}
        return told.keys() >= wanted.keys() and all(
            each == (session.epoch, wanted.get(partition) or _nothing(session)) for partition, each in told.items()
        )

    def forget(self, session: Session, exchange: Exchange) -> None:
        """The session is not this node's any more, or it goes on with what the grid holds."""
        for partition, handler in list(exchange.handlers.items()):
            self._count -= _present(handler.told)
            del exchange.handlers[partition]
            self._leave(session, exchange, partition)

    def _leave(self, session: Session, exchange: Exchange, partition: int) -> None:
        if not any(each.partition == partition for each in exchange.asked.values()):
            self._followed.leave(session, partition)

    # --- Given --------------------------------------------------------------------------------------------------------

    def given(self, item: Given) -> None:
        """A session was given a question."""
        session = self._sessions.get(item.session)
        if session is None or session.exchange is None:
            return
        handler = session.exchange.handlers.get(item.partition)
        if handler is not None and (handler.position is None or item.position > handler.position):
            handler.give(item.held)
            self._wake(session, handler)

    def go_on(self, session: Session, exchange: Exchange) -> None:
        """The client has taken something: there may be room for more."""
        for handler in exchange.handlers.values():
            if handler.pending:
                self._wake(session, handler)

    def _wake(self, session: Session, handler: Handler, delay: float = 0.0) -> None:
        """Go on with a handler at the end of this turn of the loop, or later."""
        if handler.pending and not handler.waking:
            handler.waking = True
            asyncio.get_running_loop().call_later(delay, self._go_on, session, handler)

    def _go_on(self, session: Session, handler: Handler) -> None:
        handler.waking = False
        if not self._is_current(session, handler) or session.machine.state is not State.ATTACHED or handler.taking:
            return
        if session.machine.waiting >= WAITING_MOST:
            # What is not taken in time is given to somebody who reads faster.
            self._wake(session, handler, BLOCKED)
        elif handler.pending:
            handler.taking = True
            self._background.once(self._take(session, handler), f"take-questions-{session.id}")

    async def _take(self, session: Session, handler: Handler) -> None:
        """Take the next questions, and send them."""
        page = [handler.pending.popleft() for _ in range(min(PAGE, len(handler.pending)))]
        try:
            taken = await self._until_taken(session, handler, page)
        except SessionLost:
            return
        finally:
            handler.taking = False
        if not self._is_current(session, handler):
            return  # who goes on with the session is told what it has
        found = {each.held.tag for each in taken}
        for each in page:
            if each.tag not in found:
                handler.known.pop(each.tag, None)
        for question in taken:
            self._send(session, handler.partition, question)
        if taken:
            self._metrics.add(catalogue.QUESTIONS_DELIVERED, len(taken))
            self._sessions.flusher.mark(session)
        self._wake(session, handler)
        if session.exchange is not None:
            self._drop_if_done(session, session.exchange, handler)

    async def _until_taken(
        self, session: Session, handler: Handler, page: Sequence[HeldQuestion]
    ) -> list[TakenQuestion]:
        while not session.dropped:
            told = handler.told
            wanted = self._wanted(session).get(handler.partition) or _nothing(session)
            if told is not None and told.handling != wanted:
                # What it may handle has changed: it is given no more, and what it has not taken is others'.
                self.presence_changed(session)
                return []
            if not wanted.selectors:
                return []
            try:
                return await self._store.take_questions(session, handler.partition, page)
            except GridUnavailable:
                await self._store.until_available()
            except Outdated:
                continue
        return []

    def _send(self, session: Session, partition: int, taken: TakenQuestion) -> None:
        held = taken.held
        path, principal, value = read_text(taken.text)
        packet = Question(
            question=f"{partition}-{held.tag}-{held.number}-{held.asker}",
            path=path,
            value=None,
            timeout=round(taken.left, 3),
            principal=principal,
            session=held.asker,
            redelivered=taken.again,
        )
        session.machine.submit_run(Run((Outgoing(None, encode_question(packet, value)),)))

    @staticmethod
    def _is_current(session: Session, handler: Handler) -> bool:
        return session.exchange is not None and session.exchange.handlers.get(handler.partition) is handler

    # --- Answered -----------------------------------------------------------------------------------------------------

    async def answer(self, session: Session, run: Sequence[Answer]) -> None:
        """Answer questions; all are replied to when the fate of all is known.

        Raises:
            Outdated, SessionLost, GridUnavailable: as of ``handle``.
        """
        results: list[tuple[Answer, AnswerResult | RequestRefused | GridRefused]] = []
        by_partition: dict[int, list[tuple[Answer, AnswerStep]]] = {}
        for request in run:
            try:
                partition, held = self._question(request)
                step = AnswerStep(request.request, held, self._text(request), request.failed is not None)
            except RequestRefused as refused:
                results.append((request, refused.with_traceback(None)))
            else:
                by_partition.setdefault(partition, []).append((request, step))
        for partition, asked in by_partition.items():
            await self._prepare(session, partition)
            for start in range(0, len(asked), ASK_MOST):
                some = asked[start : start + ASK_MOST]
                try:
                    told = await self._store.answer_questions(session, partition, tuple(step for _, step in some))
                except GridRefused as refused:
                    if any(request.resubmitted for request, _ in some):
                        raise
                    results += [(request, refused) for request, _ in some]
                else:
                    results += [(request, each) for (request, _), each in zip(some, told, strict=True)]
                    self._settled(session, partition, [step.held.tag for _, step in some])
        for request, result in results:
            self._reply(session, request, result)

    def _settled(self, session: Session, partition: int, tags: Sequence[int]) -> None:
        exchange = session.exchange
        handler = None if exchange is None else exchange.handlers.get(partition)
        if exchange is None or handler is None:
            return
        for tag in tags:
            handler.known.pop(tag, None)
        self._drop_if_done(session, exchange, handler)

    def _drop_if_done(self, session: Session, exchange: Exchange, handler: Handler) -> None:
        """Read a partition no more for a session that handles nothing in it, and has answered all that it had.

        One whose record names a selector of the partition, though it may not handle it, may be allowed to again.
        """
        is_done = not handler.known and handler.told is not None and not handler.told.handling.selectors
        if is_done and handler.partition not in self._wanted(session):
            del exchange.handlers[handler.partition]
            self._leave(session, exchange, handler.partition)

    def _reply(self, session: Session, request: Answer, result: AnswerResult | RequestRefused | GridRefused) -> None:
        match result:
            case RequestRefused():
                session.decline(request.request, result)
            case GridRefused():
                session.decline_for_now(request.request, str(result))
            case AnswerResult(_, True) if not request.resubmitted:
                session.decline(request.request, number_used(request.request))
            case AnswerResult(True, duplicate):
                if not duplicate:
                    self._metrics.add(catalogue.ANSWERS_GIVEN, label="accepted")
                session.reply(Reply(request=request.request))
            case AnswerResult():
                self._metrics.add(catalogue.ANSWERS_GIVEN, label="over")
                why = "the time for an answer is over, or the session that asked, or another one has the question"
                session.decline(request.request, RequestRefused(why, code=ErrorCode.QUESTION_OVER))

    def _question(self, request: Answer) -> tuple[int, HeldQuestion]:
        match request.question.split("-", _ID_PARTS - 1):
            case [partition, tag, number, asker] if all(each.isascii() for each in (partition, tag, number)) and all(
                each.isdecimal() and len(each) < len(str(2**53)) for each in (partition, tag, number)
            ):
                if int(partition) < TOPIC_PARTITIONS and asker.isascii() and asker.isprintable() and " " not in asker:
                    return int(partition), HeldQuestion(int(tag), SessionId(asker), RequestNumber(int(number)))
        raise RequestRefused("'question' is not the name of a question that was sent")

    def _text(self, request: Answer) -> bytes:
        if request.failed is not None:
            return json_text(request.failed.encode()[:FAILURE_BYTES].decode(errors="ignore"))
        value = request.value or b"null"
        if len(value) > self._value_bytes:
            raise RequestRefused(
                f"the value has {len(value)} bytes; limits.value_bytes is {self._value_bytes}",
                code=ErrorCode.VALUE_TOO_LARGE,
            )
        return value

    # --- inside -------------------------------------------------------------------------------------------------------

    def _selector(self, text: str) -> tuple[Selector, int]:
        selector = parse_selector(text)
        if is_reserved(selector.text):
            raise RequestRefused("nobody asks anything below '$'", code=ErrorCode.BAD_SELECTOR)
        found = partitions(selector, self._depth)
        if len(found) > 1:
            raise RequestRefused(
                f"the selector has a wildcard among its first {self._depth} segments, which decide where its questions "
                "are; handle each of them by itself",
                code=ErrorCode.BAD_SELECTOR,
            )
        return selector, next(iter(found))

    async def _prepare(self, session: Session, partition: int) -> None:
        """Write ahead that the session leaves something in a partition (P7)."""
        if not self._store.is_ready(session, {partition}):
            if partition not in session.publish_partitions:
                self._limits.check_receipts(session, len(session.publish_partitions) + 1)
            try:
                await self._store.prepare(session, {partition})
            finally:
                self._limits.recount(session)


def exchange_of(session: Session) -> Exchange:
    """Find what a session asks and handles, or begin it."""
    if session.exchange is None:
        session.exchange = Exchange()
    return session.exchange


def write_text(path: str, principal: str, value: bytes) -> bytes:
    """Write what handlers are given of a question: lengths, path, principal, value."""
    names = path.encode(), principal.encode()
    return b"%d %d %b%b%b" % (len(names[0]), len(names[1]), *names, value)


def read_text(text: bytes) -> tuple[str, str, bytes]:
    """Read that again."""
    first, second, rest = text.split(b" ", 2)
    path, principal = int(first), int(first) + int(second)
    return rest[:path].decode(), rest[path:principal].decode(), rest[principal:]


def _nothing(session: Session) -> Handling:
    return Handling((), 1, present=session.connected)


def _present(told: Told | None) -> int:
    return len(told.handling.selectors) if told is not None and told.handling.present else 0
