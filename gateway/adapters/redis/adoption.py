"""From connections to an adopted grid: are these the right processes, and which generation is in force?

```text
   every master                                the master of {nodes}              every master
┌───────────────────────────────────────┐   ┌─────────────────────────┐   ┌─────────────────────────────────────────┐
│ master? loaded? new enough? agreed    │──▶│ adopt: generation g for │──▶│ seal: open g in every partition it has, │──┐
│ with all others on who serves what?   │   │ exactly these processes │   │ or tell that it knows better            │  │
│ cut off what we left there, scripts   │   └─────────────────────────┘   └─────────────────────────────────────────┘  │
└───────────────────────────────────────┘                ▲  again, if any of them knows better                         │
                                                         └────────────── adopted: g is open everywhere ◀───────────────┘
```

Of a Redis Cluster all masters must name the same masters for all our hash tags. A master that was cut off and replaced
still names itself, and the others do not: whoever talks to it cannot adopt anything, whatever it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import randbelow
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AskError, RedisError, TryAgainError

from gateway.adapters.redis import scripts
from gateway.adapters.redis.clock import TOLERANCE_MS, GridClock
from gateway.adapters.redis.cluster import SLOTS, ClusterFinder
from gateway.adapters.redis.dialer import converse, why
from gateway.adapters.redis.keys import NODES_TAG, Keys
from gateway.adapters.redis.scripts import Command
from gateway.adapters.redis.topology import Finder, Topology
from gateway.core.topics.versions import UNSEEN_GENERATIONS
from gateway.core.types import GridGeneration
from gateway.ports import GridUnavailable

OLDEST_REDIS: Final = (7, 0)
"""``XADD key <generation>-*``, on which the numbering of events rests, came with it."""

NEVER_PROMOTED: Final = "0" * 40
"""What a master says that has never been a replica, as the id of the replication it took part in before."""

_ID_DIGITS: Final = 12
"""Of that id; with the run id it is unique without all 40."""

NO_SEAL: Final = "-"
"""No generation bears it: whoever knows one by it must not take any for the same."""

_SEALS: Final = 10**12
"""How many seals one generation may have: two that were made apart for the same number are told apart by them."""


@dataclass(frozen=True, slots=True)
class Server:
    """What a Redis process says of itself.

    Attributes:
        run_id: new at every start of the process.
        promoted: of which replication it was a replica before it became master, empty if of none. A process that was
            demoted and promoted again has lost writes without a restart, and tells it by this. One without a replica
            forgets it after ``repl-backlog-ttl``, an hour by default.
        client: id of our connection there.
        clock: its time, in seconds since 1970.
    """

    run_id: str
    promoted: str
    client: int
    clock: float = 0.0

    @property
    def name(self) -> str:
        """By which the grid remembers it."""
        return f"{self.run_id}:{self.promoted}" if self.promoted else self.run_id


@dataclass(frozen=True, slots=True)
class Member:
    """One master of the grid and our connection to it.

    Attributes:
        label: where it is, for people.
        connection: to it.
        server: what it says of itself.
    """

    label: str
    connection: AbstractConnection
    server: Server


@dataclass(frozen=True, slots=True)
class Adopted:
    """What is in force.

    Attributes:
        generation: open in every partition.
        seal: of it.
        lost_ago: seconds since the grid lost writes, as far as it knows; None if it never has.
    """

    generation: GridGeneration
    seal: str
    lost_ago: float | None


class Unfitting(GridUnavailable):
    """A Redis cannot be part of the grid; the sentence says which and why."""


async def identify(finder: Finder, topology: Topology, connections: Sequence[AbstractConnection]) -> tuple[Member, ...]:
    """Make sure of every master.

    Args:
        finder: who found them.
        topology: what it found.
        connections: one to each master.

    Returns:
        The masters, in the order of the topology.

    Raises:
        GridUnavailable: one of them will not do.
        redis.RedisError, OSError: one of them does not answer as it should.
    """
    return tuple(
        await asyncio.gather(*(_identify(finder, topology, number, each) for number, each in enumerate(connections)))
    )


def label_of(topology: Topology, number: int) -> str:
    """Name one of the masters for people; the only one of a grid that is one Redis has no name."""
    address = topology.masters[number]
    return "" if address is None else str(address)


async def told_by(label: str, connection: AbstractConnection, commands: Sequence[Command]) -> list[Any]:
    """Converse with one of several Redis processes; a failure says which.

    Raises:
        GridUnavailable: it failed.
    """
    try:
        return await converse(connection, commands)
    except (AskError, TryAgainError) as error:
        # Of a slot that was moved whole in this moment, which is an ASK in redis-py, too, nobody will hear twice.
        slot = "a slot of the Redis Cluster is being moved, or was left half moved"
        raise GridUnavailable(f"{label}: {slot}: {why(error)}") from error
    except (RedisError, OSError) as error:
        raise GridUnavailable(f"{label}: {why(error)}".removeprefix(": ")) from error


async def _identify(finder: Finder, topology: Topology, number: int, connection: AbstractConnection) -> Member:
    label = label_of(topology, number)
    sections = ("server", "replication", "persistence")
    commands: list[Command] = [*(("INFO", section) for section in sections), ("TIME",), ("CLIENT", "ID")]
    *infos, time, client = await told_by(label, connection, commands)
    facts = {name: value for info in infos for name, value in facts_of(info).items()}
    at = f" at {label}" if label else ""
    mode = facts.get("redis_mode", finder.mode)
    if mode != finder.mode:
        wanted = {"cluster": "redis+cluster://", "sentinel": "redis+sentinel://"}.get(mode, "redis://")
        raise Unfitting(f"the Redis{at} runs as {mode}: its URL begins with {wanted}")
    version = tuple(int(part) for part in facts["redis_version"].split(".")[:2])
    if version < OLDEST_REDIS:
        raise Unfitting(f"the Redis{at} is too old: {facts['redis_version']}, and 7.0 or newer is needed")
    if facts.get("role") != "master":
        raise Unfitting(f"the Redis{at} is a replica and takes no writes")
    if facts.get("loading") == "1":
        raise Unfitting(f"the Redis{at} is loading its data")
    if isinstance(finder, ClusterFinder):
        (slots,) = await told_by(label, connection, [SLOTS])
        if finder.read(slots, topology.masters[number]) != topology:
            raise Unfitting(f"the Redis{at} does not agree with the others on which of them serve what")
    promoted = facts.get("master_replid2", NEVER_PROMOTED)
    server = Server(
        facts["run_id"],
        "" if promoted == NEVER_PROMOTED else promoted[:_ID_DIGITS],
        client,
        int(time[0]) + int(time[1]) / 1e6,
    )
    return Member(label, connection, server)


async def prepare(members: Sequence[Member], forsaken: Sequence[Server]) -> None:
    """Cut off what is left of earlier connections, so that nothing they still hold is executed; load the scripts.

    Args:
        members: all masters.
        forsaken: our earlier connections.

    Raises:
        GridUnavailable: one of them does not answer as it should.
    """
    load: list[Command] = [("SCRIPT", "LOAD", each.text) for each in scripts.SCRIPTS]

    async def one(member: Member) -> None:
        kill: list[Command] = [
            ("CLIENT", "KILL", "ID", old.client) for old in forsaken if old.run_id == member.server.run_id
        ]
        await told_by(member.label, member.connection, [*kill, *load])

    await asyncio.gather(*(one(member) for member in members))


class Adoption:
    """Finds out which generation is in force.

    Args:
        keys: names of all keys.
        stream_length: entries that streams keep, about.
        topology: who serves what.
        members: the masters, prepared.
        clock: what this node knows of the time of the grid.
    """

    def __init__(
        self, keys: Keys, stream_length: int, topology: Topology, members: Sequence[Member], clock: GridClock
    ) -> None:
        self._clock = clock
        self._keys = keys
        self._stream_length = stream_length
        self._topology = topology
        self._members = members

    @property
    def names(self) -> str:
        """Of all processes, as the grid remembers them."""
        return " ".join(sorted(member.server.name for member in self._members))

    def are_among(self, adopted: str) -> bool:
        """Tell whether these are processes that were adopted by such names, as ``adopt.lua`` does."""
        known = {part for name in adopted.split() for part in (name, name.partition(":")[0])}
        return known.issuperset(self.names.split())

    async def adopt(self, known: int, known_seal: str) -> Adopted:
        """Adopt.

        Args:
            known: newest generation this node has ever adopted; 0 if none.
            known_seal: its seal; empty if there is none.

        Returns:
            What is in force.

        Raises:
            GridUnavailable: a master does not answer as it should.
        """
        keys = self._keys
        chief = self._members[self._topology.shard(NODES_TAG)]
        clock = self._clock
        while True:
            asked, has_read = clock.local(), clock.estimate() is not None
            adopt = scripts.ADOPT(
                *(keys.grid, keys.leases, keys.members, keys.renewed, keys.takeovers),
                *(clock.argument(), self.names, known, known_seal, str(randbelow(_SEALS)), int(has_read)),
                *(UNSEEN_GENERATIONS, TOLERANCE_MS),
            )
            ((generation, opened, sealed, said, shift, ago, now, silence),) = await told_by(
                chief.label, chief.connection, [adopt]
            )
            if has_read:
                # Should it not fit, the next renewal of the lease sees to that.
                clock.read(said, shift, asked=asked, answered=clock.local())
            else:
                clock.begin(said, shift, now=now, silence=silence, asked=asked, answered=clock.local())
            seal = sealed.decode()
            found = await self._seal(generation, seal, opened)
            known, known_seal = max(generation, *found), seal
            if min(found) < 0:
                # A part of the grid has lost what the others have, though its process is known: a slot that was given
                # away without its data, or keys that somebody deleted. The next generation, whoever answers.
                known_seal = NO_SEAL
            elif known > generation:
                # Another node adopts at this moment, or the grid lost only a part of its keys.
                known_seal = ""
            elif opened or (await told_by(chief.label, chief.connection, [scripts.ADOPTED(keys.grid, seal)]))[0]:
                return Adopted(GridGeneration(generation), seal, None if ago < 0 else ago / 1000)

    async def _seal(self, generation: int, seal: str, opened: int) -> list[int]:
        """Open a generation in every partition; returns what each partition knows."""
        keys = self._keys
        commands: dict[int, list[Command]] = {}
        for stream in keys.stream:
            command = scripts.SEAL(stream, generation, self._stream_length, opened)
            commands.setdefault(self._topology.shard(keys.tag(stream)), []).append(command)
        for mark in keys.opened:
            command = scripts.SEAL_SESSIONS(mark, seal, opened)
            commands.setdefault(self._topology.shard(keys.tag(mark)), []).append(command)
        replies = await asyncio.gather(
            *(
                told_by(self._members[number].label, self._members[number].connection, some)
                for number, some in commands.items()
            )
        )
        return [reply for some in replies for reply in some]


def facts_of(info: Any) -> dict[str, str]:
    """Read what INFO answers."""
    lines = info.decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
