"""What the account finds in transactions that pass messages on: histories with and without each violation."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest

from tests.chaos.account.forgotten import Forgotten
from tests.chaos.account.messages import Messages, QueueLook
from tests.chaos.account.publishes import Entry, Lost, Snapshot
from tests.chaos.account.transactions import INPUT, OUTPUT, Commit, Ending, Look, Transactions
from tests.chaos.histories import promises

pytestmark = pytest.mark.promise("P16")

TOPIC = "c1/processor-0/s"
LOST = Forgotten(4.0, 30.0, kept=4.0)
"""The grid lost what was confirmed last before this."""
GENERATIONS = [(0.0, 1), (30.0, 2)]


def commit(count: int, at: float, ending: Ending = Ending.DONE) -> Commit:
    """A transaction passes the one input on, and publishes a count."""
    answered = inf if ending is Ending.UNKNOWN else at + 0.5
    return Commit("processor", {1: (TOPIC, count)}, at, answered, ending)


def judged(
    *commits: Commit,
    sent: int = 1,
    published: Sequence[int] = (1,),
    forgotten: Sequence[Forgotten] = (),
    held: Sequence[tuple[str, int]] = (),
    receipt: bool = True,
    until: float | None = None,
) -> tuple[Transactions, list[Lost]]:
    """One input was sent in the first second; this came of it, as seen at the end or before."""
    messages, account = Messages(), Transactions()
    messages.ask(1.0, INPUT, "sender")
    if receipt:
        messages.sent(1.5, 1, 7)
    account.commits += commits
    at = 40.0 if until is None else until
    output = QueueLook(at, OUTPUT, dict.fromkeys(range(sent), 1), held=held)
    log = [Entry(f"1-1-{count}", count, count) for count in published]
    account.looks.append(Look(at, at + 0.2, output, Snapshot(at, 2, {TOPIC: log}), is_final=until is None))
    lost = account.judge(messages, forgotten, GENERATIONS)
    return account, lost


@pytest.mark.parametrize(
    "account",
    [
        pytest.param(judged(commit(1, 2.0)), id="once"),
        pytest.param(judged(commit(1, 2.0, Ending.UNKNOWN)), id="once without an answer"),
        pytest.param(judged(commit(1, 2.0, Ending.REFUSED), commit(2, 3.0), published=[2]), id="at the second try"),
        pytest.param(judged(receipt=False, sent=0, published=[]), id="perhaps never sent"),
        pytest.param(
            judged(commit(1, 5.0), commit(2, 32.0), published=[1, 2], forgotten=[LOST]), id="an event was put back"
        ),
    ],
)
def test_what_is_as_it_should_be(account: tuple[Transactions, list[Lost]]) -> None:
    assert account[0].violations == []
    assert account[1] == []


@pytest.mark.parametrize(
    ("account", "expected"),
    [
        pytest.param(judged(commit(1, 2.0), sent=2), "passed on 2 times", id="twice in the output"),
        pytest.param(
            judged(commit(1, 2.0), commit(2, 3.0), published=[1, 2]), "published 2 times", id="twice in the topic"
        ),
        pytest.param(judged(commit(1, 2.0), published=[]), "0 times among the events", id="sent alone"),
        pytest.param(judged(commit(1, 2.0), sent=0), "0 times in the output", id="published alone"),
        pytest.param(judged(commit(1, 2.0), sent=0, published=[]), "passed on by nobody", id="neither"),
        pytest.param(judged(sent=0, published=[]), "passed on by nobody", id="an input is gone"),
        pytest.param(judged(commit(1, 2.0, Ending.REFUSED)), "a commit that was refused", id="refused and executed"),
        pytest.param(judged(commit(1, 2.0), held=[("s~3", 7)]), "held by s~3", id="left half done"),
        pytest.param(
            judged(commit(1, 2.0), published=[], forgotten=[Forgotten(9.0, 12.0, kept=9.0)]),
            "0 times among the events",
            id="a loss of later writes is no excuse",
        ),
    ],
)
def test_each_violation_is_found(account: tuple[Transactions, list[Lost]], expected: str) -> None:
    (violation,) = account[0].violations
    assert promises([violation]) == ["P16"]
    assert expected in str(violation)


def test_a_message_that_was_no_input() -> None:
    account = Transactions()
    account.looks.append(Look(40.0, 40.1, QueueLook(40.0, OUTPUT, {1: 9}), Snapshot(40.0, 1, {})))
    account.judge(Messages(), [], [])
    assert "no input" in str(account.violations)


def test_what_the_grid_lost_has_to_be_declared_to_who_was_promised_it_last() -> None:
    account, lost = judged(commit(1, 5.0), sent=0, published=[], forgotten=[LOST])
    assert account.violations == []
    assert lost == [Lost(OUTPUT, 1, 1, 5.5, "processor")]
    account, lost = judged(sent=0, published=[], forgotten=[Forgotten(1.0, 30.0, kept=1.0)])
    assert lost == [Lost(INPUT, 1, 1, 1.5, "sender")]


def test_what_is_forgotten_later_is_no_excuse_before() -> None:
    account, lost = judged(commit(1, 2.0), published=[], forgotten=[LOST], until=3.0)
    assert "0 times among the events" in str(account.violations)
    assert lost == []


def test_what_is_under_way_is_left_aside() -> None:
    for commits in ([commit(1, 2.8)], [commit(1, 3.5)], [], [commit(1, 2.0, Ending.REFUSED)]):
        account, _ = judged(*commits, sent=0, published=[], until=3.0)
        assert account.violations == []
    assert judged(commit(1, 2.0), sent=0, published=[], until=3.0)[0].violations


def test_a_run_whose_end_nobody_saw_is_not_judged() -> None:
    assert Transactions().judge(Messages(), [], []) == []
