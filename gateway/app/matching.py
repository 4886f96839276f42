"""Who selects the topics that the streams bring is found ahead of sending, a few milliseconds of it at a time (P20).

What a topic was resolved to is remembered, so as a rule it is at hand. A batch of topics that nobody has seen before
has to be looked up one by one, and among selectors that are made for it each takes a fraction of a millisecond. Whoever
publishes the topics may be a client of another node, so this node cannot slow it down: it takes its time for them, and
others get their turn meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, Generic

from gateway.app.clock import Clock
from gateway.core.selection_index import S, SelectionIndex
from gateway.ports import TopicValue

MATCHING_SECONDS: Final = 0.005
"""Seconds of looking topics up before others get their turn. A thousand usual topics take no longer."""


class Matching(Generic[S]):
    """Looks topics up.

    Args:
        index: knows who selects them.
        clock: time.

    Attributes:
        is_due: so much time was spent that others should get their turn: ``pause``.
    """

    __slots__ = ("_clock", "_index", "_spent", "is_due")

    def __init__(self, index: SelectionIndex[S], clock: Clock) -> None:
        self._index = index
        self._clock = clock
        self._spent = 0.0
        self.is_due = False

    def portions(self, values: Sequence[TopicValue]) -> Iterator[Sequence[TopicValue]]:
        """Divide values into portions, all of whose topics are looked up when the portion comes.

        As a rule it is one portion. After one that leaves ``is_due`` the caller makes use of it, then pauses, and then
        asks for the next: what has been looked up may have to be looked up again after a pause.
        """
        knows, match, monotonic = self._index.knows, self._index.match, self._clock.monotonic
        start = 0
        for number, value in enumerate(values, 1):
            if knows(value.topic):
                continue
            began = monotonic()
            match(value.topic)
            self._spent += monotonic() - began
            if self._spent >= MATCHING_SECONDS:
                self.is_due = True
                yield values[start:number]
                start = number
        if start < len(values):
            yield values[start:] if start else values

    async def pause(self) -> None:
        """Let others have their turn."""
        self.is_due = False
        self._spent = 0.0
        await asyncio.sleep(0)
