"""Writes journals into a Redis as nodes do: by the gateway's own script, batch by batch."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, Final

from redis import Redis

from gateway.core.journal import JournalEvent, Record, Stamp, journal_partition, record, write_records
from gateway.core.journal.events import SESSION_OPENED
from gateway.core.types import Epoch, Incarnation, NodeId, NodeRef, SessionId
from pipeline.source.journal import state_key, stream_key

_SCRIPTS: Final = files("gateway.adapters.redis").joinpath("scripts")
_APPEND: Final = "".join(
    _SCRIPTS.joinpath(f"{name}.lua").read_text("utf-8") for name in ("foreign_ids", "journal_append")
)
_CUT_MOST: Final = 1000
_DAY_MS: Final = 86_400_000


class Feeder:
    """A node that does nothing but write its journal.

    Args:
        client: of the Redis.
        prefix: of the keys.
        node: its name.
        batch: events of an entry.
        length: entries that a stream keeps.
    """

    def __init__(
        self, client: Redis, prefix: str, *, node: str = "n1", batch: int = 10, length: int = 1_000_000
    ) -> None:
        self.client = client
        self.prefix = prefix
        self.node = NodeRef(NodeId(node), Incarnation(f"{node}-{secrets.token_hex(4)}"))
        self.generation = 1
        self.number = 0
        self._batch = batch
        self._length = length
        self._batches = 0
        self._script: Any = client.register_script(_APPEND)

    def records(self, count: int, *, sessions: int = 50, at: int | None = None) -> list[Record]:
        """The next events of the node."""
        stamp = Stamp(self.node, "1.0")
        result = []
        for _ in range(count):
            self.number += 1
            session = SessionId(f"s{self.number % sessions}")
            when = time.time_ns() // 1000 if at is None else at + self.number
            event = JournalEvent(SESSION_OPENED, when, session, Epoch(1), {"principal": "alice", "window_ms": 60_000})
            result.append(record(event, stamp, self.number))
        return result

    def feed(self, count: int, **options: Any) -> list[Record]:
        """Write the next events, spread over the streams by session; returns them."""
        records = self.records(count, **options)
        self.write(records)
        return records

    def write(self, records: Iterable[Record]) -> None:
        """Write events, as many to an entry as a batch has."""
        waiting: dict[int, list[Record]] = {}
        with self.client.pipeline(transaction=False) as pipe:
            for each in records:
                stream = journal_partition(SessionId(each["session"]))
                lines = waiting.setdefault(stream, [])
                lines.append(each)
                if len(lines) == self._batch:
                    self.append(stream, write_records(lines), len(lines), pipe)
                    waiting[stream] = []
            for stream, lines in waiting.items():
                if lines:
                    self.append(stream, write_records(lines), len(lines), pipe)
            replies = pipe.execute()
        assert all(reply[0] == 1 for reply in replies)

    def append(self, stream: int, events: bytes, count: int, client: Any = None) -> None:
        """Append one entry, whatever is in it."""
        self._batches += 1
        self._script(
            keys=[stream_key(self.prefix, stream), state_key(self.prefix, stream)],
            args=[
                *(self.generation, self.node.incarnation, self._batches, count, events),
                *(self._length, _CUT_MOST, secrets.token_hex(8), _DAY_MS),
            ],
            client=client,
        )


def ids(records: Sequence[Record]) -> set[str]:
    """The ids of events."""
    return {each["id"] for each in records}
