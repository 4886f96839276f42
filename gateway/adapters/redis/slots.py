"""Slots of a Redis Cluster that are moved between masters which are all adopted already.

Nothing is lost by that: a slot's data moves while its old master lives. So nothing has to be adopted anew, as long as
three things are certain: all masters agree again on who serves what, they are the same processes, and what has moved
arrived with the marks of the generation in force. If anything is different, the whole grid is adopted anew.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from gateway.adapters.redis import scripts
from gateway.adapters.redis.batcher import Batcher, Redirected
from gateway.adapters.redis.cluster import SLOTS, ClusterFinder
from gateway.adapters.redis.keys import NODES_TAG, Keys
from gateway.adapters.redis.scripts import Command
from gateway.adapters.redis.topology import Topology
from gateway.core.types import GridGeneration
from gateway.ports import GridUnavailable

FIRST_LOOK: Final = 0.002
"""Seconds until the masters are asked after a command was redirected; they tell each other within about as long."""

LONGEST_LOOK: Final = 0.05
"""Seconds between two looks while they do not agree, or still redirect, at most: the delay doubles up to it."""

HALF_MOVED: Final = 10.0
"""Seconds for which a slot redirects before it is called half moved: to move one takes milliseconds, or some seconds if
it is huge."""

REPAIR: Final = "redis-cli --cluster fix"
"""What moves the rest of such a slot, or takes it back."""


async def agreed(finder: ClusterFinder, topology: Topology, batchers: Sequence[Batcher]) -> Topology | None:
    """Ask every master who serves what.

    Args:
        finder: reads what they say.
        topology: whose masters are asked.
        batchers: to them.

    Returns:
        What all of them say; None if they do not agree, or do not know.

    Raises:
        GridUnavailable: the grid is unreachable.
    """
    replies = await asyncio.gather(*(batcher.ask(SLOTS) for batcher in batchers))
    try:
        views = [finder.read(reply, address) for reply, address in zip(replies, topology.masters, strict=True)]
    except GridUnavailable:
        return None  # a slot that nobody serves
    return views[0] if all(view == views[0] for view in views) else None


async def have_arrived(
    keys: Keys, adopted: tuple[GridGeneration, str], before: Topology, after: Topology, batchers: Sequence[Batcher]
) -> bool:
    """Tell whether what has moved between two topologies of the same masters has the marks of the generation in force.

    Args:
        keys: names of all keys.
        adopted: the generation that is open in every partition, and its seal.
        before: who served what.
        after: who serves what.
        batchers: to them.

    Raises:
        GridUnavailable: nobody knows.
    """
    moved = {tag for tag in after.shards if after.shards[tag] != before.shards[tag]}
    found = await asyncio.gather(
        *(batchers[after.shards[tag]].ask(command) for tag, command in _marks(keys, adopted, moved))
    )
    return all(_is_mark(each, adopted) for each in found)


async def has_marks(
    keys: Keys, adopted: tuple[GridGeneration, str], topology: Topology, master: int, batcher: Batcher
) -> bool:
    """Tell whether what a master serves has the marks of the generation in force, as far as one of them tells.

    A master that was emptied, while all others go on, says so to nobody but those who need its data. The mark of one
    partition tells it, and costs next to nothing; another one is looked at each time, as single keys may go, too.

    Args:
        keys: names of all keys.
        adopted: the generation that is open in every partition, and its seal.
        topology: who serves what.
        master: which of the masters.
        batcher: to it.

    Raises:
        GridUnavailable: nobody knows; a slot that is being moved, for example.
    """
    marks = list(_marks(keys, adopted, {tag for tag, shard in topology.shards.items() if shard == master}))
    if not marks:
        return True
    _, command = random.choice(marks)  # noqa: S311 - not a secret
    return _is_mark(await batcher.ask(command), adopted)


def _is_mark(found: object, adopted: tuple[GridGeneration, str]) -> bool:
    return found == adopted[0] or found == adopted[1].encode()


def _marks(keys: Keys, adopted: tuple[GridGeneration, str], tags: AbstractSet[str]) -> Iterator[tuple[str, Command]]:
    """Yield what answers with the generation or its seal, and with something else if something is amiss."""
    if NODES_TAG in tags:
        yield NODES_TAG, ("HGET", keys.grid, "seal")
    for stream in keys.stream:
        if (tag := keys.tag(stream)) in tags:
            yield tag, scripts.SEAL(stream, adopted[0], 0, 1)
    for mark in keys.opened:
        if (tag := keys.tag(mark)) in tags:
            yield tag, ("GET", mark)


async def still_redirects(keys: Keys, tag: str, batcher: Batcher) -> bool:
    """Tell whether the slot of a hash tag is still being given away by the master that serves it.

    Raises:
        GridUnavailable: the grid is unreachable.
    """
    try:
        await batcher.ask(("EXISTS", keys.probe(tag)))
    except Redirected:
        return True
    return False
