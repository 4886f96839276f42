"""What an in-memory grid knows of hooks: who has which, and the cursors. One method per atomic step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gateway.adapters.memory.journal_table import Journal, JournalStream
from gateway.adapters.memory.named_leases import NamedLeases
from gateway.core.hooks.cursor import BEGINNING, Cursor, Entry, Page
from gateway.core.hooks.hook import HookName
from gateway.core.journal import JOURNAL_PARTITIONS
from gateway.core.types import GridGeneration, NodeRef
from gateway.ports import MOST_HELD, HookHolder, HookTaken

LOST: Final = "-"
"""Incarnation of a cursor that was lost: of no stream there is."""


class Hooks:
    """All of it. *now* is the grid's clock in seconds."""

    def __init__(self) -> None:
        self._leases: NamedLeases[HookName, HookHolder] = NamedLeases(most=MOST_HELD, holder=HookHolder)
        self._cursors: dict[tuple[HookName, int], tuple[int, Cursor]] = {}
        """By hook and stream, with the term of the node that read it last."""
        self._said: dict[HookName, bytes] = {}
        self._asked: set[HookName] = set()

    def hold(
        self, node: NodeRef, names: Collection[HookName], lease: float, generation: GridGeneration, now: float
    ) -> Mapping[HookName, HookHolder]:
        """See ``HookStore.hold``."""
        held = self._leases.take(node, names, lease, generation, now)
        if held is None:
            raise ValueError(f"a cluster has at most {MOST_HELD} hooks")
        return held

    def release(self, node: NodeRef, names: Collection[HookName]) -> None:
        """See ``HookStore.release``."""
        self._leases.release(node, names)

    def holders(self, now: float) -> Mapping[HookName, HookHolder]:
        """See ``HookStore.holders``."""
        return self._leases.holders(now)

    def has_cursor(self, partition: int) -> bool:
        """Tell whether a hook has a cursor in a stream."""
        return any(number == partition for _, number in self._cursors)

    def read(self, name: HookName, term: int, known: bool, entries: int, journal: Journal) -> Sequence[Page]:
        """See ``HookStore.read``."""
        for partition in range(JOURNAL_PARTITIONS):
            self._open(name, term, known, partition, journal.stream(partition))
        return [self._page(name, entries, each, journal.stream(each)) for each in range(JOURNAL_PARTITIONS)]

    def _open(self, name: HookName, term: int, known: bool, partition: int, stream: JournalStream | None) -> None:
        read_by, cursor = self._cursors.get((name, partition), (0, None))
        if read_by > term:
            raise HookTaken(f"another node delivers for the hook {name}")
        if cursor is None:
            if known:
                cursor = Cursor(LOST)
            elif stream is None:
                cursor = Cursor("")
            else:
                last = stream.entries[-1].id if stream.entries else BEGINNING
                cursor = Cursor(stream.incarnation, last, passed=stream.total)
        self._cursors[name, partition] = term, cursor

    def _page(self, name: HookName, entries: int, partition: int, stream: JournalStream | None) -> Page:
        _, cursor = self._cursors[name, partition]
        if stream is None:
            return Page(partition, "", cursor, (), 0)
        of_it = cursor.incarnation == stream.incarnation
        behind = [
            each
            for each in stream.entries
            if not of_it or each.id > cursor.entry or (each.id == cursor.entry and cursor.done)
        ]
        found = tuple(Entry(each.id, each.events, each.count, each.total) for each in behind[:entries])
        return Page(partition, stream.incarnation, cursor, found, stream.total)

    def advance(self, name: HookName, term: int, cursors: Mapping[int, Cursor]) -> None:
        """See ``HookStore.advance``."""
        for partition in cursors:
            if self._cursors.get((name, partition), (term + 1, None))[0] > term:
                raise HookTaken(f"another node delivers for the hook {name}, or it was forgotten")
        for partition, cursor in cursors.items():
            self._cursors[name, partition] = term, cursor

    def tell(self, name: HookName, status: bytes) -> None:
        """See ``HookStore.tell``."""
        self._said[name] = status

    def told(self) -> Mapping[HookName, bytes]:
        """See ``HookStore.told``."""
        return dict(self._said)

    def behind(self, name: HookName, journal: Journal) -> int | None:
        """See ``HookStore.behind``."""
        found = None
        for partition in range(JOURNAL_PARTITIONS):
            held, stream = self._cursors.get((name, partition)), journal.stream(partition)
            if held is not None:
                cursor = held[1]
                left = 0 if stream is None else Page(partition, stream.incarnation, cursor, (), stream.total).behind
                found = (found or 0) + left
        return found

    def ask_again(self, name: HookName) -> bool:
        """See ``HookStore.ask_again``."""
        if name not in self._said:
            return False
        self._asked.add(name)
        return True

    def asked(self) -> Collection[HookName]:
        """See ``HookStore.asked``."""
        return set(self._asked)

    def answered(self, name: HookName) -> None:
        """See ``HookStore.answered``."""
        self._asked.discard(name)

    def forget(self, name: HookName, now: float) -> bool:
        """See ``HookStore.forget``."""
        if name in self.holders(now):
            return False
        self._leases.forget(name)
        self._said.pop(name, None)
        self._asked.discard(name)
        self._cursors = {key: each for key, each in self._cursors.items() if key[0] != name}
        return True
