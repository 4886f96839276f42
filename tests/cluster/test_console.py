"""The console in Chromium while a node is killed: find a session, watch it fail over, close it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from playwright.async_api import expect

from gateway.client import SessionClosed, connect
from tests.cluster.crowds import Figures
from tests.console.browser import sign_in
from tests.integration.admin.support import Admins
from tests.support.browser import chromium, page_of
from tests.support.stack import cluster
from tests.support.times import scaled, time_limit

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy]

CROWD = 40
"""Sessions besides the one that is looked for."""


async def test_a_session_is_found_watched_through_a_failover_and_closed(tmp_path: Path, figures: Figures) -> None:
    admins = Admins.make(tmp_path)
    async with (
        cluster(tmp_path / "stack", admin_tokens_file=admins.file, lease=scaled(3.0), lease_renew=scaled(1.0)) as stack,
        AsyncExitStack() as crowd,
        chromium() as browser,
        page_of(browser) as watched,
    ):
        for number in range(CROWD):
            await crowd.enter_async_context(
                connect(stack.url, principal=f"user-{number}", properties={"team": "rates"})
            )
        # Not at n1, from which the console comes: that node stays.
        wanted = await connect(stack.node_url("n2").replace("/v1/connect", ""), principal="alice")
        await wanted.close()
        urls = [stack.node_url("n2"), stack.node_url("n3")]
        wanted = await connect(urls, principal="alice", properties={"team": "fx", "desk": "7"})
        _held = await wanted.subscribe("prices/**")
        assert wanted.node == "n2"

        page = watched.page
        await sign_in(page, stack.admin_url("n1", "/console/"), admins.tokens["operator"])
        for node in stack.node_names:
            row = page.locator("tbody tr").filter(has=page.locator("th", has_text=node))
            await expect(row.locator(".badge")).to_have_text("ready")

        await page.get_by_role("link", name="Sessions").click()
        await page.get_by_label("Filter").fill("team is 'fx' and $principal is 'alice'")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("option")).to_have_count(1)
        await page.get_by_role("option").click()
        await expect(page.locator("#panel-title")).to_have_text(wanted.id)
        await expect(page.locator("#panel-node")).to_have_text("n2")
        await expect(page.locator(".panel")).to_contain_text("prices/**")

        await stack.kill_node("n2")
        await expect(page.locator("#panel-node")).to_have_text("n3")
        await expect(page.locator(".steps")).to_contain_text("failed over")
        await expect(page.get_by_role("option")).to_contain_text("n3")
        await expect(page.locator(".panel-state .badge")).to_have_text("connected")
        assert wanted.node == "n3"

        await page.get_by_role("link", name="Overview").click()
        row = page.locator("tbody tr").filter(has=page.locator("th", has_text="n2"))
        await expect(row.locator(".badge")).to_have_text("lease expired")
        label = await page.locator("svg.chart").get_attribute("aria-label")
        assert label is not None
        assert " 0 failed over" not in label

        await page.get_by_role("link", name="Sessions").click()
        await page.get_by_label("Filter").fill("$principal is 'alice'")
        await expect(page.get_by_role("option")).to_have_count(1)
        await page.get_by_role("option").click()
        await page.get_by_role("button", name="Close…").click()
        await page.get_by_role("dialog").get_by_role("button", name="Close session").click()
        async with time_limit(20):
            await wanted.wait_closed()
        assert isinstance(wanted.closed_reason, SessionClosed)
        await expect(page.locator(".panel-state .badge")).to_have_text("ended")
        assert [each for each in watched.complaints if "404" not in each] == []
        figures(f"found among {CROWD + 1} sessions, watched from n2 to {wanted.node}, closed")
