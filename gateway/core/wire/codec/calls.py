"""Bodies of calls by HTTP: what a back end asks for, and what it is told (docs: reference/client-api.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

import orjson

from gateway.core.types import EventId, Version
from gateway.core.wire.codec.fields import BadField, read_positions
from gateway.core.wire.codec.readers import read_long_publish, read_publish
from gateway.core.wire.codec.values import LONG
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import EARLIEST, NOW, Publish
from gateway.core.wire.publish_packet import TTL

MOST_PUBLISHES: Final = 1_000
"""Topics that one call sets at most: ten steps of the grid, and some milliseconds of the node's time."""

LIST: Final = "publish"
"""Member of a body that sets several topics: what one sets, for each of them."""

MEMBERS: Final = frozenset({"topic", "value", TTL})
"""Of what sets one topic."""

MOST_SELECTORS: Final = 20
"""Selectors of a call that reads values: each is looked for in up to 64 partitions."""

VALUES_QUERY: Final = frozenset({"selector", "limit", "cursor"})
"""Parameters of such a call."""

HISTORY_QUERY: Final = frozenset({"after", "from", "limit"})
"""Parameters of a call that reads history."""

MOST_DIGITS: Final = 9
"""Of a number in a query: far above every limit, and quickly read."""


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
    items, as_list = read_items(body, LIST, '{"topic": …, "value": …}', MOST_PUBLISHES)
    return [
        _publish(each, place + 1, f"{LIST}[{place}]: " if as_list else "", len(body))
        for place, each in enumerate(items)
    ], as_list


def read_items(body: bytes, name: str, example: str, most: int) -> tuple[list[object], bool]:
    """Read a body that asks for one thing, or has a list of such things as its only member.

    Args:
        body: of the call.
        name: of that member.
        example: how one thing looks, for people.
        most: things in a list.

    Returns:
        The things, not looked at; and whether the body holds a list of them.

    Raises:
        RequestRefused: the message says what is wrong.
    """
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestRefused(f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise RequestRefused(f'the body must be an object, {example} or {{"{name}": [ … ]}}')
    if name not in content:
        return [content], False
    items = content[name]
    if len(content) > 1 or not isinstance(items, list) or not 0 < len(items) <= most:
        raise RequestRefused(f"'{name}' must be alone in the body, and a list of 1 to {most} objects")
    return items, True


def _publish(item: object, number: int, where: str, size: int) -> Publish:
    if not isinstance(item, dict):
        raise RequestRefused(f'{where}it must be an object, {{"topic": …, "value": …}}')
    if unknown := item.keys() - MEMBERS:
        raise RequestRefused(f"{where}there is no member {min(unknown)!r}; there are 'topic', 'value' and '{TTL}'")
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


class ValuesQuery(NamedTuple):
    """Which values a call asks for.

    Attributes:
        selectors: texts, not yet validated; each once.
        cursor: the path to go on behind, not yet validated; None to begin.
        limit: most values; None for as many as the node sends at once.
    """

    selectors: tuple[str, ...]
    cursor: str | None
    limit: int | None


def read_values_query(query: str) -> ValuesQuery:
    """Read the query of a call that reads values.

    Args:
        query: as it was sent, without the question mark.

    Raises:
        RequestRefused: the message says what is wrong.
    """
    try:
        pairs = parse_qsl(
            query,
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=MOST_SELECTORS + len(VALUES_QUERY),
        )
    except ValueError:
        raise RequestRefused(
            f"the query of the URL cannot be read; it is like selector=prices/**&limit=100, with {MOST_SELECTORS} "
            "selectors at most"
        ) from None
    given = dict(pairs)
    selectors = tuple(dict.fromkeys(value for name, value in pairs if name == "selector"))
    others = [name for name, _ in pairs if name != "selector"]
    if not 0 < len(selectors) <= MOST_SELECTORS or len(set(others)) < len(others) or given.keys() - VALUES_QUERY:
        raise RequestRefused(
            f"the query has 1 to {MOST_SELECTORS} times 'selector', 'limit' and 'cursor' once at most, and nothing else"
        )
    limit = given.get("limit")
    if limit is not None and not (_is_number(limit) and int(limit)):
        raise RequestRefused("'limit' must be a whole number above 0")
    return ValuesQuery(selectors, given.get("cursor"), None if limit is None else int(limit))


def write_values(values: Sequence[tuple[str, Version, EventId, bytes]], cursor: str | None) -> bytes:
    """Write a part of the values, as compact JSON text.

    Args:
        values: topic, version, event and value of each.
        cursor: the path to go on behind; None if that is all.
    """
    content: dict[str, object] = {
        "values": [
            {"topic": topic, "version": version, "event": event, "value": orjson.Fragment(value)}
            for topic, version, event, value in values
        ]
    }
    return orjson.dumps(content if cursor is None else {**content, "cursor": cursor})


class HistoryQuery(NamedTuple):
    """What of a history a call asks for; as of ``ReadHistory``.

    Attributes:
        after: by topic partition, the event up to which all is known.
        earliest: whether all others are read from the earliest event that is kept; if not, from now on.
        limit: most events; None for as many as the node sends at once.
    """

    after: Mapping[int, EventId]
    earliest: bool
    limit: int | None


def read_history_query(query: str) -> HistoryQuery:
    """Read the query of a call that reads history.

    Args:
        query: as it was sent, without the question mark.

    Raises:
        RequestRefused: the message says what is wrong.
    """
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=len(HISTORY_QUERY))
    except ValueError:
        raise RequestRefused("the query of the URL cannot be read; it is like after=17-1-88&limit=100") from None
    given = dict(pairs)
    if len(given) < len(pairs) or given.keys() - HISTORY_QUERY:
        raise RequestRefused(f"the query has each of {', '.join(sorted(HISTORY_QUERY))} once at most, and nothing else")
    start, limit, after = given.get("from", EARLIEST), given.get("limit"), given.get("after", "")
    if start not in {EARLIEST, NOW}:
        raise RequestRefused(f"'from' must be {EARLIEST} or {NOW}")
    if limit is not None and not _is_number(limit):
        raise RequestRefused("'limit' must be a whole number")
    return HistoryQuery(read_places(after, "after"), start == EARLIEST, None if limit is None else int(limit))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def read_places(text: str, name: str) -> dict[int, EventId]:
    """Read where somebody is in the topic partitions; nowhere if the text is empty.

    Args:
        text: as histories and streams tell it.
        name: of what holds it, for people.

    Raises:
        RequestRefused: it is not that.
    """
    events = text.split(",") if text else []
    places = read_positions({name: {each.partition("-")[0]: each for each in events}}, name)
    if len(places) < len(events):
        raise RequestRefused(f"'{name}' must be ids of events, one of each topic partition, with commas between them")
    return places


def write_history(
    events: Sequence[tuple[str, Version, EventId, bytes, bool]],
    positions: Mapping[int, EventId],
    *,
    complete: bool,
    missing: Sequence[str] | None,
) -> bytes:
    """Write a part of a history, as compact JSON text.

    Args:
        events: topic, version, id and value of each, and whether it is a current value in the place of its event; the
            value is empty if the topic was removed.
        positions: by topic partition, up to where nothing is missing.
        complete: whether that is all there is.
        missing: topics of which something is not kept any more, some of them; None if there is no gap.
    """
    content: dict[str, object] = {
        "events": [_event(*each) for each in events],
        "after": ",".join(positions[number] for number in sorted(positions)),
        "complete": complete,
    }
    if missing is not None:
        content |= {"gap": True, "missing": list(missing)}
    return orjson.dumps(content)


def _event(topic: str, version: Version, event: EventId, value: bytes, snapshot: bool) -> dict[str, object]:
    told: dict[str, object] = {"topic": topic, "version": version, "event": event}
    if snapshot:
        told["snapshot"] = True
    return told | ({"value": orjson.Fragment(value)} if value else {"removed": True, "value": None})


def write_problem(status: int, title: str, code: str, detail: str) -> bytes:
    """Write why a call was not executed, as problem details (RFC 9457)."""
    return orjson.dumps(
        {"type": f"urn:session-gateway:problem:{code}", "status": status, "title": title, "detail": detail}
    )
