"""Event hooks in the console: looked at, and a receiver that is tried at once."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from tests.console.browser import console, sign_in
from tests.integration.admin.support import Pair
from tests.integration.admin.test_hooks import CRM, known
from tests.support.browser import page_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.thorough]


async def test_hooks_are_shown_and_a_receiver_is_tried_at_once(pair: Pair, browser: Browser) -> None:
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["operator"])
        await page.get_by_role("link", name="Hooks").click()
        await expect(page.locator(".empty")).to_have_text("There are no event hooks.")
        await known(pair)
        rows = page.locator("[role=option]")
        await expect(rows.filter(has_text="audit").locator(".badge.bad")).to_have_text("suspended")
        await expect(rows.filter(has_text="crm").locator(".badge.bad")).to_have_text("failing")
        await rows.filter(has_text="crm").click()
        facts = page.locator(".panel .facts")
        for text in ("https://crm.example", "session_closed, session_expired", "the receiver answered with status 500"):
            await expect(facts).to_contain_text(text)
        await page.get_by_role("button", name="Try now…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Try").click()
        await expect(dialog).to_have_count(0)
        assert set(await pair.n1.gateway.node._context.grid.hooks.asked()) == {CRM}
        assert watched.complaints == []


async def test_a_viewer_sees_hooks_and_has_none_tried(pair: Pair, browser: Browser) -> None:
    await known(pair)
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])
        await page.get_by_role("link", name="Hooks").click()
        await page.locator("[role=option]").filter(has_text="crm").click()
        await expect(page.locator(".panel .facts")).to_contain_text("https://crm.example")
        await expect(page.get_by_role("button", name="Try now…")).to_be_hidden()
        assert watched.complaints == []
