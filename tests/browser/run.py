"""One run: pages at a cluster, faults in the order that a seed decides, and the account of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import time
from collections.abc import Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from playwright.async_api import Error

from gateway.local.checker import Violation
from tests.browser.account import Figures, figures_of
from tests.browser.faults import FAULTS
from tests.browser.world import Report, World, world
from tests.support.times import time_limit

TABS: Final = ("one", "two")
"""Names of the tabs, each with a session of its own."""

PICTURE_SECONDS: Final = 10.0
"""How long a picture of a page may take; a page that does not answer has none."""


@dataclass
class Outcome:
    """What came of a run.

    Attributes:
        seed: with which it can be repeated.
        faults: their names, in the order in which they came.
        violations: of promises; empty is a pass.
        figures: what was counted.
        artifacts: folder with pictures of the pages and their records, if something was violated.
    """

    seed: int
    faults: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)
    artifacts: Path | None = None

    def explain(self, most: int = 20) -> str:
        """Say what was violated, and how to see it again."""
        lines = [str(each) for each in self.violations[:most]]
        if len(self.violations) > most:
            lines.append(f"… and {len(self.violations) - most} more")
        names = ",".join(dict.fromkeys(self.faults))
        return "\n".join(
            [
                f"{len(self.violations)} violations; {self.figures}",
                *lines,
                f"after {', '.join(self.faults)}",
                f"again: python -m tests.browser --seed {self.seed} --minutes 0 --faults {names}",
                f"pictures and records: {self.artifacts}",
            ]
        )


async def run(
    folder: Path,
    *,
    seed: int,
    seconds: float = 0.0,
    faults: Collection[str] = tuple(FAULTS),
    report: Report = lambda _: None,
    artifacts: Path | None = None,
) -> Outcome:
    """Do every fault once, in a random order, and again until the time is over; then judge.

    A fault from which the pages do not recover ends the run: what follows it would say nothing.

    Args:
        folder: for data and logs.
        seed: decides order, victims and moments.
        seconds: how long at least.
        faults: which ones, by name.
        report: takes lines for people while it runs.
        artifacts: where pictures and records are put if something was violated; a folder in *folder* by default.

    Raises:
        KeyError: there is no such fault.
    """
    if unknown := set(faults) - FAULTS.keys():
        raise KeyError(*sorted(unknown))
    # In one order, however they were named, or a seed would mean nothing.
    chosen = {name: fault for name, fault in FAULTS.items() if name in faults}
    outcome = Outcome(seed)
    order = random.Random(f"{seed} order")
    async with world(folder, seed, report) as everything, AsyncExitStack() as tabs:
        try:
            for name in TABS:
                await tabs.enter_async_context(everything.tab(name))
            await everything.settle("the start")
            deadline = time.monotonic() + seconds
            while not outcome.faults or time.monotonic() < deadline:
                for name in order.sample(list(chosen), len(chosen)):
                    if outcome.faults and len(outcome.faults) >= len(chosen) and time.monotonic() >= deadline:
                        break
                    began = time.monotonic()
                    outcome.faults.append(name)
                    await chosen[name](everything)
                    await everything.settle(name)
                    report(f"{name}: {time.monotonic() - began:.1f} s")
            await everything.close()
        except (AssertionError, Error) as error:
            after = outcome.faults[-1] if outcome.faults else "the start"
            everything.found.append(Violation("C1", f"{after}: {error}; {_standing(everything)}"))
        outcome.violations = await everything.judge()
        outcome.figures = figures_of(everything.records)
        if outcome.violations:
            outcome.artifacts = await _save(everything, artifacts or folder / "artifacts")
    return outcome


def _standing(everything: World) -> str:
    return ", ".join(
        f"{tab.name} is {tab.view.state} at {tab.view.node} with {len(tab.view.waiting)} publishes unanswered"
        for tab in everything.tabs
    )


async def _save(everything: World, folder: Path) -> Path:
    """Put a picture of each page, and the record of each document, into a folder that is emptied before."""

    def write() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for number, life in enumerate(everything.records, 1):
            with (folder / f"{number}-{life.tab}.jsonl").open("w") as file:
                file.writelines(
                    json.dumps({"n": each.number, "at": each.at, "kind": each.kind, **each.facts}) + "\n"
                    for each in life.entries
                )

    await asyncio.to_thread(write)
    for tab in everything.tabs:
        # The pages are what is broken.
        with contextlib.suppress(Error, TimeoutError):
            async with time_limit(PICTURE_SECONDS):
                await tab.photograph(folder)
    return folder
