"""Runs cases: round by round, contestant by contestant, so that all are measured under the same conditions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from benchmarks.cases.base import Case, Context, Results, Row
from benchmarks.generator.driver import GeneratorFailed, build
from benchmarks.placement import Placement
from benchmarks.progress import Progress
from benchmarks.systems.base import SystemFailed, SystemUnavailable, SystemUnderTest

INSTALLED: Final = Path(__file__).parents[1] / ".local" / "bench"
"""Where systems keep what they install or compile, as scripts/bench-packages does; not under version control."""


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        cases: in order.
        systems: the chosen ones.
        left_out: names of the systems that were not chosen.
        rounds: how often each contestant is measured; None for each case's own number.
        quick: see ``Context``.
        rows: the contestants that take part, of cases that have these; all if empty.
    """

    cases: Sequence[Case]
    systems: Sequence[SystemUnderTest]
    left_out: frozenset[str] = frozenset()
    rounds: int | None = None
    quick: bool = False
    rows: Collection[str] = ()

    def rounds_of(self, case: Case) -> int:
        """Tell how often each contestant of *case* is measured."""
        return self.rounds or case.rounds

    def contestants_of(self, case: Case, unavailable: Mapping[str, str]) -> Sequence[str]:
        """Tell who takes part: systems that were chosen and are there, and references that are no system."""
        if any(each in self.left_out or each in unavailable for each in case.systems):
            return []
        wanted = set(self.rows) & set(case.contestants) or set(case.contestants)
        return [each for each in case.contestants if each in wanted - self.left_out and each not in unavailable]


@dataclass
class Outcome:
    """What came of a plan.

    Attributes:
        results: all rows.
        broken: sentences about what did not start or died; each fails the run.
        unavailable: why a chosen system is missing, by name.
        versions: of each system.
        settings: of each system, as far as they are not its defaults.
    """

    results: Results = field(default_factory=Results)
    broken: list[str] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=dict)
    versions: dict[str, Mapping[str, str]] = field(default_factory=dict)
    settings: dict[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether anything was lost, wrong or broken; a missed target is no failure."""
        return bool(self.broken) or any(row.failures for row in self.results.rows)


class Spectator(Progress, Protocol):
    """Sees a run as it goes."""

    def begin(self, steps: int) -> None:
        """Tell how many measurements there will be."""

    def step(self, what: str) -> None:
        """Tell which measurement begins, such as ``fanout 1/3 nchan``."""

    def done(self, case: Case, rows: Sequence[Row]) -> None:
        """Show what a measurement gave."""

    def broke(self, reason: str) -> None:
        """Show that a measurement gave nothing."""


def run(plan: Plan, placement: Placement, folder: Path, spectator: Spectator) -> Outcome:
    """Prepare the systems, then measure.

    Args:
        plan: what to run.
        placement: cores.
        folder: scratch of this run.
        spectator: sees what goes on.

    Raises:
        SystemUnavailable: there is no C compiler, without which nothing can be measured.
        GeneratorFailed: the generator does not compile.
    """
    outcome = Outcome()
    spectator.say("compiling the generator")
    build(folder / "generator")
    systems = _prepare(plan, outcome, spectator)
    measure_all(plan, outcome, Context(placement, systems, outcome.results, folder, spectator, plan.quick), spectator)
    return outcome


def measure_all(plan: Plan, outcome: Outcome, context: Context, spectator: Spectator) -> None:
    """Measure every contestant of every case, round by round; *outcome* gets what comes of it.

    A system that breaks is noted, and the run goes on with the next.
    """
    contestants = {case.name: plan.contestants_of(case, outcome.unavailable) for case in plan.cases}
    spectator.begin(sum(plan.rounds_of(case) * len(contestants[case.name]) for case in plan.cases))
    for case in plan.cases:
        rounds = plan.rounds_of(case)
        for number in range(1, rounds + 1):
            for contestant in contestants[case.name]:
                spectator.step(f"{case.name} {number}/{rounds} {contestant}")
                try:
                    rows = case.run(contestant, context)
                except (SystemFailed, SystemUnavailable, GeneratorFailed) as reason:
                    outcome.broken.append(f"{case.name}, round {number}, {contestant}: {reason}")
                    spectator.broke(str(reason))
                else:
                    outcome.results.rows.extend(rows)
                    spectator.done(case, rows)


def _prepare(plan: Plan, outcome: Outcome, spectator: Spectator) -> Mapping[str, SystemUnderTest]:
    """Install and compile what the systems need; tell the outcome about those that are not to be had."""
    systems: dict[str, SystemUnderTest] = {}
    contestants = {each for case in plan.cases for each in case.contestants}
    parts = {name: settings for case in plan.cases for name, settings in case.systems.items()}
    for system in plan.systems:
        if system.name not in contestants | parts.keys():
            continue
        spectator.say(f"preparing {system.title}")
        try:
            system.prepare(INSTALLED / system.name)
        except SystemUnavailable as reason:
            outcome.unavailable[system.name] = str(reason)
        except SystemFailed as reason:
            outcome.unavailable[system.name] = "it broke when it was prepared"
            outcome.broken.append(f"{system.name}: {reason}")
        else:
            systems[system.name] = system
            outcome.versions[system.name] = system.versions()
            outcome.settings[system.name] = system.settings() if system.name in contestants else parts[system.name]
    return systems
