"""The table of what one client can take is made from the settings, so that it cannot go stale."""

from __future__ import annotations

from gateway.settings import SETTINGS, LimitSettings
from scripts.reference.budgets import NO_LIMIT, budgets, budgets_table, largest_buffers, whose

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
        f"| one principal | {NO_LIMIT} | `limit_principal_sessions` |",
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
