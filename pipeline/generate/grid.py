"""Synthetic journals as entries of a real journal in Redis, at a pace."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from gateway.core.journal import write_records
from pipeline.errors import NotReady, PipelineError
from pipeline.generate.journal import Scale, Slice, slices
from pipeline.generate.records import records
from pipeline.generate.tables import events_table

ENTRIES_AT_ONCE: Final = 200
"""Appended in one round trip: some thousand events, and small steps for a pace."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a stream.

    Attributes:
        stream: which.
        generation: of the grid.
        count: how many events it holds.
        events: as nodes write them.
    """

    stream: int
    generation: int
    count: int
    events: bytes


def entries(slice_: Slice, seed: int) -> Iterator[Entry]:
    """Make the entries of a slice, in the order in which nodes flushed them.

    Args:
        slice_: with the events.
        seed: of the journal.
    """
    rows = slice_.rows
    told = list(records(events_table(slice_, seed)))
    starts = np.flatnonzero(rows["line"] == 0)
    ends = np.append(starts[1:], len(told))
    for place in np.lexsort((rows["entry"][starts], rows["stream"][starts], rows["flush"][starts])):
        first, last = int(starts[place]), int(ends[place])
        yield Entry(
            int(rows["stream"][first]), int(rows["generation_of_entry"][first]), last - first,
            write_records(told[first:last]),
        )  # fmt: skip


def write_grid(
    scale: Scale, client: Redis, prefix: str, *, rate: float | None, sleep: Callable[[float], None] = time.sleep
) -> Iterator[int]:
    """Append a journal to the streams of a grid, as nodes do but for their sparing of memory: nothing is ever cut.

    Args:
        scale: which journal.
        client: of a Redis that holds no journal of a later generation.
        prefix: begins the name of every key.
        rate: events a second; None for as fast as it goes.
        sleep: waits so many seconds.

    Yields:
        How many events are written so far.

    Raises:
        NotReady: the grid holds a journal of a later generation.
        PipelineError: the grid cannot be reached, or refuses.
    """
    written, began = 0, time.monotonic()
    for each in slices(scale):
        waiting = entries(each, scale.seed)
        while some := tuple(islice(waiting, ENTRIES_AT_ONCE)):
            _append(client, prefix, some)
            written += sum(entry.count for entry in some)
            yield written
            if rate is not None and (early := written / rate - (time.monotonic() - began)) > 0:
                sleep(early)


def _append(client: Redis, prefix: str, some: tuple[Entry, ...]) -> None:
    pipe = client.pipeline(transaction=False)
    for stream in {entry.stream for entry in some}:
        pipe.hsetnx(f"{prefix}:{{j{stream}}}:journal-state", "incarnation", secrets.token_hex(8))
    for entry in some:
        fields: dict[Any, Any] = {"events": entry.events, "count": entry.count}
        pipe.xadd(f"{prefix}:{{j{entry.stream}}}:journal", fields, id=f"{entry.generation}-*")
    try:
        pipe.execute()
    except ResponseError as error:
        if "equal or smaller" in str(error):
            raise NotReady(
                "the grid holds a journal of a later generation already; use an empty Redis, or another --grid-prefix"
            ) from None
        raise PipelineError(f"the grid refuses: {error}") from None
    except RedisError as error:
        raise PipelineError(f"the grid cannot be reached: {error}") from None
