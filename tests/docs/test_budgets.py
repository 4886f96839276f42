"""The tables of what one client can take are made from settings and constants, so that they cannot go stale."""

from __future__ import annotations

from types import ModuleType

import pytest

from gateway.adapters.work_budget import WorkLimits
from gateway.settings import SETTINGS, LimitSettings
from scripts.reference.budgets import NO_LIMIT, budgets, budgets_table, largest_buffers, whose
from scripts.reference.fixed_budgets import FIXED_BUDGETS, fixed_budgets_table
from scripts.reference.pages import configuration_page

MIB = 1024**2


def test_every_limit_is_in_the_table_with_its_default() -> None:
    names = {each.name for each in budgets()}
    text = budgets_table()

    assert names >= {name for name in SETTINGS if name.startswith(("limit_address", "limit_principal", "rate_"))}
    assert names >= set(LimitSettings.__dataclass_fields__)
    assert "limit_exempt" not in names
    for line in (
        "|  | 2,000 packets per second | `rate_packets` |",
        "|  | 8 MiB | `limit_outbox_bytes` |",
        "| one address | 10,000 connections | `limit_address_connections` |",
        "| one principal | 25,000 sessions | `limit_principal_sessions` |",
        f"|  | {NO_LIMIT} | `limit_principal_selections` |",
        "| all clients of a node | 50,000 connections | `limit_connections` |",
        "| handshakes and time | 5 s | `handshake_timeout` |",
    ):
        assert line in text


def test_each_budget_belongs_to_somebody() -> None:
    owners = {each.name: whose(each) for each in budgets()}

    assert owners["rate_packets"] == "one session and its connection"
    assert owners["rate_node_packets"] == "all clients of a node"
    assert owners["limit_partition_topics"] == "all clients of the cluster"
    assert list(dict.fromkeys(owners.values())) == [
        "one session and its connection",
        "one address",
        "one principal",
        "all clients of a node",
        "all clients of the cluster",
    ]


def test_the_buffers_of_a_session_are_added_up() -> None:
    assert largest_buffers() == 64 * 1024 + MIB + 2 * MIB + 8 * MIB
    assert "| 11328 KiB |" in budgets_table()


@pytest.mark.parametrize(
    ("place", "module", "name"),
    [(place, *constant) for place, each in enumerate(FIXED_BUDGETS) for constant in each.constants],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_setting_says_is_made_from_the_constants(
    place: int, module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another value of a constant that a row names makes another row."""
    row = FIXED_BUDGETS[place]
    before = row.amount() + row.meaning()

    monkeypatch.setattr(module, name, _doubled(getattr(module, name)))

    assert row.amount() + row.meaning() != before


def _doubled(value: object) -> object:
    if isinstance(value, WorkLimits):
        return WorkLimits(2 * value.rate, 2 * value.burst, 2 * value.idle_rate, 2 * value.idle_burst)
    if isinstance(value, dict):
        return {key: 2 * each for key, each in value.items()}
    assert isinstance(value, int | float)
    return 2 * value


def test_what_no_setting_says_is_told_with_its_amounts() -> None:
    """Written out once, so that what the page says is looked at when a constant changes."""
    text = fixed_budgets_table()

    for line in (
        "| one connection with a session | 2 % of a core, 50 ms at once | Work of reading what it sends",
        "|  | 100 ms, then 0.1 % of a core | The same work without a message in between.",
        "|  | 5 at once, then one in 5 s | Requests `authenticate`.",
        "|  | 4,096 steps for each of both | What one subscribe or unsubscribe may take",
        "| one connection without a session | 1 % of a core, 10 ms at once |",
        "|  | 2 ms, and 50 % of the time, for those without | The share of strangers:",
        "| verification of secrets | 2 places of `static` |",
        "|  | 32 waiting for each place, for 2 s at most |",
        "| the admin port | 448 connections without a token, 64 with one |",
        "|  | 30 % of a core, 200 ms at once, 3 ms in a turn |",
    ):
        assert line in text


def test_what_no_setting_says_is_on_the_page() -> None:
    assert fixed_budgets_table() in configuration_page()
