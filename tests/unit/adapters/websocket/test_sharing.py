"""What is fair: queues by address, room for those who wait, and the budget of one connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.websocket.addresses import network_of
from gateway.adapters.websocket.pending_requests import FEW, LOOKED_AT, PendingRequests
from gateway.adapters.websocket.read_scheduler import PacedReader
from gateway.adapters.websocket.upgrade import Upgrade
from gateway.adapters.work_budget import WorkBudget, WorkLimits

LIMITS = WorkLimits(rate=0.1, burst=0.1, idle_rate=0.01, idle_burst=0.5)


def reader(key: str) -> PacedReader:
    return cast(PacedReader, SimpleNamespace(key=key))


def upgrading(key: str, *, makes_room: bool = True) -> Upgrade:
    class Stub:
        reading = reader(key)
        peer = key

        def __init__(self) -> None:
            self.makes_room = makes_room

    return cast(Upgrade, Stub())


def test_of_ipv6_a_subscriber_counts_as_one() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8:0:0:ffff::2") != network_of("2001:db8:0:1::1")
    assert network_of("192.0.2.1") == network_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert network_of("no address: at all") == "no address: at all"


@given(st.lists(st.tuples(st.sampled_from(["add", "add", "discard", "renew", "evict"]), st.integers(0, 30))))
def test_who_makes_room_is_of_the_address_with_the_most(steps: list[tuple[str, int]]) -> None:
    pending = PendingRequests(5)
    connections: list[Any] = [upgrading(str(number % 4)) for number in range(31)]
    model: list[Any] = []
    for step, number in steps:
        each = connections[number]
        if step == "add":
            pending.add(each)
            model += [] if each in model else [each]
        elif step == "renew":
            pending.renew(each)
            if each in model:
                model.remove(each)
                model.append(each)
        elif step == "discard":
            pending.discard(each)
            model = [other for other in model if other is not each]
        elif model:
            oldest = pending.first_to_go()
            assert oldest is not None
            counts = {key: sum(other.reading.key == key for other in model) for key in "0123"}
            key = oldest.reading.key
            assert counts[key] == max(counts.values())
            assert oldest is next(other for other in model if other.reading.key == key)
            pending.discard(oldest)
            model.remove(oldest)
        assert len(pending) == len(model)
        assert set(pending) == set(model)
        assert pending.is_full == (len(model) >= 5)


def test_who_has_yet_to_be_read_makes_no_room() -> None:
    pending = PendingRequests(3)
    asked, silent, other = upgrading("a", makes_room=False), upgrading("a"), upgrading("b")
    for each in (asked, silent, other):
        pending.add(each)
    assert pending.first_to_go() is silent

    pending.discard(silent)
    pending.add(upgrading("a", makes_room=False))
    assert pending.first_to_go() is other, "of another address, which has fewer"

    pending.discard(other)
    assert pending.first_to_go() is None


def test_one_client_that_has_many_makes_room_whatever_it_has_asked_and_a_proxy_does_not() -> None:
    pending = PendingRequests(3, is_proxy="proxy".__eq__)
    proxied = [upgrading("proxy", makes_room=False) for _ in range(FEW + 2)]
    crowd = [upgrading("crowd", makes_room=False) for _ in range(FEW + 1)]
    for each in (*proxied, *crowd):
        pending.add(each)
    assert pending.first_to_go() is crowd[0]

    pending.discard(crowd[0])
    assert pending.first_to_go() is None, "it has as many as a browser"


def test_few_are_looked_at_when_room_is_made() -> None:
    looked = 0

    class Stub:
        def __init__(self, number: int) -> None:
            self.peer = str(number % (2 * LOOKED_AT))
            self.reading = reader(self.peer)

        @property
        def makes_room(self) -> bool:
            nonlocal looked
            looked += 1
            return False

    pending = PendingRequests(1000, is_proxy=lambda _: True)
    for number in range(1000):
        pending.add(cast(Upgrade, Stub(number)))

    assert pending.first_to_go() is None
    assert looked == LOOKED_AT**2


def test_who_keeps_to_its_budget_is_never_slowed() -> None:
    budget = WorkBudget(LIMITS)

    for step in range(1000):
        assert not budget.charge(step * 0.1, 0.01)
        budget.note_message()
    assert not budget.is_exhausted


def test_who_goes_above_pays_with_pauses_and_keeps_to_the_rate() -> None:
    budget, now, work = WorkBudget(LIMITS), 0.0, 0.0
    while now < 100:
        work += 0.01
        now += budget.charge(now, 0.01)

    assert work <= LIMITS.burst + LIMITS.rate * now + 0.02
    assert budget.is_exhausted


def test_so_much_is_borne_without_a_message_and_the_account_begins_anew_with_each() -> None:
    budget = WorkBudget(LIMITS)

    def is_too_much(work: float) -> bool:
        budget.charge(0.0, work)
        return budget.is_exhausted

    assert not is_too_much(0.5)
    budget.note_message()
    assert not is_too_much(0.5)
    assert is_too_much(0.1)
    budget.note_message()
    assert not is_too_much(0.1)


def test_a_ping_now_and_then_is_borne_for_ever() -> None:
    budget = WorkBudget(LIMITS)
    for second in range(10_000):
        budget.charge(float(second), LIMITS.idle_rate)

    assert not budget.is_exhausted
