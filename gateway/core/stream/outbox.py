"""Bodies that wait for their packet id (P9).

```text
            push                         take
updates  ─────────▶  first in, first out  ─────────▶  numbered, resend buffer, socket
                         │ conflate()  ▲
                         ▼             │ empty
                     newest per topic ─┘
```

While the transport takes what it is given, nothing is ever left out, and runs stay the objects that all sessions share.
Once it pushes back, what waits is folded to the newest body per topic, and stays folded until the outbox has been
emptied, so that memory is bounded by the number of topics and not by the rate of updates. Bodies without a topic
(replies, notices) are never left out.

What is replayed to a session (``spare``) is not folded for that: the client has been told that it gets all of it, and
who comes back has much to take at once. Only its owner's bound folds it.

Every update that took the place of others goes out with a mark that says of how many (protocol 6.4), and keeps the
place in line of the oldest. So for each topic: what was sent, and what the marks count, is all that was pushed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from gateway.core.stream.runs import FoldedRun, Outgoing, Run
from gateway.core.wire import codec


class _Replaced(NamedTuple):
    """What the update that waits for a topic took the place of.

    Attributes:
        updates: how many.
        snapshot: whether one of them was a snapshot.
    """

    updates: int
    snapshot: bool


_NOTHING: Final = _Replaced(0, snapshot=False)

_NONE: Final[dict[str | int, _Replaced]] = {}
"""Shared by all sessions of which nothing is folded; never written to."""


class Outbox:
    """What one session still has to be sent, in order; bounded in packets and bytes by its owner.

    Attributes:
        count: how many packets wait.
        bytes: total length of the waiting bodies.
        conflated: updates left out since ``conflated`` was last set to 0.
        spared: whether what waits is not to be folded because the transport pushes back, until it has gone out.
    """

    __slots__ = (
        "_folded",
        "_queue",
        "_replaced",
        "_unique",
        "bytes",
        "conflated",
        "count",
        "spared",
    )

    def __init__(self) -> None:
        self._queue: list[Run] = []
        # Only a session that is folded has one: ten thousand idle ones shall not.
        self._folded: OrderedDict[str | int, Outgoing] | None = None
        self._replaced: dict[str | int, _Replaced] = _NONE
        self._unique = 0
        self.count = 0
        self.bytes = 0
        self.conflated = 0
        self.spared = False

    @classmethod
    def holding(cls, runs: Iterable[Run], *, folded: bool, conflated: int, spared: bool = False) -> Outbox:
        """Make an outbox of what another one had: its ``runs()``, ``is_folded``, ``conflated`` and ``spared``."""
        outbox = cls()
        for run in runs:
            outbox.push(run)
        if folded:
            outbox.conflate()
        outbox.conflated = conflated
        outbox.spared = spared and outbox.count > 0
        return outbox

    def move_to(self, other: Outbox) -> None:
        """Have *other*, of another kind, go on with all that is here; this one must not be used any more."""
        other._queue, other._folded, other._replaced, other._unique = (
            self._queue,
            self._folded,
            self._replaced,
            self._unique,
        )
        other.count, other.bytes, other.conflated, other.spared = self.count, self.bytes, self.conflated, self.spared

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Outgoing]:
        if self._folded is not None:
            yield from self._folded.values()
        for run in self._queue:
            yield from run.packets

    def runs(self) -> list[Run]:
        """List what waits, as it would go out."""
        if not self._folded:
            return list(self._queue)
        return [self._marked(key, outgoing) for key, outgoing in self._folded.items()]

    @property
    def is_folded(self) -> bool:
        """Whether a newer update takes the place of a waiting one of its topic."""
        return self._folded is not None

    def push(self, run: Run) -> None:
        """Add bodies at the end, or in the places of older updates of their topics."""
        if self._folded is not None:
            self._fold(run, self._folded)
        else:
            self._queue.append(run)
            self.count += run.count
            self.bytes += run.size

    def exceeds(self, *, packets: int, size: int) -> bool:
        """Tell whether more than *packets* packets or *size* bytes wait."""
        return self.count > packets or self.bytes > size

    def take(self, *, packets: int, size: int) -> list[Run]:
        """Take out what may be sent now.

        Args:
            packets: at most so many.
            size: bytes; none is taken that would begin when they are used up, but the last may reach beyond.

        Returns:
            The first ones, in order.
        """
        if self._folded is None and self.count <= packets and self.bytes <= size:
            taken, self._queue = self._queue, []
            self.count = self.bytes = 0
            self.spared = False
            return taken
        taken = self._take_queued(packets, size) if self._folded is None else self._take_folded(packets, size)
        if not self.count:
            self._unfold()
        return taken

    def conflate(self) -> None:
        """Fold what waits to the newest update per topic, from now until the outbox is empty."""
        self.spared = False
        if self._queue:
            queue, self._queue = self._queue, []
            for run in queue:
                self.count -= run.count
                self.bytes -= run.size
            if self._folded is None:
                self._folded, self._replaced = OrderedDict(), {}
            folded = self._folded
            for run in queue:
                self._fold(run, folded)

    def spare(self) -> None:
        """Fold what waits by ``conflate`` alone, until it has gone out."""
        self.spared = self.count > 0 and self._folded is None

    def withhold(self, is_withdrawn: Callable[[str], bool]) -> None:
        """Forget the updates of some topics, which the session has no right to any more.

        Args:
            is_withdrawn: tells of a topic whether it is one of them.
        """
        if self._folded is not None:
            for outgoing in [each for each in self._folded.values() if each.topic is not None]:
                if is_withdrawn(outgoing.topic or ""):
                    del self._folded[outgoing.topic or ""]
                    self._replaced.pop(outgoing.topic or "", None)
                    self.count -= 1
                    self.bytes -= len(outgoing.body)
        else:
            runs = [run.without(is_withdrawn) for run in self._queue]
            self._queue = [run for run in runs if run is not None]
            self.count = sum(run.count for run in self._queue)
            self.bytes = sum(run.size for run in self._queue)
        if not self.count:
            self.clear()

    def clear(self) -> int:
        """Forget everything.

        Returns:
            How many bodies were dropped.
        """
        dropped = self.count
        self._queue = []
        self.count = self.bytes = 0
        self._unfold()
        return dropped

    def _unfold(self) -> None:
        """Nothing waits: what comes now is kept as it is."""
        self._folded, self._replaced = None, _NONE
        self.spared = False

    def _take_queued(self, packets: int, size: int) -> list[Run]:
        taken: list[Run] = []
        whole = 0
        for run in self._queue:
            fitting = run.fitting(packets=packets, size=size)
            if fitting < run.count:
                if fitting:
                    head, self._queue[whole] = run.split(fitting)
                    taken.append(head)
                break
            taken.append(run)
            whole += 1
            packets -= run.count
            size -= run.size
        del self._queue[:whole]
        for run in taken:
            self.count -= run.count
            self.bytes -= run.size
        return taken

    def _take_folded(self, packets: int, size: int) -> list[Run]:
        taken: list[Run] = []
        while self._folded and len(taken) < packets and size > 0:
            key, outgoing = self._folded.popitem(last=False)
            # Not joined: that would be a copy for this session alone.
            run = self._marked(key, outgoing)
            self._replaced.pop(key, None)
            taken.append(run)
            self.count -= 1
            self.bytes -= len(outgoing.body)
            size -= run.size
        return taken

    def _marked(self, key: str | int, outgoing: Outgoing) -> Run:
        """Make the run in which a folded body goes out."""
        replaced = self._replaced.get(key)
        return FoldedRun(outgoing, replaced.updates, snapshot=replaced.snapshot) if replaced else Run.of(outgoing)

    def _fold(self, run: Run, folded: OrderedDict[str | int, Outgoing]) -> None:
        packets, before = run.packets, _NOTHING
        if isinstance(run, FoldedRun):  # only when an exported session is restored: it waited, folded, before
            packets, before = (run.update,), _Replaced(run.folded, run.snapshot)
        for outgoing in packets:
            key: str | int
            if outgoing.topic is None:
                self._unique += 1
                key = self._unique
            else:
                key = outgoing.topic
            if waiting := folded.get(key):
                self.bytes -= len(waiting.body)
                self.conflated += 1
                updates, snapshot = self._replaced.get(key, before)
                self._replaced[key] = _Replaced(updates + 1, snapshot or codec.is_snapshot(waiting.body))
            else:
                self.count += 1
                if before.updates:
                    self._replaced[key] = before
            folded[key] = outgoing
            self.bytes += len(outgoing.body)
