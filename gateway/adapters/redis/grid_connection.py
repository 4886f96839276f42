"""The node's connection to the grid: connects, adopts its generation, notices its loss, and comes back by itself (P10).

Connections carry commands only after three things are certain, in this order: the servers are loaded masters of a
version that will do, and agree on who serves what; what is left of our previous connections to the same processes is
cut off, so that a command which its caller has given up cannot be executed after newer ones; and the grid's generation
is adopted and open in every partition. Until then every command fails with ``GridUnavailable``.

It is all or nothing: the grid is up while every master is. One that dies makes the grid unreachable until its replica
has been promoted, or until it is back; clients stay connected meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from gateway.adapters.redis import slots
from gateway.adapters.redis.adoption import NO_SEAL, Adopted, Adoption, Member, Server, identify, label_of, prepare
from gateway.adapters.redis.attachment import Attachment
from gateway.adapters.redis.batcher import Batcher, abandon, bytes_for_each
from gateway.adapters.redis.clock import GridClock
from gateway.adapters.redis.dialer import Dialer, abort, discard, why
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.outage import OutageLog
from gateway.adapters.redis.router import Router
from gateway.adapters.redis.slot_follower import SlotFollower
from gateway.adapters.redis.topology import Finder, NobodyKnows, Topology
from gateway.adapters.redis.write_gate import WriteGate
from gateway.catalogue import log_events, metrics
from gateway.core.types import GridGeneration
from gateway.ports import EventLog, GridChange, GridState, GridUnavailable, Metrics

SHORTEST_BACKOFF: Final = 0.05
"""Seconds: first bound of the random delay between attempts to reconnect; a restart of Redis takes about as long."""

LONGEST_BACKOFF: Final = 1.0
"""Seconds: the bound that the delay doubles up to; one attempt a second and node is nothing to Redis."""

LOOK_INTERVAL: Final = 1.0
"""Seconds between two looks at who the masters are, where they may change: so long at most a node writes to a master
that was replaced and does not know it, while somebody is within reach who does. Each look is at one of the masters."""


class GridConnection:
    """One node's connection to the grid: one to each master, all of them adopted together.

    Args:
        finder: tells who the masters are.
        dialer: opens connections to them.
        keys: names of all keys.
        stream_length: entries that streams keep, about.
        stream_bytes: bytes that each stream keeps, about; 0 for no limit.
        timeout: seconds for each step, connecting included.
        write_gate: gate of the batchers.
        clock: what this node knows of the time of the grid.
        foreign: told of what is not the gateway's.
        metrics: where it is measured.
        log: where it is told.

    Attributes:
        batcher: sends commands while the grid is adopted.
        clock: as given.
        stream_bytes: as given.
        attachment: counts the times the grid was adopted, so that a reader of many pages sees a change between two.
    """

    def __init__(
        self,
        *,
        finder: Finder,
        dialer: Dialer,
        keys: Keys,
        stream_length: int,
        stream_bytes: int,
        timeout: float,
        write_gate: WriteGate,
        clock: GridClock,
        foreign: ForeignData,
        metrics: Metrics,
        log: EventLog,
    ) -> None:
        self.clock = clock
        self._finder = finder
        self._dialer = dialer
        self._keys = keys
        self._stream_length = stream_length
        self.stream_bytes = stream_bytes
        self._timeout = timeout
        self._write_gate = write_gate
        self._metrics = metrics
        self._log = log
        self._foreign = foreign
        self.batcher = Router(timeout=timeout, redirected=self.follow_slots)
        self._slots = SlotFollower(
            finder=finder,
            keys=keys,
            router=self.batcher,
            attached=lambda: self._attached,
            marks=lambda: (self._generation, self._seal),
            suspect=self.suspect,
            timeout=timeout,
            log=log,
        )
        self._outage = OutageLog(log)
        self.attachment = 0
        self._generation = GridGeneration(0)
        self._state = GridState.UNREACHABLE
        self._seal = ""
        self._lost_at: float | None = None
        """When the grid lost writes for the last time, as far as is known, by the time of the loop."""
        self._masters = ""
        self._clock_spread = 0.0
        self._attached: Attachment | None = None
        self._forsaken: list[Server] = []
        self._changes: asyncio.Queue[GridChange] = asyncio.Queue()
        self._forgetful: list[Callable[[], None]] = []
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._tried = asyncio.Event()
        self._closed = False
        self._tasks: list[asyncio.Task[None]] = []
        self._discarding: set[asyncio.Task[None]] = set()
        self._last: Topology | None = None
        self._adopted_from = ""
        self._heard = GridGeneration(0)
        self._backoff = SHORTEST_BACKOFF
        self._up_since = float("-inf")
        self._watch(metrics)

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> GridState:
        """Whether commands are accepted now."""
        return self._state

    @property
    def generation(self) -> GridGeneration:
        """The newest generation adopted; 0 before the first."""
        return self._generation

    @property
    def seal(self) -> str:
        """Tells that generation from every other one, also of the same number; empty before the first."""
        return self._seal

    def lost_writes_ago(self) -> float | None:
        """See ``Grid.lost_writes_ago``."""
        return None if self._lost_at is None else asyncio.get_running_loop().time() - self._lost_at

    @property
    def stream_length(self) -> int:
        """Entries that streams keep, about."""
        return self._stream_length

    async def wait_until_up(self) -> None:
        """Wait until commands are accepted."""
        await self._up.wait()

    async def attached(self) -> Attachment:
        """Wait until commands are accepted, and tell by which connections."""
        while self._attached is None:
            await self._up.wait()
        return self._attached

    def when_writes_are_lost(self, tell: Callable[[], None]) -> None:
        """Have *tell* called when the grid is back as one that may have lost writes, before it accepts commands."""
        self._forgetful.append(tell)

    async def changes(self) -> AsyncIterator[GridChange]:
        """Yield each change of state after ``start``; for one listener."""
        while True:
            yield await self._changes.get()

    def stale(self, *, emptied: bool = False) -> GridUnavailable:
        """The grid turns out to be another one than was adopted: adopt again.

        Args:
            emptied: a part of it has gone though the rest may say nothing of it, so that it is to be of the next
                generation, unless another node has seen to that already.

        Returns:
            The error for whoever asked.
        """
        if emptied and self._state is GridState.UP:
            self._seal = NO_SEAL
        reason = f"the grid is not of generation {self._generation} any more: it was emptied, or others have raised it"
        self.suspect(reason)
        return GridUnavailable(reason)

    def suspect(self, why: str) -> None:
        """Something does not fit the adopted grid: give the connection up, adopt again, and see."""
        if self._state is GridState.UP:
            self._fail(GridUnavailable(why))

    def heard_of(self, grid_generation: GridGeneration) -> None:
        """A generation was in force that this node has not adopted: adopt again, and none that is older.

        Either this node is behind, on a master that was replaced; or the grid has gone back to an older state while no
        node was there that knew better.
        """
        if grid_generation > self._generation:
            self._heard = max(self._heard, grid_generation)
            self.suspect(f"generation {grid_generation} of the grid was in force already")

    async def verify(self) -> None:
        """See ``Grid.verify``: asks every master who they are, and every session partition of which grid it is.

        Raises:
            GridUnavailable: others are masters by now, or sessions may be lost; or nobody answers.
        """
        attached = self._attached
        if attached is None:
            raise GridUnavailable(f"the grid cannot be reached: {self._outage.why}")
        try:
            # All of them: a master that was replaced is the last to know.
            await asyncio.gather(*(self._look(attached, each) for each in self.batcher.batchers))
        except (RedisError, OSError) as error:
            raise GridUnavailable(f"nobody tells who the masters are: {why(error)}") from error
        if attached is self._attached:
            marks = [("HGET", self._keys.grid, "seal"), *(("GET", mark) for mark in self._keys.opened)]
            if any(seal != self._seal.encode() for seal in await self.batcher.call_all(marks)):
                # A mark that is gone may be all that tells: the next generation, unless another is in force already.
                raise self.stale(emptied=True)
        if attached is not self._attached:
            raise GridUnavailable("the grid was replaced, or has been lost, while it was asked")

    def follow_slots(self) -> None:
        """Slots of a Redis Cluster are being moved: find out where they are, and send what waits for that."""
        self._slots.follow(self._attached)

    @property
    def complaints(self) -> Sequence[str]:
        """What is wrong with the grid, though it may be up; for people."""
        return self._slots.complaints

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to stay connected, if that was not begun before, and wait for the outcome of the first attempt.

        Raises:
            GridUnavailable: the grid is unreachable; it is tried again in the background, whether or not this is called
            again.
        """
        if not self._tasks and not self._closed:
            # Nobody but the first of these tasks ever connects, so that no two attempts can be under way.
            self._down.set()
            self._tasks = [
                asyncio.create_task(self._stay_connected(), name="grid-connection"),
                asyncio.create_task(self._look_around(), name="grid-look"),
            ]
        await self._tried.wait()
        if self._state is not GridState.UP:
            raise GridUnavailable(f"the grid cannot be reached: {self._outage.why}")

    async def close(self) -> None:
        """Let what was started finish within the time limit, then disconnect for good."""
        if self._state is GridState.UP:
            try:
                async with asyncio.timeout(self._timeout):
                    await self.batcher.drain()
            except TimeoutError:
                pass
        self._closed = True
        await abandon([*self._tasks, *self._slots.tasks])
        self._state = GridState.UNREACHABLE
        self._up.clear()
        self._tried.set()
        self._outage.why = "this node has closed its connection to the grid"
        self.batcher.shut(GridUnavailable(self._outage.why))
        attached, self._attached = self._attached, None
        if attached is not None:
            attached.over.set()
            for member in attached.members:
                self._drop(member.connection)
        if self._discarding:
            await asyncio.wait(self._discarding)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _watch(self, sink: Metrics) -> None:
        sink.watch(metrics.GRID_UP, lambda: float(self._state is GridState.UP))
        sink.watch(metrics.GRID_GENERATION, lambda: float(self._generation))
        sink.watch(metrics.GRID_MASTERS, lambda: float(len(self._attached.members) if self._attached else 0))
        sink.watch(metrics.GRID_CLOCK_SPREAD, lambda: self._clock_spread)
        sink.watch(metrics.GRID_SLOTS_HALF_MOVED, lambda: float(len(self._slots.half_moved)))

    async def _stay_connected(self) -> None:
        while True:
            await self._down.wait()
            if asyncio.get_running_loop().time() - self._up_since > LONGEST_BACKOFF:
                # Else it goes on where it was: a grid that is lost as soon as it is adopted must not be adopted at
                # full speed.
                self._backoff = SHORTEST_BACKOFF
            while self._down.is_set():
                if self._tried.is_set():  # nobody has to be spared the first attempt
                    await asyncio.sleep(random.uniform(0, self._backoff))  # noqa: S311 - jitter, not a secret
                    self._backoff = min(2 * self._backoff, LONGEST_BACKOFF)
                try:
                    await self._connect()
                except (RedisError, OSError, GridUnavailable) as error:
                    self._outage.goes_on(error)
                except Exception as error:  # noqa: BLE001 - the connection must outlive its own bugs
                    self._log.emit(log_events.BACKGROUND_TASK_FAILED, task="grid-connection", error=error)
                    self._outage.goes_on(error)
                self._tried.set()

    async def _look_around(self) -> None:
        """Notice that somebody else is master by now, though the one that was still answers, or that one is empty."""
        turn = 0
        while True:
            attached = await self.attached()
            await asyncio.sleep(LOOK_INTERVAL * random.uniform(0.9, 1.1))  # noqa: S311 - jitter, not a secret
            batchers = self.batcher.batchers
            if attached is not self._attached or not batchers:
                continue
            turn = (turn + 1) % len(batchers)
            try:
                await self._look(attached, batchers[turn])
                if attached is self._attached:
                    await self._slots.look()
                if attached is self._attached:
                    await self._look_at_marks(attached, turn)
            except (RedisError, OSError, GridUnavailable):
                continue  # whoever needs the grid finds out
            except Exception as error:  # noqa: BLE001 - the look-out must outlive its own bugs
                self._log.emit(log_events.BACKGROUND_TASK_FAILED, task="grid-look", error=error)

    async def _look(self, attached: Attachment, batcher: Batcher) -> None:
        """Look who the masters are, by asking one of them or whoever else knows; raises if nobody answers."""
        found = await self._finder.look(batcher.call)
        if attached is not self._attached or found is None:
            return
        if found.masters != attached.topology.masters:
            self.suspect(f"others are masters by now: {found}")
        elif found != attached.topology:
            self.follow_slots()

    async def _look_at_marks(self, attached: Attachment, turn: int) -> None:
        """Find a master of a Redis Cluster that was emptied, though nobody needs what it had (P10).

        A node that is idle asks it for nothing: its lease may be on another one, and an emptied stream is as silent as
        one in which nobody publishes.
        """
        topology = attached.topology
        if not topology.sharded:
            return  # the lease is gone with all the rest
        marks = (self._generation, self._seal)
        has_marks = await slots.has_marks(self._keys, marks, topology, turn, self.batcher.batchers[turn])
        # What has moved meanwhile was asked of whoever had it before.
        if not has_marks and attached is self._attached and topology is attached.topology:
            self.stale(emptied=True)

    async def _connect(self) -> None:
        nobody_knows = ""
        async with asyncio.timeout(self._timeout):
            try:
                topology = await self._finder.find()
            except NobodyKnows as unknown:
                if self._last is None:
                    raise
                # Nobody tells that the master was replaced, and nobody that it was not. A connection that was not
                # reset would be used all the same; so a new one may be, to exactly the process that was adopted.
                topology, nobody_knows = self._last, str(unknown)
        connections = await self._dial(topology)
        try:
            async with asyncio.timeout(self._timeout):
                members = await identify(self._finder, topology, connections)
                await prepare(members, self._forsaken)
                adoption = Adoption(self._keys, self._stream_length, topology, members, self.clock)
                if nobody_knows and not adoption.are_among(self._adopted_from):
                    why_not = f"and another process than the adopted one answers at {topology}"
                    raise GridUnavailable(f"{nobody_knows}; {why_not}")
                known = max(self._generation, self._heard)
                # Of one that was only heard of the seal is not known.
                adopted = await adoption.adopt(known, self._seal if known == self._generation else "")
        except BaseException:
            for each in connections:
                self._drop(each)
            raise
        self._adopted_from, self._last = adoption.names, topology
        self._go_up(Attachment(topology, members), adopted)

    async def _dial(self, topology: Topology) -> list[AbstractConnection]:
        """Connect to all masters, or to none."""
        dialling = [asyncio.create_task(self._dialer.dial(address)) for address in topology.masters]
        connections: list[AbstractConnection] = []
        try:
            await asyncio.wait(dialling)
            for number, task in enumerate(dialling):
                try:
                    connections.append(task.result())
                except (RedisError, OSError) as error:
                    reason = f"{label_of(topology, number)}: {why(error)}".removeprefix(": ")
                    raise GridUnavailable(reason) from error
        except BaseException:
            # One of them failed, or nobody waits any more: which may also be while they have just succeeded.
            for task in dialling:
                task.cancel()
                task.add_done_callback(self._drop_dialled)
            await asyncio.wait(dialling)
            raise
        return connections

    def _drop_dialled(self, dialled: asyncio.Task[AbstractConnection]) -> None:
        """Drop what was dialled for nobody."""
        if not dialled.cancelled() and dialled.exception() is None:
            self._drop(dialled.result())

    def _drop(self, connection: AbstractConnection) -> None:
        """Drop a connection for certain: whoever calls may be cancelled, and then could not wait for it."""
        abort(connection)
        task = asyncio.create_task(discard(connection), name="grid-discard")
        self._discarding.add(task)
        task.add_done_callback(self._discarding.discard)

    def _go_up(self, attached: Attachment, adopted: Adopted) -> None:
        generation = adopted.generation
        lost_writes = self._generation not in {0, generation}
        self._attached, self._generation, self._seal = attached, generation, adopted.seal
        if adopted.lost_ago is not None:
            self._lost_at = asyncio.get_running_loop().time() - adopted.lost_ago
        self._forsaken.clear()
        self._up_since = asyncio.get_running_loop().time()
        self.attachment += 1
        self._state = GridState.UP
        self._down.clear()
        if lost_writes:
            for tell in self._forgetful:
                tell()
        self.batcher.open(attached.topology, [self._batcher(attached, member) for member in attached.members])
        self._up.set()
        self._tell_masters(attached)
        if self._outage.ended(generation, lost_writes=lost_writes):
            self._changes.put_nowait(GridChange(GridState.UP, generation, lost_writes))

    def _batcher(self, attached: Attachment, member: Member) -> Batcher:
        def broken(error: Exception) -> None:
            if self._attached is attached:
                reason = f"{member.label}: {why(error)}".removeprefix(": ")
                self._fail(GridUnavailable(reason))

        batcher = Batcher(
            timeout=self._timeout,
            write_gate=self._write_gate,
            metrics=self._metrics,
            broken=broken,
            refused=self._outage.write_refused,
            wrong_type=self._foreign.wrong_type,
            redirected=self.batcher.redirected,
            pipeline_bytes=bytes_for_each(len(attached.members)),
        )
        batcher.open(member.connection)
        return batcher

    def _tell_masters(self, attached: Attachment) -> None:
        clocks = [member.server.clock for member in attached.members]
        self._clock_spread = max(clocks) - min(clocks)
        masters = str(attached.topology)
        if masters != self._masters:
            if self._masters:
                self._log.emit(log_events.GRID_MASTERS_CHANGED, masters=masters, before=self._masters)
            self._masters = masters

    def _fail(self, error: Exception) -> None:
        """The connections are of no more use: tell everybody, once, and come back."""
        attached, self._attached = self._attached, None
        if attached is None:
            return
        self._state = GridState.UNREACHABLE
        self._up.clear()
        attached.over.set()
        self._forsaken += [member.server for member in attached.members]
        for member in attached.members:
            self._drop(member.connection)
        self._changes.put_nowait(GridChange(GridState.UNREACHABLE, self._generation))
        self._outage.goes_on(error)
        self.batcher.shut(GridUnavailable(f"the grid is unreachable: {why(error)}"))
        self._down.set()
