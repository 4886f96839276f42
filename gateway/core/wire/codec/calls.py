"""Bodies of calls by HTTP: what a back end asks for, and what it is told (docs: reference/client-api.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import orjson

from gateway.core.types import EventId, Version
from gateway.core.wire.codec.fields import BadField
from gateway.core.wire.codec.readers import read_long_publish, read_publish
from gateway.core.wire.codec.values import LONG
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Publish

MOST_PUBLISHES: Final = 1_000
"""Topics that one call sets at most: ten steps of the grid, and some milliseconds of the node's time."""

LIST: Final = "publish"
"""Member of a body that sets several topics: what one sets, for each of them."""

MEMBERS: Final = frozenset({"topic", "value"})
"""Of what sets one topic."""


class Outcome(NamedTuple):
    """What became of one topic of a call.

    Attributes:
        topic: which.
        version: of the value; None if nothing was published.
        event: id of the publish; empty likewise.
        repeated: whether that was done by an earlier call with the same key.
        code: why nothing was published; None if something was.
        message: the same in a sentence.
    """

    topic: str
    version: Version | None = None
    event: EventId = EventId("")
    repeated: bool = False
    code: ErrorCode | None = None
    message: str = ""


def read_publishes(body: bytes) -> tuple[list[Publish], bool]:
    """Read what a call wants to publish.

    Args:
        body: of the call.

    Returns:
        The publishes, with request numbers from 1 on; and whether the body holds a list of them.

    Raises:
        RequestRefused: the message says what is wrong, and where.
    """
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestRefused(f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise RequestRefused('the body must be an object, {"topic": …, "value": …} or {"publish": [ … ]}')
    if LIST not in content:
        return [_publish(content, 1, "", len(body))], False
    items = content[LIST]
    if len(content) > 1 or not isinstance(items, list) or not 0 < len(items) <= MOST_PUBLISHES:
        raise RequestRefused(f"'{LIST}' must be alone in the body, and a list of 1 to {MOST_PUBLISHES} objects")
    return [_publish(each, place + 1, f"{LIST}[{place}]: ", len(body)) for place, each in enumerate(items)], True


def _publish(item: object, number: int, where: str, size: int) -> Publish:
    if not isinstance(item, dict):
        raise RequestRefused(f'{where}it must be an object, {{"topic": …, "value": …}}')
    if unknown := item.keys() - MEMBERS:
        raise RequestRefused(f"{where}there is no member {min(unknown)!r}; there are 'topic' and 'value'")
    read = read_publish if size <= LONG else read_long_publish
    try:
        return read({**item, "request": number})
    except BadField as error:
        raise RequestRefused(f"{where}{error}", code=error.code or ErrorCode.BAD_REQUEST) from None


def write_outcomes(outcomes: Sequence[Outcome], *, as_list: bool) -> bytes:
    """Write the answer to a call that has published, as compact JSON text."""
    written = [_written(each) for each in outcomes]
    return orjson.dumps({"results": written} if as_list else written[0])


def _written(outcome: Outcome) -> dict[str, object]:
    if outcome.code is not None:
        return {"topic": outcome.topic, "error": {"code": outcome.code.value, "message": outcome.message}}
    told: dict[str, object] = {"topic": outcome.topic, "version": outcome.version, "event": outcome.event}
    return {**told, "repeated": True} if outcome.repeated else told


def write_value(topic: str, version: Version, event: EventId, value: bytes) -> bytes:
    """Write the value of a topic, as compact JSON text."""
    return orjson.dumps({"topic": topic, "version": version, "event": event, "value": orjson.Fragment(value)})


def write_problem(status: int, title: str, code: str, detail: str) -> bytes:
    """Write why a call was not executed, as problem details (RFC 9457)."""
    return orjson.dumps(
        {"type": f"urn:session-gateway:problem:{code}", "status": status, "title": title, "detail": detail}
    )
