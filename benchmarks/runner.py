"""Runs cases: round by round, contestant by contestant, so that all are measured under the same conditions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from benchmarks.cases.base import OURS, Case, Context, Results, Row
from benchmarks.checkout import THIS, Checkout
from benchmarks.generator.driver import GeneratorFailed, build
from benchmarks.placement import Placement
from benchmarks.progress import Progress
from benchmarks.systems.base import SystemFailed, SystemUnavailable, SystemUnderTest
from benchmarks.systems.gateway import GatewayNode

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
        against: another version of ours, measured as one more contestant; None if there is none.
    """

    cases: Sequence[Case]
    systems: Sequence[SystemUnderTest]
    left_out: frozenset[str] = frozenset()
    rounds: int | None = None
    quick: bool = False
    rows: Collection[str] = ()
    against: Checkout | None = None

    def rounds_of(self, case: Case) -> int:
        """Tell how often each contestant of *case* is measured."""
        return self.rounds or case.rounds

    def contestants_of(self, case: Case, unavailable: Mapping[str, str]) -> Sequence[str]:
        """Tell who takes part: systems that were chosen and are there, and references that are no system."""
        if any(each in self.left_out or each in unavailable for each in case.systems):
            return []
        wanted = set(self.rows) & set(case.contestants) or set(case.contestants)
        return [each for each in case.contestants if each in wanted - self.left_out and each not in unavailable]


@dataclass(frozen=True)
class Turn:
    """What one round of a case gave for both versions of ours.

    Attributes:
        case: its name.
        before: rows of the other version.
        after: rows of this one.
    """

    case: str
    before: Sequence[Row]
    after: Sequence[Row]


@dataclass
class Outcome:
    """What came of a plan.

    Attributes:
        results: all rows.
        broken: sentences about what did not start or died; each fails the run.
        unavailable: why a chosen system is missing, by name.
        versions: of each system.
        settings: of each system, as far as they are not its defaults.
        turns: of both versions, where another one was measured, too.
    """

    results: Results = field(default_factory=Results)
    broken: list[str] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=dict)
    versions: dict[str, Mapping[str, str]] = field(default_factory=dict)
    settings: dict[str, Mapping[str, str]] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether anything was lost, wrong or broken; a missed target is no failure."""
        rows = [*self.results.rows, *(row for turn in self.turns for row in turn.before)]
        return bool(self.broken) or any(row.failures for row in rows)


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
    versions = sum(plan.rounds_of(case) for case in plan.cases if plan.against and OURS in contestants[case.name])
    spectator.begin(sum(plan.rounds_of(case) * len(contestants[case.name]) for case in plan.cases) + versions)
    for case in plan.cases:
        measurer = _Measurer(case, plan, outcome, spectator)
        for number in range(1, plan.rounds_of(case) + 1):
            for contestant in contestants[case.name]:
                measurer.measure(contestant, number, context)


class _Measurer:
    """Measures the contestants of a case, and notes what comes of it."""

    def __init__(self, case: Case, plan: Plan, outcome: Outcome, spectator: Spectator) -> None:
        self._case = case
        self._plan = plan
        self._outcome = outcome
        self._spectator = spectator

    def measure(self, contestant: str, number: int, context: Context) -> None:
        """Measure a contestant once; ours with the other version, if there is one."""
        if contestant == OURS and self._plan.against is not None:
            self._both(self._plan.against, number, context)
        else:
            self._outcome.results.rows.extend(self._once(contestant, number, context))

    def _both(self, other: Checkout, number: int, context: Context) -> None:
        """Measure both versions, one right after the other: in odd rounds the other one first."""
        elsewhere = replace(context, checkout=other, systems={**context.systems, OURS: GatewayNode(other)})
        order = (elsewhere, context) if number % 2 else (context, elsewhere)
        rows = {where.checkout: self._once(OURS, number, where) for where in order}
        before, after = rows[other], rows[context.checkout]
        self._outcome.results.rows.extend(after)
        if before and after:
            self._outcome.turns.append(Turn(self._case.name, before, after))

    def _once(self, contestant: str, number: int, context: Context) -> Sequence[Row]:
        """Measure once; nothing comes of a contestant that breaks, which is noted."""
        case = self._case
        name = contestant if context.checkout is THIS else f"{contestant} {context.checkout.title}"
        self._spectator.step(f"{case.name} {number}/{self._plan.rounds_of(case)} {name}")
        try:
            rows = case.run(contestant, context)
        except (SystemFailed, SystemUnavailable, GeneratorFailed) as reason:
            self._outcome.broken.append(f"{case.name}, round {number}, {name}: {reason}")
            self._spectator.broke(str(reason))
            return ()
        self._spectator.done(case, rows)
        return rows


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
