"""What a session takes in the grid, in bytes: for accounts and bounds, so never too little.

Measured on Redis 7.0 (``tests/integration/redis/test_stored_sizes.py``), without the quarter by which its allocator may
round up, which whoever plans the memory of a Redis has to add.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import orjson

from gateway.core.session.server_session import NO_HANDLERS, ServerSession
from gateway.core.topics.selections import Selections

SESSION_BYTES: Final = 2_048
"""Of a session with nothing in it: its hash, and its places in three indexes. One whose texts are all short takes a
third of that."""

ENTRY_BYTES: Final = 64
"""Of an entry of the list of selections besides its text."""

HANDLER_BYTES: Final = 512
"""Of a handler besides its text in the session: its text in the partition, and its two places in the order there."""

RECEIPTS_BYTES: Final = 2_048
"""Of the receipts of its publishes in a topic partition: the key, and sixteen of them before the oldest are
forgotten."""


def text_bytes(texts: Mapping[str, str]) -> int:
    """Tell how many bytes properties take, as the grid holds them: in JSON, where a character may be six."""
    return len(orjson.dumps(texts)) if texts else 0


def selections_bytes(selections: Selections) -> int:
    """Tell how many bytes a list of selections takes; the same time however long it is."""
    return selections.text_bytes + ENTRY_BYTES * len(selections)


def handlers_bytes(handlers: Mapping[str, int]) -> int:
    """Tell how many bytes the handlers of a session take, in its hash and in their partitions."""
    return len(orjson.dumps(handlers)) + HANDLER_BYTES * len(handlers) if handlers else 0


def record_bytes(
    *,
    properties: Mapping[str, str],
    principal_properties: Mapping[str, str],
    roles: Collection[str],
    entries: int,
    entries_bytes: int,
    publish_partitions: int,
    handlers: Mapping[str, int] = NO_HANDLERS,
) -> int:
    """Tell how many bytes a session takes in the grid, with what it left in topic partitions.

    Args:
        properties: of the session.
        principal_properties: what its credentials vouch for of its principal.
        roles: of its principal.
        entries: of its list of selections.
        entries_bytes: of their texts.
        publish_partitions: topic partitions that may hold receipts of it.
        handlers: selectors of the questions that it handles, each of which is in its partition, too.
    """
    return (
        SESSION_BYTES
        + text_bytes(properties)
        + text_bytes(principal_properties)
        + (len(orjson.dumps(list(roles))) if roles else 0)
        + entries_bytes
        + ENTRY_BYTES * entries
        + RECEIPTS_BYTES * publish_partitions
        + handlers_bytes(handlers)
    )


def stored_bytes(session: ServerSession) -> int:
    """Tell how many bytes a session takes in the grid, with what it left there; some microseconds."""
    return record_bytes(
        properties=session.properties,
        principal_properties=session.principal_properties,
        roles=session.roles,
        entries=len(session.selections),
        entries_bytes=session.selections.text_bytes,
        publish_partitions=len(session.publish_partitions),
        handlers=session.handlers,
    )
