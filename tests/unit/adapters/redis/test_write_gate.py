from __future__ import annotations

from gateway.adapters.redis.write_gate import WriteGate, boot_clock
from tests.support.clock import VirtualClock


def test_without_a_lease_there_is_no_gate() -> None:
    assert WriteGate(VirtualClock()).permits_writes()


def test_the_gate_shuts_when_the_lease_may_have_lapsed_and_opens_with_the_next() -> None:
    clock = VirtualClock()
    write_gate = WriteGate(clock)
    write_gate.hold(until=write_gate.now() + 5, term=3)
    assert write_gate.permits_writes()
    assert write_gate.term == 3
    clock.advance(4.999)
    assert write_gate.permits_writes()
    clock.advance(0.001)
    assert not write_gate.permits_writes()
    write_gate.hold(until=write_gate.now() + 5, term=4)
    assert write_gate.permits_writes()


def test_a_lost_lease_shuts_the_gate_at_once() -> None:
    write_gate = WriteGate(VirtualClock())
    write_gate.hold(until=write_gate.now() + 5, term=1)
    write_gate.lose()
    assert not write_gate.permits_writes()


def test_the_clock_goes_on() -> None:
    assert 0 < boot_clock() <= boot_clock()
