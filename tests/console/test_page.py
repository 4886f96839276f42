"""The console in a real browser, on two nodes of one cluster: by keyboard, with hostile names, in both themes."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Route, expect

from gateway import __version__
from gateway.adapters.memory import MemoryGrid
from gateway.client import Session, connect
from tests.cluster.crowds import Figures
from tests.console.browser import console, sign_in, tab_until
from tests.integration.admin.support import Pair
from tests.support.browser import PATIENCE, page_of
from tests.support.nodes import eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.times import scaled, time_limit

pytestmark = pytest.mark.asyncio(loop_scope="module")
"""One browser for all of them: it takes longer to start than most of them take."""

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
"""What a page must never take for markup."""

MANY = (2_000, pytest.param(10_000, marks=pytest.mark.thorough))
"""Sessions and topics: more than one page of the admin API, and far more than a screen shows."""


async def test_a_session_is_found_and_closed_by_keyboard(pair: Pair, browser: Browser, people: list[Session]) -> None:
    """The mouse is never used."""
    alice = people[0]
    async with page_of(browser) as watched:
        page, key = watched.page, watched.page.keyboard
        await sign_in(page, console(pair), pair.admins.tokens["operator"])
        await expect(page.locator("tbody th", has_text="n2")).to_be_visible()

        await key.press("2")
        await expect(page.locator("#filter")).to_be_visible()
        await key.press("/")
        await expect(page.locator("#filter")).to_be_focused()
        await key.type("$principal is 'alice'")
        await key.press("Enter")
        await expect(page.locator("[role=option]")).to_have_count(1)
        await tab_until(page, "role", "listbox")
        assert await page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "it is seen"
        await key.press("Enter")
        await expect(page.locator("#panel-title")).to_have_text(alice.id)
        await expect(page.locator("#panel-node")).to_have_text("n1")
        assert await page.evaluate("document.activeElement.id") == "panel-title"

        await tab_until(page, "textContent", "Close…")
        await key.press("Enter")
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_be_visible()
        assert await page.evaluate("document.activeElement.textContent") == "Cancel", "harm is not one key away"
        await key.press("Escape")
        await expect(dialog).to_have_count(0)
        assert await page.evaluate("document.activeElement.textContent") == "Close…", "the focus is back"
        assert alice.state == "connected"
        await key.press("Enter")
        await key.press("Tab")
        await key.press("Enter")
        async with time_limit(10):
            await alice.wait_closed()
        await expect(page.locator(".panel-state .badge")).to_have_text("ended")
        await key.press("Escape")
        assert await page.evaluate("document.activeElement.role") == "listbox"
        assert [each for each in watched.complaints if "404" not in each] == []


async def test_a_close_that_the_grid_has_not_confirmed_is_shown_as_pending(
    pair: Pair, browser: Browser, people: list[Session]
) -> None:
    alice = people[0]
    grid = pair.n1.gateway.node._context.grid
    assert isinstance(grid, MemoryGrid)
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["operator"])
        await page.goto(f"{console(pair)}#/sessions/{alice.id}")
        await expect(page.locator("#panel-node")).to_have_text("n1")
        grid.cut()
        await page.get_by_role("button", name="Close…").click()
        await page.get_by_role("button", name="Close session").click()
        await expect(page.locator(".toast.warn")).to_contain_text("Closed at n1, and not ended yet")
        await expect(page.locator(".toast.good")).to_have_count(0)
        await expect(page.locator(".panel-state .badge")).to_have_text("end pending")
        await expect(page.locator(".panel-state")).to_contain_text("if n1 stops first, the session survives")
        async with time_limit(10):
            await alice.wait_closed()
        grid.mend()
        await expect(page.locator(".panel-state .badge")).to_have_text("ended")


async def test_a_notice_for_a_client_that_is_away_is_not_called_sent(pair: Pair, browser: Browser) -> None:
    async with RawClient(pair.n2.url) as client:
        session = (await client.hello("alice", window=60))["session"]
    await eventually(lambda: not pair.n2.gateway.node.sessions.connected())
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["operator"])
        await page.goto(f"{console(pair)}#/sessions/{session}")
        await page.get_by_role("button", name="Notice…").click()
        await page.fill("#notice-text", "hello")
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator(".toast.warn")).to_contain_text("it gets the notice if it comes back to n2")


async def test_topics_are_looked_at_by_keyboard(pair: Pair, browser: Browser, people: list[Session]) -> None:
    bob = people[1]
    await bob.publish("prices/ACME/bid", 101)
    async with page_of(browser) as watched:
        page, key = watched.page, watched.page.keyboard
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])
        await key.press("3")
        tree = page.get_by_role("tree")
        await expect(tree).to_contain_text("prices")
        await tab_until(page, "role", "tree")
        for _ in range(2):
            await key.press("ArrowRight")
            await key.press("ArrowDown")
        await expect(tree).to_contain_text("101")
        await bob.publish("prices/ACME/bid", 102)
        await expect(tree).to_contain_text("102")
        await key.press("Enter")
        await expect(page.locator(".value")).to_have_text("102")
        await key.press("?")
        await expect(page.get_by_role("dialog")).to_contain_text("Keyboard")
        await key.press("Escape")
        assert watched.complaints == []


async def test_hostile_text_is_only_text(pair: Pair, browser: Browser) -> None:
    properties = {HOSTILE[:60]: HOSTILE, "bidi": "abc\u202egpj.exe", "zero": "a\u200bb"}
    async with connect(pair.n2.url, principal=HOSTILE, properties=properties) as mallory:
        _held = await mallory.subscribe(f"x/{HOSTILE.replace('/', '_')}")
        topic = f"x/{HOSTILE.replace('/', '_')}"
        await mallory.publish(topic, {HOSTILE: HOSTILE, "__proto__": {"polluted": True}})
        async with page_of(browser) as watched:
            page = watched.page
            await sign_in(page, console(pair), pair.admins.tokens["administrator"])
            await page.goto(f"{console(pair)}#/sessions/{mallory.id}")
            panel = page.locator(".panel")
            await expect(panel).to_contain_text(HOSTILE)
            await expect(panel).to_contain_text("abc\\u202egpj.exe")
            await expect(panel).to_contain_text("a\\u200bb")
            await page.get_by_role("button", name="Revoke…").click()
            await expect(page.get_by_role("dialog")).to_contain_text(HOSTILE)
            await page.keyboard.press("Escape")
            await page.keyboard.press("Escape")
            await page.keyboard.press("3")
            row = page.get_by_role("treeitem", name="x", exact=False).first
            await row.click()
            leaf = page.get_by_role("treeitem").filter(has_text="<img")
            await expect(leaf).to_be_visible()
            await leaf.click()
            await expect(page.locator(".value")).to_contain_text(HOSTILE)
            await page.goto(f"{console(pair)}#/sessions/{HOSTILE.replace('/', '%2F')}")
            await expect(page.locator(".panel-state")).to_contain_text("no such session")
            assert await page.locator("main img, main script, main iframe").count() == 0
            assert await page.evaluate("({}).polluted") is None
            assert [each for each in watched.complaints if "404" not in each] == []


async def test_the_token_stays_where_it_belongs(pair: Pair, browser: Browser) -> None:
    token = pair.admins.tokens["viewer"]
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), token)
        stored = "JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage), document.cookie])"
        assert token not in await page.evaluate(stored)
        await page.reload()
        await expect(page.locator("#token")).to_be_visible()

        await page.fill("#token", token)
        await page.get_by_label("Keep it for this tab").check()
        await page.keyboard.press("Enter")
        await page.get_by_text("live at").wait_for()
        session = await kept_session(pair)
        await page.reload()
        await page.get_by_text("live at").wait_for()
        assert await kept_session(pair) == session, "the page goes on with its session"
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.locator("#token")).to_be_visible()
        assert await page.evaluate("Object.keys(sessionStorage).length") == 0
        await eventually(lambda: not [each for each in pair.n1.gateway.node.sessions if each.id == session])
        assert not [url for url in watched.urls if token in url or "token" in url]
        assert all(url.split("/")[2] == pair.n1.admin.split("/")[2] for url in watched.urls), "no other host is asked"


async def kept_session(pair: Pair) -> str:
    def connected() -> list[str]:
        return [each.id for each in pair.n1.gateway.node.sessions if each.connected]

    await eventually(lambda: len(connected()) == 1)
    return connected()[0]


async def test_a_wrong_token_is_told(pair: Pair, browser: Browser) -> None:
    async with page_of(browser) as watched:
        await watched.page.goto(console(pair))
        await watched.page.fill("#token", "gwadm_wrong")
        await watched.page.keyboard.press("Enter")
        await expect(watched.page.get_by_role("alert")).to_contain_text("not accepted")


async def test_what_happened_before_the_page_was_opened_is_shown_once(
    pair: Pair, browser: Browser, people: list[Session]
) -> None:
    await people[1].close()
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["operator"])
        lines = page.locator(".feed li").filter(has_text=people[1].id)
        await expect(lines).to_have_count(2)
        await expect(lines.first).to_contain_text("ended")
        await expect(lines.last).to_contain_text("opened")
        # What comes live afterwards is told once more among what happened lately, and is there once.
        await people[0].close()
        lines = page.locator(".feed li").filter(has_text=people[0].id)
        await expect(lines).to_have_count(2)
        topic = "$gateway/recent/" + people[0].node
        async with connect(pair.n2.admin, principal="console", secret=pair.admins.tokens["viewer"]) as other:
            async for update in await other.subscribe(topic):
                if any(
                    each["what"] == "ended" and each["session"] == people[0].id for each in update.value["happenings"]
                ):
                    break
        await expect(lines).to_have_count(2)


async def test_consoles_are_counted_apart_and_updates_by_the_second(
    pair: Pair, browser: Browser, people: list[Session]
) -> None:
    held = [await each.subscribe("prices/**") for each in people]
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["operator"])

        def tile(name: str) -> Locator:
            return page.locator(".tile").filter(has=page.get_by_text(name, exact=True)).locator("dd")

        await expect(tile("Sessions connected")).to_have_text(str(len(people)))
        await expect(tile("Consoles")).to_have_text("1")
        row = page.locator("tbody tr").filter(has=page.locator("th", has_text="n1"))
        await expect(row).to_contain_text(__version__)

        async def publish() -> None:
            while True:
                await people[0].publish("prices/ACME", 1)

        publishing = asyncio.create_task(publish())
        # Consoles get some updates a second, too, but fewer.
        await expect(tile("Updates per second")).to_have_text(re.compile(r"\d\d"))
        publishing.cancel()
    assert len(held) == len(people)


async def test_a_console_goes_on_at_another_node_when_its_own_has_died(
    pair: Pair, browser: Browser, people: list[Session]
) -> None:
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["operator"])
        await expect(page.locator("#connection")).to_have_text("live at n1")
        await pair.n1.gateway.close()
        await expect(page.locator("#connection")).to_have_text("live at n2")
        await expect(page.locator("#toasts")).to_contain_text("does not answer: this console goes on at n2")
        row = page.locator("tbody tr").filter(has=page.locator("th", has_text="n1"))
        await expect(row.locator(".badge")).to_have_text("lease expired")
        # Not only what comes live: the admin API is asked there, too.
        await page.get_by_role("link", name="Sessions").click()
        await expect(page.get_by_role("option").filter(has_text=people[1].id)).to_contain_text("n2")
        await page.get_by_role("option").filter(has_text=people[1].id).click()
        await page.get_by_role("button", name="Close…").click()
        await page.get_by_role("dialog").get_by_role("button", name="Close session").click()
        await eventually(lambda: people[1].state == "closed")
        assert [each for each in watched.complaints if "ERR_CONNECTION" not in each and "ERR_EMPTY" not in each] == []


async def test_a_console_that_goes_on_once_more_names_the_node_that_is_gone_now(pair: Pair, browser: Browser) -> None:
    """And not the one that it was opened at."""
    third = running_node("n3", memory=pair.memory, admin_tokens_file=pair.admins.file, lease_renew=scaled(0.3))
    async with third as n3, page_of(browser) as watched:
        nodes = {"n1": pair.n1, "n2": pair.n2, "n3": n3}
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["operator"])
        await expect(page.locator("#connection")).to_have_text("live at n1")
        for _ in range(2):
            before = (await page.locator("#connection").inner_text()).removeprefix("live at ")
            gone = nodes.pop(before)
            await gone.gateway.close()
            await expect(page.locator("#connection")).to_have_text(re.compile(f"live at ({'|'.join(nodes)})"))
            told = f"{gone.admin.removeprefix('http://')} does not answer: this console goes on at "
            await expect(page.locator("#toasts")).to_contain_text(told)


async def test_a_node_is_drained_and_undrained(pair: Pair, browser: Browser, people: list[Session]) -> None:
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["operator"])
        row = page.locator("tbody tr").filter(has=page.locator("th", has_text="n2"))
        await row.get_by_role("button").click()
        await page.get_by_role("dialog").get_by_role("button", name="Drain").click()
        await expect(row.locator(".badge")).to_have_text("draining")
        await eventually(lambda: all(each.node == "n1" for each in people))
        await expect(page.locator(".feed")).to_contain_text("failed over")
        await row.get_by_role("button", name="Undrain node n2").click()
        await page.get_by_role("dialog").get_by_role("button", name="Undrain").click()
        await expect(row.locator(".badge")).to_have_text("ready")


@pytest.mark.promise("P13")
async def test_a_failover_says_whether_all_that_was_missed_followed(
    pair: Pair, browser: Browser, people: list[Session]
) -> None:
    bob = people[1]
    async with page_of(browser) as watched, await bob.subscribe("prices/**"):
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["operator"])
        await page.goto(f"{console(pair)}#/sessions/{bob.id}")
        await expect(page.locator("#panel-node")).to_have_text("n2")
        await pair.n2.gateway.close()
        await expect(page.locator(".steps .badge")).to_have_text("failed over, all replayed")
        # Who selects nothing has nothing to be sent; nodes of earlier releases do not tell; others may tell of more.
        told = await page.evaluate(
            "import('./rungs.js').then(({ rungInWords }) => [['failed_over', false], ['failed_over', null], "
            "['failed_over', undefined], ['handed_over', null], ['beamed_up', null]].map((one) => rungInWords(...one)))"
        )
        assert told == [
            ["failed over, current values", "warn"],
            ["failed over", "info"],
            ["failed over", "warn"],
            ["handed over", "good"],
            ["beamed_up", "info"],
        ]


async def test_the_chart_goes_by_the_names_of_outcomes(pair: Pair, browser: Browser) -> None:
    """Nodes of several releases tell of several lists of them."""
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])
        told = await page.evaluate(
            """import('./chart.js').then(({ RecoveryChart }) => {
                const chart = new RecoveryChart(), now = 1_700_000_000;
                const met = [[now - 20, { reattached: 1, handed_over: 2 }], [now - 600, { beamed_up: 3, mirrored: 0 }]];
                chart.draw(new Map(met), now);
                const names = [...chart.element.querySelectorAll('.legend li')].map((each) => each.textContent);
                const columns = [...chart.element.querySelectorAll('rect')].map((each) => each.getAttribute('class'));
                return [names, columns, chart.element.querySelector('svg').getAttribute('aria-label')];
            })"""
        )
    names = ["reattached", "handed over", "failed over", "refused", "beamed_up"]
    counts = ", ".join(f"{count} {name}" for count, name in zip((1, 2, 0, 0, 3), names, strict=True))
    assert told == [
        names,
        ["rung-reattached", "rung-handed-over", "rung-unknown"],
        f"Recoveries in the last quarter of an hour: {counts}",
    ]


async def test_the_table_of_nodes_has_a_column_for_each_outcome_that_one_of_them_tells(
    pair: Pair, browser: Browser
) -> None:
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])
        before, after = await page.evaluate(
            """import('./views/overview.js').then(({ Overview }) => {
                const base = { incarnation: "i", state: "serving", lag: 0, at: 9, started: 1, grid: { state: "up" },
                    sessions: { connected: 5, disconnected: 6 }, slow: { blocked: 7 } };
                const usual = { reattached: 1, failed_over: 2, refused: 3 };
                const nodes = [{ ...base, node: "n1", resumes: usual }, { node: "n2", state: "left" }];
                const live = Object.assign(new EventTarget(), { list: () => nodes, serving: () => [], slow: new Map(),
                    history: () => new Map(), standing: () => "ready", happenings: [] });
                const overview = new Overview({ live, rights: { guard() {} } });
                const [table] = overview.element.querySelectorAll("table");
                const texts = (row) => [...row.cells].slice(0, -1).map((each) => each.textContent);
                const rows = () => [...table.rows].map(texts);
                overview.start();
                const before = rows();
                nodes.push({ ...base, node: "n3", resumes: { ...usual, beamed_up: 4 } });
                live.dispatchEvent(new Event("change"));
                return [before, rows()];
            })"""
        )
    first, last = ["Node", "State", "Connected", "Disconnected"], ["Slow", "Loop lag", "Grid", "Up", "Version"]
    usual = ["Reattached", "Failed over", "Refused"]
    assert before[0] == [*first, *usual, *last]
    nothing = "\N{EN DASH}"
    assert [row[4:7] for row in before[1:]] == [["1", "2", "3"], [nothing] * 3]
    assert after[0] == [*first, *usual, "Beamed_up", *last]
    assert [row[0] for row in after[1:]] == ["n1", "n2", "n3"]
    assert [row[4:8] for row in after[1:]] == [["1", "2", "3", "0"], [nothing] * 4, ["1", "2", "3", "4"]]


async def test_the_table_of_nodes_has_a_column_for_backups_once_a_node_tells_of_one(
    pair: Pair, browser: Browser
) -> None:
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])
        table = await page.evaluate(
            """import('./views/overview.js').then(({ Overview }) => {
                const base = { incarnation: "i", state: "serving", lag: 0, at: 9, started: 1, grid: { state: "up" },
                    sessions: { connected: 5, disconnected: 6 }, slow: { blocked: 7 }, resumes: {} };
                const backup = { node: "n2", copied: 9, to_copy: 9 };
                const nodes = [{ ...base, node: "n1", backup },
                    { ...base, node: "n2", backup: { ...backup, copied: 3 } },
                    { ...base, node: "n3", backup: { node: null, copied: 0, to_copy: 0 } }, { ...base, node: "n4" }];
                const live = Object.assign(new EventTarget(), { list: () => nodes, serving: () => [], slow: new Map(),
                    history: () => new Map(), standing: () => "ready", happenings: [] });
                const overview = new Overview({ live, rights: { guard() {} } });
                const [table] = overview.element.querySelectorAll("table");
                overview.start();
                return [...table.rows].map((row) => [...row.cells].slice(-5, -1).map((each) => each.textContent));
            })"""
        )
    assert table[0] == ["Backup", "Grid", "Up", "Version"]
    assert [row[0] for row in table[1:]] == ["n2", "n2, 3 of 9", "none", "\N{EN DASH}"]


async def test_a_cut_connection_of_the_console_is_said_and_mended(pair: Pair, browser: Browser) -> None:
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])
        pill = page.locator("#connection")
        [session] = [each for each in pair.n1.gateway.node.sessions if each.principal.startswith("admin:")]
        states = await page.evaluate_handle(
            "(() => { const seen = [], pill = document.querySelector('#connection'); new MutationObserver("
            "() => seen.push(pill.textContent)).observe(pill, {childList: true}); return seen; })()"
        )
        assert session.connection is not None
        session.connection.close(4005, "the test")
        await page.wait_for_function("seen => seen.includes('live at n1')", arg=states)
        assert "reconnecting…" in await states.json_value()
        await expect(pill).to_have_text("live at n1")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_theme_is_the_system_s_until_another_is_chosen(pair: Pair, browser: Browser, scheme: str) -> None:
    async with page_of(browser, color_scheme=scheme) as watched:
        page = watched.page
        await page.goto(console(pair))
        background = "getComputedStyle(document.body).backgroundColor"
        system = await page.evaluate(background)
        seen = []
        for _ in range(3):
            await page.locator("#theme").click()
            seen.append(await page.evaluate(background))
        dark, light, again = seen
        assert dark != light
        assert again == system == (dark if scheme == "dark" else light)
        await page.locator("#theme").click()
        await page.reload()
        assert await page.evaluate(background) == dark, "the choice is kept"


async def test_it_fits_a_phone(pair: Pair, browser: Browser, people: list[Session]) -> None:
    async with page_of(browser, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])
        for view in ("Overview", "Sessions", "Topics", "Revocations", "Destinations", "Queues", "Hooks"):
            await page.get_by_role("link", name=view, exact=True).tap()
            await expect(page.locator("nav a[aria-current]")).to_have_text(view)
            width = await page.evaluate("document.documentElement.scrollWidth")
            assert width <= 360, f"{view} is {width} wide"
        await page.get_by_role("link", name="Sessions").tap()
        await page.locator("[role=option]").first.tap()
        await expect(page.locator("#panel-node")).to_be_visible()


VIEWS = ("overview", "sessions", "topics", "revocations", "destinations", "queues", "zones", "hooks")


async def test_the_view_that_is_shown_is_in_sight_among_the_others_on_a_phone(pair: Pair, browser: Browser) -> None:
    """Eight names are wider than a phone. Whoever comes by an address or a key has not pushed them aside."""
    async with page_of(browser, viewport={"width": 390, "height": 844}) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["administrator"])
        for number, view in enumerate(VIEWS, 1):
            await page.keyboard.press(str(number))
            link = page.locator("nav a[aria-current]")
            await expect(link).to_have_attribute("data-view", view)
            await expect(link).to_be_in_viewport(ratio=0.98)


async def test_the_numbers_at_the_top_stand_in_one_row_on_a_laptop(pair: Pair, browser: Browser) -> None:
    async with page_of(browser, viewport={"width": 1200, "height": 720}) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])
        await expect(page.locator(".tile")).to_have_count(8)
        tops = await page.locator(".tile dd").evaluate_all(
            "all => all.map((each) => each.getBoundingClientRect().bottom)"
        )
        assert max(tops) - min(tops) < 1


async def test_a_list_with_nothing_in_it_says_so_where_one_looks(pair: Pair, browser: Browser) -> None:
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["administrator"])
        for view in VIEWS[3:]:
            await page.goto(f"{console(pair)}#/{view}")
            await expect(page.locator(f".view.{view} .virtual .empty")).not_to_be_empty()
        await page.goto(f"{console(pair)}#/sessions")
        await page.locator("#filter").fill("$principal is 'nobody'")
        await page.keyboard.press("Enter")
        await expect(page.locator(".virtual .empty")).to_have_text("No session matches.")


async def test_an_address_that_is_mistyped_leads_to_what_is_not_there(pair: Pair, browser: Browser) -> None:
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])
        await page.goto(f"{console(pair)}#/sessions/%zz")
        await expect(page.locator(".panel")).to_contain_text("%zz")
        assert [each for each in watched.complaints if "URI" in each] == []


# --- Much of everything -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", MANY)
async def test_thousands_of_sessions_and_topics_are_no_burden(
    pair: Pair, browser: Browser, figures: Figures, many: int
) -> None:
    """Pages of the admin API are answered here, at once, so that what is measured is the page."""
    sessions = [
        {"session": f"s{number:05}", "principal": f"user-{number % 97}", "node": f"n{number % 3}", "incarnation": "x",
         "connected": True, "properties": {"team": "fx", "$client": "test/1"}, "window": 60.0, "epoch": 1}
        for number in range(many)
    ]  # fmt: skip
    topics = [{"topic": f"area-{number % 10}/group-{number % 100}/topic-{number}"} for number in range(many)]

    async def pages(route: Route) -> None:
        query = dict(each.split("=") for each in route.request.url.partition("?")[2].split("&"))
        items: list[dict[str, Any]] = sessions if "/v1/sessions" in route.request.url else topics
        if "gateway" in query.get("selector", ""):
            items = []
        start, limit = int(query.get("cursor", 0)), int(query["limit"])
        cursor = str(start + limit) if start + limit < len(items) else None
        await route.fulfill(body=json.dumps({"items": items[start : start + limit], "cursor": cursor}))

    async with page_of(browser) as watched:
        page = watched.page
        await page.route("**/v1/sessions?*", pages)
        await page.route("**/v1/topics?*", pages)
        await sign_in(page, console(pair), pair.admins.tokens["viewer"])

        began = time.monotonic()
        await page.keyboard.press("2")
        await expect(page.locator("[role=option]").first).to_be_visible()
        first = time.monotonic() - began
        listbox = page.get_by_role("listbox")
        await listbox.focus()
        while await page.locator(".view > [role=status]").inner_text() != f"{many:,} sessions":
            await page.keyboard.press("End")
            await page.wait_for_timeout(5)  # a frame, in which the next page is asked for
        await page.keyboard.press("End")
        await expect(page.locator("[role=option]").last).to_contain_text(f"s{many - 1:05}")
        everything = time.monotonic() - began
        rows = await page.locator("[role=option]").count()
        assert rows < 100, "only what is seen is in the page"

        began = time.monotonic()
        await page.keyboard.press("3")
        await expect(page.locator(".view > [role=status]")).to_have_text(f"{many:,} topics")
        tree_seconds = time.monotonic() - began
        await page.get_by_role("tree").focus()
        for _ in range(3):
            await page.keyboard.press("ArrowRight")
            await page.keyboard.press("ArrowDown")
        await page.fill("#topic-filter", "topic-99")
        matching = sum("topic-99" in each["topic"] for each in topics)
        await expect(page.locator(".view > [role=status]")).to_contain_text(f"{matching} of {many:,}")
        nodes = await page.evaluate("document.querySelectorAll('*').length")
        assert nodes < 2000
        heap = await page.evaluate("performance.memory.usedJSHeapSize / 1e6")
        figures(
            f"{many} sessions: first rows after {first:.2f} s, all after {everything:.2f} s, {rows} rows in the page; "
            f"{many} topics after {tree_seconds:.2f} s; {nodes} elements, {heap:.0f} MB of heap"
        )
        assert watched.complaints == []
        assert everything < PATIENCE
