"""What the examples of protocol section 18 mean."""

from __future__ import annotations

from typing import Final

from gateway.core.types import PacketId, RequestNumber
from gateway.core.wire import codec
from gateway.core.wire.codes import ErrorCode
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
from gateway.core.wire.packets import SessionPacket

ACME: Final = "quotes/ACME"
ASKER: Final = "4c5a0a1b2c3d4e5f60718293"
QUESTION: Final = f"17-42-33-{ASKER}"


def _number(number: int) -> RequestNumber:
    return RequestNumber(number)


_REQUESTS: Final[dict[str, ExchangeRequest]] = {
    "handle": Handle(_number(31), "quotes/**", 32),
    "unhandle": Unhandle(_number(32), "quotes/**"),
    "ask": Ask(_number(33), ACME, b'{"side":"bid"}', 3.0),
    "ask-of-one-principal": Ask(_number(34), ACME, b"null", 3.0, "bob"),
    "answer": Answer(_number(35), QUESTION, b'{"bid":1.5}'),
    "answer-that-there-is-none": Answer(_number(36), QUESTION, None, "there is no such stock"),
    "await": Await(_number(37), ((_number(33), ACME), (_number(34), ACME))),
}

OF_QUESTIONS: Final[dict[str, SessionPacket]] = {
    **{name: SessionPacket(PacketId(body.request), None, body) for name, body in _REQUESTS.items()},
    "question": SessionPacket(
        PacketId(12),
        None,
        Question(
            question=QUESTION,
            path=ACME,
            value={"side": "bid"},
            timeout=1.5,
            principal="alice",
            session=ASKER,
            redelivered=True,
        ),
    ),
    "answered": SessionPacket(PacketId(13), None, Answered(ask=_number(33), value={"bid": 1.5})),
    "answered-by-an-error": SessionPacket(
        PacketId(14),
        None,
        Answered(
            ask=_number(34),
            error=ErrorCode.QUESTION_TIMEOUT,
            message="its handler did not answer in time",
            uncertain=True,
        ),
    ),
}
"""By the names of the examples; each request has the packet number of its request."""


def encode_of_questions(body: object) -> bytes | None:
    """Encode a body of this section; None if it is none."""
    match body:
        case Question():
            return codec.encode_question(body, codec.json_text(body.value))
        case Answered():
            return codec.encode_answered(body, codec.json_text(body.value))
        case Handle() | Unhandle() | Ask() | Await() | Answer():
            return codec.encode_request(body)
    return None
