"""The fold as a stateful stream: what is known of each session is kept, and its row is told anew when it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.schemas import SILVER
from pipeline.sessions.facts import Fact
from pipeline.sessions.frames import NODES
from pipeline.sessions.rules import MICROSECONDS
from pipeline.sessions.state import SessionState
from pipeline.sessions.tell import SessionRow, Told, tell

KEPT: Final = StructType(
    [
        StructField("facts", BinaryType(), nullable=False),
        StructField("timer_ms", LongType()),
        StructField("forget", BooleanType()),
    ]
)
"""What the state store keeps of a session: ``SessionState.encode``, for when its timer is set, and what it is for."""

SETTLED_AFTER_MS: Final = 86_400_000
"""For how long what is known of a session is kept after it has ended, by the watermark, in milliseconds: a day. What is
told later than that, a node kept for a day."""

SILENT_AFTER_MS: Final = 90 * 86_400_000
"""For how long what is known of a connected session is kept of which nothing is heard, in milliseconds: longer than
nodes go without a deploy, which moves it. If all nodes and the grid vanish at once, nobody ever tells of its end, and
its state would stay for ever. What is told of it later, `pipeline backfill` brings in."""

_DAY_MS: Final = 86_400_000
"""To whole days such a timer is rounded up, so that a busy session does not set it anew with every batch."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class SessionProcessor(StatefulProcessor):
    """Keeps the facts of each session, and tells its row whenever there is something new.

    Each session has one timer: for when its row changes by itself, because its window passes without a word; or for
    when it may be forgotten, a day after its end or long after anything was heard of it. So no state stays for ever.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        """See the base class."""
        self._handle = handle
        self._known = handle.getValueState("known", KEPT)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        """Take in what is new, in whichever order; what is known already changes nothing."""
        (session,) = key
        if session == NODES:
            return
        state, timer = self._load()
        before = len(state)
        for each in rows:
            state.add(Fact._make([each[name] for name in Fact._fields]))
        if len(state) > before:
            yield from self._tell(session, state, timer, timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803 - Spark's name
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803, ARG002 - Spark's name
    ) -> Iterator[Row]:
        """Forget the session, or tell that its window has passed."""
        (session,) = key
        kept = self._load()
        if kept.timer is None or kept.timer.forget:
            self._known.clear()
        else:
            yield from self._tell(session, kept.state, None, timerValues.getCurrentWatermarkInMs())

    def close(self) -> None:
        """There is nothing to close."""

    def _load(self) -> _Kept:
        kept = self._known.get()
        if kept is None:
            return _Kept(SessionState(), None)
        facts, at_ms, forget = kept
        return _Kept(SessionState.decode(bytes(facts)), None if at_ms is None else _Timer(at_ms, forget))

    def _tell(self, session: str, state: SessionState, timer: _Timer | None, heard_until_ms: int) -> Iterator[Row]:
        told = tell(session, state, heard_until_ms)
        wanted = _timer_of(told, state, heard_until_ms)
        if timer != wanted:
            if timer is not None:
                self._handle.deleteTimer(timer.at_ms)
            self._handle.registerTimer(wanted.at_ms)
        self._known.update((state.encode(), *wanted))
        if told is not None:
            yield row_of(told.row)


class _Timer(NamedTuple):
    """When to look at a session again though nothing is heard of it, and whether to forget it then."""

    at_ms: int
    forget: bool


class _Kept(NamedTuple):
    state: SessionState
    timer: _Timer | None


def _timer_of(told: Told | None, state: SessionState, heard_until_ms: int) -> _Timer:
    """Tell when to look again; always later than the watermark."""
    if told is not None and told.due_ms is not None:
        return _Timer(told.due_ms, forget=False)
    # Before the first record of a node is heard, the watermark is in 1970.
    last_ms = max(each.at for each in state) // MICROSECONDS
    if told is not None and told.ended_at is None:
        silent_ms = max(heard_until_ms, last_ms) + SILENT_AFTER_MS
        return _Timer(-(-silent_ms // _DAY_MS) * _DAY_MS, forget=True)
    return _Timer(max(heard_until_ms, last_ms) + SETTLED_AFTER_MS, forget=True)


def row_of(told: SessionRow) -> Row:
    """Make a row of Spark's, whose instants are ``datetime``."""
    return Row(**_instants(told, SILVER))


def _instants(told: Mapping[str, Any], schema: StructType) -> dict[str, Any]:
    return {each.name: _instant(told[each.name], each.dataType) for each in schema}


def _instant(value: Any, kind: DataType) -> Any:
    if value is None:
        return None
    match kind:
        case TimestampType():
            return _EPOCH + timedelta(microseconds=value)
        case StructType():
            return Row(**_instants(value, kind))
        case ArrayType():
            return [_instant(each, kind.elementType) for each in value]
        case _:
            return value
