"""The contract of ``ZoneLinks``: on the twin in memory, and on real sockets with TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.adapters.acceptor import STRANGERS
from gateway.ports.zone_links import NoZoneLink, ZoneLinkBroken
from tests.contract.zone_link_harness import (
    LIMITS,
    PATIENT,
    MemoryZoneHarness,
    StreamZoneHarness,
    ZoneLinkHarness,
    is_broken,
)
from tests.support.clock import eventually
from tests.support.times import scaled, time_limit


@pytest.fixture(params=["memory", "tls"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ZoneLinkHarness]:
    harness = MemoryZoneHarness() if request.param == "memory" else StreamZoneHarness(tmp_path)
    yield harness
    await harness.close()


async def test_messages_arrive_whole_and_in_order(harness: ZoneLinkHarness) -> None:
    a, b = await harness.pair()
    messages = [bytes([number]) * size for number, size in enumerate((1, 0, 70_000, 3, 1_000_000, 5))]

    async def say() -> None:
        for message in messages:
            await a.send(message)

    saying = asyncio.create_task(say())
    async with time_limit():
        assert [await b.receive() for _ in messages] == messages
        await saying
        await b.send(b"back")
        assert await a.receive() == b"back"
    assert a.bytes_out == b.bytes_in == sum(map(len, messages)) + 4 * len(messages)
    assert b.bytes_out == a.bytes_in == 8


async def test_both_ends_see_the_certificate_of_the_other(harness: ZoneLinkHarness) -> None:
    a, b = await harness.pair()
    assert a.own_fingerprint == b.fingerprint == harness.ports["a"].links.fingerprint
    assert b.own_fingerprint == a.fingerprint == harness.ports["b"].links.fingerprint
    assert a.fingerprint != b.fingerprint
    assert len(a.fingerprint) == 64


async def test_a_last_word_arrives_before_the_end(harness: ZoneLinkHarness) -> None:
    a, b = await harness.pair()
    await a.send(b"first")
    await a.close(b"last")
    async with time_limit():
        assert [await b.receive(), await b.receive()] == [b"first", b"last"]
    assert await is_broken(b)
    with pytest.raises(ZoneLinkBroken):
        await a.send(b"more")
    await a.close(b"again")


async def test_an_end_without_a_word_is_noticed(harness: ZoneLinkHarness) -> None:
    a, b = await harness.pair()
    b.abort()
    assert await is_broken(a)

    async def send_on() -> None:
        while True:
            await a.send(b"x")

    with pytest.raises(ZoneLinkBroken):
        await send_on()


async def test_who_serves_no_more_hangs_up(harness: ZoneLinkHarness) -> None:
    a, _ = await harness.pair()
    harness.ports["b"].hang_up()
    assert await is_broken(a)


async def test_a_port_that_is_closed_breaks_what_it_has(harness: ZoneLinkHarness) -> None:
    a, _ = await harness.pair()
    await harness.ports["b"].links.close()
    assert await is_broken(a)
    with pytest.raises(NoZoneLink):
        await harness.ports["a"].links.dial(harness.ports["b"].links.url, within=PATIENT)


async def test_a_cut_is_noticed_by_both_and_nobody_is_there_until_it_is_mended(harness: ZoneLinkHarness) -> None:
    a, b = await harness.pair()
    harness.cut("a", "b")
    assert await is_broken(a)
    assert await is_broken(b)
    one, other = harness.ports["a"], harness.ports["b"]
    with pytest.raises(NoZoneLink):
        await one.links.dial(await harness.url(one, other), within=PATIENT)
    await harness.mend("a", "b")
    again, accepted = await harness.dial(one, other)
    await again.send(b"here")
    assert await accepted.receive() == b"here"


async def test_silence_is_told_and_ends_with_the_next_sign_of_life(harness: ZoneLinkHarness) -> None:
    a, b = await harness.pair()
    harness.stall("a", "b")
    await a.send(b"not yet")
    receiving = asyncio.create_task(b.receive())
    await eventually(lambda: b.silence > 0.2, message="b is silent")
    assert not receiving.done()
    await harness.mend("a", "b")
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    # While nobody listens, silence is nobody's fault.
    assert b.silence == 0


async def test_an_end_is_not_heard_of_while_nothing_arrives(harness: ZoneLinkHarness) -> None:
    a, b = await harness.pair()
    harness.stall("a", "b")
    reading = asyncio.create_task(is_broken(b))
    await eventually(lambda: b.silence > 0)
    a.abort()
    await eventually(lambda: b.silence > LIMITS.silence)
    assert not reading.done()
    await harness.mend("a", "b")
    assert await reading


async def test_who_does_not_read_holds_up_the_sender_and_nothing_grows(harness: ZoneLinkHarness) -> None:
    a, b = await harness.pair()
    sent = 0

    async def flood() -> None:
        nonlocal sent
        while True:
            await a.send(b"x" * 10_000)
            sent += 1

    flooding = asyncio.create_task(flood())
    before = -1
    async with time_limit():
        while sent != before:
            before = sent
            await asyncio.sleep(scaled(0.2))
    # The kernel's buffers take some MB, too.
    assert sent * 10_000 < 32 * 1024 * 1024
    async with time_limit():
        for _ in range(sent):
            await b.receive()
        await eventually(lambda: sent > before, message="it goes on")
    flooding.cancel()
    await asyncio.gather(flooding, return_exceptions=True)


async def test_a_message_that_is_too_long_ends_the_connection(harness: ZoneLinkHarness) -> None:
    a, b = await harness.pair()
    sending = asyncio.create_task(a.send(bytes(LIMITS.message + 1)))
    with pytest.raises(ZoneLinkBroken, match="the most"):
        await b.receive()
    b.abort()
    await asyncio.gather(sending, return_exceptions=True)


async def test_a_stranger_says_only_short_things(harness: ZoneLinkHarness) -> None:
    one, other = await harness.port("a"), await harness.port("b", trusts=False)
    a, b = await harness.dial(one, other)
    await a.send(bytes(LIMITS.greeting))
    assert len(await b.receive()) == LIMITS.greeting
    await a.send(bytes(LIMITS.greeting + 1))
    with pytest.raises(ZoneLinkBroken, match="the most"):
        await b.receive()


async def test_of_too_many_strangers_the_oldest_is_hung_up_and_nobody_who_is_trusted(
    harness: ZoneLinkHarness,
) -> None:
    one, other = await harness.port("a"), await harness.port("b")
    trusted, _ = await harness.dial(one, other)
    other.trusts = False
    oldest, _ = await harness.dial(one, other)
    strangers = [await harness.dial(one, other) for _ in range(STRANGERS)]
    assert await is_broken(oldest)
    await trusted.send(b"still here")
    await strangers[-1][0].send(b"me, too")
    assert await strangers[-1][1].receive() == b"me, too"


async def test_a_sender_is_held_to_its_rate(harness: ZoneLinkHarness) -> None:
    limits = replace(LIMITS, message_rate=50.0)
    one, other = await harness.port("a"), await harness.port("b", limits=limits)
    a, b = await harness.dial(one, other)
    for number in range(40):
        await a.send(bytes([number]))
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with time_limit():
        for _ in range(40):
            await b.receive()
    # Ten at once and thirty at 50/s; it may take longer, and never less.
    assert loop.time() - began > 0.5


@pytest.mark.parametrize("url", ["", "ws://b:8400", "https://b:8400", "b:8400", "wss://"])
async def test_a_url_that_is_none_is_refused(harness: ZoneLinkHarness, url: str) -> None:
    one = await harness.port("a")
    with pytest.raises(NoZoneLink):
        await one.links.dial(url, within=PATIENT)
