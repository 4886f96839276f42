"""The demo page of `make up` in Chromium: one session, cut and killed three times, with every update."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import Page, expect

from gateway.local.demo_page.prices import SYMBOLS, price
from gateway.local.stack import Stack
from tests.support.browser import Watched, chromium, page_of
from tests.support.faults import eventually
from tests.support.stack import cluster

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy]

ENOUGH = 3
"""Updates of each price that come after a fault before it counts as survived."""


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with cluster(tmp_path, demo_page=True) as stack:
        yield stack


@pytest.fixture
async def watched(stack: Stack) -> AsyncIterator[Watched]:
    async with chromium() as browser, page_of(browser, permissions=["clipboard-read", "clipboard-write"]) as watched:
        await watched.page.goto(stack.demo_page_url)
        await expect(watched.page.locator("#state")).to_have_text("connected")
        yield watched


async def number(page: Page, place: str) -> int:
    return int(await page.locator(place).inner_text())


async def survives(page: Page, count: int, outcome: str) -> str:
    """Wait until one more recovery is listed, and updates come again; returns what is told of it."""
    await expect(page.locator("#recoveries li")).to_have_count(count)
    newest = page.locator("#recoveries li").first
    await expect(newest.locator(".badge")).to_have_text(outcome)
    await expect(page.locator("#state")).to_have_text("connected")
    enough = await number(page, "#received") + ENOUGH * len(SYMBOLS)

    async def came() -> bool:
        return await number(page, "#received") > enough

    await eventually(came, "updates come again")
    assert await number(page, "#missed") == 0
    assert await number(page, "#twice") == 0
    return await newest.locator(".told").inner_text()


@pytest.mark.promise("P1", "P2", "P6", "P12", "P13")
async def test_a_session_in_a_page_survives_cuts_and_kills_with_every_update(stack: Stack, watched: Watched) -> None:
    page = watched.page
    session = await page.locator("#session").inner_text()
    await expect(page.locator("#prices li")).to_have_count(len(SYMBOLS))

    await page.get_by_role("button", name="Cut the connection").click()
    assert "nothing lost" in await survives(page, 1, "reattached")

    await page.get_by_role("button", name="Cut it for 5 seconds").click()
    await expect(page.locator("#state")).to_have_text("recovering")
    await expect(page.get_by_role("button", name="Cut the connection")).to_be_disabled()
    assert "nothing lost" in await survives(page, 2, "reattached")

    first = await page.locator("#node").inner_text()
    await stack.kill_node(first)
    told = await survives(page, 3, "failed over")
    assert told.startswith(f"{first} did not answer, and n")
    assert "Every update that was missed follows" in told
    await expect(page.locator(f"[data-name={first}] .badge")).to_have_text("dead")
    await expect(page.locator("#again")).to_be_visible()
    await stack.start_node(first)
    await expect(page.locator("#again")).to_be_hidden()

    await stack.balanced()
    second = await page.locator("#node").inner_text()
    assert await stack.drain_node(second) == 0
    assert (await survives(page, 4, "handed over")).startswith(f"{second} gave the session to n")

    await stack.restart_haproxy()
    assert "nothing lost" in await survives(page, 5, "reattached")
    assert await page.locator("#session").inner_text() == session
    assert await number(page, "#left-out") == 0
    assert [each for each in watched.complaints if "WebSocket connection to" not in each] == []
    assert not any("token" in url or "secret" in url for url in watched.urls)


@pytest.mark.thorough
async def test_the_commands_beside_the_values_are_those_of_the_processes(stack: Stack, watched: Watched) -> None:
    page = watched.page
    node = await page.locator("#node").inner_text()
    place = page.locator(f"[data-name={node}]")
    command = f"kill -9 {stack.nodes[node].pid}"
    await expect(place).to_contain_text(command)
    await expect(place.locator(".badge")).to_have_text("serves you")
    await place.get_by_role("button", name=f"Copy {command}").click()
    assert await page.evaluate("navigator.clipboard.readText()") == command
    assert stack.balancer is not None
    await expect(page.locator("[data-name=haproxy]")).to_contain_text(f"kill -9 {stack.balancer.pid}")
    assert "demo-page" not in await page.locator("#processes").inner_text()
    for width in (1400, 390):
        await page.set_viewport_size({"width": width, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.thorough
async def test_the_page_would_notice_what_is_missing_and_what_comes_twice(watched: Watched) -> None:
    """Zeros that cannot be anything else would show nothing."""
    counts = await watched.page.evaluate(
        """async () => {
            const { Numbers } = await import("/page/numbers.js");
            const numbers = new Numbers();
            const take = (number, { run = "1", snapshot = false, folded = 0 } = {}) =>
                numbers.take({ topic: "a", value: { price: 1, number, run }, snapshot, folded });
            take(5); take(6); take(8);                      // 7 is missing
            take(8);                                        // twice
            take(11, { folded: 2 });                        // 9 and 10 left out, and said so
            take(15, { snapshot: true });                   // 12 to 14 likewise
            take(15, { snapshot: true });                   // a current value again is no update
            take(1, { run: "2" });                          // another run
            return [numbers.received, numbers.missed, numbers.twice, numbers.leftOut];
        }"""
    )
    assert counts == [8, 1, 1, 5]


@pytest.mark.thorough
async def test_the_page_answers_only_by_a_name_of_this_machine(stack: Stack) -> None:
    """Somebody's page elsewhere may have its own name lead to loopback, and would read what is here."""
    async with aiohttp.ClientSession() as http:
        for host, status in (("evil.example", 421), ("localhost", 200)):
            port = stack.demo_page_url.rstrip("/").rpartition(":")[2]
            headers = {"Host": f"{host}:{port}"}
            async with http.get(f"{stack.demo_page_url}stack.json", headers=headers) as answer:
                assert answer.status == status
        async with http.get(stack.demo_page_url) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'")


def test_a_price_stays_near_its_middle() -> None:
    prices = [price(100.0, number, 0) for number in range(500)]
    assert 96 < min(prices) < 99
    assert 101 < max(prices) < 104
