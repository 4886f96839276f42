"""The timeline of a session: when it was connected, and when it was away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple, TypeAlias

from pipeline.sessions import rules
from pipeline.sessions.rules import MICROSECONDS
from pipeline.sessions.stints import Stint, last_lived

Interval: TypeAlias = dict[str, Any]
"""An element of the column ``intervals``; instants in microseconds since 1970."""

_NOTHING: Final[Mapping[str, None]] = dict.fromkeys(
    (
        "kind", "begins", "ends", "node", "incarnation", "release", "epoch", "rung", "reason", "replayed", "cause",
        "away_ms", "measured_by", "uncertain_ms", "resent", "conflated", "deduplicated", "lost", "peer", "put_off",
        "held_up_ms",
    )
)  # fmt: skip


class _Loss(NamedTuple):
    """When a connection ended: the moment, whose word it is, and by how many milliseconds it may have been later."""

    at: int
    by: str
    uncertain_ms: int | None = None


def timeline(
    served: Sequence[Stint], ended_at: int | None, ended_by: str | None, put_off: Sequence[int] = ()
) -> list[Interval]:
    """Lay the stints of a session out in time, without holes and without overlaps.

    The clocks of nodes differ, and epochs are right against them: what happened later never stands before what happened
    earlier. So a stint begins no earlier than the one before, and ends between its beginning and the next one.

    Args:
        served: the stints, from ``stints``.
        ended_at: when the session ended, not before its last stint began; None if it has not.
        ended_by: how: ``closed`` or ``expired``; None if it has not, or nobody told.
        put_off: when its client was told to try again, in order; each time belongs to the comeback that followed it.
    """
    intervals: list[Interval] = []
    begins = 0
    away_since: int | None = None
    before: _Loss | None = None
    for stint, after in zip_longest(served, served[1:]):
        began, begins = begins, max(begins, stint.position)
        if not intervals and stint.told_away_ms is not None:
            before = _Loss(begins - stint.told_away_ms * MICROSECONDS, rules.BY_CLIENT)
            away_since = before.at
            intervals.append(_away_before(stint, away_since, begins))
        limit = ended_at if after is None else max(begins, after.position)
        loss = _loss(stint, after, limit)
        ends = limit if loss is None else max(begins, loss.at)
        if ends is not None and limit is not None:
            ends = min(ends, limit)
        cause = stint.cause or (ended_by if after is None else None)
        comeback = _comeback(stint, begins, away_since, before)
        if comeback:
            waits = [each for each in put_off if began < each <= begins]
            comeback |= {"put_off": len(waits), "held_up_ms": (begins - waits[0]) // MICROSECONDS if waits else None}
        intervals.append(_connected(stint, begins, ends, cause) | comeback)
        if after is not None or (loss is not None and ends != ended_at):
            intervals.append(_away(stint, ends, limit, cause))
        away_since, before = ends, loss
    return intervals


def _loss(stint: Stint, after: Stint | None, limit: int | None) -> _Loss | None:
    """Tell when the connection of a stint ended; None if nobody can, or it has not.

    The client knows best: a node may take long to notice that a connection is dead. What the old node tells of a time
    when the client was elsewhere already is no measure of how long it was away.
    """
    if after is not None and limit is not None and after.told_away_ms is not None:
        return _Loss(limit - after.told_away_ms * MICROSECONDS, rules.BY_CLIENT)
    latest = None if after is None else limit
    if stint.ending is not None:
        return _Loss(stint.ending.at, rules.BY_NODE) if latest is None or stint.ending.at <= latest else None
    if stint.orphaning is not None:
        lived = last_lived(stint.orphaning)
        return _Loss(lived, rules.BY_SURVIVORS, stint.uncertain_ms) if latest is None or lived <= latest else None
    return None


def _connected(stint: Stint, begins: int, ends: int | None, cause: str | None) -> Interval:
    return {
        **_NOTHING,
        "kind": rules.CONNECTED,
        "begins": begins,
        "ends": ends,
        "node": stint.node,
        "incarnation": stint.incarnation,
        "release": stint.release,
        "epoch": stint.epoch,
        "rung": rules.CREATED if stint.opening else None,
        "cause": cause,
        "deduplicated": stint.deduplicated,
    }


def _comeback(stint: Stint, begins: int, away_since: int | None, loss: _Loss | None) -> Interval:
    """Tell how the client came back, if it did."""
    told = stint.comeback
    if told is None:
        return {}
    comeback: Interval = {
        "rung": told.rung,
        "reason": told.reason,
        "replayed": told.replayed,
        "resent": told.resent,
        "conflated": told.conflated,
        "lost": told.lost,
        "peer": told.peer,
    }
    if loss is not None and away_since is not None:
        comeback["away_ms"] = (begins - away_since) // MICROSECONDS
        comeback["measured_by"] = loss.by
        comeback["uncertain_ms"] = loss.uncertain_ms
    return comeback


def _away(stint: Stint, begins: int | None, ends: int | None, cause: str | None) -> Interval:
    return {
        **_NOTHING,
        "kind": rules.AWAY,
        "begins": begins,
        "ends": ends,
        "node": stint.node,
        "incarnation": stint.incarnation,
        "release": stint.release,
        "epoch": stint.epoch,
        "cause": cause,
    }


def _away_before(stint: Stint, begins: int, ends: int) -> Interval:
    """The first that is known of the session is that its client came back, after a time that it tells."""
    told = stint.beginning
    return {
        **_NOTHING,
        "kind": rules.AWAY,
        "begins": begins,
        "ends": ends,
        "node": None if told is None else told.peer,
        "incarnation": None if told is None else told.peer_incarnation,
    }
