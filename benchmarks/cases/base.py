"""What a case is, what it returns, and what is expected of it.

The runner takes the chosen cases in the order of ``benchmarks.cases.catalogue``. For each it goes through the rounds
and within a round through the contestants (A B C A B C …), so that slow minutes of the machine hit all alike. One call
of ``Case.run`` measures one contestant once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import ClassVar, Final

from benchmarks.checkout import THIS, Checkout
from benchmarks.placement import Placement
from benchmarks.progress import Progress
from benchmarks.systems.base import SystemUnderTest

OURS: Final = "gateway"
"""Name of the system that targets are about."""


class Better(StrEnum):
    """Which way a figure improves."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"
    """It is there to be looked at, such as the generator's own CPU."""


@dataclass(frozen=True)
class Figure:
    """A column of a case's table.

    Attributes:
        name: key in the rows and in the JSON, such as ``cpu_per_delivery``.
        title: for the table, such as ``CPU per delivery``.
        unit: such as ``µs``, ``/s``, ``KiB``, ``%``; values are in exactly this unit.
        better: which way it improves.
        digits: decimals to print.
    """

    name: str
    title: str
    unit: str
    better: Better = Better.NEITHER
    digits: int = 1


@dataclass(frozen=True)
class Row:
    """One measurement of one contestant.

    Attributes:
        case: name of the case.
        variant: which of its workloads, such as ``500 subscribers, saturated``; one table each.
        contestant: name of a system, or of a reference that only the case knows (``bare aiohttp``).
        values: by ``Figure.name``; a figure that does not apply is absent.
        failures: what was wrong with what was received or recovered, one sentence each: lost, swapped, corrupt. Any
            failure makes the exit code non-zero.
        flags: what is not wrong but makes the row not comparable, such as ``paced below the asked rate``. Shown.
        details: anything for the JSON alone, such as the raw report of the generator.
    """

    case: str
    variant: str
    contestant: str
    values: Mapping[str, float]
    failures: Sequence[str] = ()
    flags: Sequence[str] = ()
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Reference:
    """One median among the results, to be compared."""

    case: str
    variant: str
    contestant: str
    figure: str


@dataclass(frozen=True)
class Target:
    """A demand on ours: ``subject ≥ factor * reference``, or ``≤``.

    Attributes:
        text: as the issue puts it, such as ``fan-out at saturation: 3 times nchan``.
        subject: our figure.
        reference: whose multiple is demanded; None if *factor* is the bound itself.
        factor: multiple, or the bound in the figure's unit.
        at_least: whether ours has to be at least that (else at most).
    """

    text: str
    subject: Reference
    reference: Reference | None
    factor: float
    at_least: bool


class Results:
    """All rows of the run so far."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def values(self, reference: Reference) -> list[float]:
        """Collect the values of one figure over the rounds; failed rows count too, for they are shown."""
        return [each.values[reference.figure] for each in self.of(reference) if reference.figure in each.values]

    def of(self, reference: Reference) -> list[Row]:
        """Collect the rows of one contestant's workload, whatever their figures."""
        wanted = (reference.case, reference.variant, reference.contestant)
        return [each for each in self.rows if (each.case, each.variant, each.contestant) == wanted]

    def median(self, reference: Reference) -> float | None:
        """Tell the median over the rounds; None if it was not measured."""
        values = self.values(reference)
        return median(values) if values else None


@dataclass(frozen=True)
class Context:
    """What a case is run in.

    Attributes:
        placement: cores.
        systems: the prepared systems of this run, by name. A case must not assume that all are there.
        results: rows of the cases and rounds before, for workloads that depend on them.
        folder: scratch of this run, removed at its end.
        progress: tells people what goes on.
        quick: whether a short, less exact run is wanted (to try things; not for the published table).
        checkout: the version of the gateway that nodes are run from.
    """

    placement: Placement
    systems: Mapping[str, SystemUnderTest]
    results: Results
    folder: Path
    progress: Progress
    quick: bool = False
    checkout: Checkout = THIS

    def seconds(self, full: float) -> float:
        """Length of a measuring window: *full* in a full run, a third (at least one second) in a quick one."""
        return max(1.0, full / 3) if self.quick else full


class Case(ABC):
    """One kind of work.

    Attributes:
        name: for ``--only``, such as ``fanout``.
        title: for the table.
        about: one or two sentences: what is done, and what the figures mean.
        figures: columns in order.
        contestants: names in the order in which they run; ours first, references last. The runner leaves out systems
            that were not chosen or are unavailable; names that are no system are always run.
        targets: what is demanded of ours.
        rounds: how often each contestant is measured unless ``--runs`` says otherwise.
        systems: what its contestants are made of, where these are no systems themselves: names of systems, each with
            the settings that are not its defaults.
        apart: why it runs only when it is asked for by name; else empty.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str]
    figures: ClassVar[Sequence[Figure]]
    contestants: ClassVar[Sequence[str]]
    targets: ClassVar[Sequence[Target]] = ()
    rounds: ClassVar[int] = 3
    systems: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    apart: ClassVar[str] = ""

    @abstractmethod
    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """Measure one contestant once: start it, drive it, check it, stop it.

        Args:
            contestant: one of ``contestants``; a system is found in ``context.systems``.
            context: of the run.

        Returns:
            A row for each variant that applies to it.

        Raises:
            SystemFailed: the system broke; the run goes on with the next and fails at its end.
        """
