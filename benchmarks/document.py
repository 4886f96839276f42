"""The JSON of a run, as ``python -m benchmarks --json`` writes it and ``benchmarks.publish`` reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from benchmarks.cases.base import Figure, Reference, Results, Row

FORMAT: Final = 1
"""Version of the JSON; grows when a field changes its meaning or goes away."""

AGAINST: Final = "against"
"""What a run that compares two versions has besides: the name of the other one."""

_SHOWN_ERRORS: Final = 3
"""So many of what is wrong with a file are told."""


class BadResults(Exception):
    """A file is not what can be published; the text says why."""


@dataclass(frozen=True)
class Judged:
    """A target and what became of it; see ``Target`` and ``Verdict``."""

    text: str
    subject: Reference
    reference: Reference | None
    factor: float
    at_least: bool
    ours: float | None
    reached: float | None
    met: bool | None
    least: float | None = None
    most: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class CaseText:
    """What a case says of itself, kept so that old results are shown with what they were told to mean."""

    title: str
    about: str


@dataclass(frozen=True)
class SystemText:
    """What is known of a system; ``unavailable`` says why it was not measured."""

    title: str
    versions: Mapping[str, str]
    settings: Mapping[str, str]
    unavailable: str | None


class Document(BaseModel):
    """A run.

    Attributes:
        format: always ``FORMAT``.
        date: of its end, ISO 8601 with the offset from UTC.
        commit: that was measured.
        machine: see ``benchmarks.machine``.
        quick: whether it was one to try things.
        cases: by name, in the order in which they ran.
        systems: by name.
        figures: columns of each case, in order.
        rows: every measurement.
        targets: each with its verdict.
        broken: what did not start or died.
        failed: whether anything was lost, wrong or broken.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1]
    date: str
    commit: str
    machine: Mapping[str, str | int]
    quick: bool
    cases: Mapping[str, CaseText]
    systems: Mapping[str, SystemText]
    figures: Mapping[str, Sequence[Figure]]
    rows: Sequence[Row]
    targets: Sequence[Judged]
    broken: Sequence[str]
    failed: bool

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read the JSON of a run.

        Raises:
            OSError: it cannot be read.
            BadResults: it is no such file, or of another format, or it compares two versions and says nothing of peers.
        """
        try:
            document = cls.model_validate_json(file.read_bytes())
        except ValidationError as error:
            if any(each["loc"] == (AGAINST,) for each in error.errors()):
                raise BadResults(
                    f"{file}: compares two versions of the gateway, and is no run to be published"
                ) from error
            found = [f"{'.'.join(map(str, each['loc'])) or 'all'}: {each['msg']}" for each in error.errors()]
            more = ", …" if len(found) > _SHOWN_ERRORS else ""
            told = ", ".join(found[:_SHOWN_ERRORS])
            raise BadResults(f"{file}: not the results of a run in format {FORMAT}: {told}{more}") from error
        if strange := {row.case for row in document.rows} - (document.cases.keys() & document.figures.keys()):
            raise BadResults(f"{file}: has rows of {', '.join(sorted(strange))}, which it does not describe")
        return document

    @property
    def results(self) -> Results:
        """The rows, to look for values in."""
        results = Results()
        results.rows += self.rows
        return results

    def title(self, contestant: str) -> str:
        """Tell what a contestant is called in tables."""
        system = self.systems.get(contestant)
        return contestant if system is None else system.title

    def figure(self, reference: Reference) -> Figure:
        """Tell what a figure is called, and its unit."""
        return next(each for each in self.figures[reference.case] if each.name == reference.figure)

    def as_json(self) -> Mapping[str, object]:
        """Return what ``load`` reads, for ``json``."""
        content: Mapping[str, object] = TypeAdapter(type(self)).dump_python(self, mode="json")
        return content
