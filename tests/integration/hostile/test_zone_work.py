"""What one message of a linked cluster costs: a bounded share of a node's time, whatever is in it (P20)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet

import pytest

from gateway.app.zone_links import judging, receiver, sender
from gateway.app.zone_links.talk import WORK_BURST, WORK_RATE
from gateway.core.topics import selectors as selectors_module
from gateway.core.topics.selectors import Selector
from gateway.core.types import TopicPath
from gateway.core.zones import interest
from gateway.core.zones.interest import HeardInterest
from gateway.core.zones.messages import encode
from gateway.core.zones.protocol import (
    MOST_HEARD,
    Events,
    EventsAck,
    Gap,
    InterestAll,
    InterestAsk,
    ValuesAsk,
    ZoneMessage,
)
from gateway.core.zones.values import normal_value
from gateway.core.zones.work import GAP_WORK, SELECTOR_WORK, json_work
from gateway.ports import TopicValue
from tests.support.false_zone_receiver import false_receiver
from tests.support.raw_zone_peer import RawZonePeer, event, raw_zone_peer, stopped
from tests.support.virtual_zones import VirtualZones, ZoneCluster, run_zones

pytestmark = pytest.mark.promise("P20")

MANY = 1_000


def lists(size: int) -> bytes:
    """The JSON that takes longest to parse."""
    return b"[" + b"[]," * ((size - 4) // 3) + b"1]"


async def liar_in_a_zone(world: VirtualZones) -> tuple[ZoneCluster, RawZonePeer]:
    (a,) = await world.clusters("A")
    await a.enter("z", seeds=())
    await world.quiet()
    liar = await raw_zone_peer(world, a)
    await liar.welcomed()
    return a, liar


def test_a_value_that_is_too_long_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def counted(text: bytes) -> bytes | None:
        parsed.append(len(text))
        return normal_value(text)

    monkeypatch.setattr(judging, "normal_value", counted)

    async def scene(world: VirtualZones) -> None:
        a, liar = await liar_in_a_zone(world)
        most = a.links._context.parameters.limits.value_bytes
        blanks = b"[1" + b" " * (most + 100) + b"]"
        await liar.say(Events((event("t/1", lists(15_000_000)), event("t/2", blanks), event("t/3", b'"x"'))))
        await liar.heard(EventsAck)
        assert max(parsed) <= judging.MOST_SHORTER * most
        assert stopped(a, "invalid") == 1
        await world.until(lambda: {"t/2", "t/3"} <= a.values.keys())

    run_zones(scene)


def test_others_get_their_turn_while_many_values_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, parsed = 0, dict[int, int]()

    def counted(text: bytes) -> bytes | None:
        parsed[turn] = parsed.get(turn, 0) + len(text)
        return normal_value(text)

    monkeypatch.setattr(judging, "normal_value", counted)

    async def scene(world: VirtualZones) -> None:
        loop = asyncio.get_running_loop()
        run_once = loop._run_once  # type: ignore[attr-defined]

        def counted_turn() -> None:
            nonlocal turn
            turn += 1
            run_once()

        loop._run_once = counted_turn  # type: ignore[attr-defined]
        a, liar = await liar_in_a_zone(world)
        most = a.links._context.parameters.limits.value_bytes
        values = Events(tuple(event(f"t/{number}", lists(most)) for number in range(20)))
        began = world.now()
        await liar.say(values)
        await liar.heard(EventsAck)
        assert max(parsed.values()) <= receiver.JUDGED_BYTES + most
        work = sum(json_work(each.value) for each in values.events)
        assert world.now() - began >= (work - WORK_BURST) / WORK_RATE - 0.01

    run_zones(scene)


def test_asking_for_all_values_again_and_again_costs_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = looked = reads = 0
    original = selectors_module.partitions
    selectors_in = HeardInterest.selectors_in

    def counted(selector: Selector, depth: int) -> frozenset[int]:
        nonlocal asked
        asked += 1
        return original(selector, depth)

    def counted_look(heard: HeardInterest, partition: int) -> AbstractSet[Selector]:
        nonlocal looked
        looked += 1
        return selectors_in(heard, partition)

    for module in (interest, sender):
        monkeypatch.setattr(module, "partitions", counted)
    monkeypatch.setattr(HeardInterest, "selectors_in", counted_look)

    async def scene(world: VirtualZones) -> None:
        nonlocal asked, looked, reads
        a, peer = await false_receiver(world)
        values = a.node.grid.topics.values

        def read(partition: int) -> AsyncIterator[Sequence[TopicValue]]:
            nonlocal reads
            reads += 1
            return values(partition)

        a.node.grid.topics.values = read  # type: ignore[method-assign]
        await peer.say(InterestAll(1, tuple(f"t{number}/**" for number in range(MANY))))
        await world.quiet(2.0)
        asked = looked = reads = 0
        for _ in range(100):
            await peer.say(ValuesAsk())
        await world.quiet(2.0)
        assert asked == 0
        assert looked <= 2 * 64
        # Once, and some partitions once more: those that were read while it was asking.
        assert 64 <= reads <= 2 * 64

    run_zones(scene)


def test_asking_for_values_of_few_topics_is_paced_as_that_of_partitions() -> None:
    reads = 0

    async def scene(world: VirtualZones) -> None:
        nonlocal reads
        a, peer = await false_receiver(world)
        read = a.node.grid.topics.read

        async def counted(topics: Sequence[TopicPath]) -> list[TopicValue | None]:
            nonlocal reads
            reads += len(topics)
            return await read(topics)

        a.node.grid.topics.read = counted  # type: ignore[method-assign]
        await peer.say(InterestAll(1, tuple(f"t{number}" for number in range(100))))
        seconds = 30
        for _ in range(100 * seconds):
            await peer.say(ValuesAsk())
            await world.quiet(0.01)
        assert reads <= sender.READ_SINGLY * (sender.SCAN_BURST + sender.SCAN_RATE * seconds)

    run_zones(scene)


@pytest.mark.parametrize("said", ["interest", "asks", "gaps"])
def test_what_takes_long_is_read_slowly(said: str) -> None:
    """Each of these is short for what it causes."""

    async def scene(world: VirtualZones) -> None:
        messages: list[ZoneMessage]
        if said == "interest":
            _, peer = await false_receiver(world)
            many = tuple(f"t{number}/*" for number in range(MOST_HEARD))
            messages = [InterestAll(each, many if each % 2 else ()) for each in range(20)]
            work = 10 * MOST_HEARD * SELECTOR_WORK
        else:
            a, peer = await liar_in_a_zone(world)
            await a.select(*(f"t/{number}" for number in range(MANY)))
            await world.quiet(1.0)
            messages = [InterestAsk() if said == "asks" else Gap(1)] * 500
            work = 500 * (MANY * receiver.TOLD_WORK if said == "asks" else GAP_WORK)

        async def read() -> None:
            while True:
                await peer.connection.receive()

        reading = asyncio.create_task(read())
        other = peer.connection.other  # type: ignore[attr-defined]
        began, size = world.now(), other.bytes_in + sum(4 + len(encode(each)) for each in messages)
        for each in messages:
            await peer.say(each)
        await world.until(lambda: other.bytes_in >= size)
        assert world.now() - began >= 0.8 * (work - WORK_BURST) / WORK_RATE
        reading.cancel()

    run_zones(scene)
