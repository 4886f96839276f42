from __future__ import annotations

from gateway.adapters.redis.lease import Leases, boot_clock
from tests.support.clock import VirtualClock


def test_without_a_lease_there_is_no_gate() -> None:
    assert Leases(VirtualClock()).permits_writes()


def test_the_gate_shuts_when_the_lease_may_have_lapsed_and_opens_with_the_next() -> None:
    clock = VirtualClock()
    leases = Leases(clock)
    leases.hold(until=leases.now() + 5, term=3)
    assert leases.permits_writes()
    assert leases.term == 3
    clock.advance(4.999)
    assert leases.permits_writes()
    clock.advance(0.001)
    assert not leases.permits_writes()
    leases.hold(until=leases.now() + 5, term=4)
    assert leases.permits_writes()


def test_a_lost_lease_shuts_the_gate_at_once() -> None:
    leases = Leases(VirtualClock())
    leases.hold(until=leases.now() + 5, term=1)
    leases.lose()
    assert not leases.permits_writes()


def test_the_clock_goes_on() -> None:
    assert 0 < boot_clock() <= boot_clock()
