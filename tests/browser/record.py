"""What pages recorded, as the account reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Wire: TypeAlias = Mapping[str, Any]
"""What a page sends: ``life``, ``tab``, and ``entries`` with ``n``, ``at``, ``kind`` and what belongs to it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that happened in a page.

    Attributes:
        number: counted from 1 in the life of a document.
        at: seconds since 1970, by the clock of the page.
        kind: what.
        facts: what belongs to it.
    """

    number: int
    at: float
    kind: str
    facts: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]


@dataclass
class Life:
    """The record of one document, from its load until it is gone.

    Attributes:
        id: of the document.
        tab: in which it was.
        entries: in order, without a gap.
    """

    id: str
    tab: str
    entries: list[Entry] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether the page told of its own end: then nothing of its record is missing."""
        return bool(self.entries) and self.entries[-1].kind == "pagehide" and not self.entries[-1]["persisted"]

    def of(self, *kinds: str) -> Iterator[Entry]:
        """Iterate over the entries of some kinds."""
        return (entry for entry in self.entries if entry.kind in kinds)


class Records:
    """The records of all documents of a run.

    Attributes:
        lives: by the id of the document, in the order in which they were heard of.
    """

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}

    def take(self, wire: Wire) -> Life:
        """Take entries in, of which some may be known already.

        Raises:
            AssertionError: some before them are missing; the page lost them, or whoever read it.
        """
        life = self.lives.setdefault(wire["life"], Life(wire["life"], wire["tab"]))
        for each in wire["entries"]:
            known = len(life.entries)
            number = each["n"]
            if number <= known:
                continue
            assert number == known + 1, f"{life.tab}: entries {known + 1} to {number - 1} of a record are missing"
            facts = {name: value for name, value in each.items() if name not in {"n", "at", "kind"}}
            life.entries.append(Entry(number, each["at"] / 1000, each["kind"], facts))
        return life

    def of_tab(self, tab: str) -> list[Life]:
        """Return the records of one tab, the oldest first."""
        return [life for life in self.lives.values() if life.tab == tab]

    def __iter__(self) -> Iterator[Life]:
        return iter(self.lives.values())


def life_of(tab: str, happened: Iterable[tuple[str, Mapping[str, Any]]], *, id: str = "life", at: float = 0.0) -> Life:  # noqa: A002
    """Make a record by hand, for tests of the account; entries are a second apart."""
    entries = [Entry(number, at + number, kind, facts) for number, (kind, facts) in enumerate(happened, 1)]
    return Life(id, tab, entries)
