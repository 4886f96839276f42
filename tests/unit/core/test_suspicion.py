"""Who is suspected, when leases are looked at, and when a suspicion ends (seed 004, E1 to E5)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.pacing.suspicion import Suspicions
from gateway.core.types import Incarnation, NodeId, NodeRef

N1, N2 = (NodeRef(NodeId(name), Incarnation("1")) for name in ("n1", "n2"))
BEAT, AFTER, CONFIRM = 0.5, 3, 0.5
STEP = BEAT / 4


def suspicions() -> Suspicions:
    made = Suspicions(heartbeat=BEAT, suspect_after=AFTER, confirm=CONFIRM)
    made.follow({N1, N2})
    return made


def pass_time(
    machine: Suspicions, now: float, until: float, heard: dict[NodeRef, float] | None = None
) -> list[NodeRef]:
    """Observe until then; returns who was suspected meanwhile."""
    found: list[NodeRef] = []
    while now < until:
        now += STEP
        found += [each.node for each in machine.observe(heard or {}, now).suspected]
    return found


def test_whoever_is_silent_for_long_enough_is_suspected() -> None:
    machine = suspicions()
    machine.observe({N1: 0.0, N2: 0.0}, 0.0)
    assert pass_time(machine, 0.0, AFTER * BEAT - STEP) == []
    assert sorted(pass_time(machine, AFTER * BEAT - STEP, AFTER * BEAT)) == [N1, N2]
    assert pass_time(machine, AFTER * BEAT, 10.0) == [], "once"


def test_whoever_was_never_heard_is_not_suspected() -> None:
    machine = suspicions()
    assert pass_time(machine, 0.0, 100.0) == []


def test_a_sign_of_life_ends_a_suspicion() -> None:
    machine = suspicions()
    machine.observe({N1: 0.0}, 0.0)
    assert pass_time(machine, 0.0, 2.0) == [N1]
    assert [each.node for each in machine.observe({N1: 2.1}, 2.125).cleared] == [N1]
    assert not machine.suspects


def test_two_readings_of_one_sign_of_life_are_one() -> None:
    machine = suspicions()
    machine.observe({N1: 0.0}, 0.0)
    pass_time(machine, 0.0, 2.0)
    assert machine.observe({N1: 0.001}, 2.125).cleared == ()


def test_whoever_slept_itself_blames_nobody() -> None:
    machine = suspicions()
    machine.observe({N1: 0.0}, 0.0)
    assert machine.observe({N1: 0.0}, 60.0).suspected == ()
    assert pass_time(machine, 60.0, 60.0 + AFTER * BEAT - STEP) == []
    assert pass_time(machine, 60.0 + AFTER * BEAT - STEP, 60.0 + AFTER * BEAT) == [N1]


def test_whoever_says_good_bye_is_not_suspected() -> None:
    machine = suspicions()
    machine.observe({N1: 0.0, N2: 0.0}, 0.0)
    machine.left(N1)
    assert pass_time(machine, 0.0, 10.0) == [N2]


def test_whoever_has_no_lease_is_suspected_no_more() -> None:
    machine = suspicions()
    machine.observe({N1: 0.0, N2: 0.0}, 0.0)
    pass_time(machine, 0.0, 2.0)
    assert [each.node for each in machine.follow({N2})] == [N1]
    assert set(machine.suspects) == {N2}


def test_a_suspect_is_looked_at_until_its_lease_is_renewed_or_ends() -> None:
    machine = suspicions()
    machine.observe({N1: 0.0}, 0.0)
    pass_time(machine, 0.0, 1.5)
    assert machine.due(1.5) == (N1,)
    assert not machine.looked(N1, 4.0, 1.5)
    assert machine.next_look() == 1.5 + CONFIRM
    assert not machine.looked(N1, 5.9, 2.0), "it was renewed: it ends at 7.9 and not at 5.5"
    look = machine.next_look()
    assert look is not None
    assert 7.9 <= look <= 7.95, "no sooner than it might end"
    assert not machine.looked(N1, None, 7.9), "nobody could look"
    assert machine.next_look() == 7.9 + CONFIRM
    assert machine.looked(N1, -0.1, 8.4)
    assert machine.next_look() is None
    assert machine.suspects[N1].failed


def test_the_end_of_a_lease_is_not_waited_for_longer_than_it_takes() -> None:
    machine = suspicions()
    machine.observe({N1: 0.0}, 0.0)
    pass_time(machine, 0.0, 1.5)
    machine.looked(N1, 0.2, 1.5)
    look = machine.next_look()
    assert look is not None
    assert 1.7 <= look <= 1.75


@given(
    signs=st.lists(st.floats(0.0, 60.0), max_size=60),
    after=st.integers(2, 6),
    beat=st.sampled_from([0.1, 0.5, 1.0]),
)
def test_a_node_is_suspected_exactly_while_it_is_silent(signs: list[float], after: int, beat: float) -> None:
    """E4: a suspicion ends with the first sign of life, and begins only after enough silence."""
    machine = Suspicions(heartbeat=beat, suspect_after=after, confirm=CONFIRM)
    machine.follow({N1})
    now, step = 0.0, beat / 4
    signs = sorted([0.0, *signs])
    machine.observe({N1: 0.0}, 0.0)
    while now < 62.0:
        now += step
        last = max(each for each in signs if each <= now)
        machine.observe({N1: last}, now)
        silent = now - last
        if silent >= after * beat + step:
            assert N1 in machine.suspects
        if silent < after * beat - 0.1 * beat:
            assert N1 not in machine.suspects
