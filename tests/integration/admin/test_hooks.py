"""Event hooks, by the admin API and the command line."""

from __future__ import annotations

from gateway.core.hooks.hook import HookName
from gateway.core.hooks.status import HookStatus, fingerprint
from tests.integration.admin.support import Pair
from tests.integration.admin.test_cli import Terminal, terminal

__all__ = ["terminal"]

CRM, AUDIT = HookName("crm"), HookName("audit")


async def known(pair: Pair) -> None:
    """Have two hooks known, one of which fails and the other is gone."""
    grid = pair.n1.gateway.node._context.grid
    held = await grid.hooks.hold(pair.n1.gateway.me, [CRM], lease=60)
    await grid.hooks.read(CRM, held[CRM].term, known=False, entries=1)
    failing = HookStatus(
        node="n1",
        url="https://crm.example",
        events=("session_closed", "session_expired"),
        failures=3,
        error="the receiver answered with status 500",
        failed=8.0,
        failing=5.0,
        attempt=9.0,
    )
    await grid.hooks.tell(CRM, failing.encode())
    await grid.hooks.tell(AUDIT, HookStatus(node="n2", delivered=7.0, suspended=fingerprint("x")).encode())


async def test_they_are_listed_at_every_node(pair: Pair) -> None:
    assert (await pair.asker.ask(pair.n1, "GET", "/v1/hooks", role="viewer")).body == {"items": []}
    await known(pair)
    audit, crm = (await pair.asker.ask(pair.n2, "GET", "/v1/hooks", role="viewer")).body["items"]
    assert (audit["name"], audit["state"], audit["node"], audit["delivered"]) == ("audit", "suspended", None, 7.0)
    assert crm == {
        "name": "crm",
        "url": "https://crm.example",
        "events": ["session_closed", "session_expired"],
        "state": "failing",
        "node": "n1",
        "behind": 0,
        "failures": 3,
        "error": "the receiver answered with status 500",
        "failed": 8.0,
        "delivered": None,
        "failing": 5.0,
        "attempt": 9.0,
    }


async def test_another_attempt_is_asked_for(pair: Pair) -> None:
    assert (await pair.asker.ask(pair.n1, "POST", "/v1/hooks/crm/retry")).kind == "hook-unknown"
    await known(pair)
    assert (await pair.asker.ask(pair.n1, "POST", "/v1/hooks/crm/retry", role="viewer")).status == 403
    assert (await pair.asker.ask(pair.n2, "POST", "/v1/hooks/crm/retry", role="operator")).status == 204
    assert set(await pair.n1.gateway.node._context.grid.hooks.asked()) == {CRM}


async def test_the_command_line(pair: Pair, terminal: Terminal) -> None:
    assert "There are no event hooks" in "".join((await terminal.type("hooks", "list"))[1:])
    await known(pair)
    shown = (await terminal.type("hooks", "list"))[1]
    assert "suspended" in shown
    assert "failing" in shown
    audit, crm = await terminal.lines("hooks", "list")
    assert (audit["name"], audit["url"], audit["events"]) == ("audit", "", [])
    assert (crm["name"], crm["url"]) == ("crm", "https://crm.example")
    assert crm["events"] == ["session_closed", "session_expired"]
    code, out, _ = await terminal.type("hooks", "retry", "crm")
    assert code == 0
    assert "within a few seconds" in out
    assert (await terminal.type("hooks", "retry", "nobody"))[0] != 0
