"""The generator finds everything that a server can do wrong, and nothing where it did all right.

A benchmark that believes what it is told measures who drops most. Here the server does one delivery in 1,000 wrongly,
and the generator has to find exactly those.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.generator.driver import Load
from benchmarks.systems.base import WireProtocol
from tests.benchmarks.fault_server import (
    CorruptClock,
    CorruptFiller,
    CorruptNumber,
    Drop,
    Duplicate,
    Fault,
    FaultServer,
    Packet,
    Swap,
    Truncate,
)

pytestmark = pytest.mark.thorough

SUBSCRIBERS = 10
UPDATES = 310
"""3,100 deliveries, of which 3 are done wrongly; none of the last ones, which are another story."""

EVERY = 1_000

LOAD = Load(SUBSCRIBERS, updates=UPDATES, warm_up=0, measure=60, patience=20)
"""Bounded by its updates, not by time: the same deliveries on a slow machine."""

PROTOCOLS = list(WireProtocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_correct_server_passes(generator: Path, protocol: WireProtocol) -> None:
    async with FaultServer(protocol) as server:
        report = await server.drive(generator, LOAD)

    assert report.failures == {}
    assert report.delivered == SUBSCRIBERS * UPDATES
    assert report.published == UPDATES
    assert report.delivery.count == SUBSCRIBERS * UPDATES
    assert report.answer.count == UPDATES
    assert 0 < report.delivery.p50 <= report.delivery.p99 <= report.delivery.p999 <= report.delivery.largest


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        (Drop, "lost"),
        (Swap, "swapped"),
        (Duplicate, "duplicated"),
        (CorruptFiller, "corrupt"),
        (CorruptNumber, "corrupt"),
        (CorruptClock, "corrupt"),
        (Truncate, "corrupt"),
    ],
)
async def test_one_delivery_in_a_thousand_done_wrongly_is_found(
    generator: Path, protocol: WireProtocol, fault: type[Fault], failure: str
) -> None:
    async with FaultServer(protocol, fault(EVERY)) as server:
        report = await server.drive(generator, LOAD)

    assert server.fault.count == SUBSCRIBERS * UPDATES // EVERY
    assert report.failures == {failure: server.fault.count}
    assert report.examples


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_last_update_lost_is_found_though_nothing_follows_it(generator: Path, protocol: WireProtocol) -> None:
    load = Load(SUBSCRIBERS, updates=100, warm_up=0, measure=60, patience=0.5)
    async with FaultServer(protocol, Drop(every=SUBSCRIBERS * 100)) as server:
        report = await server.drive(generator, load)

    assert report.failures == {"lost": 1, "stalled": 1}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_server_that_never_answers_a_publish_fails(generator: Path, protocol: WireProtocol) -> None:
    load = Load(SUBSCRIBERS, updates=100, warm_up=0, measure=60, patience=0.5, window=8)
    async with FaultServer(protocol, answer=False) as server:
        report = await server.drive(generator, load)

    assert report.failures == {"stalled": 1}
    assert report.published == load.window


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_closed_connection_fails(generator: Path, protocol: WireProtocol) -> None:
    class Cut(Fault):
        def harm(self, value: str, subscriber: object) -> list[str]:
            server.subscribers[3].connection.transport.abort()
            return [value]

    async with FaultServer(protocol, Cut(every=500)) as server:
        report = await server.drive(generator, LOAD)

    # One was cut; the server may also have given its publisher up before the generator stopped to look.
    assert report.failures["closed"] >= 1
    assert report.failures["lost"] > 0


class OnceInAThousand:
    """Applies a change to one update packet of gateway.v1.json in 1,000."""

    def __init__(self, **fields: object) -> None:
        self._fields = fields
        self._seen = 0

    def __call__(self, packet: Packet) -> Packet:
        self._seen += 1
        return packet | self._fields if self._seen % EVERY == 0 else packet


@pytest.mark.parametrize(
    ("fields", "failure"),
    [
        ({"id": 1}, "packet_ids"),
        ({"version": 1}, "versions"),
        ({"topic": "other"}, "corrupt"),
        ({"snapshot": True}, "protocol"),
    ],
)
async def test_a_wrong_field_of_an_update_is_found(generator: Path, fields: dict[str, object], failure: str) -> None:
    async with FaultServer(WireProtocol.GATEWAY, edit=OnceInAThousand(**fields)) as server:
        report = await server.drive(generator, LOAD)

    assert report.failures[failure] >= SUBSCRIBERS * UPDATES // EVERY


async def test_an_id_used_twice_is_found(generator: Path) -> None:
    """Ids that go on from a repeated one leave no gap behind."""

    def one_behind(packet: Packet) -> Packet:
        return packet | {"id": packet["id"] - 1} if packet["id"] > 100 else packet

    async with FaultServer(WireProtocol.GATEWAY, edit=one_behind) as server:
        report = await server.drive(generator, LOAD)

    assert report.failures == {"packet_ids": SUBSCRIBERS}


async def test_a_notice_that_something_was_left_out_fails(generator: Path) -> None:
    async with FaultServer(WireProtocol.GATEWAY, edit=OnceInAThousand(type="notice", code="values_reread")) as server:
        report = await server.drive(generator, LOAD)

    assert report.failures["protocol"] == SUBSCRIBERS * UPDATES // EVERY
    assert report.failures["lost"] == SUBSCRIBERS * UPDATES // EVERY


async def test_the_wrong_subprotocol_fails(generator: Path) -> None:
    async with FaultServer(WireProtocol.GATEWAY, subprotocol=None) as server:
        report = await server.drive(generator, LOAD)

    assert set(report.failures) == {"protocol"}
    assert report.delivered == 0
