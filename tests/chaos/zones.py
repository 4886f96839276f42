"""Three clusters in a ring of a zone and joins are struck at random, with an account of each event (P18).

The clusters, what is published and the account are those of ``tests.cluster.zone_kills``; here faults of all kinds
overlap: ``make chaos OPTIONS="--grid zones"``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Final

from tests.chaos.account.violation import Violation
from tests.chaos.faults import CATALOGUE
from tests.chaos.faults.zone import AWAY, ZoneTarget
from tests.chaos.outcome import Outcome, Struck
from tests.chaos.plan import Plan, Step
from tests.cluster.zone_kills import Trial, observe
from tests.cluster.zone_stacks import ZoneStack
from tests.support.times import time_limit

GRID: Final = "zones"
"""In the place of a kind of grid, on the command line and in plans."""

RATE: Final = 30.0
"""Events a second that are published, at all clusters together."""

LATE: Final = 30.0
"""Seconds, on a quiet machine, that a fault waits for the one before to be healed; then it is left out."""


class ZoneRun:
    """Strikes one plan.

    Args:
        plan: what is struck.
        folder: for data and logs.
        tell: takes lines that show how it goes on.
    """

    def __init__(self, plan: Plan, folder: Path, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._folder = folder
        self._tell = tell
        self._began = time.monotonic()
        self._locks: dict[str, asyncio.Lock] = {}
        self._outcome = Outcome(plan, folder)

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
        target = {each.name: each for each in stacks}
        self._began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for step in self._plan.steps:
                tasks.create_task(self._strike(step, target))
        return {step.parameters["cluster"] for step in self._plan.steps if step.fault in AWAY}

    async def _strike(self, step: Step, target: ZoneTarget) -> None:
        fault, parameters = CATALOGUE[step.fault], dict(step.parameters)
        await asyncio.sleep(step.at - self.now())
        async with AsyncExitStack() as claims:
            try:
                async with time_limit(LATE):
                    for claim in sorted(fault.claims(parameters)):
                        await claims.enter_async_context(self._locks.setdefault(claim, asyncio.Lock()))
            except TimeoutError:
                self._tell(f"{self.now():6.1f} s  {step}  is left out: what it hits has not been healed")
                self._outcome.left_out.append(step)
                return
            began = self.now()
            self._tell(f"{began:6.1f} s  {step}  for {step.lasts:g} s")
            async with fault.strike(target, parameters):
                await asyncio.sleep(step.lasts)
            self._outcome.struck.append(Struck(step, began, self.now()))
            await asyncio.sleep(fault.settles)


async def strike_zones(plan: Plan, folder: Path, tell: Callable[[str], None]) -> Outcome:
    """Start three clusters, strike a plan, and judge; see ``run.strike``. The folder is there."""
    return await ZoneRun(plan, folder, tell).run()
