"""Packets about questions and answers: their fields, what they become, and their JSON text (protocol section 18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import orjson

from gateway.core.types import RequestNumber
from gateway.core.wire.codec.fields import (
    MAX_NUMBER,
    BadField,
    Object,
    read_count,
    read_error_code,
    read_flag,
    read_object,
    read_optional_text,
    read_resubmitted,
    read_seconds,
    read_text,
    request_number,
)
from gateway.core.wire.codec.values import dumps, encode_long_value, encode_value
from gateway.core.wire.exchange_packets import (
    Answer,
    Answered,
    Ask,
    Await,
    ExchangeRequest,
    Handle,
    Question,
    Unhandle,
)

_NAMES: Final[dict[type[ExchangeRequest], str]] = {
    Handle: "handle",
    Unhandle: "unhandle",
    Ask: "ask",
    Await: "await",
    Answer: "answer",
}

# --- From the client ----------------------------------------------------------------------------------------------


def read_handle(packet: Object) -> Handle:
    """Read a handle."""
    return Handle(
        request_number(packet),
        read_text(packet, "selector"),
        read_count(packet, "concurrency", least=1),
        read_resubmitted(packet),
    )


def read_unhandle(packet: Object) -> Unhandle:
    """Read an unhandle."""
    return Unhandle(request_number(packet), read_text(packet, "selector"), read_resubmitted(packet))


def read_ask(packet: Object) -> Ask:
    """Read an ask with a short value; see ``encode_value``."""
    return _read_any_ask(packet, encode_value)


def read_long_ask(packet: Object) -> Ask:
    """Read an ask in which there is room for values with too many levels."""
    return _read_any_ask(packet, encode_long_value)


def _read_any_ask(packet: Object, encode: Callable[[object], bytes]) -> Ask:
    if "value" not in packet:
        raise BadField("'value' is missing")
    return Ask(
        request_number(packet),
        read_text(packet, "path"),
        encode(packet["value"]),
        read_seconds(packet, "timeout"),
        read_optional_text(packet, "principal"),
        read_optional_text(packet, "session"),
        read_resubmitted(packet),
    )


def read_await(packet: Object) -> Await:
    """Read an await."""
    entries = packet.get("asks")
    if not isinstance(entries, list) or not entries:
        raise BadField("'asks' must be an array that is not empty")
    return Await(request_number(packet), tuple([_read_pair(each) for each in entries]), read_resubmitted(packet))


def _read_pair(entry: object) -> tuple[RequestNumber, str]:
    match entry:
        case [int(number), str(path)] if 0 < number <= MAX_NUMBER:
            return RequestNumber(number), path
    raise BadField("each of 'asks' must be an array of the number of a request and its path")


def read_answer(packet: Object) -> Answer:
    """Read an answer with a short value."""
    return _read_any_answer(packet, encode_value)


def read_long_answer(packet: Object) -> Answer:
    """Read an answer in which there is room for values with too many levels."""
    return _read_any_answer(packet, encode_long_value)


def _read_any_answer(packet: Object, encode: Callable[[object], bytes]) -> Answer:
    failed = read_optional_text(packet, "failed")
    if (failed is None) != ("value" in packet):
        raise BadField("there must be either 'value' or 'failed'")
    return Answer(
        request_number(packet),
        read_text(packet, "question"),
        encode(packet["value"]) if failed is None else None,
        failed,
        read_resubmitted(packet),
    )


# --- From the server ----------------------------------------------------------------------------------------------


def read_question(packet: Object) -> Question:
    """Read a question."""
    if "value" not in packet:
        raise BadField("'value' is missing")
    return Question(
        question=read_text(packet, "question"),
        path=read_text(packet, "path"),
        value=packet["value"],
        timeout=read_seconds(packet, "timeout"),
        principal=read_text(packet, "principal"),
        session=read_text(packet, "session"),
        redelivered=read_flag(packet, "redelivered", default=False),
    )


def read_answered(packet: Object) -> Answered:
    """Read what became of a question."""
    number = RequestNumber(read_count(packet, "ask", least=1))
    if packet.get("error") is None:
        if "value" not in packet:
            raise BadField("there must be either 'value' or 'error'")
        return Answered(ask=number, value=packet["value"])
    error = read_object(packet, "error")
    return Answered(
        ask=number,
        error=read_error_code(error),
        message=read_text(error, "message"),
        uncertain=read_flag(packet, "uncertain", default=False),
    )


# --- To text ------------------------------------------------------------------------------------------------------


def encode_exchange_request(body: ExchangeRequest) -> bytes:
    """Encode the body of a request about questions and answers, ready for ``number``.

    Raises:
        RequestRefused: a text that an application put in is not Unicode (BAD_REQUEST).
    """
    content: Object = {"type": _NAMES[type(body)], "request": body.request}
    if body.resubmitted:
        content["resubmitted"] = True
    value: bytes | None = None
    match body:
        case Handle():
            content |= {"selector": body.selector, "concurrency": body.concurrency}
        case Unhandle():
            content["selector"] = body.selector
        case Ask():
            content |= {"path": body.path, "timeout": body.timeout}
            if body.principal is not None:
                content["principal"] = body.principal
            if body.session is not None:
                content["session"] = body.session
            value = body.value
        case Await():
            content["asks"] = body.asks
        case Answer():
            content["question"] = body.question
            if body.failed is not None:
                content["failed"] = body.failed
            value = body.value
    text = dumps(content)
    return text[1:] if value is None else b'%b,"value":%b}' % (text[1:-1], value)


def encode_question(question: Question, value: bytes) -> bytes:
    """Encode the body of a question, ready for ``number``.

    Args:
        question: all but its value, which is not looked at.
        value: JSON text.
    """
    return b'"type":"question","question":%b,"path":%b,"timeout":%b,"principal":%b,"session":%b%b,"value":%b}' % (
        orjson.dumps(question.question),
        orjson.dumps(question.path),
        orjson.dumps(question.timeout),
        orjson.dumps(question.principal),
        orjson.dumps(question.session),
        b',"redelivered":true' if question.redelivered else b"",
        value,
    )


def encode_answered(answered: Answered, value: bytes = b"null") -> bytes:
    """Encode the body of what became of a question, ready for ``number``.

    Args:
        answered: all but the value, which is not looked at.
        value: JSON text of the answer; nothing without one.
    """
    if answered.error is None:
        return b'"type":"answered","ask":%d,"value":%b}' % (answered.ask, value)
    return b'"type":"answered","ask":%d%b,"error":%b}' % (
        answered.ask,
        b',"uncertain":true' if answered.uncertain else b"",
        orjson.dumps({"code": answered.error, "message": answered.message}),
    )
