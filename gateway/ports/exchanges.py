"""Questions and answers in the grid: each question is given to one session. See ``gateway.ports`` for the rules.

```text
ask ──▶ put ──take──▶ taken ──answer──▶ over ──▶ read, forget
         │ ▲            │
         └─┘ not taken  └── deadline, or end of the session that has it ──▶ over, without an answer
       given to another
```

Everything of a question is in the topic partition of its path. A question that was *taken* is given to nobody else: its
handler may have acted upon it. One that was not taken in time, because its handler's node is dead or its client slow,
is given to another handler.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from gateway.core.types import RequestNumber, SessionId
from gateway.ports.session_records import Ownership
from gateway.ports.topics import StreamPosition

TAKE_WITHIN: Final = 1.0
"""Seconds within which a node that serves a handler takes a question; else another handler is given it. A hundred times
what it takes, and short against the time that somebody waits for an answer."""

KEPT_FOR: Final = 10.0
"""Seconds for which an answer is kept when the time for it is over: who asked has given it up by then."""

QUESTION_BYTES: Final = 512
"""Bytes counted for each question besides its text: about what Redis needs for its record, places and timer."""

MOST_HANDLERS: Final = 10_000
"""Handlers that a partition may have, counted by session and selector: some 6 MB of the grid."""

MOST_SELECTORS: Final = 1_000
"""Different selectors of a partition's handlers: each node that asks there looks through all of them once."""

MOST_CONCURRENCY: Final = 1_000
"""Questions that one session may have at a time in one partition."""

ASK_MOST: Final = 100
"""Questions of one step."""


class Handling(NamedTuple):
    """What a session handles in one partition.

    Attributes:
        selectors: of the paths; none if it handles nothing any more.
        concurrency: questions that it may have at a time.
        present: whether its client is there, so that it may be given questions.
    """

    selectors: tuple[str, ...]
    concurrency: int
    present: bool


class HeldQuestion(NamedTuple):
    """A question that a session has.

    Attributes:
        tag: of its being given to this session; rises within the partition.
        asker: the session that asks.
        number: the request with which it does.
    """

    tag: int
    asker: SessionId
    number: RequestNumber


class Handled(NamedTuple):
    """A session handles questions.

    Attributes:
        position: in the exchanges of the partition, up to which all that it was given is in ``held``.
        held: what it has and has not answered, oldest first.
    """

    position: StreamPosition
    held: tuple[HeldQuestion, ...]


class HandlingRefused(StrEnum):
    """Why a session may not handle questions."""

    HANDLERS = "handlers"
    """The partition has as many handlers, or selectors of them, as it may."""


class QuestionStep(NamedTuple):
    """A question to be put.

    Attributes:
        request: the number of its request, its identity within its session.
        selectors: those of ``HandlerSelectors`` that match its path.
        text: what handlers are given.
        timeout: seconds within which it has to be answered.
        principal: whose sessions alone may be given it; None for anybody's.
        session: which alone may be given it; None for any.
    """

    request: RequestNumber
    selectors: tuple[str, ...]
    text: bytes
    timeout: float
    principal: str | None = None
    session: SessionId | None = None


class AskCommand(NamedTuple):
    """Questions of one session, for one partition, in the order of its requests.

    Attributes:
        ownership: for whom; an epoch older than one that has written in this partition is refused.
        settled: as of ``PublishCommand``.
        partition: which.
        revision: of the selectors by which those of the steps were found; empty if none are known.
        steps: ``ASK_MOST`` at most.
        most: questions that the partition may hold with them; 0 for no limit.
        most_bytes: of them and of their answers, ``QUESTION_BYTES`` for each included; likewise.
    """

    ownership: Ownership
    settled: RequestNumber
    partition: int
    revision: str
    steps: tuple[QuestionStep, ...]
    most: int
    most_bytes: int


class HandlerSelectors(NamedTuple):
    """Nothing was done: the selectors of the partition's handlers are others than the asker knows.

    Attributes:
        revision: of these.
        selectors: all of them.
    """

    revision: str
    selectors: tuple[str, ...]


class AskState(StrEnum):
    """What became of a question."""

    PUT = "put"
    """Somebody is given it."""
    NO_HANDLER = "none"
    """Nobody who is there handles its path."""
    BUSY = "busy"
    """All who do have as many as they take."""
    FULL = "full"
    """The partition has no room."""
    FORGOTTEN = "forgotten"
    """It was put before, and nothing is known of it any more."""


class AskResult(NamedTuple):
    """What became of one question.

    Attributes:
        state: remembered, but for ``FORGOTTEN``: a command with this request has the same answer.
        duplicate: True if an earlier command with this request had been executed; nothing was written now.
    """

    state: AskState
    duplicate: bool


class AskedAll(NamedTuple):
    """What became of all questions of a command.

    Attributes:
        position: in the exchanges of the partition, behind which their answers are told.
        results: one for each.
    """

    position: StreamPosition
    results: tuple[AskResult, ...]


class TakenQuestion(NamedTuple):
    """A question that its handler is to be sent.

    Attributes:
        held: which.
        text: as it was put.
        left: seconds within which it has to be answered.
        again: it was taken before, and its client may have been sent it.
    """

    held: HeldQuestion
    text: bytes
    left: float
    again: bool


class AnswerStep(NamedTuple):
    """An answer of a handler.

    Attributes:
        request: the number of its request.
        held: which question.
        text: the answer, or why there is none.
        failed: whether there is none.
    """

    request: RequestNumber
    held: HeldQuestion
    text: bytes
    failed: bool


class AnswerCommand(NamedTuple):
    """Answers of one session, for one partition, in the order of its requests.

    Attributes:
        ownership: as of ``AskCommand``; likewise the others.
        settled: see there.
        partition: see there.
        steps: ``ASK_MOST`` at most.
        most_bytes: as of ``AskCommand``.
    """

    ownership: Ownership
    settled: RequestNumber
    partition: int
    steps: tuple[AnswerStep, ...]
    most_bytes: int


class AnswerResult(NamedTuple):
    """What became of an answer.

    Attributes:
        accepted: whether the session had the question; remembered.
        duplicate: as of ``AskResult``.
    """

    accepted: bool
    duplicate: bool


class AnswerState(StrEnum):
    """How a question ended, or that it did not."""

    WAITING = "?"
    """It has not ended."""
    UNKNOWN = "-"
    """Nothing is known of it."""
    VALUE = "v"
    """It was answered."""
    FAILED = "f"
    """Its handler says that it cannot answer."""
    TIMED_OUT = "t"
    """Nobody answered in time; nobody had taken it."""
    TIMED_OUT_TAKEN = "T"
    """Its handler did not answer in time."""
    LOST = "l"
    """The session for which alone it was has ended, and had not taken it."""
    LOST_TAKEN = "L"
    """The session that had taken it has ended."""
    TOO_LARGE = "x"
    """It was answered, and there is no room for the answer."""


class AnswerRead(NamedTuple):
    """What is known of a question.

    Attributes:
        state: how it ended.
        text: the answer, or why there is none.
        left: seconds until it ends, if it is waiting.
    """

    state: AnswerState
    text: bytes
    left: float


class AnswersRead(NamedTuple):
    """What is known of some questions of a session.

    Attributes:
        position: in the exchanges of the partition, up to which this is so.
        answers: one for each.
    """

    position: StreamPosition
    answers: tuple[AnswerRead, ...]


class Given(NamedTuple):
    """A session was given a question.

    Attributes:
        partition: which.
        position: of the entry.
        session: which.
        held: the question.
    """

    partition: int
    position: StreamPosition
    session: SessionId
    held: HeldQuestion


class Over(NamedTuple):
    """A question has ended.

    Attributes:
        partition: which.
        position: of the entry.
        asker: the session that asks.
        number: the request with which it does.
    """

    partition: int
    position: StreamPosition
    asker: SessionId
    number: RequestNumber


class ExchangesLost(NamedTuple):
    """The exchanges of a partition do not go on where they were read; it is not followed any more.

    Attributes:
        partition: which.
    """

    partition: int


ExchangeItem: TypeAlias = "Given | Over | ExchangesLost"
"""What is told of the exchanges of followed partitions."""


class ExchangeStore(Protocol):
    """Questions and answers.

    Each step is one on one partition, and does what is due there first: gives what was not taken in time to others,
    ends what was not answered in time, and forgets answers that nobody has fetched.
    """

    async def handle(
        self, ownership: Ownership, partition: int, principal: str, handling: Handling
    ) -> Handled | HandlingRefused:
        """Say what a session handles in a partition, in place of what it said before; what it has stays with it.

        Raises:
            Fenced: a newer owner of the session was here, or the session has ended.
            GridUnavailable: see the module.
        """

    async def ask(self, command: AskCommand) -> AskedAll | HandlerSelectors:
        """Put questions, each once; it goes to the handler that is there and has the fewest, or was served longest ago.

        Raises:
            Fenced: as of ``handle``.
            GridRefused: the grid has no memory; nothing was done.
            GridUnavailable: see the module.
        """

    async def take(
        self, ownership: Ownership, partition: int, questions: Sequence[HeldQuestion]
    ) -> list[TakenQuestion]:
        """Take questions that a session was given; those that it does not have any more are left out.

        Whoever takes shows that the session's client is there: a session that was passed by for having taken too late
        is given questions again.

        Raises:
            Fenced, GridUnavailable: as of ``handle``.
        """

    async def answer(self, command: AnswerCommand) -> list[AnswerResult]:
        """Answer questions, each once.

        Raises:
            Fenced, GridUnavailable: as of ``handle``.
        """

    async def read(self, asker: SessionId, partition: int, numbers: Sequence[RequestNumber]) -> AnswersRead:
        """Tell what is known of questions of a session.

        Raises:
            GridUnavailable: see the module.
        """

    async def forget(self, asker: SessionId, partition: int, numbers: Sequence[RequestNumber]) -> None:
        """Forget questions of a session that have ended, since its client knows how.

        Raises:
            GridUnavailable: see the module.
        """

    async def fire(self, partition: int) -> None:
        """Do what is due in a partition; of thousands, a part.

        Raises:
            GridUnavailable: see the module.
        """

    def follow(self, partition: int, position: StreamPosition) -> None:
        """Have told what happens in a partition behind a position, which takes the place of an earlier one."""

    def unfollow(self, partition: int) -> None:
        """Have nothing told of a partition any more; some of it may still come."""

    def exchanges(self) -> AsyncIterator[ExchangeItem]:
        """Tell what happens in the followed partitions, for ever; for one reader."""
