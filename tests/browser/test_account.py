"""The account by itself: records and logs written by hand, each with one thing wrong."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import pytest

from gateway.local.checker import Violation
from tests.browser.account import (
    DeclaredLoss,
    Permitted,
    Publishes,
    Receipt,
    judge_behaviour,
    judge_publishes,
    judge_secrecy,
    judge_sessions,
    judge_updates,
    publishes_of,
)
from tests.browser.record import Life, Records, life_of
from tests.cluster.grid_reader import LogEntry

Happened: TypeAlias = tuple[str, dict[str, Any]]

LOG: Final = {"t": [LogEntry(f"e{number}", number, number) for number in range(1, 10)]}
GONE: Final[Happened] = ("pagehide", {"persisted": False})


def update(number: int, **differing: Any) -> Happened:
    """An update as it should be, but for what is said."""
    facts = {"stream": "s **", "topic": "t", "version": number, "value": number, "event": f"e{number}"}
    return "update", {**facts, "snapshot": False, "folded": 0, **differing}


def opened(session: str = "s", **differing: Any) -> Happened:
    return "opened", {"session": session, "principal": "tab", "replicated": True, **differing}


def ended(name: str, session: str = "s", code: str | None = None, message: str = "") -> Happened:
    return "ended", {"session": session, "name": name, "code": code, "message": message}


def updates(*happened: Happened) -> list[str]:
    return [str(each) for each in judge_updates([life_of("tab", happened)], LOG)]


def sessions(*lives: Life, permitted: tuple[Permitted, ...] = ()) -> list[str]:
    return [str(each) for each in judge_sessions(lives, principals={"tab": "tab"}, permitted=permitted)]


# --- Updates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "happened",
    [
        [update(1), update(2), update(3)],
        [update(4, snapshot=True), update(5)],
        [update(1), update(5, snapshot=True)],
        [update(1), update(1, snapshot=True), update(2)],
        [update(1), update(5, folded=3)],
        [update(1), update(2, stream="s t", snapshot=True), update(2)],
    ],
    ids=["contiguous", "from-a-snapshot", "skipped-by-a-snapshot", "snapshot-again", "folded", "two-streams"],
)
def test_what_is_allowed(happened: list[Happened]) -> None:
    assert updates(*happened) == []


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        (
            [update(1), update(3)],
            "P2: tab, s ** on t: 1 updates are missing between version 1 and 3, 0 of them declared",
        ),
        ([update(1), update(5, folded=2)], "P2: tab, s ** on t: 3 updates are missing"),
        ([update(1), update(3, folded=2)], "P2: tab, s ** on t: version 3 says that it stands for 2 more"),
        ([update(2), update(1)], "P6: tab, s ** on t: went back from version 2 to 1"),
        ([update(2), update(1, snapshot=True)], "P6: tab, s ** on t: went back from version 2 to 1"),
        ([update(2), update(2)], "P2: tab, s ** on t: version 2 was delivered twice"),
        ([update(1), update(77)], "P6: tab, s ** on t: version 77 with value 77 was never published"),
        ([update(2, value=3)], "P6: tab, s ** on t: version 2 with value 3, event e2, but the grid has"),
        ([update(2, event="e3")], "P6: tab, s ** on t: version 2 with value 2, event e3, but the grid has"),
    ],
)
def test_what_is_not(happened: list[Happened], expected: str) -> None:
    assert [each for each in updates(*happened) if each.startswith(expected)], updates(*happened)


def test_two_swapped_updates_are_found_once() -> None:
    """The newest stays what the next one is compared with."""
    assert len(updates(update(1), update(3, folded=1), update(2), update(4))) == 1


def test_versions_go_on_over_a_reload() -> None:
    first = life_of("tab", [update(1), update(2), update(3), GONE], id="first")
    good = life_of("tab", [update(3, snapshot=True)], id="second", at=10)
    bad = life_of("tab", [update(2, snapshot=True)], id="second", at=10)
    assert judge_updates([first, good], LOG) == []
    [violation] = judge_updates([first, bad], LOG)
    assert str(violation) == "P6: tab, s ** on t: version 2 after a reload, 3 before"


def test_a_page_that_lives_on_beside_its_duplicate_is_no_measure_for_it() -> None:
    first = life_of("tab", [update(1), *[update(number) for number in range(2, 8)]], id="first")
    copy = life_of("tab", [update(3, snapshot=True)], id="copy", at=3)
    assert judge_updates([first, copy], LOG) == []


def test_where_the_grid_declared_a_loss_its_log_is_no_measure() -> None:
    life = life_of("tab", [update(1), update(12)])
    assert judge_updates([life], LOG, losses=[DeclaredLoss(2.0, 3.0)]) == [
        Violation("P2", "tab, s ** on t: 8 updates are missing between version 1 and 12, 0 of them declared")
    ], "what the log has must have come all the same"
    snapshot = life_of("tab", [update(1), update(12, snapshot=True)])
    assert judge_updates([snapshot], LOG, losses=[DeclaredLoss(2.0, 3.0)]) == []
    assert judge_updates([snapshot], LOG, losses=[DeclaredLoss(2.5, 3.0)]), "it was seen before"


# --- Publishes --------------------------------------------------------------------------------------------------------


def publishes(ledger: Publishes, *entries: LogEntry, losses: tuple[DeclaredLoss, ...] = ()) -> list[str]:
    return [str(each) for each in judge_publishes([ledger], {ledger.topic: entries}, losses=losses)]


ENTRIES: Final = LOG["t"]


def test_acknowledged_publishes_are_in_the_grid_once() -> None:
    receipts = {1: Receipt("e1", 1, 1.0), 2: Receipt("", 0, 2.0), 3: Receipt("e3", 3, 3.0)}
    assert publishes(Publishes("t", 4, receipts), *ENTRIES[:3]) == []
    assert publishes(Publishes("t", 4, receipts), *ENTRIES[:4]) == [], "an unanswered one may be there"
    assert publishes(Publishes("t", 3, receipts), ENTRIES[0], ENTRIES[2]) == [
        "P5: value 2 on t was acknowledged and is not in the grid"
    ]
    for losses, violations in (((DeclaredLoss(1.5, 2.5),), 0), ((DeclaredLoss(2.5, 3.5),), 1)):
        assert len(publishes(Publishes("t", 3, receipts), ENTRIES[0], ENTRIES[2], losses=losses)) == violations
    other = {2: Receipt("e9", 9, 2.0)}
    assert publishes(Publishes("t", 3, receipts | other), *ENTRIES[:3])[0].startswith(
        "P5: the receipt of value 2 on t is"
    )


def test_what_nobody_asked_for_is_not_in_the_grid() -> None:
    twice = LogEntry("e3", 3, 2)
    assert publishes(Publishes("t", 2), *ENTRIES[:2], twice) == ["P5: the grid has on t 2 times value 2"]
    assert publishes(Publishes("t", 1), *ENTRIES[:2]) == ["P5: the grid has on t value 2, for which nobody asked"]
    assert publishes(Publishes("t", 1, open_ended=True), *ENTRIES[:2]) == []
    assert publishes(Publishes("t", 2, refused={2}), *ENTRIES[:2]) == [
        "P5: the grid has on t value 2, which was refused"
    ]
    swapped = (LogEntry("e1", 1, 2), LogEntry("e2", 2, 1))
    assert publishes(Publishes("t", 2), *swapped) == ["P5: the grid has on t value 1 after value 2"]


def test_publishes_are_read_from_the_record() -> None:
    happened: list[Happened] = [
        *(("publish", {"topic": "t", "value": value}) for value in (1, 2, 3, 4)),
        ("receipt", {"topic": "t", "value": 1, "event": "e1", "version": 1}),
        ("refusal", {"topic": "t", "value": 2, "name": "Forbidden", "code": "forbidden"}),
        ("refusal", {"topic": "t", "value": 3, "name": "SessionExpired", "code": None}),
        ("refusal", {"topic": "t", "value": 4, "name": "RequestFailed", "code": "internal"}),
    ]
    [ledger] = publishes_of([life_of("tab", happened)])
    assert ledger == Publishes("t", 4, {1: Receipt("e1", 1, 5.0)}, {2}, open_ended=True)
    [ledger] = publishes_of([life_of("tab", [*happened, GONE])])
    assert not ledger.open_ended


# --- Sessions ---------------------------------------------------------------------------------------------------------


def test_a_session_is_kept_over_a_reload() -> None:
    first = life_of("tab", [opened(), GONE])
    assert sessions(first, life_of("tab", [opened()], id="second", at=10)) == []
    assert sessions(first, life_of("tab", [opened("other")], id="second", at=10)) == [
        "P7: tab: session s was left for other"
    ]


def test_a_session_ends_with_its_window_and_must() -> None:
    life = life_of("tab", [opened(), ended("SessionExpired", code="session_expired"), opened("other")])
    assert sessions(life, permitted=(Permitted("s", 2.0),)) == []
    assert sessions(life, permitted=(Permitted("s", 2.5),))[0].startswith(
        "P7: tab: session s ended with SessionExpired"
    )
    kept = life_of("tab", [opened()])
    assert sessions(kept, permitted=(Permitted("s", 0.0),)) == ["P7: session s was to end with its window and did not"]
    again = life_of("tab", [opened(), ended("SessionExpired"), opened()])
    assert sessions(again, permitted=(Permitted("s", 0.0),)) == ["P7: tab: session s was over, and is resumed"]


def test_a_superseded_page_is_right_only_if_another_one_has_its_session() -> None:
    told = ended("SessionRefused", code="superseded")
    first = life_of("tab", [opened(), told])
    copy = life_of("tab", [opened(), GONE], id="copy", at=2)
    assert sessions(first, copy) == []
    assert sessions(first)[0].startswith("P7: tab: session s ended with SessionRefused")


def test_what_recoveries_and_welcomes_say() -> None:
    def recovery(outcome: str, lost: int | None) -> Happened:
        return "recovery", {"outcome": outcome, "lost": lost}

    assert sessions(life_of("tab", [opened(), recovery("reattached", 0), recovery("failed_over", None)])) == []
    assert sessions(life_of("tab", [opened(), recovery("reattached", 1)])) == [
        "P2: tab: reattached, and yet 1 packets are lost"
    ]
    assert sessions(life_of("tab", [opened(), recovery("hoped", 0)]))[0].startswith("P2: tab: recovered by hoped")
    assert sessions(life_of("tab", [opened(principal="mallory")])) == ["P1: tab: session s is of mallory"]
    assert sessions(life_of("tab", [opened(replicated=False)])) == ["P1: tab: session s does not outlive its node"]


# --- Behaviour and secrets --------------------------------------------------------------------------------------------


def test_errors_that_nobody_caught() -> None:
    life = life_of("tab", [("error", {"where": "uncaught", "name": "TypeError", "message": "x is undefined"})])
    found = judge_behaviour([life], {"tab": ["error: boom"]})
    assert list(map(str, found)) == [
        "C1: tab: uncaught: TypeError: x is undefined",
        "C1: tab: the browser reports error: boom",
    ]


def test_secrets_in_wrong_places() -> None:
    places = {"a URL": ["ws://gateway/?token=abc"], "a log": ["nothing", "pass=word"], "the console": ["fine"]}
    found = judge_secrecy(["abc"], ["word"], places)
    assert list(map(str, found)) == ["P8: a token is in a URL", "P8: a secret is in a log"]


# --- Records ----------------------------------------------------------------------------------------------------------


def test_entries_are_taken_once_and_gaps_are_noticed() -> None:
    def wire(*numbers: int) -> dict[str, Any]:
        return {"life": "l", "tab": "tab", "entries": [{"n": number, "at": 5000, "kind": "k"} for number in numbers]}

    records = Records()
    life = records.take(wire(1, 2))
    records.take(wire(2, 3))
    assert [entry.number for entry in life.entries] == [1, 2, 3]
    assert life.entries[0].at == 5.0
    with pytest.raises(AssertionError, match="entries 4 to 4 of a record are missing"):
        records.take(wire(5))
