"""What is broken when: drawn from a seed, written as JSON, replayed from it.

A plan is a pure function of the seed, the length, the kind of grid and the faults that may occur. What a plan says is
struck at the same moments whenever it runs; what the cluster makes of it depends on the machine as well.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from tests.chaos.faults.fault import NODES, Fault
from tests.chaos.mirrors import MIRRORS, OFF, mirror_of

FIRST: Final = 4.0
"""Seconds before the first fault: everybody has subscribed by then."""

GAP: Final = 2.5
"""Seconds between two faults, in the mean; as most of them last longer, they overlap."""

_ROUNDED: Final = 2
"""Decimals of seconds, so that a plan can be read and shortened by hand."""


class PlanUnreadable(Exception):
    """The file is no plan; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Step:
    """One fault of a plan.

    Attributes:
        at: when it begins, in seconds since the beginning of the faults.
        fault: its name in the catalogue.
        lasts: seconds until it ends.
        parameters: what it hits, and how.
    """

    at: float
    fault: str
    lasts: float
    parameters: Mapping[str, Any]

    def __str__(self) -> str:
        told = " ".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{self.fault} {told}".strip()


@dataclass(frozen=True, slots=True)
class Plan:
    """All faults of a run.

    Attributes:
        seed: from which it was drawn; it also decides what the clients do.
        grid: the kind of grid it is for.
        seconds: how long faults are struck.
        steps: by time.
        mirror: whether nodes have backups: one of ``MIRRORS``.
    """

    seed: int
    grid: str
    seconds: float
    steps: tuple[Step, ...]
    mirror: str = OFF

    def write(self, file: Path) -> None:
        """Write it as JSON, one fault a line."""
        head = json.dumps({"seed": self.seed, "grid": self.grid, "seconds": self.seconds, "mirror": self.mirror})
        steps = ",\n  ".join(json.dumps(asdict(step)) for step in self.steps)
        file.write_text(f'{head[:-1]}, "steps": [\n  {steps}\n]}}\n')

    @classmethod
    def read(cls, file: Path, catalogue: Mapping[str, Fault]) -> Self:
        """Read what ``write`` has written, perhaps shortened by hand.

        Raises:
            PlanUnreadable: it is no plan for this catalogue.
        """
        try:
            data = json.loads(file.read_text())
            steps = tuple(
                Step(float(each["at"]), each["fault"], float(each["lasts"]), dict(each["parameters"]))
                for each in data["steps"]
            )
            mirror = str(data.get("mirror", OFF))
            plan = cls(int(data["seed"]), str(data["grid"]), float(data["seconds"]), steps, mirror)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PlanUnreadable(f"{file} is no plan: {error!r}") from error
        if plan.mirror not in MIRRORS:
            raise PlanUnreadable(f"{file}: there is no mirror {plan.mirror!r}")
        for step in plan.steps:
            if step.fault not in catalogue or plan.grid not in catalogue[step.fault].grids:
                raise PlanUnreadable(f"{file}: there is no fault {step.fault!r} of the grid {plan.grid!r}")
        return plan


def draw(*, seed: int, grid: str, seconds: float, faults: Sequence[Fault], mirror: str | None = None) -> Plan:
    """Draw a plan.

    Args:
        seed: decides everything.
        grid: ``single``, ``sentinel`` or ``cluster``.
        seconds: how long faults are struck; each ends within that time.
        faults: those that may occur; what is not of this grid is left out.
        mirror: whether nodes have backups; the seed decides if it is not given.
    """
    random = Random(f"{seed} plan")
    possible = [fault for fault in faults if grid in fault.grids]
    steps: list[Step] = []
    struck: Counter[str] = Counter()
    busy: dict[str, float] = {}
    at = FIRST
    while possible and at < seconds:
        random.shuffle(possible)
        # What hits all nodes at once seldom fits, and would be left to luck if it did not come first when it does.
        possible.sort(key=lambda fault: struck[fault.name])
        for fault in possible:
            parameters = fault.draw(random)
            lasts = round(random.uniform(*fault.seconds), _ROUNDED)
            claims = fault.claims(parameters)
            if at + lasts <= seconds and _free(claims, busy, at):
                struck[fault.name] += 1
                steps.append(Step(round(at, _ROUNDED), fault.name, lasts, parameters))
                busy |= dict.fromkeys(claims, at + lasts + fault.settles)
                break
        at += random.expovariate(1 / GAP)
    return Plan(seed, grid, seconds, tuple(steps), mirror or mirror_of(seed))


def _free(claims: frozenset[str], busy: Mapping[str, float], at: float) -> bool:
    """Tell whether nothing that is claimed is hit already, and a node is left that nothing hits."""
    active = {claim for claim, until in busy.items() if until > at}
    if claims & active:
        return False
    hit = {claim.partition(":")[2] for claim in claims}
    if hit >= set(NODES):
        return True
    return not {claim.partition(":")[2] for claim in claims | active} >= set(NODES)
