"""Values are matched with the selections of this node a few milliseconds at a time, and partitions take turns (P20).

What a topic was resolved to is remembered, so as a rule it is at hand. A topic that nobody has seen before has to be
looked up, and among selectors that are made for it that takes a fraction of a millisecond. Whoever publishes such
topics may be a client of another node, so this node cannot slow it down: it takes its time for them, and others get
their turn meanwhile. ``MatchingQueues`` divides that time among the partitions, so that what comes in one of them does
not wait for what was published in another.

```text
stream of a partition ──▶ its queue ─┬─ nothing waits there, and known: applied at once
                                     ├─ nothing waits there, and time is left in this turn: looked up and applied
                                     └─ else it waits, in order; queues take turns (``RoundRobin``)
```
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from gateway.app.runtime.clock import Clock
from gateway.core.pacing.round_robin import RoundRobin
from gateway.core.topics.selection_index import SelectionIndex
from gateway.ports import ENTRY_BYTES, TopicValue

MATCHING_SECONDS: Final = 0.005
"""Seconds of looking topics up before others get their turn: all queues together. A thousand usual topics take no
longer."""

QUEUE_SECONDS: Final = MATCHING_SECONDS / 4
"""Seconds of them for one queue before the next one has its turn: a dozen crowds of costly topics together keep one
that has some new topics waiting for a few turns of the loop, and it need not have come first."""

QUEUE_VALUES: Final = 1_000
"""Values that may wait in a queue before nothing more is read for it: one read of a stream (``READ_ENTRIES``)."""

QUEUE_BYTES: Final = 1024 * 1024
"""Bytes of them, likewise: in all 64 queues together 64 MiB, and what one read has brought besides."""

READ_ON_BELOW: Final = 0.5
"""Share of both from which on the queue's stream is read again: a read takes a round trip, and the queue is not to run
dry meanwhile."""

SERVED_VALUES: Final = 250
"""Values of a queue that has waited that are sent in one go, however well they are known: what has piled up behind a
costly topic is much at once."""


class _Portion:
    """What came together, and waits.

    Attributes:
        values: in order.
        size: bytes of them.
        applied: so many of them, the first, have been applied.
        done: called when all have been.
    """

    __slots__ = ("applied", "done", "size", "values")

    def __init__(self, values: Sequence[TopicValue], applied: int) -> None:
        self.values = values
        self.size = sum([ENTRY_BYTES + len(each.topic) + len(each.value) for each in values])
        self.applied = applied
        self.done: Callable[[], None] = _nothing


def _nothing(*_: object) -> None:
    """Nobody wants to be told."""


class MatchingQueue:
    """Values from one source, applied in the order in which they came.

    Args:
        apply: takes values whose topics have been looked up; must not wait.
        failed: told of a bug met in a later turn; what waited in the queue is forgotten. What it raises at once is
            the caller's who put it in.
        is_full: called with whether nothing more should come for now, whenever that changes.

    Attributes:
        apply: as given.
        failed: as given.
        waiting: what came together and waits, in order; there may be nothing in it.
        values: that wait.
        size: bytes of them.
    """

    __slots__ = ("_is_full", "_is_told", "apply", "failed", "size", "start", "values", "waiting")

    def __init__(
        self,
        apply: Callable[[Sequence[TopicValue]], None],
        failed: Callable[[Exception], None],
        is_full: Callable[[bool], None] = _nothing,
    ) -> None:
        self.apply = apply
        self.failed = failed
        self._is_full = is_full
        self._is_told = False
        self.waiting: deque[_Portion] = deque()
        self.values = 0
        self.size = 0

    @property
    def first(self) -> _Portion:
        """What has waited for longest; something does."""
        return self.waiting[0]

    def applied(self) -> Sequence[TopicValue]:
        """List what has been applied of what came last, though not all that came with it: nearly always nothing."""
        if not self.waiting:
            return ()
        first = self.waiting[0]
        return first.values[: first.applied]

    def when_done(self, done: Callable[[], None]) -> None:
        """Have *done* called when what came last has been applied; never if the queue is dropped before, or was."""
        if self.waiting:
            self.waiting[-1].done = done

    def append(self, values: Sequence[TopicValue], applied: int) -> None:
        """Let values wait, of which so many have been applied or are about to be."""
        portion = _Portion(values, applied)
        self.waiting.append(portion)
        self.values += len(values)
        self.size += portion.size
        if not self._is_told and (self.values >= QUEUE_VALUES or self.size >= QUEUE_BYTES):
            self._is_told = True
            self._is_full(True)

    def pop(self) -> None:
        """All values of the first portion have been applied, or are about to be."""
        portion = self.waiting.popleft()
        self.values -= len(portion.values)
        self.size -= portion.size
        if self._is_told and self.values < QUEUE_VALUES * READ_ON_BELOW and self.size < QUEUE_BYTES * READ_ON_BELOW:
            self._is_told = False
            self._is_full(False)

    def clear(self) -> None:
        """Forget what waits. Whoever read for the queue reads anew, or no more, and is told nothing."""
        self.waiting.clear()
        self._is_told = False
        self.values = self.size = 0


class MatchingQueues:
    """Has the values of all queues looked up and applied.

    Args:
        index: knows who selects them.
        clock: time.
    """

    def __init__(self, index: SelectionIndex[Any], clock: Clock) -> None:
        self._index = index
        self._clock = clock
        self._turns: RoundRobin[MatchingQueue] = RoundRobin(QUEUE_SECONDS)
        self._spent = 0.0
        """Seconds since the begin of the turn, or of more of them if little was to be looked up in each."""
        self._scheduled = False

    def __len__(self) -> int:
        """Tell in how many queues something waits."""
        return len(self._turns)

    def put(self, queue: MatchingQueue, values: Sequence[TopicValue]) -> bool:
        """Have values looked up and applied: at once if nothing is before them and it takes no time, else in portions.

        Args:
            queue: theirs.
            values: in order; none if what came was nothing but a place, which has its turn behind what waits.

        Returns:
            Whether all have been applied; if not, ``MatchingQueue.when_done`` tells when they are.
        """
        if queue.waiting:
            queue.append(values, 0)
            return False
        knows = self._index.knows
        for value in values:
            if not knows(value.topic):
                break
        else:  # as nearly always
            queue.apply(values)
            return True
        return self._put_unknown(queue, values)

    def _put_unknown(self, queue: MatchingQueue, values: Sequence[TopicValue]) -> bool:
        """Look up as much as there is time for in this turn, and apply it; the rest waits."""
        before = self._spent
        end = self._look_up(values, MATCHING_SECONDS - before)
        if end < len(values):
            # It waits before a part of it is applied: what is applied may lead to the queue being dropped.
            queue.append(values, end)
            self._turns.add(queue)
            self._turns.charge(queue, self._spent - before)
            self._schedule()
        if end:
            try:
                queue.apply(values[:end])
            except BaseException:
                self.drop(queue)
                raise
        return end == len(values)

    def drop(self, queue: MatchingQueue) -> None:
        """Forget what waits in a queue."""
        queue.clear()
        self._turns.remove(queue)

    def _look_up(self, values: Sequence[TopicValue], seconds: float) -> int:
        """Look topics up for so long, about; returns how many are known now, from the first on.

        What is known already takes no time, so it is never a reason to stop.
        """
        knows, match, monotonic = self._index.knows, self._index.match, self._clock.monotonic
        limit = self._spent + seconds
        for at, value in enumerate(values):
            if knows(value.topic):
                continue
            if self._spent >= limit:
                return at
            began = monotonic()
            match(value.topic)
            self._spent += monotonic() - began
        return len(values)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """Begin a turn: with those who wait."""
        self._scheduled = False
        self._spent = 0.0
        while self._spent < MATCHING_SECONDS:
            queue = self._turns.first()
            if queue is None:
                return
            try:
                self._serve(queue)
            except Exception as bug:  # noqa: BLE001 - the other queues must go on
                self.drop(queue)
                queue.failed(bug)
        if self._turns:
            self._schedule()

    def _serve(self, queue: MatchingQueue) -> None:
        """Apply what of a queue's first portion can be looked up in its time."""
        portion, before = queue.first, self._spent
        values = portion.values[portion.applied : portion.applied + SERVED_VALUES]
        seconds = MATCHING_SECONDS - before
        end = self._look_up(values, seconds if len(self._turns) == 1 else min(seconds, QUEUE_SECONDS))
        portion.applied += end
        is_done = portion.applied == len(portion.values)
        if is_done:
            # It leaves before it is applied, which may lead to the queue being dropped.
            queue.pop()
            if not queue.waiting:
                self._turns.remove(queue)
        if end:
            began = self._clock.monotonic()
            queue.apply(values[:end])
            self._spent += self._clock.monotonic() - began
        self._turns.charge(queue, self._spent - before)
        if is_done:
            portion.done()
