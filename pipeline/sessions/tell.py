"""The row of a session, told from its facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from pipeline.sessions import rules
from pipeline.sessions.facts import Fact
from pipeline.sessions.rules import MICROSECONDS
from pipeline.sessions.state import SessionState
from pipeline.sessions.stints import Stint, stints
from pipeline.sessions.timeline import Interval, timeline

_T = TypeVar("_T")

SessionRow: TypeAlias = dict[str, Any]
"""A row of SILVER by column; instants in microseconds since 1970."""


class Told(NamedTuple):
    """What is told of a session.

    Attributes:
        row: its row.
        due_ms: when the row will change though nothing more is heard, in milliseconds since 1970; None if it will not.
        ended_at: when the session ended, in microseconds since 1970; None if it has not, as far as is known.
    """

    row: SessionRow
    due_ms: int | None
    ended_at: int | None


class _End(NamedTuple):
    """How a session ended: when, in microseconds; ``closed``, ``expired`` or, if nobody told, None; and why."""

    at: int
    kind: str | None
    reason: str | None


def tell(session: str, state: SessionState, heard_until_ms: int) -> Told | None:
    """Tell the life of a session.

    Args:
        session: its id.
        state: what is known of it.
        heard_until_ms: up to when all nodes have been heard, in milliseconds since 1970: the watermark of a stream. It
            decides only whether a session, whose end nobody told, must have ended because its window has passed.

    Returns:
        Its row and when it changes by itself; None if all that is known is that resumes were refused or a copy was
        fenced, which does not make a session.
    """
    facts = list(state)
    served = stints(facts)
    end = _told_end(facts, served)
    if not served and end is None:
        return None
    due_ms = None
    if end is None:
        due_ms = _due_ms(served)
        if due_ms is not None and due_ms <= heard_until_ms:
            end, due_ms = _presumed_end(served, due_ms), None
    ended_at = None if end is None else end.at
    put_off = sorted(each.at for each in facts if _is_put_off(each))
    intervals = timeline(served, ended_at, None if end is None else end.kind, put_off)
    row = _row(session, facts, served, end, intervals)
    return Told(row, due_ms, ended_at)


def _told_end(facts: Iterable[Fact], served: Sequence[Stint]) -> _End | None:
    """Find the end that was told. A session that has ended does not rise again (P7), so the first one counts."""
    ends = [each for each in facts if each.type in {rules.CLOSED, rules.EXPIRED}]
    if not ends:
        return None
    first = min(ends, key=lambda each: (each.at, each.incarnation, each.number))
    kind = rules.CLOSED_END if first.type == rules.CLOSED else rules.EXPIRED_END
    return _End(_not_before_the_last(first.at, served), kind, first.reason)


def _presumed_end(served: Sequence[Stint], due_ms: int) -> _End:
    return _End(_not_before_the_last(due_ms * MICROSECONDS, served), None, rules.PRESUMED)


def _not_before_the_last(at: int, served: Sequence[Stint]) -> int:
    return max([at, *(each.position for each in served)])


def _due_ms(served: Sequence[Stint]) -> int | None:
    """Tell when the window passes of a session that is away, at the latest if how long it is kept is unknown."""
    window_ms = _first(each.opening.window_ms for each in served if each.opening)
    began = served[-1].clock_began
    if began is None:
        return None
    if window_ms is None:
        window_ms = rules.LONGEST_WINDOW_MS
    # Up to the next millisecond: never before the window has passed.
    return -(-began // MICROSECONDS) + window_ms


def _row(
    session: str, facts: Sequence[Fact], served: Sequence[Stint], end: _End | None, intervals: Sequence[Interval]
) -> SessionRow:
    comebacks = [each.comeback for each in served if each.comeback]
    opening = _first(each.opening for each in served)
    nodes = list(dict.fromkeys(each.node for each in served if each.node is not None))
    begun = [each.beginning for each in served if each.beginning]
    epochs = [each.epoch for each in facts if each.epoch is not None]
    moments = [each.at for each in facts]
    return {
        "session": session,
        "principal": _first(each.principal for each in begun),
        "client": opening.client if opening else None,
        "window_ms": opening.window_ms if opening else None,
        "first_node": nodes[0] if nodes else None,
        "nodes": nodes,
        "release": begun[-1].release if begun else _first(each.release for each in reversed(served)),
        "epoch": max(epochs, default=None),
        "state": _state(end, intervals),
        "opened_at": opening.at if opening else None,
        "ended_at": end.at if end else None,
        "end": end.kind if end else None,
        "end_reason": end.reason if end else None,
        "intervals": intervals,
        "connected_ms": _length_ms(intervals, rules.CONNECTED),
        "away_ms": _length_ms(intervals, rules.AWAY),
        "comebacks": len(comebacks),
        "resent": sum(each.resent or 0 for each in comebacks),
        "deduplicated": sum(each.deduplicated or 0 for each in served),
        "conflated": sum(each.conflated or 0 for each in comebacks),
        "lost": sum(each.lost or 0 for each in comebacks),
        "refused": sum(each.type == rules.REFUSED for each in facts),
        "put_off": sum(map(_is_put_off, facts)),
        "slow_closes": sum(each.type == rules.SLOW_CLOSED for each in facts),
        "complete": opening is not None,
        "first_event_at": min(moments),
        "last_event_at": max(moments),
        "events": len(facts),
    }


def _is_put_off(fact: Fact) -> bool:
    return fact.type == rules.REFUSED and fact.reason in rules.PUT_OFF


def _state(end: _End | None, intervals: Sequence[Interval]) -> str:
    if end is not None:
        return rules.ENDED
    state: str = intervals[-1]["kind"]
    return state


def _length_ms(intervals: Iterable[Interval], kind: str) -> int:
    """Sum in microseconds, and then once to milliseconds: what is cut off does not add up."""
    length: int = sum(
        each["ends"] - each["begins"] for each in intervals if each["kind"] == kind and each["ends"] is not None
    )
    return length // MICROSECONDS


def _first(values: Iterable[_T | None]) -> _T | None:
    return next((each for each in values if each is not None), None)
