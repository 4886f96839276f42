"""What a session wants to see: an ordered list of selected and deselected selectors (protocol section 6.3).

Whether a topic is selected is decided by the last entry that matches it; a topic that none matches is not selected.
``select prices/**, deselect prices/secret/**`` therefore selects all prices but the secret ones, and in the other
order it selects them all.

Values of ``Selections`` are immutable, so that the grid's write and the index can share one.

**One entry costs what one entry costs.** A list and those made of it by ``select`` and ``deselect`` are versions that
have one index between them (``entry_versions``), so nothing is copied for a change, and ``changes_since`` can tell what
to write in place of the whole list. Lists of a few entries are copied: many sessions have the very same ones, and would
fetch the index from each other all the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from sys import getsizeof
from typing import Final, NamedTuple

from gateway.core.topics.entry_index import Entry, EntryIndex, Ranked
from gateway.core.topics.entry_versions import EntryVersion
from gateway.core.topics.remembered import PLACE_BYTES, Remembered
from gateway.core.topics.selectors import Selector, parse_selector, selector_bytes
from gateway.core.topics.topics import shown
from gateway.core.topics.work import Work, WorkSpent
from gateway.core.types import TopicPath
from gateway.core.wire.errors import InvalidSelector

SELECT_SIGN: Final = "+"
"""On the wire and in the grid, in front of a selector that is selected."""

DESELECT_SIGN: Final = "-"
"""Likewise, in front of one that is deselected."""

SHORT_LIST: Final = 16
"""Entries of a list that is worth keeping for reuse, and is copied at a change; hardly two long ones are equal."""

MOST_KEPT: Final = 64
"""Selectors that an unsubscribe may name to stay (protocol 6.3): each is a change of its own to the list, and one
request must not take more than some milliseconds."""

_CACHED_BYTES: Final = 4 * 1024 * 1024
"""Bytes of short lists kept for reuse, some thousands of usual ones: sessions of one application often have the same,
and fail over together."""


class ListChanges(NamedTuple):
    """What makes one list of another: take out what is removed, then put what is added at the end.

    Attributes:
        removed: texts of the selectors whose entries go. What is added may have the selector of one of them.
        added: entries that come, in order.
    """

    removed: tuple[str, ...]
    added: tuple[Entry, ...]


class Selections:
    """An immutable list of entries in compact form; build one from ``NOTHING`` by ``select`` and ``deselect``.

    Compact means that these entries are left out, none of which decides anything:

    * one that a later entry covers: the later one decides wherever the earlier matches;
    * a new one that changes nothing: the last of the same kind that covers it comes after all of the other kind that
      overlap it. Before the first entry everything counts as deselected, so a deselect that overlaps no select is left
      out;
    * deselects in front of the first select, when an entry goes.

    It does not look for unions of entries that cover another, nor does it look again at old entries, except those in
    front, so two lists that select the same topics are often but not always equal. A change counts its work. Where that
    is spent, entries stay that decide nothing: the list is longer than it had to be, and selects the same topics.

    No selector is in a list twice. Two lists are equal if they have the same entries in the same order.

    Attributes:
        text_bytes: of the entries as they are written by ``to_wire``.
        of_system: whether an entry selects topics of the system, so that somebody has to publish them.
        version: its entries.
    """

    __slots__ = ("_count", "_wire", "of_system", "text_bytes", "version")

    def __init__(self, entries: Iterable[Entry] | EntryVersion = ()) -> None:
        """Take *entries* as they are, compact or not; ``NOTHING`` and ``from_wire`` are the usual beginnings.

        Of entries with the same selector the last is taken; the others decide nothing.
        """
        self.version = entries if isinstance(entries, EntryVersion) else _first_version(entries)
        index = self.version.own()
        self._count = len(index)
        self._wire: tuple[str, ...] | None = None
        self.text_bytes = index.text_bytes
        self.of_system = index.of_system > 0

    @staticmethod
    def from_wire(wire: Iterable[str]) -> Selections:
        """Read what ``to_wire`` wrote.

        The entries are kept as they are: whoever wrote them had compacted them, and doing it again would take more time
        on the path where ten thousand sessions fail over at once.

        Args:
            wire: entries, ``+selector`` or ``-selector``.

        Raises:
            InvalidSelector: an entry has no sign, or its selector is not valid.
        """
        written = tuple(wire)
        if len(written) > SHORT_LIST:
            return Selections(map(_parse_entry, written))
        known = _lists.get(written)
        return _lists.put(written, Selections(map(_parse_entry, written))) if known is None else known

    def to_wire(self) -> tuple[str, ...]:
        """Write the entries as ``+selector`` and ``-selector``, in order."""
        if self._wire is None:
            self._wire = tuple([str(each.entry) for each in self.version.own().in_order()])
        return self._wire

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries in order."""
        return tuple([each.entry for each in self.version.own().in_order()])

    def select(self, selector: Selector, work: Work | None = None) -> Selections:
        """Return the list after selecting *selector*; this very object if that changes nothing.

        Args:
            selector: which topics.
            work: what may be done to keep the list compact, and is counted.
        """
        return self._append(Entry(True, selector), Work() if work is None else work)

    def deselect(self, selector: Selector, work: Work | None = None) -> Selections:
        """Return the list after deselecting *selector*; likewise."""
        return self._append(Entry(False, selector), Work() if work is None else work)

    def selects(self, topic: TopicPath) -> bool:
        """Tell whether a topic is selected: whether the last entry that matches it is a select.

        The entries without wildcards together cost one look-up. The others are tried one by one, or, if they are many,
        found in a map made at the first question: a failover asks for each topic of a partition.
        """
        last = self.version.own().last_match(topic)
        return last is not None and last.entry.selects

    def partitions(self, depth: int) -> frozenset[int]:
        """Tell in which topic partitions selected topics can be; never one too few, perhaps some too many.

        Args:
            depth: how many leading segments decide a topic's partition; see ``topic_partition``.

        Raises:
            ValueError: *depth* is below 1.
        """
        return self.version.own().partitions(depth)

    def changes_since(self, older: Selections) -> ListChanges | None:
        """Tell what made this list of an older one.

        It takes time in proportion to the changes, if this list was made of the older one by changes and neither was
        short; else to both lists.

        Returns:
            The changes; None if it cannot be said in this form, as entries have come that are not at the end.
        """
        if older is self:
            return ListChanges((), ())
        if len(older) == 0:
            return ListChanges((), self.entries)
        made = older.version.difference_to(self.version)
        if made is None or any(each.rank < older.version.next_rank for each in made.put):
            return self._differences(older)
        return ListChanges(
            tuple([each.entry.selector.text for each in made.dropped]), tuple([each.entry for each in made.put])
        )

    def _differences(self, older: Selections) -> ListChanges | None:
        before, after = older.entries, self.entries
        here = set(after)
        kept = tuple([each for each in before if each in here])
        if after[: len(kept)] != kept:
            return None
        there = set(kept)
        return ListChanges(
            tuple([each.selector.text for each in before if each not in there]), tuple(after[len(kept) :])
        )

    def changed(self, removed: Iterable[str], added: Iterable[str]) -> Selections:
        """Return the list that has become of this one by changes of which ``changes_since`` has told.

        Args:
            removed: texts of the selectors whose entries have gone.
            added: entries that have come, as ``to_wire`` writes them.

        Raises:
            InvalidSelector: an entry has no sign, or its selector is not valid.
        """
        version = self.version
        index = version.own()
        new = [_parse_entry(text) for text in added]
        gone = map(index.get, dict.fromkeys((*removed, *(each.selector.text for each in new))))
        put = [Ranked(entry, rank) for rank, entry in enumerate(new, version.next_rank)]
        return Selections(_changed(version, [each for each in gone if each is not None], put))

    # --- Changes ------------------------------------------------------------------------------------------------------

    def _append(self, new: Entry, work: Work) -> Selections:
        version = self.version
        index = version.own()
        if _is_idle(index, new, work):
            return self
        gone = _covered(index, new.selector, work)
        if gone:
            texts = {each.entry.selector.text for each in gone}
            for each in index.in_order():
                if each.entry.selector.text not in texts:
                    if each.entry.selects:
                        break
                    gone.append(each)
            version = _changed(version, gone, ())
            # What made the new entry matter may be gone: a deselect that removed its select has done all it can.
            if _is_idle(version.own(), new, work):
                return Selections(version)
        return Selections(_changed(version, (), (Ranked(new, version.next_rank),)))

    # --- As a value ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Selections):
            return NotImplemented
        return len(self) == len(other) and self.text_bytes == other.text_bytes and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return f"Selections.from_wire({list(self.to_wire())})"


def _first_version(entries: Iterable[Entry]) -> EntryVersion:
    last: dict[str, Entry] = {}
    for entry in entries:
        last.pop(entry.selector.text, None)
        last[entry.selector.text] = entry
    return EntryVersion(EntryIndex(Ranked(entry, rank) for rank, entry in enumerate(last.values())), len(last))


def _changed(version: EntryVersion, dropped: Sequence[Ranked], put: Sequence[Ranked]) -> EntryVersion:
    is_short = len(version.own()) <= SHORT_LIST
    return version.copied(dropped, put) if is_short else version.changed(dropped, put)


def _is_idle(index: EntryIndex, new: Entry, work: Work) -> bool:
    """Tell whether an entry, put at the end, would be seen to change nothing."""
    selector = new.selector
    try:
        if selector.literal:
            last = index.last_match(TopicPath(selector.text), work)
            return (last is not None and last.entry.selects) == new.selects
        alike = (each.rank for each in index.covering(selector, work) if each.entry.selects == new.selects)
        covered = max(alike, default=-1)
        if not new.selects:
            return not index.selects_some(selector, covered, work)
        return covered >= 0 and not index.deselects_some(selector, covered, work)
    except WorkSpent:
        return False


def _covered(index: EntryIndex, selector: Selector, work: Work) -> list[Ranked]:
    """Find the entries that another one makes superfluous; always that with the same selector."""
    same = index.get(selector.text)
    found = [] if same is None else [same]
    if selector.literal:
        return found
    with suppress(WorkSpent):  # the rest stays, and decides nothing
        found.extend(each for each in index.covered(selector, work) if each is not same)
    return found


def _parse_entry(text: str) -> Entry:
    sign, selector = text[:1], text[1:]
    if sign not in {SELECT_SIGN, DESELECT_SIGN}:
        raise InvalidSelector(
            f"an entry of a selection list begins with '{SELECT_SIGN}' or '{DESELECT_SIGN}', but {shown(text)} does not"
        )
    return Entry(sign == SELECT_SIGN, parse_selector(selector))


def _bytes_of_list(wire: tuple[str, ...], selections: Selections) -> int:
    """Estimate what a list and its texts take; the map of its wildcards, if it has one, is as large as they are."""
    return sum(
        getsizeof(text) + 2 * selector_bytes(entry.selector) + 3 * PLACE_BYTES
        for text, entry in zip(wire, selections.entries, strict=False)
    )


_lists: Final[Remembered[tuple[str, ...], Selections]] = Remembered(_CACHED_BYTES, _bytes_of_list)


NOTHING: Final = Selections()
"""The list that selects no topic; every session begins with it."""
