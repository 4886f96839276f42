"""Three clusters in a ring of a zone and joins are struck at random, with an account of each event (P18).

The clusters, what is published and the account are those of ``tests.cluster.zone_kills``; here faults of all kinds
overlap: ``make chaos OPTIONS="--grid zones"``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from random import Random
from typing import Final

from tests.chaos.account.violation import Violation
from tests.chaos.faults import CATALOGUE
from tests.chaos.faults.zone import AWAY
from tests.chaos.outcome import Outcome, Struck
from tests.chaos.plan import Plan, Step
from tests.chaos.turns import Tell, Turns
from tests.chaos.zone_target import ZoneTarget
from tests.cluster.zone_kills import Trial, observe
from tests.cluster.zone_stacks import ZoneStack

GRID: Final = "zones"
"""In the place of a kind of grid, on the command line and in plans."""

RATE: Final = 30.0
"""Events a second that are published, at all clusters together."""


class ZoneRun:
    """Strikes one plan.

    Args:
        plan: what is struck.
        folder: for data and logs.
        tell: takes lines that show how it goes on.
    """

    def __init__(self, plan: Plan, folder: Path, tell: Tell) -> None:
        self._plan = plan
        self._folder = folder
        self._began = time.monotonic()
        self._outcome = Outcome(plan, folder)
        self._turns = Turns(self._outcome, self.now, tell)

    def now(self) -> float:
        """Tell how many seconds of the run have passed."""
        return time.monotonic() - self._began

    async def run(self) -> Outcome:
        """Strike, and judge."""
        trial = await observe(
            self._folder,
            events=round(RATE * self._plan.seconds),
            seconds=self._plan.seconds,
            random=Random(f"{self._plan.seed} events"),
            strike=self._strike_all,
        )
        self._outcome.violations += [Violation("P18", self.now(), "three clusters", each) for each in trial.wrong]
        self._outcome.figures = self._figures(trial)
        return self._outcome

    def _figures(self, trial: Trial) -> dict[str, str]:
        crossed, refused = trial.crossed
        return {
            "faults": str(len(self._outcome.struck)),
            "events": f"{round(RATE * self._plan.seconds)} published at three clusters",
            "published after": f"{trial.seconds[0]:.1f} s",
            "everywhere after": f"{trial.seconds[1]:.1f} s",
            "links": f"{crossed} events have come to nodes that live at the end, {refused} of them not taken",
        }

    async def _strike_all(self, stacks: Sequence[ZoneStack]) -> Collection[str]:
        target = ZoneTarget(stacks)
        self._began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for step in self._plan.steps:
                tasks.create_task(self._strike(step, target))
        return {step.parameters["cluster"] for step in self._plan.steps if step.fault in AWAY}

    async def _strike(self, step: Step, target: ZoneTarget) -> None:
        fault, parameters = CATALOGUE[step.fault], dict(step.parameters)
        await asyncio.sleep(step.at - self.now())
        async with self._turns.turn(step) as began:
            if began is None:
                return
            async with fault.strike(target, parameters):
                await asyncio.sleep(step.lasts)
            self._outcome.struck.append(Struck(step, began, self.now()))
            await asyncio.sleep(fault.settles)


async def strike_zones(plan: Plan, folder: Path, tell: Tell) -> Outcome:
    """Start three clusters, strike a plan, and judge; see ``run.strike``. The folder is there."""
    return await ZoneRun(plan, folder, tell).run()
