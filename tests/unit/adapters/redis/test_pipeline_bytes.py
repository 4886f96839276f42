"""What one turn of the loop packs for Redis is bounded in bytes, whatever is asked of it (P20)."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from redis.asyncio.connection import AbstractConnection

from gateway.adapters.memory import MemoryMetrics
from gateway.adapters.redis.batcher import Batcher, Executor, Group, Redirected, bytes_for_each
from gateway.adapters.redis.dialer import pack
from gateway.adapters.redis.router import Router
from gateway.adapters.redis.scripts import Command
from gateway.adapters.redis.topology import Topology
from gateway.adapters.redis.write_gate import WriteGate
from gateway.ports import GridUnavailable
from gateway.settings import HostPort
from tests.support.clock import VirtualClock, eventually

pytestmark = pytest.mark.promise("P20")

KIB = 1024
TURN_BYTES = 1024 * KIB
"""What a turn may pack for all masters together, where no single command is large."""

VALUE = b"v" * (32 * KIB)
"""The largest value by default."""


class Turns:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.now = 0
        self._handle = asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self.now += 1
        self._handle = asyncio.get_running_loop().call_soon(self._turn)

    def stop(self) -> None:
        self._handle.cancel()


class Redis:
    """Stands for a connection: notes what is sent in which turn, and answers each command with its number."""

    def __init__(
        self, turns: Turns, packed: Counter[int], answer: Callable[[int], Any] = lambda number: number
    ) -> None:
        self.is_connected = True
        self.pipelines: list[bytes] = []
        self._turns = turns
        self._packed = packed
        self._answer = answer
        self._asked = 0
        self._replies: asyncio.Queue[int] = asyncio.Queue()

    async def send_packed_command(self, packed: bytes, *, check_health: bool) -> None:
        assert not check_health
        self.pipelines.append(packed)
        self._packed[self._turns.now] += len(packed)
        for _ in re.findall(rb"(?:^|\r\n)\*\d+\r\n", packed):
            self._replies.put_nowait(self._asked)
            self._asked += 1

    async def read_response(self, **_: object) -> Any:
        reply = self._answer(await self._replies.get())
        if isinstance(reply, Exception):
            raise reply
        return reply


def batcher_for(connection: Redis, masters: int = 1, **options: Any) -> Batcher:
    batcher = Batcher(
        timeout=60.0,
        write_gate=options.pop("write_gate", None) or WriteGate(VirtualClock()),
        metrics=MemoryMetrics(),
        broken=lambda error: pytest.fail(f"broken: {error!r}"),
        refused=lambda _: None,
        pipeline_bytes=bytes_for_each(masters),
        **options,
    )
    batcher.open(cast("AbstractConnection", connection))
    return batcher


def commands_of(session: int, count: int, tag: str) -> list[Command]:
    return [("SET", f"{{{tag}}}:{session}", str(number).encode() + VALUE) for number in range(count)]


TOPOLOGIES = {
    "single": Topology((None,), {}),
    "sentinel": Topology((HostPort("10.0.0.1", 6379),), {}),
    "cluster": Topology(
        tuple(HostPort("10.0.0.1", port) for port in (7001, 7002, 7003)), {f"t{tag}": tag % 3 for tag in range(6)}
    ),
}


@pytest.mark.parametrize("mode", TOPOLOGIES)
async def test_a_turn_packs_a_bounded_number_of_bytes_and_the_next_goes_on_in_order(mode: str) -> None:
    topology = TOPOLOGIES[mode]
    turns, packed = Turns(), Counter[int]()
    connections = [Redis(turns, packed) for _ in topology.masters]
    router = Router(timeout=60.0, redirected=lambda: None)
    router.open(topology, [batcher_for(each, len(connections)) for each in connections])
    asked = [commands_of(session, 40, f"t{session % 6}") for session in range(12)]
    try:
        replies = await asyncio.gather(*[router.submit(each) for each in asked])
        assert [len(each) for each in replies] == [40] * 12
        assert all(each == sorted(each) for each in replies), "each caller's commands are executed in order"
        # What reaches beyond the bound is less than one command of each pipeline.
        assert max(packed.values()) <= TURN_BYTES, dict(packed)
        assert sum(packed.values()) == sum(len(pack(each)) for each in asked)
        for index, connection in enumerate(connections):
            theirs = [each for each in asked if topology.shard(f"t{asked.index(each) % 6}") == index]
            assert b"".join(connection.pipelines) == b"".join(pack(each) for each in theirs), "nothing is overtaken"
    finally:
        turns.stop()
        router.shut(GridUnavailable("closed"))


async def test_a_command_that_is_larger_than_a_pipeline_passes_alone() -> None:
    turns, packed = Turns(), Counter[int]()
    connection = Redis(turns, packed)
    batcher = batcher_for(connection)
    large: list[Command] = [("SET", "a", b"x" * (8 * TURN_BYTES)), ("SET", "b", b"y" * (2 * TURN_BYTES))]
    try:
        assert await batcher.submit([*large, ("GET", "a")]) == [0, 1, 2]
        assert connection.pipelines == [pack([large[0]]), pack([large[1]]), pack([("GET", "a")])]
    finally:
        turns.stop()
        batcher.shut(GridUnavailable("closed"))


async def test_what_may_wait_gets_its_share_beside_a_caller_who_fills_every_pipeline() -> None:
    turns, packed = Turns(), Counter[int]()
    connection = Redis(turns, packed)
    batcher = batcher_for(connection)
    try:
        greedy = batcher.submit(commands_of(0, 100, "t"))
        claims = [batcher.submit([("CLAIM", number, b"p" * (70 * KIB))], patient=True) for number in range(8)]
        await asyncio.gather(*claims)
        assert not greedy.done(), "claims do not wait until all has been sent that was there before"
        assert await greedy == sorted(await greedy)
        assert max(packed.values()) <= TURN_BYTES
    finally:
        turns.stop()
        batcher.shut(GridUnavailable("closed"))


async def test_a_lease_that_is_lost_between_two_parts_ends_the_rest_and_tells_that_some_was_sent() -> None:
    turns, packed = Turns(), Counter[int]()
    connection = Redis(turns, packed)
    clock = VirtualClock()
    write_gate = WriteGate(clock)
    write_gate.hold(until=write_gate.now() + 1, term=1)
    batcher = batcher_for(connection, write_gate=write_gate)
    try:
        asked = batcher.submit(commands_of(0, 100, "t"), gated=True)
        await eventually(lambda: bool(connection.pipelines), message="the first part is sent")
        clock.advance(1)
        with pytest.raises(GridUnavailable, match="lease") as refused:
            await asked
        assert type(refused.value) is GridUnavailable, "not one that says that nothing was done"
        assert await batcher.submit([("GET", "a")]), "the connection goes on"
    finally:
        turns.stop()
        batcher.shut(GridUnavailable("closed"))


async def test_a_group_that_was_cut_is_sent_again_as_a_whole_if_a_part_is_redirected() -> None:
    from redis.exceptions import MovedError  # noqa: PLC0415 - here alone

    def answer(number: int) -> Any:
        return MovedError("5 10.0.0.2:7002") if number == 30 else number

    turns, packed = Turns(), Counter[int]()
    taken_back: list[Group] = []

    def redirected(group: Group) -> None:
        taken_back.append(group)
        group.succeed()

    batcher = batcher_for(Redis(turns, packed, answer), redirected=redirected)
    try:
        asked = commands_of(0, 40, "t")
        replies = await batcher.submit(asked)
        assert [group.commands for group in taken_back] == [asked], "once, and with all its commands in order"
        assert [number for number, reply in enumerate(replies) if isinstance(reply, Redirected)] == [30]
    finally:
        turns.stop()
        batcher.shut(GridUnavailable("closed"))


async def test_what_was_cut_fails_with_everything_else() -> None:
    turns, packed = Turns(), Counter[int]()
    connection = Redis(turns, packed)
    batcher = batcher_for(connection)
    asked = batcher.submit(commands_of(0, 100, "t"))
    await eventually(lambda: bool(connection.pipelines), message="the first part is sent")
    batcher.shut(GridUnavailable("the grid is unreachable"))
    turns.stop()
    with pytest.raises(GridUnavailable, match="the grid is unreachable"):
        await asked


async def many(executor: Executor, commands: Sequence[Command]) -> list[Any]:
    return await executor.call_all(commands)


async def test_values_that_are_restored_together_are_cut_as_well() -> None:
    turns, packed = Turns(), Counter[int]()
    batcher = batcher_for(Redis(turns, packed))
    try:
        assert await many(batcher, commands_of(0, 200, "t")) == list(range(200))
        assert max(packed.values()) <= TURN_BYTES
    finally:
        turns.stop()
        batcher.shut(GridUnavailable("closed"))
