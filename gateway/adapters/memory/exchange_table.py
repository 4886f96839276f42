"""Questions and answers that an in-memory grid holds, one method per atomic step, as the Lua of the Redis adapter."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.core.topics.versions import least_version
from gateway.core.types import Epoch, GridGeneration, RequestNumber, SessionId
from gateway.ports import (
    KEPT_FOR,
    MOST_HANDLERS,
    MOST_SELECTORS,
    QUESTION_BYTES,
    TAKE_WITHIN,
    AnswerCommand,
    AnswerRead,
    AnswersRead,
    AnswerState,
    AnswerStep,
    AskCommand,
    AskState,
    Fenced,
    Given,
    Handled,
    HandlerSelectors,
    Handling,
    HandlingRefused,
    HeldQuestion,
    Over,
    Ownership,
    QuestionStep,
    StreamPosition,
    TakenQuestion,
)

EXCHANGES_LENGTH: Final = 10_000
"""Entries of a partition's exchanges that are kept, as on Redis."""

NOBODY: Final = SessionId("-")
"""In the place of the handler of a question that nobody has any more."""

_ORIGIN: Final = StreamPosition(GridGeneration(0), 0)
"""The end of exchanges that never had an entry."""

_Id: TypeAlias = "tuple[SessionId, RequestNumber]"


@dataclass(slots=True)
class _Handler:
    """A session that handles questions.

    Attributes:
        epoch: of its owner.
        principal: whose it is.
        handling: what it said last.
        present: whether it is given questions.
        has: those that it has.
        served: tag of the one that it was given last.
    """

    epoch: Epoch
    principal: str
    handling: Handling
    served: int
    present: bool = True
    has: int = 0


@dataclass(slots=True)
class _Question:
    """A question.

    Attributes:
        step: as it was put.
        deadline: when it is over, by the grid's clock in seconds.
        handler: who has it.
        tag: of its being given to them.
        due: when something is to be done about it.
        taken: its handler has taken it.
        ended: how it ended; None if it did not.
        text: the answer.
    """

    step: QuestionStep
    deadline: float
    handler: SessionId = NOBODY
    tag: int = 0
    due: float = 0.0
    taken: bool = False
    ended: AnswerState | None = None
    text: bytes = b""

    @property
    def size(self) -> int:
        """Bytes that it counts for."""
        return QUESTION_BYTES + len(self.step.text if self.ended is None else self.text)


class _Choice(NamedTuple):
    """Who is given a question.

    Attributes:
        handler: which; None for nobody.
        busy: there are some, and they have as many as they take.
    """

    handler: SessionId | None
    busy: bool


@dataclass(slots=True)
class _Partition:
    """A partition.

    Attributes:
        handlers: by session.
        questions: by who asks and by which request.
        turn: newest tag.
        revision: of the selectors.
        entries: the newest exchanges.
        end: position of the last one.
    """

    handlers: dict[SessionId, _Handler] = field(default_factory=dict)
    questions: dict[_Id, _Question] = field(default_factory=dict)
    turn: int = 0
    revision: str = ""
    entries: deque[Given | Over] = field(default_factory=lambda: deque(maxlen=EXCHANGES_LENGTH))
    end: StreamPosition = _ORIGIN


class Exchanges:
    """All questions of the grid; *now* is the grid's clock in seconds."""

    def __init__(self) -> None:
        self._partitions = [_Partition() for _ in range(TOPIC_PARTITIONS)]
        self._news = False

    # --- Steps --------------------------------------------------------------------------------------------------------

    def open(self, number: int, generation: GridGeneration, now: float) -> None:
        """Begin a step in a partition: do what is due."""
        partition = self._partitions[number]
        if partition.end.grid_generation < generation:
            partition.end = StreamPosition(generation, 0)
            partition.turn = max(partition.turn, least_version(generation))
            partition.entries.clear()
        for id_, each in list(partition.questions.items()):
            if each.due > now:
                continue
            if each.ended is not None:
                del partition.questions[id_]
            elif each.deadline <= now:
                how = AnswerState.TIMED_OUT_TAKEN if each.taken else AnswerState.TIMED_OUT
                self._finish(number, id_, how, b"", now)
            elif not each.taken:
                if (slow := partition.handlers.get(each.handler)) is not None:
                    slow.present = False
                self._pass_on(number, id_, now)

    def check(self, number: int, ownership: Ownership) -> None:
        """Expect that no newer owner of a session has handled questions in a partition.

        Raises:
            Fenced: one has.
        """
        handler = self._partitions[number].handlers.get(ownership.session)
        if handler is not None and handler.epoch > ownership.epoch:
            raise Fenced(f"session {ownership.session} has a newer owner than epoch {ownership.epoch}")

    def handle(
        self, ownership: Ownership, number: int, principal: str, handling: Handling
    ) -> Handled | HandlingRefused:
        """See ``ExchangeStore.handle``."""
        partition = self._partitions[number]
        session = ownership.session
        known = partition.handlers.get(session)
        before = set(known.handling.selectors) if known is not None else set()
        selectors = {name for each in partition.handlers.values() for name in each.handling.selectors}
        fresh = set(handling.selectors) - before
        handlers = sum(len(each.handling.selectors) for each in partition.handlers.values() if each.present)
        if fresh and (handlers + len(fresh) > MOST_HANDLERS or len(selectors) + len(fresh) > MOST_SELECTORS):
            return HandlingRefused.HANDLERS
        if known is None:
            known = _Handler(ownership.epoch, principal, handling, partition.turn)
        known.epoch, known.principal, known.handling = ownership.epoch, principal, handling
        known.present = handling.present
        partition.handlers[session] = known
        if not handling.selectors and not known.has:
            del partition.handlers[session]
        if set(handling.selectors) != before:
            self._revise(partition)
        return Handled(partition.end, tuple(self._held(partition, session)))

    def selectors(self, number: int, revision: str) -> HandlerSelectors | None:
        """Tell the selectors of a partition's handlers; None if they are those of a revision."""
        partition = self._partitions[number]
        if partition.revision == revision:
            return None
        names = {name: None for each in partition.handlers.values() for name in each.handling.selectors}
        return HandlerSelectors(partition.revision, tuple(names))

    def ask(self, asker: SessionId, step: QuestionStep, command: AskCommand, now: float) -> AskState:
        """Put a question of a command; see ``ExchangeStore.ask``."""
        number, most, most_bytes = command.partition, command.most, command.most_bytes
        partition = self._partitions[number]
        chosen = self._choose(partition, step, besides=NOBODY)
        if chosen.handler is None:
            return AskState.BUSY if chosen.busy else AskState.NO_HANDLER
        size = sum(each.size for each in partition.questions.values()) + QUESTION_BYTES + len(step.text)
        if 0 < most <= len(partition.questions) or 0 < most_bytes < size:
            return AskState.FULL
        partition.questions[asker, step.request] = _Question(step, now + step.timeout)
        self._give(number, (asker, step.request), chosen.handler, now)
        return AskState.PUT

    def is_known(self, asker: SessionId, number: int, request: RequestNumber) -> bool:
        """Tell whether a question is there."""
        return (asker, request) in self._partitions[number].questions

    def end_of(self, number: int) -> StreamPosition:
        """Tell the last position of a partition's exchanges."""
        return self._partitions[number].end

    def take(
        self, ownership: Ownership, number: int, questions: Sequence[HeldQuestion], now: float
    ) -> list[TakenQuestion]:
        """See ``ExchangeStore.take``."""
        partition = self._partitions[number]
        if (handler := partition.handlers.get(ownership.session)) is not None:
            handler.present, handler.epoch = True, ownership.epoch
        taken: list[TakenQuestion] = []
        for held in questions:
            each = self._of(partition, ownership.session, held)
            if each is not None:
                taken.append(TakenQuestion(held, each.step.text, each.deadline - now, each.taken))
                each.taken, each.due = True, each.deadline
        return taken

    def answer(self, session: SessionId, step: AnswerStep, command: AnswerCommand, now: float) -> bool:
        """Answer a question by a command; see ``ExchangeStore.answer``."""
        number = command.partition
        partition = self._partitions[number]
        each = self._of(partition, session, step.held)
        if each is None:
            return False
        how, text = AnswerState.FAILED if step.failed else AnswerState.VALUE, step.text
        size = sum(other.size for other in partition.questions.values()) - each.size + QUESTION_BYTES
        if 0 < command.most_bytes < size + len(text):
            how, text = AnswerState.TOO_LARGE, b""
        self._finish(number, (step.held.asker, step.held.number), how, text, now)
        return True

    def read(self, asker: SessionId, number: int, requests: Sequence[RequestNumber], now: float) -> AnswersRead:
        """See ``ExchangeStore.read``."""
        partition = self._partitions[number]
        answers: list[AnswerRead] = []
        for request in requests:
            each = partition.questions.get((asker, request))
            if each is None:
                answers.append(AnswerRead(AnswerState.UNKNOWN, b"", 0.0))
            elif each.ended is None:
                answers.append(AnswerRead(AnswerState.WAITING, b"", each.deadline - now))
            else:
                answers.append(AnswerRead(each.ended, each.text, 0.0))
        return AnswersRead(partition.end, tuple(answers))

    def forget_answers(self, asker: SessionId, number: int, requests: Iterable[RequestNumber]) -> None:
        """See ``ExchangeStore.forget``."""
        questions = self._partitions[number].questions
        for request in requests:
            each = questions.get((asker, request))
            if each is not None and each.ended is not None:
                del questions[asker, request]

    def forget(self, session: SessionId, generation: GridGeneration, now: float) -> None:
        """A session has ended: forget what it asked and that it handles; what it had is over, or others'."""
        for number, partition in enumerate(self._partitions):
            if session not in partition.handlers and not any(asker == session for asker, _ in partition.questions):
                continue
            self.open(number, generation, now)
            partition.handlers.pop(session, None)
            self._revise(partition)
            for held in self._held(partition, session):
                id_ = (held.asker, held.number)
                each = partition.questions[id_]
                if each.taken:
                    self._finish(number, id_, AnswerState.LOST_TAKEN, b"", now)
                elif each.step.session is not None:
                    self._finish(number, id_, AnswerState.LOST, b"", now)
                else:
                    each.handler = NOBODY
                    self._pass_on(number, id_, now)
            for asker, request in list(partition.questions):
                if asker == session:
                    self._take_away(partition, partition.questions[asker, request])
                    del partition.questions[asker, request]

    # --- Exchanges ----------------------------------------------------------------------------------------------------

    def after(self, number: int, position: StreamPosition) -> list[Given | Over] | None:
        """Read a partition's exchanges behind a position; None if they do not continue from there."""
        partition = self._partitions[number]
        missing = partition.end.sequence - position.sequence
        if partition.end.grid_generation != position.grid_generation or not 0 <= missing <= len(partition.entries):
            return None
        return list(partition.entries)[len(partition.entries) - missing :]

    def take_news(self) -> bool:
        """Tell whether something has happened since this was asked last."""
        news, self._news = self._news, False
        return news

    def inventory(self) -> set[str]:
        """Name everything that is kept of sessions."""
        return {f"handler {session}" for partition in self._partitions for session in partition.handlers} | {
            f"question {request} of {asker}" for partition in self._partitions for asker, request in partition.questions
        }

    # --- inside -------------------------------------------------------------------------------------------------------

    @staticmethod
    def _revise(partition: _Partition) -> None:
        partition.turn += 1
        partition.revision = f"{partition.end.grid_generation}.{partition.turn}"

    @staticmethod
    def _held(partition: _Partition, session: SessionId) -> list[HeldQuestion]:
        held = [
            HeldQuestion(each.tag, *id_)
            for id_, each in partition.questions.items()
            if each.handler == session and each.ended is None
        ]
        return sorted(held)

    @staticmethod
    def _of(partition: _Partition, session: SessionId, held: HeldQuestion) -> _Question | None:
        each = partition.questions.get((held.asker, held.number))
        if each is None or each.ended is not None or (each.handler, each.tag) != (session, held.tag):
            return None
        return each

    @staticmethod
    def _choose(partition: _Partition, step: QuestionStep, *, besides: SessionId) -> _Choice:
        matching = set(step.selectors)
        fit = {
            session: each
            for session, each in partition.handlers.items()
            if each.present
            and session != besides
            and matching & set(each.handling.selectors)
            and step.principal in {None, each.principal}
            and step.session in {None, session}
        }
        free = [session for session, each in fit.items() if each.has < each.handling.concurrency]
        best = min(free, key=lambda session: (fit[session].has, fit[session].served), default=None)
        return _Choice(best, bool(fit))

    def _give(self, number: int, id_: _Id, session: SessionId, now: float) -> None:
        partition = self._partitions[number]
        partition.turn += 1
        handler, each = partition.handlers[session], partition.questions[id_]
        handler.has, handler.served = handler.has + 1, partition.turn
        each.handler, each.tag, each.due = session, partition.turn, min(each.deadline, now + TAKE_WITHIN)
        position = self._next(partition)
        partition.entries.append(Given(number, position, session, HeldQuestion(each.tag, *id_)))

    def _pass_on(self, number: int, id_: _Id, now: float) -> None:
        partition = self._partitions[number]
        each = partition.questions[id_]
        other = None
        if each.step.session is None:
            other = self._choose(partition, each.step, besides=each.handler).handler
        if other is None:
            each.due = min(each.deadline, now + TAKE_WITHIN)
        else:
            self._take_away(partition, each)
            self._give(number, id_, other, now)

    @staticmethod
    def _take_away(partition: _Partition, each: _Question) -> None:
        handler = partition.handlers.get(each.handler)
        if handler is not None and each.ended is None:
            handler.has -= 1
            if not handler.has and not handler.handling.selectors:
                del partition.handlers[each.handler]

    def _finish(self, number: int, id_: _Id, how: AnswerState, text: bytes, now: float) -> None:
        partition = self._partitions[number]
        each = partition.questions[id_]
        self._take_away(partition, each)
        each.ended, each.text, each.due = how, text, max(now, each.deadline) + KEPT_FOR
        partition.entries.append(Over(number, self._next(partition), *id_))

    def _next(self, partition: _Partition) -> StreamPosition:
        partition.end = StreamPosition(partition.end.grid_generation, partition.end.sequence + 1)
        self._news = True
        return partition.end
