"""Presence in the console: how many are in the trees that a destination marks, as it changes."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from gateway.client import Session
from tests.console.browser import console, sign_in
from tests.integration.admin.support import Pair
from tests.support.browser import page_of
from tests.support.nodes import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.thorough]


async def test_how_many_are_there_is_shown_with_the_destination(
    pair: Pair, browser: Browser, people: list[Session]
) -> None:
    said = {"kind": "value", "limits": {"presence": True}}
    await pair.asker.ask(pair.n1, "PUT", "/v1/destinations/rooms%2F*%2F**", json=said)
    await pair.asker.ask(pair.n1, "PUT", "/v1/destinations/plain%2F**", json={"kind": "value"})
    await eventually(lambda: pair.n2.gateway.node.destinations.table.has_presence)
    kept = [await session.subscribe(f"rooms/{number // 2}/chat") for number, session in enumerate(people)]
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])
        await page.get_by_role("link", name="Destinations").click()
        rows = page.locator("[role=option]")
        await rows.filter(has_text="rooms/*/**").click()
        trees = page.locator(".panel .trees")
        await expect(trees.get_by_role("heading")).to_have_text("Who is there: 3 in 2 trees")
        await expect(trees.locator("li")).to_have_text(["rooms/0 2", "rooms/1 1"])
        await people[0].close()
        await expect(trees.get_by_role("heading")).to_have_text("Who is there: 2 in 2 trees")
        await rows.filter(has_text="plain/**").click()
        await expect(page.locator(".panel .trees")).to_be_empty()
        assert watched.complaints == []
    assert len(kept) == len(people)
