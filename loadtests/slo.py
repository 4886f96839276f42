"""Thresholds: read from ``slo.toml``, compared with what was measured, and nothing counts as met by not happening."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from loadtests.figures import FIGURES, Of

EVERY: Final = "every"
"""Name of the section whose thresholds hold in each scenario, unless the scenario's own section says otherwise."""


class InvalidThresholds(Exception):
    """The file of thresholds is not what it should be; the message says where and what to do."""


class Bound(StrEnum):
    """On which side of a threshold a figure has to stay."""

    AT_MOST = "at_most"
    AT_LEAST = "at_least"

    @property
    def sign(self) -> str:
        """How it is printed."""
        return "≤" if self is Bound.AT_MOST else "≥"


@dataclass(frozen=True, slots=True)
class Threshold:
    """One service level objective.

    Attributes:
        figure: one of ``FIGURES``.
        bound: which side.
        limit: in the figure's unit.
    """

    figure: str
    bound: Bound
    limit: float

    def met_by(self, value: float | None) -> bool:
        """Tell whether a value keeps to it; what could not be measured does not."""
        if value is None:
            return False
        return value <= self.limit if self.bound is Bound.AT_MOST else value >= self.limit


@dataclass(frozen=True, slots=True)
class Finding:
    """A threshold and what was measured.

    Attributes:
        threshold: the objective.
        value: as measured, or None if there was nothing to measure.
        met: whether the objective is met.
    """

    threshold: Threshold
    value: float | None
    met: bool


class Outcome(StrEnum):
    """What came of a run as a whole."""

    MET = "met"
    MISSED = "missed"
    INVALID = "invalid"
    """The load generator was late, so that the run has measured the generator: neither met nor missed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a run.

    Attributes:
        scenario: its name.
        findings: one for each threshold.
        figures: everything that was measured, whether there is a threshold for it or not.
        left_out: thresholds of users that nobody asked for.
    """

    scenario: str
    findings: tuple[Finding, ...]
    figures: Mapping[str, float | None]
    left_out: tuple[Threshold, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """What came of it. A broken promise counts however late the generator was; no objectives at all are missed."""
        failed = self._failed()
        if Of.PROMISE in failed:
            return Outcome.MISSED
        if Of.GENERATOR in failed:
            return Outcome.INVALID
        return Outcome.MISSED if failed or not self.findings else Outcome.MET

    @property
    def is_late(self) -> bool:
        """Whether the load generator was too late for its figures to mean something."""
        return Of.GENERATOR in self._failed()

    @property
    def met(self) -> bool:
        """Whether all objectives are met."""
        return self.outcome is Outcome.MET

    def _failed(self) -> set[Of]:
        return {FIGURES[each.threshold.figure].of for each in self.findings if not each.met}


def load(path: Path, scenario: str) -> tuple[Threshold, ...]:
    """Read the thresholds of one scenario.

    Args:
        path: of a TOML file with a section per scenario, and one named ``every``.
        scenario: which section.

    Raises:
        InvalidThresholds: the file is missing, is no TOML, lacks the scenario, or names what does not exist.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidThresholds(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidThresholds(f"{path} is no TOML: {error}") from None
    if scenario not in content or scenario == EVERY:
        known = ", ".join(sorted(set(content) - {EVERY}))
        raise InvalidThresholds(f"{path} has no thresholds for {scenario!r}; it has: {known}")
    found: dict[tuple[str, Bound], Threshold] = {}
    for section in (EVERY, scenario):
        for threshold in _thresholds(content.get(section, {}), f"{path}: {section}"):
            found[threshold.figure, threshold.bound] = threshold
    order = list(FIGURES)
    return tuple(sorted(found.values(), key=lambda each: (order.index(each.figure), each.bound)))


def _thresholds(section: object, place: str) -> list[Threshold]:
    if not isinstance(section, dict):
        raise InvalidThresholds(f"{place} must be a table")
    thresholds: list[Threshold] = []
    for side, limits in section.items():
        if side not in set(Bound) or not isinstance(limits, dict):
            raise InvalidThresholds(f"{place}.{side} is not known; there are the tables {', '.join(Bound)}")
        for figure, limit in limits.items():
            if figure not in FIGURES:
                raise InvalidThresholds(f"{place}.{side}.{figure} is no figure; there are: {', '.join(FIGURES)}")
            if isinstance(limit, bool) or not isinstance(limit, int | float):
                raise InvalidThresholds(f"{place}.{side}.{figure} must be a number, not {limit!r}")
            thresholds.append(Threshold(figure, Bound(side), limit))
    return thresholds


def judge(
    scenario: str,
    thresholds: tuple[Threshold, ...],
    figures: Mapping[str, float | None],
    users: Mapping[str, int] | None = None,
) -> Verdict:
    """Compare what was measured with the thresholds.

    Args:
        scenario: its name.
        thresholds: the objectives.
        figures: what was measured.
        users: how many of each kind of users that a run may do without were asked for. What only others can show is
            left out. None if all of them were there.
    """
    judged = [each for each in thresholds if users is None or FIGURES[each.figure].has_users(users)]
    findings = tuple(
        Finding(threshold, value := figures.get(threshold.figure), threshold.met_by(value)) for threshold in judged
    )
    return Verdict(scenario, findings, figures, tuple(each for each in thresholds if each not in judged))
