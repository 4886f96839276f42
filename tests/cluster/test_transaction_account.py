"""What the account of ``transaction_kills`` takes for declared, and what it does not (P2, P16)."""

from __future__ import annotations

from collections import Counter
from math import inf

import pytest

from tests.chaos.account.forgotten import Forgotten
from tests.cluster.transaction_kills import Account, Call, Calls

LOST = Forgotten(10.0, 20.0, kept=10.0)


def account(*, sent: Counter[int], published: Counter[int], commit: float = 5.0, told: float = inf) -> Account:
    """One input was sent in the first second, or in the eleventh if it is in no output, and its commit confirmed."""
    calls = Calls()
    calls.sends[0] = Call(1.0, 1.5) if sent or published else Call(11.0, 11.5)
    calls.commits[0].append(Call(commit, commit + 0.5))
    calls.told += [told] if told < inf else []
    return Account(calls, sent, published, forgotten=[LOST])


ONCE = Counter([0])
TWICE = Counter([0, 0])


@pytest.mark.promise("P16")
def test_each_input_is_in_both_outputs_once() -> None:
    assert account(sent=ONCE, published=ONCE).complaints(1) == []
    assert "missing in the topic" in str(account(sent=ONCE, published=Counter()).complaints(1))
    assert "missing in the queue" in str(account(sent=Counter(), published=ONCE).complaints(1))
    assert "there twice in the queue" in str(account(sent=TWICE, published=ONCE, commit=12.0).complaints(1))


@pytest.mark.promise("P16")
def test_an_event_is_there_twice_only_if_its_commit_may_be_lost() -> None:
    assert account(sent=ONCE, published=TWICE, commit=12.0).complaints(1) == []
    assert "there twice in the topic" in str(account(sent=ONCE, published=TWICE).complaints(1))


@pytest.mark.promise("P2")
def test_an_input_that_is_lost_has_to_be_declared() -> None:
    assert account(sent=Counter(), published=Counter(), told=15.0).complaints(1) == []
    assert "was not told" in str(account(sent=Counter(), published=Counter()).complaints(1))
    assert "was not told" in str(account(sent=Counter(), published=Counter(), told=2.0).complaints(1))
