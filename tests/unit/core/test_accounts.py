from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.pacing.accounts import HANDSHAKE_BURST, LOOKED_AT, AccountLimits, Accounts

LIMITS = AccountLimits(connections=3, handshakes=1.0)
BURST = int(HANDSHAKE_BURST)


def test_limits_know_whether_there_are_any() -> None:
    assert not AccountLimits().any
    assert LIMITS.any
    assert AccountLimits(topics=0.1).any


def test_a_key_has_one_account() -> None:
    accounts = Accounts[str](LIMITS, 10)
    account = accounts.of("a", 0.0)
    account.connections += 1
    assert accounts.of("a", 1.0) is account
    assert accounts.find("a") is account
    assert accounts.find("b") is None
    assert account.packets is None, "what is not limited costs nothing"


def test_the_table_forgets_who_was_asked_for_least_recently() -> None:
    accounts = Accounts[str](LIMITS, 2)
    first = accounts.of("a", 0.0)
    accounts.of("b", 0.0)
    accounts.of("a", 1.0)
    accounts.of("c", 2.0)
    assert accounts.find("a") is first
    assert accounts.find("b") is None
    assert len(accounts) == 2


def test_a_blank_account_is_forgotten_before_one_that_owes() -> None:
    accounts = Accounts[str](LIMITS, 2)
    owing = accounts.of("a", 0.0)
    assert owing.handshakes is not None
    owing.handshakes.charge(0.0, 100)
    accounts.of("b", 0.0)
    accounts.of("c", 0.0)
    assert accounts.find("a") is owing
    assert accounts.find("b") is None


def test_what_is_counted_is_never_forgotten_and_newcomers_share() -> None:
    accounts = Accounts[int](LIMITS, 2)
    for key in (1, 2):
        accounts.of(key, 0.0).connections += 1
    shared = accounts.of(3, 0.0)
    assert accounts.of(4, 0.0) is shared, "strangers in such numbers are limited together"
    assert accounts.of(1, 0.0) is not shared
    assert len(accounts) == 2


def test_busy_accounts_at_the_end_of_the_line_hide_nobody_who_can_be_forgotten() -> None:
    many = 3 * LOOKED_AT
    accounts = Accounts[int](LIMITS, many + 1)
    for key in range(many):
        accounts.of(key, 0.0).connections += 1
    accounts.of(many, 0.0)
    found = [accounts.of(1000 + each, 0.0) for each in range(4)]
    for account in found:
        account.connections += 1
    assert accounts.find(many) is None


@given(st.lists(st.integers(0, 500), max_size=2000))
def test_the_table_is_bounded_whoever_comes(keys: list[int]) -> None:
    accounts = Accounts[int](LIMITS, 20)
    for now, key in enumerate(keys):
        accounts.of(key, float(now))
    assert len(accounts) <= 20


def test_a_burst_of_handshakes_and_then_the_rate() -> None:
    bucket = Accounts[str](LIMITS, 2).of("a", 0.0).handshakes
    assert bucket is not None
    assert [bucket.take(0.0) for _ in range(BURST)] == [0] * BURST
    assert bucket.take(0.0) > 0
