"""Puts what was read of the journal together to requests, none of them too large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gateway.core.hooks.cloud_events import encode, from_gap, from_record
from gateway.core.hooks.cursor import Cursor, Gap, Page, follow
from gateway.core.hooks.hook import Hook


@dataclass(slots=True)
class Batch:
    """What one request tells.

    Attributes:
        events: encoded; none if there is nothing to send, and only cursors move.
        ids: of the events.
        size: bytes of them.
        moves: cursors behind them, and behind what the hook does not want, by stream.
        gaps: those among the events.
        oldest: when the first of them happened, in microseconds since 1970; None if no record is among them.
    """

    events: list[bytes] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    size: int = 0
    moves: dict[int, Cursor] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    oldest: int | None = None


def batches(hook: Hook, pages: Iterable[Page], *, most: int, now: float) -> Iterator[Batch]:
    """Divide what was read. Events of one stream stay in their order.

    Args:
        hook: which events it gets, and how large requests are.
        pages: what was read, stream by stream.
        most: events in one request, at most.
        now: seconds since 1970.

    Yields:
        Requests in the order in which they are to be sent; the last one may have no events.
    """
    batch = Batch()
    for page in pages:
        for what, behind in follow(page):
            if isinstance(what, Gap):
                event = from_gap(what, hook.name, now)
            elif what is not None and hook.wants(what):
                event = from_record(what)
            else:
                batch.moves[page.partition] = behind
                continue
            encoded = encode(event)
            if batch.events and (len(batch.events) >= most or batch.size + len(encoded) > hook.batch_bytes):
                yield batch
                batch = Batch()
            batch.events.append(encoded)
            batch.ids.append(event["id"])
            # The comma behind it is one more.
            batch.size += len(encoded) + 1
            batch.moves[page.partition] = behind
            if isinstance(what, Gap):
                batch.gaps.append(what)
            elif what is not None:
                batch.oldest = what["at"] if batch.oldest is None else min(batch.oldest, what["at"])
    if batch.moves:
        yield batch
