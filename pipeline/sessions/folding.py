"""The fold as a stream: what is known of sessions, and what a micro-batch tells, become rows and what is known then.

What is known is a table of Arrow, a row for each session. Rows that nothing touches are passed on as columns; only of
the sessions that a batch tells something of, and of those whose timer is due, Python sees what is known (ADR 0131).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
from pyspark.sql.types import BinaryType, BooleanType, LongType, StringType, StructField, StructType

from pipeline.columns import arrow_schema
from pipeline.sessions.facts import Fact
from pipeline.sessions.state import SessionState
from pipeline.sessions.tell import SessionRow, tell
from pipeline.sessions.timers import Timer, timer_of

_compute: Final[Any] = pyarrow.compute
"""Of what these functions give for columns, Arrow's stubs cannot tell the type."""

KNOWN: Final = arrow_schema(
    StructType(
        [
            StructField("session", StringType(), nullable=False),
            StructField("facts", BinaryType(), nullable=False),
            StructField("timer_ms", LongType(), nullable=False),
            StructField("forget", BooleanType(), nullable=False),
        ]
    )
)
"""What is kept of a session: ``SessionState.encode``, for when its timer is set, and whether it is forgotten then."""

NOTHING: Final = KNOWN.empty_table()


class Folded(NamedTuple):
    """What came of a batch.

    Attributes:
        rows: that have changed, one of a session.
        known: what is known now; the same object as before if nothing has changed.
    """

    rows: list[SessionRow]
    known: pa.Table


def fold(known: pa.Table, told: Mapping[str, Sequence[Fact]], heard_until_ms: int) -> Folded:
    """Take in what is new, in whichever order; what is known already changes nothing.

    Each session has one timer: for when its row changes by itself, because its window passes without a word; or for
    when it may be forgotten, a day after its end or long after anything was heard of it.

    Args:
        known: with the columns of KNOWN.
        told: facts by session.
        heard_until_ms: the watermark, which is that of the batch, too: up to when all nodes have been heard, in
            milliseconds since 1970.
    """
    work = _Work(heard_until_ms)
    places = _places(known, told)
    before: list[Any] = known["facts"].take(pa.array(list(places.values()), pa.int64())).to_pylist()
    states = {session: SessionState.decode(facts) for session, facts in zip(places, before, strict=True)}
    gone = []
    for session, facts in told.items():
        state = states.get(session) or SessionState()
        size = len(state)
        for each in facts:
            state.add(each)
        if len(state) > size:
            work.tell(session, state)
            if session in places:
                gone.append(places[session])
    due = set(np.flatnonzero(_compute.less_equal(known["timer_ms"], heard_until_ms).to_numpy()).tolist()) - set(gone)
    gone += due
    for row in known.take(pa.array(sorted(due), pa.int64())).to_pylist():
        if not row["forget"]:
            work.tell(row["session"], SessionState.decode(row["facts"]))
    if not gone and not work.known:
        return Folded([], known)
    stay = np.ones(len(known), dtype=bool)
    stay[gone] = False
    new = pa.Table.from_pylist(work.known, schema=KNOWN)
    return Folded(work.rows, pa.concat_tables([known.filter(pa.array(stay)), new]).combine_chunks())


def _places(known: pa.Table, told: Mapping[str, object]) -> dict[str, int]:
    """Find those sessions that are known, and where."""
    found = _compute.index_in(pa.array(list(told), pa.string()), value_set=known["session"])
    return {session: place for session, place in zip(told, found.to_pylist(), strict=True) if place is not None}


class _Work:
    """What has changed."""

    def __init__(self, heard_until_ms: int) -> None:
        self._heard_until_ms = heard_until_ms
        self.rows: list[SessionRow] = []
        self.known: list[dict[str, Any]] = []

    def tell(self, session: str, state: SessionState) -> None:
        told = tell(session, state, self._heard_until_ms)
        timer: Timer = timer_of(told, state, self._heard_until_ms)
        self.known.append(
            {"session": session, "facts": state.encode(), "timer_ms": timer.at_ms, "forget": timer.forget}
        )
        if told is not None:
            self.rows.append(told.row)
