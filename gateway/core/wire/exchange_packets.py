"""Packets about questions and their answers, as values (protocol section 18); see ``packets`` for all others."""

from __future__ import annotations

from typing import Final, TypeAlias

from gateway.core.immutable import immutable
from gateway.core.types import JsonValue, RequestNumber
from gateway.core.wire.codes import ErrorCode

QUESTIONS: Final = "questions"
"""The word with which both sides say that they know questions and answers (protocol 18)."""

AWAIT_MOST: Final = 64
"""Answers that one ``Await`` asks for, also where a node lets a session ask less: clients may come from another."""


@immutable
class Handle:
    """Be given questions of some paths, until the session ends or says otherwise.

    Attributes:
        request: the request's number.
        selector: of the paths, not yet validated.
        concurrency: questions that the session may have at a time without having answered them.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    selector: str
    concurrency: int
    resubmitted: bool = False


@immutable
class Unhandle:
    """Be given no more questions of some paths; those that the session has, it answers.

    Attributes:
        request: the request's number.
        selector: as it was handled.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    selector: str
    resubmitted: bool = False


@immutable
class Ask:
    """Put a question to one of those who handle its path, once however often it is resent.

    Attributes:
        request: the request's number, by which its answer is known.
        path: what it is about, not yet validated.
        value: JSON text of the question, compact.
        timeout: seconds within which it has to be answered.
        principal: whose sessions alone may be given it; None for anybody's.
        session: which alone may be given it; None for any.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    path: str
    value: bytes
    timeout: float
    principal: str | None = None
    session: str | None = None
    resubmitted: bool = False


@immutable
class Await:
    """Be told the answers to what was asked before, where the session goes on with what the grid holds.

    Attributes:
        request: the request's number.
        asks: number and path of each.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    asks: tuple[tuple[RequestNumber, str], ...]
    resubmitted: bool = False


@immutable
class Answer:
    """Answer a question that the session was given, once however often it is resent.

    Attributes:
        request: the request's number.
        question: as the packet named it that brought it.
        value: JSON text of the answer, compact; None if there is none.
        failed: why there is none, for whoever asked; None if there is one.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    question: str
    value: bytes | None
    failed: str | None = None
    resubmitted: bool = False


ExchangeRequest: TypeAlias = Handle | Unhandle | Ask | Await | Answer
"""What clients ask for that put questions, and that answer them."""


@immutable(kw_only=True)
class Question:
    """A session is given a question (protocol 18.4).

    Attributes:
        question: identifies it and that this session was given it.
        path: what it is about.
        value: the question itself.
        timeout: seconds that are left to answer it.
        principal: who asks.
        session: whose session it is that asks.
        redelivered: whether the client may have been sent it before.
    """

    question: str
    path: str
    value: JsonValue
    timeout: float
    principal: str
    session: str
    redelivered: bool = False


@immutable(kw_only=True)
class Answered:
    """What became of a question (protocol 18.5).

    Attributes:
        ask: the number of the request with which it was put.
        value: the answer; None if there is none.
        error: why there is none.
        message: with an error, a sentence for people.
        uncertain: with an error, whether somebody may have acted upon the question all the same.
    """

    ask: RequestNumber
    value: JsonValue = None
    error: ErrorCode | None = None
    message: str = ""
    uncertain: bool = False
