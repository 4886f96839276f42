"""Bodies of calls by HTTP that send to queues (docs: reference/client-api.md); see ``calls`` for all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import orjson

from gateway.core.types import MessageId
from gateway.core.wire.codec.calls import read_items
from gateway.core.wire.codec.fields import BadField
from gateway.core.wire.codec.queue_packets import read_long_send, read_send
from gateway.core.wire.codec.values import LONG
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.queue_packets import Send

MOST_SENDS: Final = 1_000
"""Messages of one call: as of topics."""

LIST: Final = "send"
"""Member of a body that sends several messages: what one sends, for each of them."""

MEMBERS: Final = frozenset({"queue", "value", "headers", "delay", "expires"})
"""Of what sends one message."""

_EXAMPLE: Final = '{"queue": …, "value": …}'


class SendOutcome(NamedTuple):
    """What became of one message of a call.

    Attributes:
        queue: where to.
        message: its id; None if it was not sent.
        repeated: whether that was done by an earlier call with the same key.
        code: why it was not sent; None if it was.
        reason: the same in a sentence.
    """

    queue: str
    message: MessageId | None = None
    repeated: bool = False
    code: ErrorCode | None = None
    reason: str = ""


def read_sends(body: bytes) -> tuple[list[Send], bool]:
    """Read what a call wants to send.

    Args:
        body: of the call.

    Returns:
        The messages, with request numbers from 1 on; and whether the body holds a list of them.

    Raises:
        RequestRefused: the message says what is wrong, and where.
    """
    items, as_list = read_items(body, LIST, _EXAMPLE, MOST_SENDS)
    return [
        _send(each, place + 1, f"{LIST}[{place}]: " if as_list else "", len(body)) for place, each in enumerate(items)
    ], as_list


def _send(item: object, number: int, where: str, size: int) -> Send:
    if not isinstance(item, dict):
        raise RequestRefused(f"{where}it must be an object, {_EXAMPLE}")
    if unknown := item.keys() - MEMBERS:
        raise RequestRefused(f"{where}there is no member {min(unknown)!r}; there are {', '.join(sorted(MEMBERS))}")
    read = read_send if size <= LONG else read_long_send
    try:
        return read({**item, "request": number})
    except BadField as error:
        raise RequestRefused(f"{where}{error}", code=error.code or ErrorCode.BAD_REQUEST) from None


def write_send_outcomes(outcomes: Sequence[SendOutcome], *, as_list: bool) -> bytes:
    """Write the answer to a call that has sent, as compact JSON text."""
    written = [_written(each) for each in outcomes]
    return orjson.dumps({"results": written} if as_list else written[0])


def _written(outcome: SendOutcome) -> dict[str, object]:
    if outcome.code is not None:
        return {"queue": outcome.queue, "error": {"code": outcome.code.value, "message": outcome.reason}}
    told: dict[str, object] = {"queue": outcome.queue, "message": outcome.message}
    return {**told, "repeated": True} if outcome.repeated else told
