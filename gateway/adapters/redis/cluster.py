"""Who serves what in a Redis Cluster, as its nodes tell by ``CLUSTER SLOTS``.

redis-py's cluster client is not used: it follows redirections by itself, which would execute a write nobody knows how
often, and it believes whichever node it happens to ask. Here any node that is reached is asked, and what it says is
believed only if all the masters it names say the same (``adoption``).
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Final

from redis.crc import key_slot
from redis.exceptions import RedisError

from gateway.adapters.redis.dialer import Dialer, converse, discard, why
from gateway.adapters.redis.scripts import Command
from gateway.adapters.redis.topology import Ask, Topology
from gateway.ports import GridUnavailable
from gateway.settings.values import HostPort

SLOTS: Final[Command] = ("CLUSTER", "SLOTS")

ASKED_AT_ONCE: Final = 3
"""Nodes asked at the same time, the first answer counts: so a node that hangs costs nothing while two others answer."""


class ClusterFinder:
    """Asks nodes of the cluster: those of the URL, and all that were heard of since.

    Args:
        seeds: the nodes that the URL names.
        dialer: opens connections.
        tags: all hash tags of the keys.
    """

    mode = "cluster"

    def __init__(self, seeds: Sequence[HostPort], *, dialer: Dialer, tags: Iterable[str]) -> None:
        self._dialer = dialer
        self._slots = {tag: key_slot(tag.encode()) for tag in tags}
        self._seeds = frozenset(seeds)
        self._known = self._seeds

    async def find(self) -> Topology:
        """See ``Finder.find``."""
        # In any order: one that is wrong, because it is cut off from the others, must not be asked first each time.
        known = random.sample(sorted(self._known, key=str), len(self._known))
        failures: list[str] = []
        for start in range(0, len(known), ASKED_AT_ONCE):
            topology = await self._first_answer(known[start : start + ASKED_AT_ONCE], failures)
            if topology is not None:
                return topology
        raise GridUnavailable(f"no node of the Redis Cluster answers: {'; '.join(failures)}")

    async def look(self, ask: Ask) -> Topology | None:
        """See ``Finder.look``."""
        try:
            return self.read(await ask(SLOTS), None)
        except GridUnavailable:
            # A slot that nobody serves is told by whoever wants to use it, or by nobody, because nobody does.
            return None

    def read(self, reply: Any, asked: HostPort | None) -> Topology:
        """Read what ``CLUSTER SLOTS`` answers.

        Args:
            reply: the answer.
            asked: who answered, in case that it does not know its own address; None if nobody needs to know.

        Raises:
            GridUnavailable: there are slots of ours that nobody serves.
        """
        ranges: list[tuple[int, int, HostPort | None]] = sorted(
            [(first, last, _address(nodes[0], asked)) for first, last, *nodes in reply], key=lambda each: each[:2]
        )
        starts = [first for first, _, _ in ranges]
        owners: dict[str, HostPort] = {}
        for tag, slot in self._slots.items():
            _, last, owner = ranges[bisect_right(starts, slot) - 1] if ranges else (0, -1, None)
            if owner is None or not slot <= last or slot < starts[0]:
                raise GridUnavailable(f"no node of the Redis Cluster serves slot {slot}")
            owners[tag] = owner
        masters = tuple(sorted(set(owners.values()), key=str))
        index = {address: number for number, address in enumerate(masters)}
        return Topology(masters, {tag: index[owner] for tag, owner in owners.items()})

    async def _first_answer(self, addresses: Sequence[HostPort], failures: list[str]) -> Topology | None:
        asked = {asyncio.create_task(self._ask(each)): each for each in addresses}
        pending = set(asked)
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    error = task.exception()
                    if error is None:
                        return task.result()
                    if not isinstance(error, (RedisError, OSError, GridUnavailable)):
                        raise error
                    failures.append(f"{asked[task]}: {why(error)}")
        finally:
            for task in pending:
                task.cancel()
            # All of them: of two that ended together, only one has been looked at.
            await asyncio.gather(*asked, return_exceptions=True)
        return None

    async def _ask(self, address: HostPort) -> Topology:
        connection = await self._dialer.dial(address)
        try:
            async with asyncio.timeout(self._dialer.timeout):
                (reply,) = await converse(connection, [SLOTS])
        finally:
            await discard(connection)
        topology = self.read(reply, address)
        # Replicas too: one of them may be all that is left to ask. Nodes that have gone are forgotten.
        nodes = [_address(node, address) for _, _, *nodes in reply for node in nodes]
        self._known = self._seeds.union([each for each in nodes if each is not None])
        return topology


def _address(node: Sequence[Any], asked: HostPort | None) -> HostPort | None:
    """Read one node; one without a host is the one that answered, and ``?`` is one whose name is not known yet."""
    host: bytes | None = node[0]
    if not host:
        return None if asked is None else HostPort(asked.host, node[1])
    return None if host == b"?" else HostPort(host.decode(), node[1])
