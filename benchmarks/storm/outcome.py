"""What storms came to, in each variant in which they are met: judged, told to people, and kept in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.machine import machine

MOST_TIMES: Final = 5.0
"""By what the 99th percentile may rise during a storm (issue of operability, acceptance 3)."""
MOST_REDIS: Final = 0.5
"""Cores that Redis may use at most."""

OFF: Final[Mapping[str, str]] = {"admission-rate": "0", "claim-rate": "0", "claims-at-once": "0"}
HALF: Final[Mapping[str, str]] = {"admission-rate": "300"}
"""Both nodes share one core here, so each gets half the rate that a node with a core of its own has by default."""

HELD: Final = 300
"""Connections a second that HAProxy accepts: half of what both nodes admit, since as many may come together."""


@dataclass(frozen=True)
class Variant:
    """How storms are met.

    Attributes:
        title: what it is called.
        settings: of the nodes, by flag without the dashes.
        advised: whether clients wait before they come back, as they were advised.
        connection_rate: connections a second that HAProxy accepts; all that come if None.
        promised: whether those who never left must be served as is promised.
    """

    title: str
    settings: Mapping[str, str]
    advised: bool = False
    connection_rate: int | None = None
    promised: bool = True


VARIANTS: Final[Mapping[str, Variant]] = {
    "off": Variant("no storm control, all at once", OFF, promised=False),
    "nodes": Variant("storm control of the nodes, all at once", HALF, promised=False),
    "held": Variant("storm control of nodes and HAProxy, all at once", HALF, connection_rate=HELD),
    "advised": Variant("storm control of the nodes, spread as advised", HALF, advised=True),
}


@dataclass
class Outcome:
    """How one storm went; times in seconds from its beginning, latencies in milliseconds.

    Attributes:
        variant: see ``VARIANTS``.
        sessions: that came back.
        returned: that were served.
        seconds: until the last had its values.
        half: until half had.
        before: percentiles of the established sessions' latency by name, before the storm.
        during: the same, from the first to the last return.
        redis: largest share of a core that Redis used in a tenth of a second.
        refusals: how often clients had to come again, by reason.
        latencies: points in time with the 99th percentile around each.
        returns: points in time with how many had returned.
        cores: points in time with the cores used by Redis, HAProxy and the nodes.
        failure: what was wrong; empty if nothing.
    """

    variant: str
    sessions: int
    returned: int
    seconds: float
    half: float
    before: dict[str, float]
    during: dict[str, float]
    redis: float
    refusals: dict[str, int]
    latencies: list[tuple[float, float]]
    returns: list[tuple[float, int]]
    cores: list[tuple[float, float, float, float]]
    failure: str = ""

    @property
    def times(self) -> float:
        """By what the 99th percentile rose."""
        return self.during["p99"] / self.before["p99"]

    def faults(self) -> list[str]:
        """Tell what was not kept of what is promised."""
        found = [self.failure] if self.failure else []
        if self.returned < self.sessions:
            found.append(f"{self.returned} of {self.sessions} returned")
        if self.times > MOST_TIMES and VARIANTS[self.variant].promised:
            found.append(f"the 99th percentile rose by {self.times:.1f} and not at most {MOST_TIMES:g}")
        if self.redis > MOST_REDIS:
            found.append(f"Redis used {self.redis:.2f} of a core and not at most {MOST_REDIS:g}")
        return found

    def line(self) -> str:
        """Write it for people."""
        told = f"{VARIANTS[self.variant].title}: {self.returned}/{self.sessions} returned in {self.seconds:.2f} s"
        refused = ", ".join(f"{count} x {why}" for why, count in sorted(self.refusals.items())) or "nobody refused"
        return (
            f"{told}; p99 {self.before['p99']:.2f} -> {self.during['p99']:.2f} ms ({self.times:.1f} times), "
            f"p50 {self.before['p50']:.2f} -> {self.during['p50']:.2f} ms, largest {self.during['most']:.0f} ms; "
            f"Redis at most {self.redis:.2f} cores; {refused}"
        )


def write(outcomes: Sequence[Outcome], file: Path) -> None:
    """Keep outcomes with what they were measured on."""
    measured_on = dict(machine())
    rows = ",\n".join(json.dumps(asdict(each)) for each in outcomes)
    file.write_text(f'{{"machine": {json.dumps(measured_on)},\n"outcomes": [\n{rows}\n]}}\n')


def load(file: Path) -> list[Outcome]:
    """Read what ``write`` wrote."""
    return [Outcome(**each) for each in json.loads(file.read_text())["outcomes"]]
