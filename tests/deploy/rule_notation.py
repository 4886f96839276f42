"""How cases of alerts are written: series under which one fires and series under which it does not, for promtool.

``a+bxn`` is a, a+b, … for n more steps; ``a`` alone stands for the same value all the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

STEPS: Final = 20
"""How long every series is; alerts are looked at after the last of them."""

MINUTE: Final = 60
"""Seconds of a step, unless a case says otherwise."""

DAY: Final = 86400
"""Seconds. Time begins with 0 in these tests."""


@dataclass(frozen=True, slots=True)
class Case:
    """One alert.

    Attributes:
        fires: series, by which it fires at the end.
        quiet: sets of series by which it does not.
        labels: of the alert that fires, besides its name and severity.
        steps: how long the series are.
        step: seconds; shorter where a rule looks at the last minute only.
        more_fires: further sets of series by which it fires.
        more_labels: of the alert that fires by these, if they are others.
    """

    fires: dict[str, str]
    quiet: tuple[dict[str, str], ...]
    labels: dict[str, str] = field(default_factory=dict)
    steps: int = STEPS
    step: int = MINUTE
    more_fires: tuple[dict[str, str], ...] = ()
    more_labels: dict[str, str] | None = None


def still(value: float) -> str:
    """A value that stays."""
    return f"{value}+0x{STEPS}"


def grows(by: float) -> str:
    """A counter that grows by so much a step."""
    return f"0+{by}x{STEPS}"


def latency(histogram: str, seconds: float, **labels: str) -> dict[str, str]:
    """A histogram whose values are all just below *seconds*, one of its bounds; 600 a step."""
    text = "".join(f',{name}="{value}"' for name, value in labels.items())
    bounds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]
    return {
        f'{histogram}_bucket{{node="n1",le="{bound}"{text}}}': grows(600 if bound >= seconds else 0) for bound in bounds
    } | {f'{histogram}_bucket{{node="n1",le="+Inf"{text}}}': grows(600)}


def slow(histogram: str, bad: float, good: float, labels: dict[str, str] | None = None, **extra: str) -> Case:
    """An alert on the slow end of a histogram."""
    return Case(
        latency(histogram, bad, **extra), (latency(histogram, good, **extra),), labels or {"node": "n1", **extra}
    )


NODES: Final = {
    'up{job="gateway",node="n1",instance="a"}': still(1),
    'up{job="gateway",node="n2",instance="b"}': still(1),
    'up{job="gateway",node="n3",instance="c"}': still(1),
}

NODE: Final = {"node": "n1"}
