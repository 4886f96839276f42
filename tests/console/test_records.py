"""What the lists of records have in common: a renewed panel leaves the keyboard alone, and a failure is no emptiness.

Tried in the page itself, with an admin API that the test has in its hands.
"""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.thorough]

SHOW = """async ([view, answers]) => {
    const module = await import(`./views/${view}.js`);
    const name = view[0].toUpperCase() + view.slice(1);
    window.world = { answers, problem: null };
    const ask = (what) => async () => {
        if (world.problem !== null) throw new Error(world.problem);
        return { items: [], cursor: null, ...structuredClone(world.answers[what]) };
    };
    const api = new Proxy({}, { get: (_, what) => ask(what) });
    const live = new EventTarget(), rights = { guard() {} };
    window.shown = new module[name]({ api, live, rights, go() {} });
    document.getElementById("main").replaceChildren(shown.element);
    shown.start([]);
}"""

REVOCATION = {"kind": "principal", "value": "mallory", "reason": "", "made": 1_700_000_000, "until": None}
DESTINATION = {
    "selector": "log/**",
    "kind": "history",
    "limits": {"age": 5400, "count": 12},
    "origin": "administrator",
    "made": 1_700_000_000,
    "in_force": True,
}
LINK = {
    "node": "n1",
    "name": "l/0",
    "direction": "out",
    "state": "up",
    "detail": "",
    "since": 1_700_000_000,
    "events": 5,
    "bytes": 1,
    "behind": 0,
    "unacknowledged": 0,
    "duplicates": 0,
    "selectors": 2,
}
ZONES: dict[str, Any] = {
    "zones": {"items": [{"uid": "z", "name": "europe", "current": True, "active": True, "members": 2, "made": 1}]},
    "zoneMembers": {
        "items": [
            {"cluster": "here", "name": "north", "here": True, "links": []},
            {"cluster": "there", "name": "south", "here": False, "links": [LINK]},
        ]
    },
}
HOOK = {
    "name": "crm",
    "url": "https://crm.example",
    "events": [],
    "state": "delivering",
    "node": "n1",
    "behind": 0,
    "failures": 0,
    "error": "",
    "failed": None,
    "delivered": None,
    "failing": None,
    "attempt": None,
}

VIEWS = ("revocations", "destinations", "queues", "zones", "hooks", "sessions")


async def show(page: Page, view: str, answers: dict[str, Any]) -> None:
    """Show a view whose API says this; what is not among the answers has no items."""
    await page.evaluate(SHOW, [view, answers])


async def answer(page: Page, what: str, *items: dict[str, Any]) -> None:
    """From now on the API says this; the view looks again."""
    await page.evaluate("([what, items]) => { world.answers[what] = { items }; }", [what, items])
    await page.evaluate("shown.load()")


@pytest.mark.parametrize(
    ("view", "before", "after", "told"),
    [
        ("destinations", DESTINATION, DESTINATION | {"limits": {"age": 7200, "count": 13}}, "13"),
        ("destinations", DESTINATION, DESTINATION | {"kind": "value", "limits": {}}, "value"),
        ("hooks", HOOK, HOOK | {"state": "failing"}, "failing"),
        ("revocations", REVOCATION, REVOCATION | {"reason": "case 2"}, "case 2"),
    ],
    ids=["limits", "kind", "state", "reason"],
)
async def test_a_panel_is_renewed_and_the_keyboard_stays_where_it_is(
    page: Page, view: str, before: dict[str, Any], after: dict[str, Any], told: str
) -> None:
    await show(page, view, {view: {"items": [before]}})
    await page.locator("[role=option]").click()
    await expect(page.locator("#panel-title")).to_be_focused()
    search = page.locator(".view .search input")
    await search.focus()
    await answer(page, view, after)
    await expect(page.locator(".panel .facts")).to_contain_text(told)
    await expect(search).to_be_focused()


async def test_links_that_change_all_the_time_leave_the_keyboard_alone(page: Page) -> None:
    await show(page, "zones", ZONES)
    await expect(page.locator(".view > [role=status]")).to_have_text("1 zone, 2 members, 0 joins")
    await page.locator("[role=option]").filter(has_text="south").click()
    facts = page.locator(".panel .facts")
    close = page.get_by_role("button", name="Close this panel")
    await close.focus()
    here, south = ZONES["zoneMembers"]["items"]
    await answer(page, "zoneMembers", here, south | {"links": [LINK | {"events": 77}]})
    await expect(facts).to_contain_text("77")
    await expect(close).to_be_focused()
    # Another link has other facts.
    await answer(page, "zoneMembers", here, south | {"links": [LINK, LINK | {"node": "n2", "events": 88}]})
    await expect(facts).to_contain_text("88")
    await expect(close).to_be_focused()
    await page.locator("#zone-filter").fill("south")
    await expect(page.locator(".view > [role=status]")).to_have_text("0 zones, 1 member, 0 joins, of 3 in all")


async def test_a_destination_is_changed_from_what_it_is_by_now(page: Page) -> None:
    await show(page, "destinations", {"destinations": {"items": [DESTINATION]}})
    await expect(page.locator("[role=option]")).to_contain_text("age 90 min")
    await page.locator("[role=option]").click()
    await answer(page, "destinations", DESTINATION | {"limits": {"age": 7200, "count": 13}})
    await expect(page.locator("[role=option]")).to_contain_text("age 2 h")
    await page.get_by_role("button", name="Change…").click()
    await expect(page.get_by_label("Most events of one topic")).to_have_value("13")


async def test_times_are_told_as_they_were_said(page: Page) -> None:
    limits = {"age": 3661, "expires": 1800, "ack_within": 0, "dead_age": 86400}
    await show(page, "destinations", {"destinations": {"items": [DESTINATION | {"limits": limits}]}})
    told = "age 3661 s, expires 30 min, ack_within 0 s, dead_age 24 h"
    await expect(page.locator("[role=option]")).to_contain_text(told)


@pytest.mark.parametrize("view", VIEWS)
async def test_a_question_without_an_answer_does_not_show_an_empty_cluster(page: Page, view: str) -> None:
    await show(page, view, {})
    empty, summary = page.locator(".empty"), page.locator(".view > [role=status]")
    await expect(empty).not_to_be_empty()
    said = await summary.inner_text()
    assert said
    await page.evaluate("world.problem = 'the grid is unreachable'")
    await page.get_by_role("button", name="Refresh").click()
    await expect(page.get_by_role("alert")).to_have_text("the grid is unreachable")
    await expect(empty).to_be_empty()
    await expect(summary).to_be_empty()
    await page.evaluate("world.problem = null")
    await page.get_by_role("button", name="Refresh").click()
    await expect(summary).to_have_text(said)
    await expect(page.get_by_role("alert")).to_be_empty()


async def test_what_was_known_stays_beside_a_problem(page: Page) -> None:
    await show(page, "revocations", {"revocations": {"items": [REVOCATION]}})
    await page.locator("[role=option]").click()
    await page.evaluate("world.problem = 'the grid is unreachable'")
    await page.get_by_role("button", name="Refresh").click()
    await expect(page.get_by_role("alert")).to_have_text("the grid is unreachable")
    await expect(page.locator("[role=option]")).to_have_count(1)
    await expect(page.locator(".view > [role=status]")).to_have_text("1 revocation")
    await expect(page.locator(".panel")).to_have_count(1)
