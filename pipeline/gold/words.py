"""Words and numbers of the gold tables, each with its reason."""

from __future__ import annotations

from typing import Final

from gateway.core.wire.codes import ErrorCode, Outcome

CREATED: Final = Outcome.CREATED.value
REATTACHED: Final = Outcome.REATTACHED.value
HANDED_OVER: Final = Outcome.HANDED_OVER.value
MIRRORED: Final = Outcome.MIRRORED.value
FAILED_OVER: Final = Outcome.FAILED_OVER.value

GRID_UNAVAILABLE: Final = ErrorCode.GRID_UNAVAILABLE.value
SESSION_UNKNOWN: Final = ErrorCode.SESSION_UNKNOWN.value
"""Why resumes are refused in a grid outage, and after one in which the grid forgot writes."""

RUNGS: Final = (REATTACHED, HANDED_OVER, MIRRORED, FAILED_OVER)
"""Those that have a column, in the order of the ladder. A pipeline may be older than the nodes whose journal it reads,
so all words that the protocol knows have theirs; what else it meets is counted as others."""

CONNECTED: Final = "connected"
"""Kind of an interval of silver."""

ENDED: Final = "ended"
"""State of a session of silver that is no more."""

CLOSED: Final = "closed"
EXPIRED: Final = "expired"
"""How sessions end, in silver: also the cause of the interval that they end."""

RECOVERED: Final = "recovered"
AWAY: Final = "away"
"""Fates of sessions that an incident touched, beside the ends above."""

NOT_BACK: Final = (EXPIRED, AWAY)
"""Fates of sessions whose clients never came back, as far as is known."""

UNSAID: Final = ("node_died", "fenced")
"""Causes of a connection's end that are not its own node's word of a loss."""

DEATH: Final = "death"
HANG: Final = "hang"
DRAIN: Final = "drain"
OUTAGE: Final = "outage"
"""Kinds of incidents."""

SLACK_SECONDS: Final = 1
"""By how much the clocks of clients, survivors and dead nodes may differ when they tell of the same moment."""

OUTAGE_JOINS_SECONDS: Final = 5
"""Nodes that lose the grid so soon after each other, or before another one has it again, lost it in one outage: they
notice it when their next command fails."""

OUTAGE_AFTER_SECONDS: Final = 60
"""For how long after a grid outage resumes may still be refused because of it: a client's longest backoff."""

PERCENTILES: Final = ((50, "p50"), (95, "p95"), (99, "p99"))
"""Which are told. They are nearest-rank percentiles: the smallest value that at least so many hundredths of all values
do not exceed. It is always one of the values, and every engine finds the same one."""

STORM_BUCKET_SECONDS: Final = 10
"""Long enough to count, short enough to see how a storm rises and falls."""

STORM_FACTOR: Final = 5
"""How many times the usual number of comebacks make a storm."""

STORM_LEAST: Final = 20
"""Comebacks in ten seconds, below which it is no storm however quiet the hour is."""

STORM_AFTER_SECONDS: Final = 60
"""How long after the end of an incident a storm may still be its consequence: a client's longest backoff."""
