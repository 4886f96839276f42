"""A node keeps a removed topic no longer than the grid does, which forgets it in the end (ADR 0021).

```text
removed ──▶ noted ──(as long as the grid has to)──▶ does the grid remember it? ─┬─ no: let go of
              ▲                                                                 │
              └──────────────────── yes, or a feed owes it ─────────────────────┘
```

So a copy that was read long ago has the topics that one has which is read now: those alone are handed to sessions that
are restored, and named to readers of histories.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.feeds.feeds import Feeds
from gateway.app.delivery.partition import Partition
from gateway.app.delivery.replicas import Replicas
from gateway.app.runtime.parameters import REMOVAL_GRACE
from gateway.app.runtime.partition_turns import each_in_turn
from gateway.app.session.session import Session
from gateway.core.topics.topics import PRESENCE_ROOT, SEPARATOR
from gateway.core.types import TopicPath
from gateway.ports import PRESENCE_REMOVAL, GridUnavailable

SWEEP_SECONDS: Final = 60.0
"""Seconds between two sweeps, on average. One that finds nothing looks at one removal of each partition."""

ASKED_AT_ONCE: Final = 200
"""Removals that the grid is asked for together, and that are let go of in a turn of the loop: less than a millisecond.
Each is asked for once, and then once in the same time for as long as the grid remembers it."""

_PRESENCE: Final = PRESENCE_ROOT + SEPARATOR


class RemovalSweeper:
    """Lets go of removals that the grid has forgotten.

    Args:
        context: of the node.
        replicas: the node's copies of partitions.
        feeds: what sessions have yet to be sent of them.
        match: tells which sessions select a topic.
    """

    def __init__(
        self,
        context: Context,
        replicas: Replicas,
        feeds: Feeds,
        match: Callable[[TopicPath], tuple[Session, ...]],
    ) -> None:
        self._clock = context.clock
        self._grid = context.grid
        self._keep = context.parameters.max_window + REMOVAL_GRACE
        self._replicas = replicas
        self._feeds = feeds
        self._match = match

    def note(self, partition: Partition, topics: Iterable[TopicPath]) -> None:
        """Note that topics have been removed; one that was noted before is noted anew."""
        now = self._clock.monotonic()
        for topic in topics:
            notes = _notes(partition, topic)
            notes[topic] = now
            notes.move_to_end(topic)

    async def run(self) -> None:
        """Sweep for ever."""
        while True:
            await asyncio.sleep(self._clock.about(SWEEP_SECONDS))
            await self.sweep()

    async def sweep(self) -> None:
        """Let go of all that is due, as far as the grid can be asked; what is left is due in the next sweep."""
        with suppress(GridUnavailable):
            await each_in_turn(self._grid, [each.number for each in self._replicas], self._sweep_in)

    async def _sweep_in(self, number: int) -> None:
        while (partition := self._replicas.whole(number)) is not None and (due := self._due(partition)):
            await self._look_at(partition, due)
            await asyncio.sleep(0)

    def _is_followed(self, partition: Partition) -> bool:
        """Tell whether the copy is in use and whole. One that is being read finds out itself what the grid has lost."""
        return self._replicas.whole(partition.number) is partition

    def _due(self, partition: Partition) -> Sequence[TopicPath]:
        now = self._clock.monotonic()
        for notes, keep in ((partition.removals, self._keep), (partition.departures, PRESENCE_REMOVAL)):
            due = [topic for topic, noted in islice(notes.items(), ASKED_AT_ONCE) if noted <= now - keep]
            if due:
                return due
        return ()

    async def _look_at(self, partition: Partition, topics: Sequence[TopicPath]) -> None:
        values = partition.values
        known = [values.get(topic) for topic in topics]
        asked = [each for each in known if each is not None and not each.value]
        for topic in set(topics).difference(each.topic for each in asked):
            del _notes(partition, topic)[topic]  # it has a value again
        stored = await self._grid.topics.read([each.topic for each in asked]) if asked else ()
        if not self._is_followed(partition):
            return
        for before, now in zip(asked, stored, strict=True):
            topic, known_now = before.topic, values.get(before.topic)
            if known_now is None or known_now.event != before.event:
                # It has been let go of, published, or removed anew, and then it was noted anew, too.
                if known_now is None or known_now.value:
                    _notes(partition, topic).pop(topic, None)
            elif now is None and not self._is_owed(partition, topic):
                partition.let_go(topic)
                partition.extended()
            else:
                self.note(partition, (topic,))

    def _is_owed(self, partition: Partition, topic: TopicPath) -> bool:
        """Tell whether a session has yet to be sent the removal by a feed, which reads it where it stands."""
        feeds = self._feeds
        if not feeds.feeding:
            return False
        _, fed = feeds.part(self._match(topic))
        return any(feeds.owes(each, partition, topic) for each in fed)


def _notes(partition: Partition, topic: TopicPath) -> OrderedDict[TopicPath, float]:
    return partition.departures if topic.startswith(_PRESENCE) else partition.removals
