"""Versions of one list of entries, which have one index between them.

The newest has the index; an older one knows by which entries it differs from its successor. Whoever asks an older one
something takes the index back to it by undoing those few changes, and then the newer ones know by what they differ from
it. So nothing is copied for a change, and nothing is lost by one that is given up. This is Baker's way to make an array
persistent (H. G. Baker, "Shallow binding makes functional arrays fast", 1991).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.core.topics.entry_index import EntryIndex, Ranked


class Step(NamedTuple):
    """How a version that does not have the index differs from the one next to it, on the way to the one that has it.

    Attributes:
        to: the one next to it.
        dropped: entries that are here and not there.
        put: entries that are there and not here.
    """

    to: EntryVersion
    dropped: Sequence[Ranked]
    put: Sequence[Ranked]


class Difference(NamedTuple):
    """What makes one version of another: take out what is dropped, then put in what is put.

    Attributes:
        dropped: entries of the one.
        put: entries of the other, by rank.
    """

    dropped: Sequence[Ranked]
    put: Sequence[Ranked]


class EntryVersion:
    """A list of entries as it was at one time.

    Args:
        index: of its entries.
        next_rank: above the ranks of all of them.

    Attributes:
        next_rank: as given.
        index: its entries, if it has the index at the moment.
        step: to the next one, if it does not.
    """

    __slots__ = ("index", "next_rank", "step")

    def __init__(self, index: EntryIndex, next_rank: int) -> None:
        self.next_rank = next_rank
        self.index: EntryIndex | None = index
        self.step: Step | None = None

    def own(self) -> EntryIndex:
        """Have the index, undoing the changes between this version and the one that has it, and return it.

        It is this version's until another one is asked.
        """
        index = self.index
        if index is not None:
            return index
        way: list[EntryVersion] = []
        at: EntryVersion = self
        while at.step is not None:
            way.append(at)
            at = at.step.to
        index = at.index
        assert index is not None  # noqa: S101 - who does not have it knows a step
        for each in reversed(way):
            step = each.step
            assert step is not None  # noqa: S101 - or it would not be on the way
            for ranked in step.put:
                index.drop(ranked)
            for ranked in step.dropped:
                index.put(ranked)
            step.to.index, step.to.step = None, Step(each, step.put, step.dropped)
            each.index, each.step = index, None
        return index

    def changed(self, dropped: Sequence[Ranked], put: Sequence[Ranked]) -> EntryVersion:
        """Make the version without some entries and with others, which has the index then.

        Args:
            dropped: entries of this one.
            put: entries with ranks from ``next_rank`` on.
        """
        index = self.own()
        for each in dropped:
            index.drop(each)
        for each in put:
            index.put(each)
        newer = EntryVersion(index, self.next_rank + len(put))
        self.index, self.step = None, Step(newer, dropped, put)
        return newer

    def copied(self, dropped: Sequence[Ranked], put: Sequence[Ranked]) -> EntryVersion:
        """Make likewise a version with an index of its own; takes time linear in all entries."""
        without = set(dropped)
        kept = [each for each in self.own().in_order() if each not in without]
        return EntryVersion(EntryIndex([*kept, *put]), self.next_rank + len(put))

    def difference_to(self, other: EntryVersion) -> Difference | None:
        """Tell what makes the other version of this one, in time proportional to it.

        Returns:
            None if they have no index in common.
        """
        other.own()
        dropped: dict[str, Ranked] = {}
        put: dict[str, Ranked] = {}
        at = self
        while at is not other:
            if at.step is None:
                return None
            for each in at.step.dropped:
                text = each.entry.selector.text
                if put.pop(text, None) is None:
                    dropped[text] = each
            for each in at.step.put:
                text = each.entry.selector.text
                if dropped.get(text) is each:
                    del dropped[text]
                else:
                    put[text] = each
            at = at.step.to
        return Difference(tuple(dropped.values()), tuple(sorted(put.values(), key=lambda each: each.rank)))
