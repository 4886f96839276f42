"""Follows the slots of a Redis Cluster while they are moved between adopted masters; see ``slots``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from redis.crc import key_slot

from gateway.adapters.redis import slots
from gateway.adapters.redis.attachment import Attachment
from gateway.adapters.redis.batcher import Batcher
from gateway.adapters.redis.cluster import ClusterFinder
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.router import Router
from gateway.adapters.redis.topology import Finder, Topology
from gateway.catalogue import log_events
from gateway.core.types import GridGeneration
from gateway.ports import EventLog, GridUnavailable


class SlotFollower:
    """Has commands sent to where their slots are by now.

    Args:
        finder: tells who serves what; where that is no Redis Cluster, there is nothing to follow.
        keys: names of all keys.
        router: sends the commands.
        attached: returns the connections to the adopted grid; None while there is none.
        marks: returns the generation in force and its seal, which all data of the grid is marked with.
        suspect: told why the adopted grid cannot be trusted any more.
        timeout: seconds in which all masters have to agree.
        log: where it is told.

    Attributes:
        half_moved: hash tags of slots that somebody began to move and did not finish.
    """

    def __init__(
        self,
        *,
        finder: Finder,
        keys: Keys,
        router: Router,
        attached: Callable[[], Attachment | None],
        marks: Callable[[], tuple[GridGeneration, str]],
        suspect: Callable[[str], None],
        timeout: float,
        log: EventLog,
    ) -> None:
        self._finder = finder
        self._keys = keys
        self._router = router
        self._attached = attached
        self._marks = marks
        self._suspect = suspect
        self._timeout = timeout
        self._log = log
        self._following: asyncio.Task[None] | None = None
        self.half_moved: set[str] = set()

    @property
    def complaints(self) -> Sequence[str]:
        """What is wrong with slots, for people."""
        half_moved = ", ".join(f"{key_slot(tag.encode())} ({{{tag}}})" for tag in sorted(self.half_moved))
        if not half_moved:
            return []
        return [f"slots of the Redis Cluster stay half moved, and `{slots.REPAIR}` ends that: {half_moved}"]

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """What is under way, to be cancelled at the end."""
        return [] if self._following is None else [self._following]

    def follow(self, attached: Attachment | None) -> None:
        """Slots are being moved: find out where they are, and send what waits for that.

        Args:
            attached: by which connections that was heard.
        """
        finder = self._finder
        if attached is None or not isinstance(finder, ClusterFinder):
            return
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow(attached, finder), name="grid-slots")

    async def look(self) -> None:
        """Find slots that somebody began to move and did not finish, among those that commands were redirected for."""
        now = asyncio.get_running_loop().time()
        half_moved: set[str] = set()
        for tag, since in list(self._router.meeting.items()):
            try:
                if not await slots.still_redirects(self._keys, tag, self._router.serving(tag)):
                    self._router.meeting.pop(tag, None)
                elif now - since > slots.HALF_MOVED:
                    half_moved.add(tag)
            except GridUnavailable:
                return
        for tag in half_moved - self.half_moved:
            self._log.emit(log_events.GRID_SLOT_HALF_MOVED, slot=key_slot(tag.encode()), tag=tag)
        self.half_moved = half_moved

    async def _follow(self, attached: Attachment, finder: ClusterFinder) -> None:
        """Look until no command waits for a slot any more; see ``slots``."""
        loop = asyncio.get_running_loop()
        delay, settled = slots.FIRST_LOOK, loop.time()
        await asyncio.sleep(delay)
        # Looked at after each pause: what is adopted meanwhile may have other masters.
        while attached is self._attached():
            delay = min(2 * delay, slots.LONGEST_LOOK)
            batchers, before = self._router.batchers, attached.topology
            try:
                topology = await slots.agreed(finder, before, batchers)
                if topology is not None and topology.masters != before.masters:
                    self._suspect(f"others are masters by now: {topology}")
                elif topology is not None and topology != before:
                    topology = await self._settle(finder, before, topology, batchers)
            except GridUnavailable:
                topology = None  # a slot that has moved moves again, or the grid is gone
            if attached is not self._attached():
                return
            if topology is not None:
                settled = loop.time()
                if topology != before:
                    attached.slots_moved(topology)
                self._router.release(topology)
                await asyncio.sleep(delay)
                if not self._router.holds:
                    return
            elif loop.time() - settled > self._timeout:
                self._suspect("the masters of the Redis Cluster do not agree on which of them serve what")
            await asyncio.sleep(delay)

    async def _settle(
        self, finder: ClusterFinder, before: Topology, found: Topology, batchers: Sequence[Batcher]
    ) -> Topology | None:
        """Have what has moved sent elsewhere; returns *found*, or None if it is not certain any more.

        First its commands are held. Then the masters are asked once more, whose answers come behind all that was sent
        to them before: what they redirect is held as well by then, and nothing can overtake it.
        """
        self._router.hold([tag for tag, shard in found.shards.items() if shard != before.shards[tag]])
        if not await slots.have_arrived(self._keys, self._marks(), before, found, batchers):
            self._suspect("a slot has moved without its data")
        return found if await slots.agreed(finder, before, batchers) == found else None
