"""Which Redis processes are the grid, and which of them serves what: one Redis, or a master named by Sentinels.

A finder answers that from outside, whenever the node has to connect; ``cluster`` has the one for a Redis Cluster. What
it says is believed only after the processes themselves have confirmed it: see ``adoption``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from redis.exceptions import RedisError

from gateway.adapters.redis.dialer import Dialer, converse, discard, why
from gateway.adapters.redis.scripts import Command
from gateway.ports import GridUnavailable
from gateway.settings.grid_url import GridPlace
from gateway.settings.values import HostPort

LATECOMERS: Final = 0.1
"""Seconds for which further Sentinels are heard after the first answer: a single one may be cut off and know only what
was, and of several answers the newest counts."""

Ask: TypeAlias = Callable[[Command], Awaitable[Any]]
"""Sends one command to a Redis that is in use already."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Who serves what.

    Attributes:
        masters: the processes that take writes, in a fixed order; None is the one that the URL names.
        shards: the index of each hash tag's master; empty if one master serves all.
    """

    masters: tuple[HostPort | None, ...]
    shards: dict[str, int]

    @property
    def sharded(self) -> bool:
        """Whether it is a Redis Cluster, where one command may touch keys of one hash tag only."""
        return bool(self.shards)

    def shard(self, tag: str) -> int:
        """Tell which master serves a hash tag."""
        return self.shards[tag] if self.shards else 0

    def __str__(self) -> str:
        return ", ".join(str(each) for each in self.masters if each is not None)


class Finder(Protocol):
    """Finds the masters."""

    mode: str
    """What a Redis of this grid must say of itself as ``redis_mode``: ``standalone`` or ``cluster``."""

    async def find(self) -> Topology:
        """Ask whoever knows, from scratch.

        Raises:
            GridUnavailable, redis.RedisError, OSError: nobody knows.
        """

    async def look(self, ask: Ask) -> Topology | None:
        """Look whether anything has changed, while the grid is in use.

        Args:
            ask: asks one of the masters.

        Returns:
            Who serves what by now; None if there is nothing to look at, or nobody who knows.
        """


class NobodyKnows(GridUnavailable):
    """Whoever could tell the masters is unreachable, or is known to be behind."""


class SingleFinder:
    """One Redis, whatever happens."""

    mode = "standalone"

    async def find(self) -> Topology:
        """See ``Finder.find``."""
        return Topology((None,), {})

    async def look(self, ask: Ask) -> Topology | None:  # noqa: ARG002 - there is nothing to ask
        """See ``Finder.look``."""
        return None


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one Sentinel says.

    Attributes:
        address: of the master.
        epoch: of the failover that made it the master; rises with each.
        down: whether this Sentinel does not reach it.
    """

    address: HostPort
    epoch: int
    down: bool


class SentinelFinder:
    """Asks the Sentinels, all of them at once, and believes the one that has seen the latest failover.

    An epoch that was seen once is remembered: a Sentinel that was cut off, and is the only one to answer later, knows
    an older one and is not followed back. Only where more than half of all Sentinels agree on an older one have they
    been set up anew.

    Args:
        place: the grid's URL, read.
        dialer: reaches the Sentinels; a Sentinel must answer within its time limit.
    """

    mode = "standalone"

    def __init__(self, place: GridPlace, *, dialer: Dialer) -> None:
        self._master = place.master
        self._sentinels = place.hosts
        self._dialer = dialer
        self._epoch = 0

    async def find(self) -> Topology:
        """See ``Finder.find``.

        Raises:
            NobodyKnows: no Sentinel answers that is not behind.
        """
        answers, failures = await self._ask_all()
        if not answers:
            raise NobodyKnows(f"no Sentinel knows where {self._master} is: {'; '.join(failures)}")
        address = self._newest(answers)
        if address is None:
            raise NobodyKnows(f"only Sentinels answer that have missed the last failover of {self._master}")
        verdicts = [each.down for each in answers if each.address == address]
        if 2 * sum(verdicts) > len(verdicts):
            # It may accept connections and never answer; to try would only use up the time limit.
            raise GridUnavailable(f"the Sentinels find that {address} is down and have not promoted another yet")
        return Topology((address,), {})

    async def look(self, ask: Ask) -> Topology | None:  # noqa: ARG002 - the master is the last to know
        """See ``Finder.look``."""
        answers, _ = await self._ask_all()
        address = self._newest(answers) if answers else None
        return None if address is None else Topology((address,), {})

    def _newest(self, answers: Sequence[_Answer]) -> HostPort | None:
        """Tell the master after the latest failover; None if a later one has been heard of before."""
        newest = max(answers, key=lambda answer: answer.epoch)
        agreeing = sum((each.epoch, each.address) == (newest.epoch, newest.address) for each in answers)
        if newest.epoch < self._epoch and 2 * agreeing <= len(self._sentinels):
            return None
        self._epoch = newest.epoch
        return newest.address

    async def _ask_all(self) -> tuple[list[_Answer], list[str]]:
        """Ask all Sentinels; returns what those said that answered in time, and why the others did not."""
        asked = {asyncio.create_task(self._ask(each)): each for each in self._sentinels}
        answers: list[_Answer] = []
        failures: list[str] = []
        pending = set(asked)
        try:
            while pending:
                patience = LATECOMERS if answers else self._dialer.timeout
                done, pending = await asyncio.wait(pending, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
                for task in done:
                    error = task.exception()
                    if error is None:
                        answers.append(task.result())
                    else:
                        failures.append(f"{asked[task]}: {why(error)}")
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        return answers, failures + [f"{asked[task]}: no answer in time" for task in pending]

    async def _ask(self, sentinel: HostPort) -> _Answer:
        # A Sentinel is asked so seldom that a connection kept open would more often be broken than useful.
        connection = await self._dialer.dial(sentinel)
        try:
            async with asyncio.timeout(self._dialer.timeout):
                # While the other replicas are being told of a promotion, the address is the new master's already; the
                # state still describes the old one.
                described, place = await converse(
                    connection,
                    [("SENTINEL", "MASTER", self._master), ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._master)],
                )
        finally:
            await discard(connection)
        if place is None:
            raise RedisError("it has lost its master")
        state = dict(zip(described[::2], described[1::2], strict=True))
        address = _address(*place)
        down = b"s_down" in state[b"flags"].split(b",") and address == _address(state[b"ip"], state[b"port"])
        return _Answer(address, int(state[b"config-epoch"]), down)


def _address(host: bytes, port: bytes) -> HostPort:
    return HostPort(host.decode(), int(port))
