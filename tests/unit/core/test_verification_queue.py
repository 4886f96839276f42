"""Who is verified next, in virtual time (P20)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.pacing.failures import FORGIVEN
from gateway.core.pacing.verification_queue import DECOYS_PER_PLACE_IN_QUEUE, VerificationQueue
from gateway.core.pacing.verification_ranks import (
    LEVELS,
    MOST_TURNED_AWAY,
    FailureRanks,
    TurnedAway,
    VerificationRates,
)

pytestmark = pytest.mark.promise("P20")

PATIENCE = 2.0
MOST = 64
PLACES = 2
HASH = 0.2
"""Seconds of one verification: two places do ten a second."""


def queue(
    ranks: FailureRanks | None = None, *, most: int = MOST, rates: VerificationRates | None = None
) -> VerificationQueue[str]:
    return VerificationQueue(most=most, patience=PATIENCE, ranks=ranks or FailureRanks(), rates=rates)


def put(line: VerificationQueue[str], *items: str, now: float = 0.0) -> list[str | None]:
    """Let items wait that are called ``address/principal/number``."""
    left: list[str | None] = []
    for item in items:
        address, principal, *_ = item.split("/")
        left += line.put(item, address=address, principal=principal, now=now) or [None]
    return left


def take_all(line: VerificationQueue[str], now: float = 0.0) -> list[str]:
    taken: list[str] = []
    while (item := line.take(now)) is not None:
        taken.append(item)
    return taken


def fail(ranks: FailureRanks, address: str, principal: str, *, times: int = FORGIVEN, now: float = 0.0) -> None:
    for _ in range(times):
        ranks.failed(address, principal, now)


def test_addresses_take_turns_and_so_do_principals_within_one() -> None:
    line = queue()
    put(line, "a/x/1", "a/x/2", "a/x/3", "a/y/1", "b/x/1", "b/x/2", "c/z/1")

    assert take_all(line) == ["a/x/1", "b/x/1", "c/z/1", "a/y/1", "b/x/2", "a/x/2", "a/x/3"]
    assert len(line) == 0


def test_who_comes_alone_does_not_wait_for_all_of_a_crowd() -> None:
    line = queue()
    put(line, *(f"crowd/p{number}/1" for number in range(50)), "alone/p/1")

    assert take_all(line).index("alone/p/1") == 1


def test_who_failed_often_goes_behind_but_is_not_forgotten() -> None:
    ranks = FailureRanks()
    fail(ranks, "bad", "")
    line = queue(ranks)
    put(line, *(f"bad/p{number}/1" for number in range(20)), *(f"good{number}/p/1" for number in range(30)))

    first = take_all(line)[:40]

    assert Counter(item.startswith("good") for item in first) == {True: 30, False: 10}
    assert [item.startswith("good") for item in first[:4]] == [True, True, True, False]


def test_a_principal_whose_secret_is_tried_goes_behind_others_and_before_failing_addresses() -> None:
    ranks = FailureRanks()
    fail(ranks, "bad", "alice")
    line = queue(ranks)
    put(line, "bad/bob/1", "good/alice/1", "good/bob/1")

    assert take_all(line) == ["good/bob/1", "good/alice/1", "bad/bob/1"]


def test_nobody_in_particular_is_no_principal_that_fails() -> None:
    ranks = FailureRanks()
    fail(ranks, "bad", "")
    assert (ranks.of("good", "", 0.0), ranks.of("bad", "", 0.0)) == (0, 2)


def test_who_fails_while_more_of_it_waits_goes_behind_from_then_on() -> None:
    ranks = FailureRanks()
    line = queue(ranks)
    put(line, *(f"bad/p{number}/1" for number in range(5)), "good/p/1", "good/p/2")
    fail(ranks, "bad", "")

    assert take_all(line)[:2] == ["good/p/1", "good/p/2"]


def test_the_last_place_is_kept_for_those_who_did_not_fail() -> None:
    ranks = FailureRanks()
    fail(ranks, "bad", "alice")
    line = queue(ranks)
    put(line, "bad/p/1", "elsewhere/alice/1")
    assert line.take(0.0, last=True) is None
    put(line, "good/p/1")
    assert line.take(0.0, last=True) == "good/p/1"
    put(line, "new/p/1")
    fail(ranks, "new", "")
    assert line.take(0.0, last=True) is None
    assert sorted(take_all(line)) == ["bad/p/1", "elsewhere/alice/1", "new/p/1"]


def test_the_last_place_is_kept_from_addresses_that_have_many_already() -> None:
    line = queue()
    put(line, "crowd/p/1", "crowd/q/1")
    assert line.take(0.0, last=True, crowding={"crowd"}) is None
    put(line, "alone/p/1")
    assert line.take(0.0, last=True, crowding={"crowd"}) == "alone/p/1"
    assert line.take(0.0, crowding={"crowd"}) == "crowd/p/1", "any other place may be had"
    assert line.take(0.0, last=True) == "crowd/q/1"


def test_those_who_are_put_behind_take_no_turn_from_those_before() -> None:
    """However many attempts came before the first of them failed, and from however many addresses."""
    ranks = FailureRanks()
    line = queue(ranks)
    put(line, *(f"bad{number}/p/1" for number in range(30)), "good/p/1")
    for number in range(30):
        fail(ranks, f"bad{number}", "")

    assert line.take(0.0) == "good/p/1"


def test_a_full_queue_refuses_the_newest_of_who_takes_the_most() -> None:
    line = queue(most=4)
    assert put(line, "a/x/1", "a/x/2", "a/y/1", "b/x/1") == [None] * 4
    assert put(line, "c/z/1") == ["a/x/2"]
    assert put(line, "d/z/1") == ["a/y/1"]
    assert put(line, "e/z/1") == ["e/z/1"], "all take as much: the newest"
    assert put(line, "d/z/2") == ["d/z/2"]
    assert sorted(take_all(line)) == ["a/x/1", "b/x/1", "c/z/1", "d/z/1"]


def test_a_full_queue_refuses_who_failed_often_before_a_crowd_that_did_not() -> None:
    ranks = FailureRanks()
    fail(ranks, "bad", "")
    line = queue(ranks, most=4)
    put(line, "bad/x/1", "crowd/x/1", "crowd/y/1", "crowd/z/1")

    assert put(line, "crowd/w/1") == ["bad/x/1"]
    assert put(line, "bad/x/2") == ["bad/x/2"]


def test_nobody_waits_for_longer_than_its_patience() -> None:
    line = queue()
    put(line, "a/x/1", now=0.0)
    put(line, "b/x/1", now=1.0)
    assert line.until == PATIENCE
    assert line.impatient(PATIENCE - 0.1) == []
    assert line.impatient(PATIENCE) == ["a/x/1"]
    assert line.until == PATIENCE + 1.0
    line.remove("b/x/1")
    line.remove("b/x/1")
    assert (line.waiting(), take_all(line, now=2.0)) == ([], [])


ATTACKERS: dict[str, Callable[[int], tuple[str, str]]] = {
    "one principal": lambda number: ("bad", "alice"),
    "random principals": lambda number: ("bad", f"p{number}"),
    "many addresses, one principal": lambda number: (f"bad{number % 5}", "alice"),
}


@pytest.mark.parametrize("attacker", ATTACKERS)
def test_logins_from_elsewhere_get_in_at_once_while_an_attacker_fails_without_end(attacker: str) -> None:
    """Fifteen wrong attempts a second for a minute, and an honest login every second; two places do ten a second."""
    ranks = FailureRanks()
    line = queue(ranks)
    numbers = count()
    arrivals = [(each / 15, next(numbers), "wrong", *ATTACKERS[attacker](each)) for each in range(15 * 60)]
    arrivals += [(1.0 + each, next(numbers), "honest", f"home{each}", f"user{each}") for each in range(59)]
    events: list[tuple[float, int, str, str, str]] = sorted(arrivals)
    free, refused, waits, served = PLACES, Counter[str](), [], Counter[str]()
    came: dict[str, float] = {}
    while events:
        now, _, kind, address, principal = heapq.heappop(events)
        if kind.startswith("done"):
            free += 1
            served[kind] += 1
            if kind == "done wrong":
                ranks.failed(address, principal, now)
        else:
            item = f"{address}/{principal}/{kind} {now}"
            came[item] = now
            for left in put(line, item, now=now):
                if left is not None:
                    refused[left.split("/")[2].split()[0]] += 1
        for late in line.impatient(now):
            refused[late.split("/")[2].split()[0]] += 1
        while free and (turn := line.take(now, last=free == 1)) is not None:
            free -= 1
            address, principal, what = turn.split("/")
            kind = what.split()[0]
            if kind == "honest":
                waits.append(now - came[turn])
            heapq.heappush(events, (now + HASH, next(numbers), f"done {kind}", address, principal))
    assert refused["honest"] == 0
    assert served["done honest"] == 59
    assert sorted(waits)[-10] == 0, "a place is free for them, but for when the attacker is not known yet or forgiven"
    assert max(waits) <= 2 * HASH
    assert 250 < served["done wrong"] < 400, "what is left is the attacker's"
    assert refused["wrong"] > 300


@pytest.mark.parametrize("address", [0.0, 5.0], ids=["turns alone", "with rates"])
def test_newcomers_behind_the_attackers_address_get_in_at_once_while_it_makes_up_names(address: float) -> None:
    """A hundred decoys a second for a minute, and a newcomer every second, all of them of one address."""
    ranks = FailureRanks()
    line = queue(ranks, rates=VerificationRates(address=address, principal=1.0))
    fail(ranks, "all", "")
    served = 0
    for number in range(60 * 100):
        now = number / 100
        assert line.put(f"wrong {number}", address="all", principal=f"p{number}", now=now, decoy=True) == []
        ranks.failed("all", f"p{number}", now)
        if number % 100 == 0:
            assert line.put("honest", address="all", principal=f"user{number}", now=now) == []
            while line.take(now) != "honest":
                pass
            served += 1
    assert served == 60


def test_decoys_are_bounded_and_keep_nobody_from_a_place_in_the_queue() -> None:
    line = queue(most=4)
    for number in range(4 * DECOYS_PER_PLACE_IN_QUEUE):
        assert line.put(f"decoy {number}", address="a", principal=f"d{number}", now=0.0, decoy=True) == []
    assert line.put("one more", address="a", principal="more", now=0.0, decoy=True) == ["one more"]
    for number in range(4):
        assert line.put(f"real {number}", address="a", principal=f"r{number}", now=0.0) == []
    assert line.genuine == 4
    assert line.put("another", address="a", principal="another", now=0.0, decoy=True) == ["another"]


def test_who_failed_often_is_let_through_at_its_rate_and_told_when() -> None:
    ranks = FailureRanks()
    fail(ranks, "bad", "alice", times=2 * FORGIVEN)
    line = queue(ranks, rates=VerificationRates(address=2.0, principal=1.0))
    put(line, "bad/bob/1", "bad/carol/1", "bad/alice/1", "elsewhere/alice/1", "elsewhere/alice/2")

    assert take_all(line) == ["elsewhere/alice/1", "bad/bob/1"], "one of each whose rate counts"
    assert line.again_at == pytest.approx(0.5)
    assert take_all(line, now=0.5) == ["bad/carol/1"]
    assert take_all(line, now=1.0) == ["elsewhere/alice/2", "bad/alice/1"]
    assert len(line) == 0


def test_who_comes_again_goes_before_who_guesses_where_somebody_fails_often() -> None:
    ranks = FailureRanks()
    fail(ranks, "bad", "alice")
    line = queue(ranks)
    for address, principal in (("bad", "bob"), ("elsewhere", "alice"), ("bad", "alice")):
        put(line, *(f"{address}/{principal}/{number}" for number in range(5)))
        line.put("again", address=address, principal=principal, now=0.0, level=1)
        assert line.take(0.0) == "again"
        take_all(line)


def test_of_a_principal_that_fails_no_more_wait_than_its_rate_lets_through_the_newest_leaves() -> None:
    ranks = FailureRanks()
    fail(ranks, "bad", "alice")
    line = queue(ranks, rates=VerificationRates(principal=1.0))
    assert put(line, "bad/alice/1", "bad/alice/2", "bad/alice/3") == [None, None, "bad/alice/3"]
    again = line.put("again", address="bad", principal="alice", now=0.0, level=2)
    assert again == ["bad/alice/2"], "and not who was turned away more often"
    assert line.take(0.0) == "again"


def test_credentials_that_were_turned_away_are_remembered_by_how_often_and_forgotten_with_their_turn() -> None:
    away = TurnedAway()
    levels = []
    for _ in range(200):
        levels.append(away.level(b"right"))
        away.again(b"right")
    assert levels[:5] == [0, 1, 2, 2, 3]
    assert max(levels) == LEVELS - 1
    away.forget(b"right")
    assert away.level(b"right") == 0
    for number in range(2 * MOST_TURNED_AWAY):
        away.again(b"%d" % number)
    assert len(away) == MOST_TURNED_AWAY


steps = st.lists(
    st.tuples(st.sampled_from("pppptrf"), st.integers(0, 3), st.integers(0, 2), st.floats(0, 1)), max_size=80
)


@given(steps=steps)
def test_whatever_happens_everybody_leaves_once_and_the_queue_is_bounded(
    steps: list[tuple[str, int, int, float]],
) -> None:
    ranks = FailureRanks()
    line = queue(ranks, most=6)
    now, inside, gone = 0.0, set[str](), Counter[str]()

    def left(item: str) -> None:
        gone[item] += 1
        inside.discard(item)

    for number, (step, address, principal, pause) in enumerate(steps):
        now += pause
        for late in line.impatient(now):
            left(late)
        if step == "p":
            item = f"{address}/{principal}/{number}"
            inside.add(item)
            (leaves,) = put(line, item, now=now)
            if leaves is not None:
                left(leaves)
        elif step == "t" and (item_taken := line.take(now)) is not None:
            left(item_taken)
        elif step == "r" and inside:
            victim = sorted(inside)[address % len(inside)]
            line.remove(victim)
            left(victim)
        elif step == "f":
            fail(ranks, str(address), str(principal), times=4, now=now)
        assert len(line) == len(inside) <= 6
        assert set(line.waiting()) == inside
    for item in take_all(line, now):
        left(item)
    assert not inside
    assert set(gone.values()) <= {1}
