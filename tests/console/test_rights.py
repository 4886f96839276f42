"""Who is blocked, as the console shows and changes it; and that it offers what its token permits at this moment."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from gateway.client import Session, connect
from gateway.core.destinations.destination import Origin, read_destination
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.policy.revocations import RevocationKind
from gateway.core.policy.system_roles import CONSOLE
from gateway.core.types import TopicPath
from gateway.settings.admin_tokens import tokens_line
from tests.console.browser import console, sign_in, tab_until
from tests.integration.admin.support import Admins, Pair
from tests.support.browser import page_of
from tests.support.nodes import eventually, running_node
from tests.support.times import time_limit

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.thorough]

POLICY = "[roles.viewer]\nadmin = {admin}\n"


def give(pair: Pair, role: str, *, to: str) -> None:
    """Let the token of one role have another one, at both nodes."""
    roles = {each: each for each in pair.admins.tokens} | {to: role}
    lines = [tokens_line(f"the-{each}", frozenset({roles[each]}), token) for each, token in pair.admins.tokens.items()]
    pair.admins.file.write_text("\n".join(lines))
    for node in (pair.n1, pair.n2):
        node.gateway.reload()


async def test_a_principal_is_blocked_and_unblocked(pair: Pair, browser: Browser, people: list[Session]) -> None:
    """By keyboard alone; the name holds what a URL must not."""
    mallory = await connect(pair.n2.url, principal="mal/lo ry?")
    async with page_of(browser) as watched:
        page, key = watched.page, watched.page.keyboard
        await sign_in(page, console(pair), pair.admins.tokens["operator"])
        await key.press("4")
        await expect(page.locator(".view > [role=status]")).to_have_text("Nothing is blocked.")
        await tab_until(page, "textContent", "Revoke…")
        await key.press("Enter")
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_text("Every session of the principal ends")).to_be_visible()
        assert await page.evaluate("document.activeElement.id") == "revoke-kind"
        await key.press("Tab")
        await key.type("mal/lo ry?")
        await key.press("Tab")
        await key.press("ArrowDown")
        await key.press("Tab")
        await key.type("ticket 4711")
        assert mallory.state == "connected"
        await key.press("Enter")
        async with time_limit(10):
            await mallory.wait_closed()
        [made] = pair.n1.gateway.node.revocations.page(limit=10).revocations
        assert (made.kind, made.value, made.reason) == (RevocationKind.PRINCIPAL, "mal/lo ry?", "ticket 4711")
        assert made.until is not None
        assert made.until - made.made == pytest.approx(3600, abs=5)
        await expect(page.locator("[role=option]")).to_contain_text("mal/lo ry?")
        assert [each.state for each in people] == ["connected"] * 3

        await tab_until(page, "role", "listbox")
        await key.press("Enter")
        await expect(page.locator(".panel")).to_contain_text("ticket 4711")
        assert await page.evaluate("document.activeElement.id") == "panel-title"
        await tab_until(page, "textContent", "Unblock…")
        await key.press("Enter")
        await expect(dialog).to_contain_text("is unblocked")
        await key.press("Enter")
        await expect(page.locator(".view > [role=status]")).to_have_text("Nothing is blocked.")
        await expect(page.locator(".panel")).to_have_count(0)
        await eventually(lambda: not pair.n2.gateway.node.revocations.page(limit=10).revocations)
        async with connect(pair.n2.url, principal="mal/lo ry?"):
            pass
        assert watched.complaints == []


async def test_revocations_of_others_appear_and_are_filtered(pair: Pair, browser: Browser) -> None:
    revocations = pair.n2.gateway.node.revocations
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])
        await page.get_by_role("link", name="Revocations").click()
        for value in ("alice", "<b>bob</b>"):
            await revocations.revoke(RevocationKind.PRINCIPAL, value, reason=f"the case of {value}")
        await expect(page.locator("[role=option]")).to_have_count(2)
        await page.keyboard.press("/")
        await page.keyboard.type("CASE OF <B>BOB")
        await expect(page.locator("[role=option]")).to_have_count(1)
        await expect(page.locator(".view > [role=status]")).to_have_text("1 of 2 revocations")
        await page.locator("[role=option]").click()
        await expect(page.locator(".panel")).to_contain_text("the case of <b>bob</b>")
        await expect(page.get_by_role("button", name="Unblock…")).to_be_hidden()
        await expect(page.get_by_role("button", name="Revoke…")).to_be_hidden()
        assert watched.complaints == []


async def test_destinations_are_described_changed_and_removed(pair: Pair, browser: Browser) -> None:
    table = pair.n1.gateway.node.destinations.table
    await pair.n1.gateway.node.destinations.apply_file(
        [read_destination({"selector": "log/<b>/**", "kind": "value"}, origin=Origin.FILE)]
    )
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["administrator"])
        await page.get_by_role("link", name="Destinations").click()
        rows = page.locator("[role=option]")
        await expect(rows).to_contain_text("log/<b>/**")
        await rows.click()
        await expect(page.get_by_role("button", name="Remove…")).to_have_count(0)
        await page.get_by_role("button", name="Describe…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Selector").fill("log/**")
        await dialog.get_by_label("Most events of one topic").fill("12")
        await dialog.get_by_label("Hours that an event is kept").fill("0.5")
        await page.keyboard.press("Enter")
        await expect(rows).to_have_count(2)
        assert table.history(TopicPath("log/a")) == HistoryLimits(count=12, age=1800)

        await rows.filter(has_text="log/**").first.click()
        await expect(page.locator(".panel")).to_contain_text("an administrator")
        await page.get_by_role("button", name="Change…").click()
        await expect(dialog.get_by_label("Most events of one topic")).to_have_value("12")
        await dialog.get_by_label("Kind").select_option("value")
        await dialog.get_by_role("button", name="Describe").click()
        await expect(page.locator(".panel")).to_contain_text("nothing else")
        assert table.history(TopicPath("log/a")) is None

        await page.get_by_role("button", name="Remove…").click()
        await dialog.get_by_role("button", name="Remove").click()
        await expect(rows).to_have_count(1)
        await expect(page.locator(".panel")).to_have_count(0)
        assert len(table) == 1
        assert watched.complaints == []


async def test_a_viewer_sees_destinations_and_cannot_describe_any(pair: Pair, browser: Browser) -> None:
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])
        await page.get_by_role("link", name="Destinations").click()
        await expect(page.locator(".view > [role=status]")).to_contain_text("all are plain values")
        await pair.n2.gateway.node.destinations.set(
            read_destination({"selector": "log/**", "kind": "history"}, origin=Origin.ADMINISTRATOR)
        )
        await page.locator("[role=option]").click()
        await expect(page.locator(".panel")).to_contain_text("1.0 MiB")
        for name in ("Describe…", "Change…", "Remove…"):
            await expect(page.get_by_role("button", name=name)).to_be_hidden()
        assert watched.complaints == []


async def test_the_page_offers_what_the_token_permits_now(pair: Pair, browser: Browser, people: list[Session]) -> None:
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])
        drain = page.get_by_role("button", name="Drain node n2")
        await expect(page.locator("tbody th", has_text="n2")).to_be_visible()
        await expect(drain).to_be_hidden()
        session = next(each.id for each in pair.n1.gateway.node.sessions if each.principal == "admin:the-viewer")

        give(pair, "operator", to="viewer")
        await expect(drain).to_be_visible()
        assert [each.id for each in pair.n1.gateway.node.sessions if each.principal == "admin:the-viewer"] == [session]
        await page.goto(f"{console(pair)}#/sessions/{people[0].id}")
        close = page.get_by_role("button", name="Close…")
        await expect(close).to_be_visible()

        give(pair, "viewer", to="viewer")
        await close.click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Close session").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("sessions:close")
        await page.keyboard.press("Escape")
        await expect(close).to_be_hidden()
        assert people[0].state == "connected"


async def test_a_topic_is_set_and_deleted(pair: Pair, browser: Browser, people: list[Session]) -> None:
    bob = people[1]
    values = await bob.subscribe("desk/**")
    async with page_of(browser) as watched:
        page, key = watched.page, watched.page.keyboard
        await sign_in(page, console(pair), pair.admins.tokens["administrator"])
        await key.press("3")
        await page.get_by_role("button", name="Set…").click()
        dialog = page.get_by_role("dialog")
        await page.get_by_label("Topic", exact=True).fill("desk/note")
        await page.get_by_label("Value, as JSON").fill("{until: 5}")
        await dialog.get_by_role("button", name="Publish").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("not JSON")
        await page.get_by_label("Value, as JSON").fill('{"until": 5}')
        await dialog.get_by_role("button", name="Publish").click()
        async with time_limit(10):
            assert (await anext(values)).value == {"until": 5}
        # A subscriber may have the value before the page has the answer; until then the dialog keeps the keyboard.
        await expect(dialog).to_have_count(0)

        await page.fill("#topic-filter", "desk/note")
        await page.get_by_role("treeitem").click()
        await expect(page.locator(".value")).to_contain_text('"until": 5')
        remove = page.get_by_role("button", name="Delete…")
        await remove.focus()
        await bob.publish("desk/note", 6)
        await expect(page.locator(".value")).to_have_text("6")
        await expect(remove).to_be_focused()
        await key.press("Enter")
        await expect(dialog).to_contain_text("desk/note")
        await dialog.get_by_role("button", name="Delete topic").click()
        async with time_limit(10):
            updates = [await anext(values), await anext(values)]
        assert [each.removed for each in updates] == [False, True]
        await expect(page.locator(".value")).to_have_text("removed")
        assert watched.complaints == []


async def test_who_may_not_look_any_more_is_out(pair: Pair, browser: Browser) -> None:
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["operator"])
        await expect(page.get_by_role("link", name="Topics")).to_be_visible()
        give(pair, "nothing", to="operator")
        await expect(page.locator("#sign-in-problem")).to_contain_text("session has ended")
        assert not [each for each in pair.n1.gateway.node.sessions if each.principal.startswith("admin:")]


async def test_a_narrower_token_goes_on_with_what_is_left(browser: Browser, tmp_path: Path) -> None:
    """What comes by the protocol follows, too: without topics:read there are no values, and nobody signs in again."""
    admins, policy = Admins.make(tmp_path), tmp_path / "policy.toml"
    policy.write_text(POLICY.format(admin='["nodes:read", "topics:read"]'))
    async with (
        running_node("n1", admin_tokens_file=admins.file, policy=policy) as node,
        page_of(browser) as watched,
    ):
        page = watched.page
        await sign_in(page, f"{node.admin}/console/", admins.tokens["viewer"])
        await expect(page.locator("nav a")).to_have_text(["Overview", "Topics"])
        await page.keyboard.press("2")
        await expect(page.get_by_role("tree")).to_be_visible()

        policy.write_text(POLICY.format(admin='["nodes:read"]'))
        node.gateway.reload()
        await expect(page.locator("nav a")).to_have_text(["Overview"])
        await expect(page.locator("tbody th", has_text="n1")).to_be_visible()
        await page.get_by_text("live at").wait_for()
        [session] = [each for each in node.gateway.node.sessions if each.connected]
        assert session.roles == {CONSOLE}


async def test_who_may_not_see_nodes_is_told_what_is_missing(browser: Browser, tmp_path: Path) -> None:
    admins, policy = Admins.make(tmp_path), tmp_path / "policy.toml"
    policy.write_text(POLICY.format(admin='["topics:read"]'))
    async with (
        running_node("n1", admin_tokens_file=admins.file, policy=policy) as node,
        page_of(browser) as watched,
    ):
        page = watched.page
        await page.goto(f"{node.admin}/console/")
        await page.keyboard.type(admins.tokens["viewer"])
        await page.keyboard.press("Enter")
        await expect(page.locator("#sign-in-problem")).to_contain_text("its roles lack nodes:read")
