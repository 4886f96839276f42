"""The checker finds every way in which a history can be broken, and nothing in one that is sound."""

from __future__ import annotations

import pytest

from gateway.local.checker import (
    DeliveryLedger,
    Expectation,
    PublishLedger,
    RecoverySeen,
    SessionFacts,
    Tally,
    TopicWatch,
    Verdict,
)

SECOND_GENERATION = 1 << 32

TOPIC = "prices/ACME"

Step = tuple[int, int, bool]
"""Value, version and whether it was a snapshot."""


def watch(*steps: Step) -> TopicWatch:
    watch = TopicWatch("s1", TOPIC)
    for value, version, snapshot in steps:
        watch.observe(value, version, snapshot=snapshot)
    return watch


SOUND: dict[str, tuple[tuple[Step, ...], Tally]] = {
    "nothing": ((), Tally()),
    "joined late": (((40, 40, True), (41, 41, False)), Tally(delivered=2, snapshots=1)),
    "one after the other": (((1, 1, False), (2, 2, False), (3, 3, False)), Tally(delivered=3)),
    "a snapshot stands for what was missed": (
        ((1, 1, False), (5, 5, True), (6, 6, False)),
        Tally(delivered=3, snapshots=1, skipped=3),
    ),
    "the same value again, declared": (((1, 1, False), (1, 1, True)), Tally(delivered=2, snapshots=1)),
    "the grid lost writes": (
        ((7, 7, False), (8, SECOND_GENERATION + 1, False), (9, SECOND_GENERATION + 2, False)),
        Tally(delivered=3),
    ),
    "the grid lost writes, seen by a snapshot": (
        ((7, 7, False), (12, SECOND_GENERATION + 5, True)),
        Tally(delivered=2, snapshots=1, skipped=4),
    ),
}

BROKEN: dict[str, tuple[tuple[Step, ...], str, str, Tally]] = {
    "lost in silence": (
        ((1, 1, False), (4, 4, False)),
        "P2",
        "2 updates were lost in silence",
        Tally(delivered=2, lost=2),
    ),
    "lost in silence while the grid lost writes": (
        ((7, 7, False), (9, SECOND_GENERATION + 1, False)),
        "P2",
        "1 updates were lost in silence",
        Tally(delivered=2, lost=1),
    ),
    "delivered twice": (
        ((1, 1, False), (1, 1, False)),
        "P2",
        "was delivered twice",
        Tally(delivered=2, duplicated=1),
    ),
    "went back": (
        ((1, 1, False), (2, 2, False), (1, 1, False)),
        "P6",
        "went back",
        Tally(delivered=3, out_of_order=1),
    ),
    "went back by a snapshot": (
        ((9, 9, True), (8, 8, True)),
        "P6",
        "went back",
        Tally(delivered=2, snapshots=2, out_of_order=1),
    ),
    "published twice": (
        ((7, 12, False), (7, 13, False)),
        "P5",
        "it was published twice",
        Tally(delivered=2, contradictory=1),
    ),
    "an old value under a new version": (
        ((7, 12, False), (6, 13, False)),
        "P5",
        "it was published twice",
        Tally(delivered=2, contradictory=1),
    ),
    "a foreign publish between": (
        ((7, 12, False), (8, 14, False)),
        "P5",
        "1 publishes made 2 versions",
        Tally(delivered=2, contradictory=1),
    ),
    "published twice, hidden by a snapshot": (
        ((7, 12, False), (9, 15, True)),
        "P5",
        "2 publishes made 3 versions",
        Tally(delivered=2, snapshots=1, skipped=1, contradictory=1),
    ),
    "acknowledged and not executed, hidden by a snapshot": (
        ((7, 12, False), (9, 13, True)),
        "P5",
        "2 publishes made 1 versions",
        Tally(delivered=2, snapshots=1, skipped=1, contradictory=1),
    ),
    "one version with two values": (
        ((7, 12, False), (8, 12, True)),
        "P6",
        "one version came with two values",
        Tally(delivered=2, snapshots=1, contradictory=1),
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_history_is_passed(name: str) -> None:
    steps, tally = SOUND[name]

    watched = watch(*steps)

    assert watched.violations == []
    assert watched.tally == tally


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_history_is_found(name: str) -> None:
    steps, promise, what, tally = BROKEN[name]

    watched = watch(*steps)

    assert [(violation.promise, what in violation.what) for violation in watched.violations] == [(promise, True)]
    assert watched.tally == tally


@pytest.mark.parametrize(("folded", "skipped", "lost"), [(3, 3, 0), (5, 3, 0), (1, 1, 2), (0, 0, 3)])
def test_an_update_that_took_the_place_of_others_stands_for_as_many(folded: int, skipped: int, lost: int) -> None:
    watching = watch((1, 1, False))
    watching.observe(5, 5, snapshot=False, folded=folded)

    assert (watching.tally.skipped, watching.tally.lost) == (skipped, lost)
    assert [f"{lost} updates were lost in silence" in each.what for each in watching.violations] == [True] * bool(lost)


def test_after_going_back_the_newest_stays_the_measure() -> None:
    watched = watch((5, 5, False), (4, 4, False), (6, 6, False))

    assert len(watched.violations) == 1
    assert (watched.value, watched.version) == (6, 6)


def test_violations_say_who_what_and_between_which() -> None:
    (violation,) = watch((1, 1, False), (3, 3, False)).violations

    assert str(violation) == (
        "P2: s1 on prices/ACME: 1 updates were lost in silence (value 3 version 3 after value 1 version 1)"
    )


def ledger(*receipts: tuple[int, int, str]) -> PublishLedger:
    ledger = PublishLedger("prices/ACME")
    for value, version, event in receipts:
        ledger.acknowledge(value, version, event)
    return ledger


def test_a_sound_ledger_is_passed() -> None:
    sound = ledger((1, 4, "0-1-4"), (2, 5, "0-1-5"), (3, SECOND_GENERATION + 1, "0-2-1"))

    assert sound.violations == []
    assert (sound.accepted, sound.version) == (3, SECOND_GENERATION + 1)


@pytest.mark.parametrize(
    ("receipts", "promise", "what"),
    [
        (((1, 1, "a"), (1, 2, "b")), "P5", "acknowledged after 1"),
        (((1, 1, "a"), (3, 3, "b")), "P5", "acknowledged after 1"),
        (((2, 1, "a"),), "P5", "acknowledged after 0"),
        (((1, 1, "a"), (2, 2, "a")), "P5", "another publish's"),
        (((1, 2, "a"), (2, 1, "b")), "P6", "version 1 after version 2"),
        (((1, 2, "a"), (2, 2, "b")), "P6", "version 2 after version 2"),
        (((1, 1, "a"), (2, 3, "b")), "P5", "1 publishes made 2 versions"),
        (((1, SECOND_GENERATION + 1, "a"), (2, 2, "b")), "P6", "after version"),
    ],
)
def test_a_broken_ledger_is_found(receipts: tuple[tuple[int, int, str], ...], promise: str, what: str) -> None:
    broken = ledger(*receipts)

    assert (promise, True) in [(violation.promise, what in violation.what) for violation in broken.violations]


def recovery(
    session: str, outcome: str = "reattached", lost: int | None = 0, *, replayed: bool = False
) -> RecoverySeen:
    return RecoverySeen(session=session, outcome=outcome, node="n1", gap_seconds=0.1, lost=lost, replayed=replayed)


WHOLE = Expectation("killing n1", frozenset({"s1", "p1"}), frozenset({"failed_over"}), whole=frozenset({"s1", "s2"}))
KILLED = Expectation("killing n1", frozenset({"s1", "s2"}), frozenset({"failed_over"}))
CUT = Expectation("cutting sockets", frozenset({"s1"}), frozenset({"reattached"}))


def test_an_expected_recovery_is_passed() -> None:
    assert KILLED.judge([recovery("s1", "failed_over", None), recovery("s2", "failed_over", 3)]) == []
    assert CUT.judge([recovery("s1")]) == []
    assert WHOLE.judge([recovery("s1", "failed_over", replayed=True), recovery("p1", "failed_over", None)]) == []
    assert Expectation("emptying Redis", frozenset(), frozenset()).judge([]) == []


@pytest.mark.parametrize(
    ("expectation", "recoveries", "complaints"),
    [
        (KILLED, [recovery("s1", "failed_over")], ["P1: killing n1: s2 did not come back"]),
        (CUT, [], ["P1: cutting sockets: s1 did not come back"]),
        (
            WHOLE,
            [recovery("s1", "failed_over", None), recovery("p1", "failed_over", None)],
            ["P13: killing n1: s1 was not sent all that it had missed"],
        ),
        (
            WHOLE,
            [recovery("s1", "failed_over", 3, replayed=True), recovery("p1", "failed_over", None)],
            ["P13: killing n1: s1 was replayed, and yet lost 3 packets"],
        ),
        (
            CUT,
            [recovery("s1"), recovery("s3")],
            ["P7: cutting sockets: s3 was not concerned and yet reattached"],
        ),
        (CUT, [recovery("s1", "failed_over")], ["P2: cutting sockets: s1 was failed_over instead of reattached"]),
        (
            CUT,
            [recovery("s1"), recovery("s1", "failed_over")],
            ["P2: cutting sockets: s1 was failed_over instead of reattached"],
        ),
        (CUT, [recovery("s1", lost=2)], ["P2: cutting sockets: s1 was reattached, and yet lost 2 packets"]),
        (CUT, [recovery("s1", lost=None)], ["P2: cutting sockets: s1 was reattached, and yet lost None packets"]),
        (
            Expectation("emptying Redis", frozenset(), frozenset()),
            [recovery("s1")],
            ["P7: emptying Redis: s1 was not concerned and yet reattached"],
        ),
    ],
)
def test_an_unexpected_recovery_is_found(
    expectation: Expectation, recoveries: list[RecoverySeen], complaints: list[str]
) -> None:
    assert [str(violation) for violation in expectation.judge(recoveries)] == complaints


@pytest.mark.parametrize(
    ("later", "complaints"),
    [
        (((6, 6, False, 0), (7, 7, False, 0)), []),
        # A full value that tells nothing new takes the place of nothing.
        (((5, 5, True, 0), (6, 6, False, 0)), []),
        (((8, 8, True, 0), (9, 9, False, 0)), ["4 updates were published, and 1 came"]),
        (((8, 8, False, 2),), ["3 updates were published, and 1 came"]),
        (((7, 7, False, 0),), ["2 updates were published, and 1 came"]),
        (((6, 6, False, 0), (6, 6, False, 0)), ["1 updates were published, and 2 came"]),
        ((), ["nothing was published, so nothing was shown"]),
    ],
)
def test_every_update_has_to_come_once(later: tuple[tuple[int, int, bool, int], ...], complaints: list[str]) -> None:
    seen = watch((1, 1, True), (4, 4, True), (5, 5, False))
    ledger = DeliveryLedger({("s1", TOPIC): seen})
    for value, version, snapshot, folded in later:
        seen.observe(value, version, snapshot=snapshot, folded=folded)
    found = [str(each) for each in ledger.judge("killing n1")]
    prefix = f"P13: killing n1: s1 on {TOPIC}: " if later else "P13: killing n1: "
    assert found == [f"{prefix}{each}" for each in complaints]


ALICE = SessionFacts("id-1", "alice", {"team": "fx"})


@pytest.mark.parametrize(
    ("after", "promise", "what"),
    [
        ({}, "P7", "s1: its session was lost"),
        ({"s1": None}, "P7", "s1: its session was lost"),
        ({"s1": SessionFacts("id-2", "alice", {"team": "fx"})}, "P1", "s1: changed from"),
        ({"s1": SessionFacts("id-1", "bob", {"team": "fx"})}, "P1", "s1: changed from"),
        ({"s1": SessionFacts("id-1", "alice", {})}, "P1", "s1: changed from"),
    ],
)
def test_a_changed_session_is_found(after: dict[str, SessionFacts | None], promise: str, what: str) -> None:
    verdict = Verdict()

    verdict.judge_sessions({"s1": ALICE}, after)

    assert [(violation.promise, what in violation.what) for violation in verdict.violations] == [(promise, True)]
    assert verdict.sessions == 1


def judged(
    *,
    published: PublishLedger | None = None,
    seen: tuple[Step, ...] | None = ((1, 1, False), (2, 2, False)),
    grid: dict[str, tuple[int, int]] | None = None,
) -> Verdict:
    """Judge a small history that is sound but for what is given."""
    verdict = Verdict()
    verdict.judge_sessions({"s1": ALICE}, {"s1": ALICE})
    ledgers = [published or ledger((1, 1, "a"), (2, 2, "b"))]
    watches = {} if seen is None else {("s1", TOPIC): watch(*seen)}
    verdict.judge_deliveries(ledgers, watches)
    verdict.judge_values(ledgers, watches, {TOPIC: (2, 2)} if grid is None else grid, ["s1"])
    return verdict


def test_a_sound_end_is_passed() -> None:
    verdict = judged()

    assert verdict.passed
    assert (verdict.published, verdict.checks, verdict.tally.delivered) == (2, 3, 2)


@pytest.mark.parametrize(
    ("verdict", "promise", "what"),
    [
        (judged(grid={}), "P5", "the grid has no value"),
        (judged(grid={TOPIC: (1, 1)}), "P5", "the grid has value 1 version 1"),
        (judged(grid={TOPIC: (2, 3)}), "P5", "the grid has value 2 version 3"),
        (judged(seen=None), "P6", "nothing was ever received"),
        (judged(seen=()), "P6", "nothing was ever received"),
        (judged(seen=((1, 1, False),)), "P6", "ended at value 1 version 1 instead of value 2 version 2"),
        (judged(seen=((1, 1, False), (2, 2, False), (2, 2, False))), "P2", "was delivered twice"),
        (judged(published=ledger((1, 1, "a"), (2, 2, "a"))), "P5", "another publish's"),
        (judged(published=PublishLedger(TOPIC)), "P5", "nothing was published"),
    ],
)
def test_a_broken_end_is_found(verdict: Verdict, promise: str, what: str) -> None:
    assert not verdict.passed
    assert (promise, True) in [(violation.promise, what in violation.what) for violation in verdict.violations]


@pytest.mark.parametrize(("ledgers", "subscribers"), [([], ["s1"]), ([ledger((1, 1, "a"))], [])])
def test_comparing_nothing_is_no_pass(ledgers: list[PublishLedger], subscribers: list[str]) -> None:
    verdict = Verdict()

    verdict.judge_values(ledgers, {}, {TOPIC: (1, 1)}, subscribers)

    assert [violation.what for violation in verdict.violations] == ["nothing was compared, so nothing was shown"]


def test_recoveries_are_counted_by_rung_and_their_gaps_sorted() -> None:
    verdict = Verdict()

    verdict.judge_recoveries(
        [
            RecoverySeen(session="s1", outcome="reattached", node="n1", gap_seconds=0.3, lost=0),
            RecoverySeen(session="s2", outcome="reattached", node="n1", gap_seconds=0.1, lost=0),
            RecoverySeen(session="s1", outcome="failed_over", node="n2", gap_seconds=0.2, lost=0, replayed=True),
        ]
    )

    assert verdict.outcomes == {"reattached": 2, "failed_over": 1}
    assert verdict.replayed == 1
    assert verdict.gaps == {"reattached": [0.1, 0.3], "failed_over": [0.2]}
