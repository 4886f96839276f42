"""Queues in the console: described, looked at, and their dead letters put back or dropped."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from gateway.core.destinations.destination import Origin, read_destination
from gateway.core.destinations.limits import limit_fields
from gateway.core.types import TopicPath
from tests.console.browser import console, sign_in
from tests.integration.admin.support import Pair
from tests.integration.admin.test_queues import JOBS, dead_letters
from tests.support.browser import page_of
from tests.support.times import time_limit

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.thorough]


async def test_a_queue_is_described_and_keeps_what_the_page_does_not_ask_for(pair: Pair, browser: Browser) -> None:
    node = pair.n1.gateway.node.destinations
    limits = {"path": "jobs/q", "kind": "queue", "exclusive": True, "deliveries": 3}
    await node.set(read_destination(limits, origin=Origin.ADMINISTRATOR))
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["administrator"])
        await page.get_by_role("link", name="Destinations").click()
        await page.locator("[role=option]").click()
        await page.get_by_role("button", name="Change…").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_label("Failed deliveries")).to_have_value("3")
        await dialog.get_by_label("Failed deliveries").fill("7")
        await dialog.get_by_role("button", name="Describe").click()
        await expect(dialog).to_have_count(0)
        found = node.table.find(TopicPath("jobs/q"))
        assert found is not None
        said = limit_fields(found.limits)
        assert (said["deliveries"], said["exclusive"]) == (7, True)
        assert watched.complaints == []


async def test_dead_letters_are_shown_put_back_and_dropped(pair: Pair, browser: Browser) -> None:
    async with dead_letters(pair, 3, {"frame": "<b>1</b>"}) as alice, page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["operator"])
        await page.get_by_role("link", name="Queues").click()
        row = page.locator("[role=option]")
        await expect(row).to_contain_text(JOBS)
        await expect(row.locator(".badge.bad")).to_have_text("3")
        await row.click()
        letters = page.locator(".letters li")
        await expect(letters).to_have_count(3)
        await expect(letters.first).to_contain_text("<b>1</b>")
        await expect(letters.first).to_contain_text("rejected by a consumer")
        dialog = page.get_by_role("dialog")
        await letters.first.get_by_role("button", name="Put back…").click()
        await dialog.get_by_role("button", name="Put back").click()
        await expect(letters).to_have_count(2)
        await expect(page.locator(".panel .facts dd").first).to_have_text("1")
        await page.get_by_role("button", name="Drop all of these…").click()
        await dialog.get_by_role("button", name="Drop").click()
        await expect(letters).to_have_count(0)
        async with time_limit(20):
            message = await anext(await alice.consume(JOBS, ack="each"))
        assert message.value == {"frame": "<b>1</b>"}
        await message.accept()
        assert watched.complaints == []


async def test_a_viewer_sees_dead_letters_and_cannot_mend_them(pair: Pair, browser: Browser) -> None:
    async with dead_letters(pair, 1), page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])
        await page.get_by_role("link", name="Queues").click()
        await page.locator("[role=option]").click()
        await expect(page.locator(".letters li")).to_have_count(1)
        for name in ("Put back…", "Drop…", "Put all of these back…", "Drop all of these…"):
            await expect(page.get_by_role("button", name=name)).to_be_hidden()
        assert watched.complaints == []
