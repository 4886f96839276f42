"""Sends each command to the master that serves its keys: one ``Batcher``, and so one order, per master.

On one Redis there is one order for all commands of the node. On a Redis Cluster commands for different hash tags are
not ordered among themselves, even if one master happens to serve both today. Whoever needs one step to follow another
across tags awaits the first; ADR 0011 lists where that is.

While a slot of a Redis Cluster is moved, Redis redirects commands: nothing of those is executed. They come back here
and are held, together with all later ones for the same hash tags, until the masters agree on who serves what; then all
of them are sent in the order in which they were asked for.

```text
submit ──────▶ batcher of the master ──▶ replies
   │ tag held          │ redirected
   └─────▶ held ◀──────┘
             └── release: by the topology of then
```
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from gateway.adapters.redis.batcher import Batcher, Executor, Group, Redirected
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.scripts import Command
from gateway.adapters.redis.topology import Topology
from gateway.ports import GridUnavailable

_FIRST_KEY_OF_A_SCRIPT = 3
"""After EVALSHA, the hash and the number of keys; the key of any other command is its second word."""


LONG_WAIT_SHARE: Final = 0.25
"""Of the time limit of a command: after a node has waited for so long, another one, which had asked before, may have
taken the grid for unreachable. Mostly a node asks for something every second, as it looks for what is due."""


class Router(Executor):
    """All commands of the node.

    Args:
        timeout: seconds from being asked for until a command that is redirected all the time is given up.
        redirected: called when commands are held; expected to call ``release`` before long, or ``shut``.

    Attributes:
        batchers: one per master, in the order of the topology; none while the grid is unreachable.
        meeting: since when commands for a hash tag are redirected, in seconds of the loop's clock; whoever finds that
            they are no more deletes it.
    """

    def __init__(self, *, timeout: float, redirected: Callable[[], None]) -> None:
        self.batchers: tuple[Batcher, ...] = ()
        self.meeting: dict[str, float] = {}
        self._timeout = timeout
        self._tell = redirected
        self._only: Batcher | None = None
        self._topology = Topology((), {})
        self._why_shut = GridUnavailable("the grid has not been reached yet")
        self._held: list[Group] = []
        self._held_tags: set[str] = set()

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
        if self._held_tags and not self._held_tags.isdisjoint(map(tag_of, commands)):
            loop = asyncio.get_running_loop()
            group = Group(commands, loop.create_future(), gated=gated, asked=loop.time())
            self._hold(group)
            return group.future
        return self._send(commands, gated=gated, patient=patient, asked=None)

    def serving(self, tag: str) -> Batcher:
        """Tell the batcher of the master that serves a hash tag.

        Raises:
            GridUnavailable: the grid is unreachable.
        """
        if not self.batchers:
            raise GridUnavailable(str(self._why_shut))
        return self.batchers[self._topology.shard(tag)]

    def has_waited(self) -> bool:
        """Tell whether an answer has taken so long that others may have taken the grid for unreachable.

        Since this was asked last, or the grid was adopted.
        """
        slowest = max((each.slowest for each in self.batchers), default=0.0)
        for each in self.batchers:
            each.slowest = 0.0
        return slowest > LONG_WAIT_SHARE * self._timeout

    # --- for the grid connection --------------------------------------------------------------------------------------

    @property
    def holds(self) -> bool:
        """Whether commands wait for ``release``."""
        return bool(self._held)

    def open(self, topology: Topology, batchers: Sequence[Batcher]) -> None:
        """Send from now on by *batchers*, which are open, one per master of *topology*."""
        self._topology = topology
        self.batchers = tuple(batchers)
        self._only = None if topology.sharded else self.batchers[0]

    def redirected(self, group: Group) -> None:
        """Take a group back of which commands were redirected: they are sent again, or it is answered as it is."""
        now = asyncio.get_running_loop().time()
        for tag in tags_to_send(group):
            self.meeting.setdefault(tag, now)
        if self.batchers and now - group.asked < self._timeout and not group.future.done():
            self._hold(group)
            self._tell()
        else:
            group.succeed()

    def hold(self, tags: Iterable[str]) -> None:
        """Send nothing for these hash tags until ``release``."""
        self._held_tags.update(tags)

    def release(self, topology: Topology) -> None:
        """Send what is held, to the masters of *topology*, which are the ones that it was opened with."""
        self._topology = topology
        held, self._held = self._held, []
        self._held_tags.clear()
        for group in held:
            self._send_again(group)

    def shut(self, error: GridUnavailable) -> None:
        """Stop at once: all that was sent or waits fails with *error*, as does every later command until ``open``."""
        batchers, self.batchers, self._only, self._why_shut = self.batchers, (), None, error
        held, self._held = self._held, []
        self._held_tags.clear()
        self.meeting.clear()
        for batcher in batchers:
            batcher.shut(error)
        for group in held:
            group.fail(GridUnavailable(str(error)))

    async def drain(self) -> None:
        """Wait until everything that was submitted is answered or failed."""
        while True:
            await asyncio.gather(*(batcher.drain() for batcher in self.batchers))
            if not self._held:
                return
            await asyncio.wait([group.future for group in self._held])

    # --- inside -------------------------------------------------------------------------------------------------------

    def _hold(self, group: Group) -> None:
        """Keep a group in its place among those that are held, and what comes later for any of its tags behind it."""
        insort(self._held, group, key=lambda each: each.asked)
        self._held_tags.update(tags_to_send(group))

    def _send_again(self, group: Group) -> None:
        again = to_send(group)
        commands = [group.commands[index] for index in again]
        try:
            sent = self._send(commands, gated=group.gated, patient=False, asked=group.asked)
        except GridUnavailable as error:
            group.fail(GridUnavailable(str(error)))
            return

        def arrived(done: asyncio.Future[list[Any]]) -> None:
            error = done.exception()
            if error is not None:
                group.fail(GridUnavailable(str(error)))
                return
            if not group.replies:
                group.replies = [None] * len(group.commands)
            for index, reply in zip(again, done.result(), strict=True):
                group.replies[index] = reply
            group.succeed()

        sent.add_done_callback(arrived)

    def _send(
        self, commands: Sequence[Command], *, gated: bool, patient: bool, asked: float | None
    ) -> asyncio.Future[list[Any]]:
        places = [self._topology.shards[tag_of(command)] for command in commands]
        first = places[0]
        if len(places) == 1 or all(place == first for place in places):
            return self.batchers[first].submit(commands, gated=gated, patient=patient, asked=asked)
        return self._scatter(commands, places, gated=gated, patient=patient, asked=asked)

    def _scatter(
        self, commands: Sequence[Command], places: Sequence[int], *, gated: bool, patient: bool, asked: float | None
    ) -> asyncio.Future[list[Any]]:
        """Give each master its part, all in this tick, and put the replies back into the order of the commands."""
        parts: dict[int, list[int]] = {}
        for index, place in enumerate(places):
            parts.setdefault(place, []).append(index)
        sent = [
            (
                indices,
                self.batchers[place].submit(
                    [commands[index] for index in indices], gated=gated, patient=patient, asked=asked
                ),
            )
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


def tag_of(command: Command) -> str:
    """Tell the hash tag of a command's keys."""
    return Keys.tag(str(command[_FIRST_KEY_OF_A_SCRIPT if command[0] == b"EVALSHA" else 1]))


def to_send(group: Group) -> list[int]:
    """Tell which commands of a group are not executed yet."""
    if not group.replies:
        return list(range(len(group.commands)))
    return [index for index, reply in enumerate(group.replies) if isinstance(reply, Redirected)]


def tags_to_send(group: Group) -> set[str]:
    """Tell the hash tags of the commands of a group that are not executed yet."""
    return {tag_of(group.commands[index]) for index in to_send(group)}
