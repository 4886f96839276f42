"""Zones in the console: joined, looked at with their links, and left; joins removed."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Browser, expect

from gateway.core.zones.records import Member
from gateway.core.zones.routes import ClusterId
from gateway.ports import ZoneLinkReport
from tests.console.browser import console, sign_in
from tests.integration.admin.support import Pair
from tests.support.browser import page_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.thorough]

JOIN: dict[str, Any] = {
    "direction": "in",
    "selectors": ["prices/<b>"],
    "fingerprints": ["ab" * 32],
    "secret": "a secret of the join",
}


async def test_a_zone_is_joined_shown_with_its_links_and_left(pair: Pair, browser: Browser) -> None:
    node = pair.n1.gateway.node
    assert (await pair.asker.ask(pair.n1, "PUT", "/v1/joins/from-east", json=JOIN)).status == 200
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["administrator"])
        await page.get_by_role("link", name="Zones").click()
        await page.get_by_role("button", name="Join a zone…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Name or uid").fill("europe")
        await dialog.get_by_label("Secret").fill("a secret of the zone")
        await dialog.get_by_role("button", name="Join").click()
        await expect(dialog).to_have_count(0)
        rows = page.locator("[role=option]")
        await expect(rows.filter(has_text="europe")).to_contain_text("1 member")
        zone = node.zones.knowledge.table.zone
        assert zone is not None
        there = Member(zone=zone.uid, cluster=ClusterId("there"), name="south", urls=("wss://b.example:8300",))
        await node._context.grid.zones.merge([there], own=ClusterId("x"))
        up = ZoneLinkReport(name="there/0", remote="there", state="up", events=1234, behind=5, selectors=7)
        down = ZoneLinkReport(name="join", remote="from-east", direction="in", state="refused", detail="<i>no</i>")
        node.presence.zone_links = lambda: (up, down)
        await node.presence.tell()
        await expect(rows.filter(has_text="south")).to_contain_text("1 of 1 up")
        await rows.filter(has_text="south").click()
        facts = page.locator(".panel .facts")
        await expect(facts).to_contain_text("1,234")
        await expect(facts).to_contain_text("7 selectors")
        await rows.filter(has_text="from-east").click()
        await expect(facts).to_contain_text("refused: <i>no</i>")
        await expect(facts).to_contain_text("prices/<b>")
        await page.get_by_role("button", name="Remove…").click()
        await dialog.get_by_role("button", name="Remove").click()
        await expect(rows.filter(has_text="from-east")).to_have_count(0)
        await rows.filter(has_text="europe").click()
        await page.get_by_role("button", name="Leave…").click()
        await dialog.get_by_role("button", name="Leave").click()
        await expect(rows.filter(has_text="south")).to_have_count(0)
        await expect(rows.filter(has_text="europe")).to_contain_text("1 member")
        assert watched.complaints == []


async def test_a_viewer_sees_zones_and_cannot_change_them(pair: Pair, browser: Browser) -> None:
    assert (await pair.asker.ask(pair.n1, "PUT", "/v1/joins/from-east", json=JOIN)).status == 200
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])
        await page.get_by_role("link", name="Zones").click()
        await page.locator("[role=option]").filter(has_text="from-east").click()
        for name in ("Remove…", "Join a zone…"):
            await expect(page.get_by_role("button", name=name)).to_be_hidden()
        assert watched.complaints == []


async def test_the_picture_shows_what_passes_between_this_cluster_and_the_others(pair: Pair, browser: Browser) -> None:
    node = pair.n1.gateway.node
    asked = {"zone": "atlantic", "secret": "a secret of the zone"}
    assert (await pair.asker.ask(pair.n1, "PUT", "/v1/zone", json=asked)).status == 200
    assert (await pair.asker.ask(pair.n1, "PUT", "/v1/joins/from-east", json=JOIN)).status == 200
    zone = node.zones.knowledge.table.zone
    assert zone is not None
    there = [
        Member(zone=zone.uid, cluster=ClusterId(name), name=name, urls=(f"wss://{name}.example:8300",))
        for name in ("lisbon", "<b>azores</b>")
    ]
    await node._context.grid.zones.merge(there, own=ClusterId("x"))
    up: dict[str, Any] = {"remote": "lisbon", "state": "up"}
    told = [
        ZoneLinkReport(name="lisbon/0", events=1000, behind=5, unacknowledged=2, selectors=7, **up),
        ZoneLinkReport(name="from:lisbon/0", direction="in", events=50, selectors=3, **up),
        ZoneLinkReport(name="join:from-east/0", remote="from-east", direction="in", state="up", selectors=0),
        ZoneLinkReport(name="<b>azores</b>/0", remote="<b>azores</b>", state="down", detail="nobody answers"),
    ]
    node.presence.zone_links = lambda: tuple(told)
    await node.presence.tell()
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["administrator"])
        await page.get_by_role("link", name="Zones").click()
        picture = page.get_by_role("figure", name="Links of this cluster")
        await expect(picture.locator(".zone-here")).to_contain_text("in the zone atlantic")
        lisbon = picture.get_by_role("listitem").filter(has_text="lisbon")
        await expect(lisbon.locator(".zone-way.out")).to_contain_text("7 behind · 7 selectors wanted there")
        await expect(lisbon.locator(".zone-way.in")).to_contain_text("3 selectors wanted here")
        azores = picture.get_by_role("listitem").filter(has_text="<b>azores</b>")
        await expect(azores.locator(".zone-way.bad.out")).to_contain_text("down")
        await expect(azores.locator(".zone-way.bad.in")).to_contain_text("no link")
        east = picture.get_by_role("listitem").filter(has_text="from-east")
        await expect(east.locator(".zone-way")).to_contain_text("1 selector of the join")
        await expect(picture).not_to_contain_text("false")
        # Those that need somebody's attention come first.
        await expect(picture.get_by_role("listitem").first).to_contain_text("azores")
        told[0] = ZoneLinkReport(name="lisbon/0", events=9000, behind=1, selectors=7, **up)
        await node.presence.tell()
        await expect(lisbon.locator(".zone-way.out")).not_to_contain_text("\N{EN DASH} events/s")
        await lisbon.get_by_role("button").click()
        await expect(page.locator(".panel .facts")).to_contain_text("7 selectors")
        for width in (1400, 390):
            await page.set_viewport_size({"width": width, "height": 900})
            overflow = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
            assert not await page.evaluate(overflow)
        assert watched.complaints == []
