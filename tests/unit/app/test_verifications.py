"""Slow work on credentials: whose turn it is, what is done once for many, and what is not done at all (P20)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.app.runtime.clock import Clock
from gateway.app.security.verifications import PATIENCE, RETRY, WAITING_PER_PLACE, Pool, Verifications
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.pacing.failures import FORGIVEN
from gateway.core.pacing.verification_ranks import VerificationRates
from gateway.ports import Credentials, CredentialsRefused, VerificationRefused
from tests.support.clock import VirtualClock, eventually
from tests.support.verifications import verifications

pytestmark = pytest.mark.promise("P20")


class Bench:
    """A pool whose works last until they are let go.

    Attributes:
        begun: the secrets whose works have begun, in order.
    """

    def __init__(self, places: int = 1) -> None:
        self.clock, self.metrics, self.log = VirtualClock(), MemoryMetrics(), MemoryEventLog()
        self.all = verifications(clock=self.clock, metrics=self.metrics, log=self.log)
        self.pool: Pool = self.all.pool(places)
        self.begun: list[str] = []
        self.going: dict[str, asyncio.Event] = {}
        self._asked: list[asyncio.Task[str]] = []

    async def work(self, secret: str) -> str:
        self.begun.append(secret)
        go = self.going[secret] = asyncio.Event()
        await go.wait()
        if secret.startswith("wrong"):
            raise CredentialsRefused("wrong")
        return f"verdict on {secret}"

    def ask(self, secret: str, address: str = "192.0.2.1", principal: str = "p", **more: Any) -> asyncio.Task[str]:
        shown = Credentials(principal=principal, secret=secret, address=address, **more)
        asked = asyncio.create_task(self.pool.run(shown, secret.encode(), lambda: self.work(secret)))
        self._asked.append(asked)
        return asked

    async def close(self) -> None:
        await self.all.close()
        await asyncio.gather(*self._asked, return_exceptions=True)

    async def finish(self, secret: str) -> None:
        await eventually(lambda: secret in self.going)
        self.going.pop(secret).set()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    def waiting(self) -> float:
        return self.metrics.gauge(catalogue.VERIFICATIONS_WAITING)

    def refused(self) -> dict[str, float]:
        return self.metrics.counts(catalogue.VERIFICATIONS_REFUSED)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.close()


async def test_no_more_than_the_places_work_and_addresses_take_turns(bench: Bench) -> None:
    asked = [bench.ask(secret, "192.0.2.1") for secret in ("a1", "a2", "a3")]
    asked += [bench.ask("b1", "192.0.2.2"), bench.ask("c1", "2001:db8::1"), bench.ask("c2", "2001:db8::2")]
    await bench.settle()
    assert bench.begun == ["a1"]
    assert bench.waiting() == 5
    for secret in ("a1", "a2", "b1", "c1", "a3", "c2"):
        await bench.finish(secret)
        await bench.settle()

    assert bench.begun == ["a1", "a2", "b1", "c1", "a3", "c2"], "two addresses of one IPv6 network are one"
    assert [await each for each in asked] == [f"verdict on {secret}" for secret in ("a1", "a2", "a3", "b1", "c1", "c2")]
    assert bench.waiting() == 0


async def test_one_place_is_left_by_who_has_many_before_any_of_them_has_failed() -> None:
    """A service may take seconds to refuse, so that the first guesses have every place before one has failed."""
    bench = Bench(places=8)
    for number in range(20):
        bench.ask(f"wrong{number}", "192.0.2.1", principal=f"p{number}")
    await bench.settle()
    assert len(bench.begun) == 7
    honest = bench.ask("right", "192.0.2.2")
    await bench.finish("right")
    assert await honest == "verdict on right"
    await bench.settle()
    assert len(bench.begun) == 8, "the last place is free again"
    for number in range(4):
        await bench.finish(f"wrong{number}")
    await bench.settle()
    assert len(bench.begun) == 12, "the others are not held up"
    await bench.close()


@pytest.mark.parametrize("places", [2, 4])
async def test_an_address_may_have_all_of_few_places(places: int) -> None:
    bench = Bench(places=places)
    for number in range(10):
        bench.ask(f"s{number}", principal=f"p{number}")
    await bench.settle()
    assert len(bench.begun) == places
    await bench.close()


async def test_the_same_credentials_are_one_work_for_all_who_show_them(bench: Bench) -> None:
    busy = bench.ask("busy")
    crowd = [bench.ask("same", f"192.0.2.{number}") for number in range(20)]
    await bench.settle()
    await bench.finish("busy")
    late = [bench.ask("same") for _ in range(3)]
    await bench.settle()
    late[0].cancel()
    late.append(bench.ask("same"))
    await bench.settle()
    await bench.finish("same")

    assert {await each for each in (*crowd, *late[1:])} == {"verdict on same"}
    assert await busy == "verdict on busy"
    assert bench.begun == ["busy", "same"]


async def test_a_refusal_is_one_for_all_who_show_the_same(bench: Bench) -> None:
    crowd = [bench.ask("wrong") for _ in range(3)]
    await bench.settle()
    await bench.finish("wrong")
    for each in crowd:
        with pytest.raises(CredentialsRefused):
            await each
    again = bench.ask("wrong")
    await bench.settle()
    assert bench.begun == ["wrong", "wrong"], "and is not remembered"
    await bench.finish("wrong")
    with pytest.raises(CredentialsRefused):
        await again


async def test_nothing_is_done_for_those_who_have_hung_up(bench: Bench) -> None:
    gone: set[str] = set()
    bench.ask("busy")
    waiting = {
        secret: bench.ask(secret, principal=secret, abandoned=lambda secret=secret: secret in gone)
        for secret in ("one", "two", "three", "four")
    }
    await bench.settle()
    gone |= {"one", "two", "four"}
    waiting["four"].cancel()
    await bench.finish("busy")
    await bench.finish("three")

    assert await waiting["three"] == "verdict on three"
    for secret in ("one", "two"):
        with pytest.raises(VerificationRefused, match="hung up"):
            await waiting[secret]
    with pytest.raises(VerificationRefused, match="hung up"):
        await bench.ask("five", abandoned=lambda: True)
    assert bench.begun == ["busy", "three"]
    assert bench.refused() == {"hung_up": 3}


async def test_who_has_hung_up_takes_nothing_from_who_shows_the_same(bench: Bench) -> None:
    bench.ask("busy")
    gone = bench.ask("same", abandoned=lambda: len(bench.begun) > 0)
    there = bench.ask("same", "192.0.2.2")
    await bench.settle()
    await bench.finish("busy")
    await bench.finish("same")

    assert await there == "verdict on same"
    with pytest.raises(VerificationRefused):
        await gone


async def test_what_is_in_vain_anyway_is_told_before_a_place_is_wanted(bench: Bench) -> None:
    class InVainError(Exception):
        pass

    async def look() -> None:
        raise InVainError

    with pytest.raises(InVainError):
        await bench.ask("x", before_work=look)
    assert bench.begun == []
    assert bench.waiting() == 0


async def test_a_full_queue_sends_away_who_takes_the_most(bench: Bench) -> None:
    bench.ask("busy", "192.0.2.250")
    crowd = [bench.ask(f"crowd {number}", principal=f"p{number}") for number in range(WAITING_PER_PLACE)]
    await bench.settle()
    alone = bench.ask("alone", "192.0.2.2")
    with pytest.raises(VerificationRefused, match="more credentials wait") as caught:
        await crowd[-1]
    assert caught.value.retry_after == PATIENCE
    assert bench.waiting() == WAITING_PER_PLACE
    await bench.finish("busy")
    await bench.finish("crowd 0")
    await bench.finish("alone")

    assert await alone == "verdict on alone"
    assert bench.refused() == {"crowded": 1}
    (told,) = bench.log.of(events.VERIFICATION_REFUSED)
    assert told == {"address": "192.0.2.1", "reason": "crowded", "waiting": WAITING_PER_PLACE, "failing": 0}


async def test_refusals_fill_no_log(bench: Bench) -> None:
    bench.ask("busy")
    crowd = [bench.ask(f"crowd {number}") for number in range(WAITING_PER_PLACE + 10)]
    await bench.settle()
    assert len(bench.log.of(events.VERIFICATION_REFUSED)) == 1
    bench.clock.advance(1.0)
    crowd.append(bench.ask("one more"))
    await bench.settle()
    assert len(bench.log.of(events.VERIFICATION_REFUSED)) == 2
    assert bench.refused() == {"crowded": 11}


async def test_who_waits_for_too_long_is_told_to_come_again(bench: Bench) -> None:
    busy = bench.ask("busy")
    late = bench.ask("late")
    await bench.settle()
    bench.clock.advance(PATIENCE)
    bench.pool._on_time()
    with pytest.raises(VerificationRefused, match="took too long"):
        await late
    await bench.finish("busy")

    assert await busy == "verdict on busy"
    assert bench.begun == ["busy"]
    assert bench.refused() == {"late": 1}


async def test_who_failed_often_waits_behind_others(bench: Bench) -> None:
    for _ in range(FORGIVEN):
        bench.all.failed(Credentials(principal="", secret="x", address="127.0.0.1"))
    bench.ask("busy")
    asked = [bench.ask("bad", "127.0.0.1"), bench.ask("good 1", "192.0.2.1"), bench.ask("good 2", "192.0.2.2")]
    await bench.settle()
    for secret in ("busy", "good 1", "good 2", "bad"):
        await bench.finish(secret)
    await asyncio.gather(*asked)

    assert bench.begun == ["busy", "good 1", "good 2", "bad"]


async def test_who_failed_often_never_takes_the_last_place() -> None:
    bench = Bench(places=3)
    for _ in range(FORGIVEN):
        bench.all.failed(Credentials(principal="", secret="x", address="127.0.0.1"))
    asked = [bench.ask(f"bad {number}", "127.0.0.1") for number in range(5)]
    await bench.settle()
    assert bench.begun == ["bad 0", "bad 1"]
    asked.append(bench.ask("good", "192.0.2.1"))
    await bench.settle()
    assert bench.begun == ["bad 0", "bad 1", "good"], "at once"
    for secret in ("good", "bad 0", "bad 1", "bad 2", "bad 3", "bad 4"):
        await bench.finish(secret)
    await asyncio.gather(*asked)
    await bench.close()


async def test_a_bug_frees_its_place(bench: Bench) -> None:
    async def broken() -> str:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        await bench.pool.run(Credentials(secret="x"), b"x", broken)
    fine = bench.ask("fine")
    await bench.finish("fine")
    assert await fine == "verdict on fine"


async def test_closing_refuses_those_who_wait_and_ends_what_is_done() -> None:
    bench = Bench()
    busy, waiting = bench.ask("busy"), bench.ask("waiting")
    await bench.settle()
    await bench.all.close()

    with pytest.raises(asyncio.CancelledError):
        await busy
    for each in (waiting, bench.ask("later")):
        with pytest.raises(VerificationRefused, match="the node stops"):
            await each
    assert bench.begun == ["busy"]


# --- Rates, and those who do not exist --------------------------------------------------------------------------------


class PacedBench(Bench):
    """A pool of two places whose clients are kept to rates when they fail often."""

    def __init__(self) -> None:
        super().__init__()
        rates = VerificationRates(address=5.0, principal=1.0)
        self.all = Verifications(clock=Clock(monotonic=self.clock), metrics=self.metrics, log=self.log, rates=rates)
        self.pool = self.all.pool(2, hides_principals=True)

    def pretend(self, secret: str, principal: str = "nobody") -> asyncio.Task[None]:
        shown = Credentials(principal=principal, secret=secret, address="192.0.2.1")
        asked = asyncio.create_task(self.pool.pretend(shown, secret.encode(), lambda: self.work(secret)))
        self._asked.append(asked)  # type: ignore[arg-type]
        return asked

    def fail(self, principal: str = "p") -> None:
        for _ in range(2 * FORGIVEN):
            self.all.failed(Credentials(principal=principal, secret="", address="192.0.2.1"))


@pytest.fixture
async def paced() -> AsyncIterator[PacedBench]:
    made = PacedBench()
    yield made
    await made.close()


async def test_who_waits_for_a_rate_in_vain_is_told_so_by_the_metric_of_limits(paced: PacedBench) -> None:
    paced.fail()
    first = paced.ask("wrong 0")
    await paced.finish("wrong 0")
    with pytest.raises(CredentialsRefused):
        await first
    crowd = [paced.ask(f"wrong {number}") for number in range(1, 5)]
    await paced.settle()

    refused = [each for each in crowd if each.done()]
    assert len(refused) == 2, "two wait for the two turns of their patience"
    for each in refused:
        with pytest.raises(VerificationRefused) as why:
            await each
        assert why.value.retry_after == RETRY
    assert paced.begun == ["wrong 0"]
    exceeded = paced.metrics.counts(catalogue.LIMITS_EXCEEDED)
    assert exceeded["rate_principal_verifications"] == 2
    assert exceeded["rate_address_verifications"] == 2


async def test_work_is_pretended_for_who_does_not_exist_while_others_wait(paced: PacedBench) -> None:
    idle = paced.pretend("idle")
    await paced.finish("idle")
    await idle
    busy = [paced.ask("real 1"), paced.ask("real 2"), paced.ask("real 3")]
    await paced.settle()
    decoys = [paced.pretend(f"decoy {number}", f"nobody {number}") for number in range(20)]
    await paced.settle()
    for secret in ("real 1", "real 2", "real 3"):
        assert not decoys[-1].done(), "they wait as others do"
        await paced.finish(secret)
    await asyncio.gather(*busy, *decoys)

    assert paced.begun == ["idle", "real 1", "real 2", "real 3"]


async def test_refusals_are_told_at_whole_seconds_where_time_could_tell_who_exists(paced: PacedBench) -> None:
    assert [paced.all.until_refusal(taken) for taken in (0.0, 0.25, 1.0, 1.5)] == [1.0, 0.75, 0.0, 0.5]
    assert verifications().until_refusal(0.25) == 0.0
