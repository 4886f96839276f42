"""Sends each command to the master that serves its keys: one ``Batcher``, and so one order, per master.

On one Redis there is one order for all commands of the node. On a Redis Cluster commands for different hash tags are
not ordered among themselves, even if one master happens to serve both today. Whoever needs one step to follow another
across tags awaits the first; ADR 0011 lists where that is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from gateway.adapters.redis.batcher import Batcher, Executor
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.scripts import Command
from gateway.adapters.redis.topology import Topology
from gateway.ports import GridUnavailable

_FIRST_KEY_OF_A_SCRIPT = 3
"""After EVALSHA, the hash and the number of keys; the key of any other command is its second word."""


class Router(Executor):
    """All commands of the node.

    Attributes:
        batchers: one per master, in the order of the topology; none while the grid is away.
    """

    def __init__(self) -> None:
        self.batchers: tuple[Batcher, ...] = ()
        self._only: Batcher | None = None
        self._topology = Topology((), {})
        self._why_shut = GridUnavailable("the grid has not been reached yet")

    # --- for callers --------------------------------------------------------------------------------------------------

    @property
    def undivided(self) -> bool:
        """Whether one command may name keys of several hash tags, as it may wherever there is no Redis Cluster."""
        return self._only is not None

    def submit(
        self, commands: Sequence[Command], *, gated: bool = False, patient: bool = False
    ) -> asyncio.Future[list[Any]]:
        """See ``Executor.submit``."""
        if self._only is not None:
            return self._only.submit(commands, gated=gated, patient=patient)
        if not self.batchers:
            raise GridUnavailable(str(self._why_shut))
        places = [self._shard(command) for command in commands]
        first = places[0]
        if len(places) == 1 or all(place == first for place in places):
            return self.batchers[first].submit(commands, gated=gated, patient=patient)
        return self._scatter(commands, places, gated=gated, patient=patient)

    def serving(self, tag: str) -> Batcher:
        """Tell the batcher of the master that serves a hash tag.

        Raises:
            GridUnavailable: the grid is away.
        """
        if not self.batchers:
            raise GridUnavailable(str(self._why_shut))
        return self.batchers[self._topology.shard(tag)]

    # --- for the link -------------------------------------------------------------------------------------------------

    def open(self, topology: Topology, batchers: Sequence[Batcher]) -> None:
        """Send from now on by *batchers*, which are open, one per master of *topology*."""
        self._topology = topology
        self.batchers = tuple(batchers)
        self._only = None if topology.sharded else self.batchers[0]

    def shut(self, error: GridUnavailable) -> None:
        """Stop at once: all that was sent or waits fails with *error*, as does every later command until ``open``."""
        batchers, self.batchers, self._only, self._why_shut = self.batchers, (), None, error
        for batcher in batchers:
            batcher.shut(error)

    async def drain(self) -> None:
        """Wait until everything that was submitted is answered or failed."""
        await asyncio.gather(*(batcher.drain() for batcher in self.batchers))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _shard(self, command: Command) -> int:
        key = command[_FIRST_KEY_OF_A_SCRIPT if command[0] == b"EVALSHA" else 1]
        return self._topology.shards[Keys.tag(str(key))]

    def _scatter(
        self, commands: Sequence[Command], places: Sequence[int], *, gated: bool, patient: bool
    ) -> asyncio.Future[list[Any]]:
        """Give each master its part, all in this tick, and put the replies back into the order of the commands."""
        parts: dict[int, list[int]] = {}
        for index, place in enumerate(places):
            parts.setdefault(place, []).append(index)
        sent = [
            (indices, self.batchers[place].submit([commands[index] for index in indices], gated=gated, patient=patient))
            for place, indices in parts.items()
        ]
        gathered: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        replies: list[Any] = [None] * len(commands)
        left = len(sent)

        def arrived(indices: Sequence[int], part: asyncio.Future[list[Any]]) -> None:
            nonlocal left
            left -= 1
            error = part.exception()
            if error is not None:
                # The caller is told at once; what other masters do meanwhile is as unknown to it as what this one did.
                if not gathered.done():
                    gathered.set_exception(error)
                return
            for index, reply in zip(indices, part.result(), strict=True):
                replies[index] = reply
            if left == 0 and not gathered.done():
                gathered.set_result(replies)

        for indices, part in sent:
            part.add_done_callback(lambda done, indices=indices: arrived(indices, done))  # type: ignore[misc]
        return gathered
