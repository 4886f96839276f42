"""The workloads that the documentation plans for: a million sessions, used in four ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from benchmarks.model.plan import Rules, Workload

MILLION: Final = 1_000_000

_HOUR: Final = 3_600.0

_CHURN: Final = MILLION / _HOUR
"""Every session comes once an hour: people open and close laptops, tokens and networks change."""


@dataclass(frozen=True)
class Scenario:
    """A workload with its rules.

    Attributes:
        title: for the table.
        about: what happens, in a sentence.
        workload: what is asked.
        rules: what is assumed.
    """

    title: str
    about: str
    workload: Workload
    rules: Rules = field(default_factory=Rules)


_IDLE: Final = Workload(sessions=MILLION, topics=10_000, churn=_CHURN)

_ALL: Final = replace(_IDLE, updates=50.0, audience=MILLION)

_OWN: Final = replace(_IDLE, updates=20_000.0, audience=1.0, topics=MILLION)

_OWN_FAST: Final = replace(_OWN, updates=100_000.0)

_REGIONS: Final = 16
"""Parts into which sessions and topics are split in the same way."""

SCENARIOS: Final[Sequence[Scenario]] = (
    Scenario("idle dashboards", "nothing changes; pings, and each session comes once an hour", _IDLE),
    Scenario("one update a second to all", "all sessions watch the same values", replace(_ALL, updates=1.0)),
    Scenario("50 updates a second to all", "likewise", _ALL),
    Scenario(
        "own topic each, 20,000 updates/s", "each session is sent one update in 50 s", _OWN, Rules(node_memory=4.0)
    ),
    Scenario("own topic each, 100,000 updates/s", "one in 10 s", _OWN_FAST, Rules(node_memory=4.0)),
    Scenario(
        "own topic each, 100,000 updates/s, brought together",
        f"the same, but a node follows a {_REGIONS}th of the partitions",
        replace(_OWN_FAST, interest=1 / _REGIONS),
        Rules(node_memory=4.0),
    ),
)
"""What a million sessions need."""

REGION: Final = Scenario(
    "a third of the nodes fails at once",
    "idle dashboards; memory and time for what the survivors take over",
    _IDLE,
    Rules(node_memory=4.0),
)
"""Taken with several numbers of nodes."""

REGION_NODES: Final = (30, 60, 120, 240)

LOST_SHARE: Final = 1 / 3
"""Of them, which fails."""
