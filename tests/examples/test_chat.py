"""The chat in Chromium: two people, one of whom loses the node in the middle of a conversation."""

from __future__ import annotations

import re
from typing import Final

import pytest
from playwright.async_api import Browser, Page, expect

from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import TopicPath
from tests.examples.conftest import Serving
from tests.integration.admin.support import Pair
from tests.support.browser import Watched, page_of
from tests.support.nodes import eventually

MESSAGES: Final = "#messages li:not(.told):not(.unsent)"


async def keep_history(pair: Pair) -> None:
    """What README.md has administrators say."""
    kept = Destination(selector=parse_selector("chat/**"), limits=HistoryLimits(), origin=Origin.ADMINISTRATOR)
    await pair.n1.gateway.node.destinations.set(kept)
    tables = [node.gateway.node.destinations.table for node in (pair.n1, pair.n2)]
    await eventually(lambda: all(table.history(TopicPath("chat/lobby/alice")) is not None for table in tables))


async def enter(watched: Watched, origin: str, name: str) -> Page:
    page = watched.page
    await page.goto(f"{origin}/chat/")
    await page.get_by_label("Name").fill(name)
    await page.get_by_role("button", name="Enter").click()
    await expect(page.locator("#state")).to_have_text("connected, in lobby")
    return page


async def say(page: Page, text: str) -> None:
    await page.get_by_role("textbox", name="Message").fill(text)
    await page.get_by_role("button", name="Send").click()


@pytest.mark.promise("P2", "P14")
async def test_everybody_has_every_message_once_and_in_order_through_the_death_of_a_node(
    pair: Pair, browser: Browser, serving: Serving
) -> None:
    await keep_history(pair)
    async with (
        serving(pair.n1.url, pair.n2.url) as first,
        serving(pair.n2.url, pair.n1.url) as second,
        page_of(browser) as one,
        page_of(browser, viewport={"width": 390, "height": 844}) as other,
        page_of(browser) as third,
    ):
        alice, bob = await enter(one, first, "alice"), await enter(other, second, "bob")
        await say(alice, "hello")
        await expect(bob.locator(MESSAGES)).to_have_text(["alicehello"])
        await say(bob, "<b>hi</b>")
        await expect(alice.locator(MESSAGES)).to_have_text(["alicehello", "bob<b>hi</b>"])
        assert [*one.complaints, *other.complaints] == []
        assert await bob.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0

        await pair.n1.gateway.close()
        await say(alice, "one")
        await say(bob, "two")
        await expect(alice.locator("#messages .told")).to_have_text([re.compile("^Back at n2")])
        await expect(alice.locator(MESSAGES)).to_have_count(4)
        spoken = await alice.locator(MESSAGES).all_inner_texts()
        assert sorted(spoken[2:]) == ["aliceone", "bobtwo"]
        await expect(alice.locator("#messages .unsent")).to_have_count(0)
        # The order is that of the grid: the same for those who were there, and for somebody who comes later.
        await expect(bob.locator(MESSAGES)).to_have_text(spoken)
        carol = await enter(third, second, "carol")
        await expect(carol.locator(MESSAGES)).to_have_text(spoken)
        for each in (one, other, third):
            assert not any("alice" in url for url in each.urls)
