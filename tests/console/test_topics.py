"""Topics in the console: what is shown as the value of a topic is its value now, and what is gone is not shown.

Most of it is tried with a session and an admin API that the test has in its hands, in the page itself.
"""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.thorough]

WORLD = """async (topics) => {
    const { Topics } = await import("./views/topics.js");
    const world = { topics, version: 0, streams: [], problem: null };
    world.selectors = () => world.streams.filter(({ open }) => open).map(({ selector }) => selector).sort();
    world.update = (topic, value, more = {}) => {
        world.version += 1;
        const update = { topic, value, version: world.version, eventId: `e${world.version}`, snapshot: false,
            removed: false, folded: 0, gap: false, ...more };
        for (const { selector, listener, open } of world.streams) {
            const parent = topic.split("/").slice(0, -1).join("/");
            if (open && (selector === topic || selector === `${parent}/*`)) listener(update);
        }
    };
    const subscribe = async (selector, { listener }) => {
        const stream = { selector, listener, open: true, close() { stream.open = false; } };
        world.streams.push(stream);
        return stream;
    };
    const list = async ({ selector }) => {
        if (world.problem !== null) throw new Error(world.problem);
        return { items: selector === "**" ? world.topics.map((topic) => ({ topic })) : [], cursor: null };
    };
    const view = new Topics({ api: { topics: list }, live: { session: { subscribe } }, rights: { guard() {} } });
    document.getElementById("main").replaceChildren(view.element);
    view.start();
    window.world = world;
}"""


class Shown:
    """The view of topics in a page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.value = page.locator(".panel .value")
        self.summary = page.locator(".view > [role=status]")

    def row(self, name: str) -> Any:
        return self.page.get_by_role("treeitem").filter(has=self.page.get_by_text(name, exact=True))

    async def begin(self, *topics: str) -> None:
        await self.page.evaluate(WORLD, list(topics))

    async def update(self, topic: str, value: object, **more: object) -> None:
        await self.page.evaluate("(given) => world.update(...given)", [topic, value, more])

    async def selectors(self) -> list[str]:
        found: list[str] = await self.page.evaluate("world.selectors()")
        return found


@pytest.fixture
def shown(page: Page) -> Shown:
    return Shown(page)


async def test_a_branch_that_is_folded_follows_nothing(shown: Shown) -> None:
    await shown.begin("a/b/c", "a/d")
    await shown.row("a").click()
    await shown.row("b").click()
    assert await shown.selectors() == ["a/*", "a/b/*"]
    await shown.row("a").click()
    assert await shown.selectors() == []


async def test_a_value_that_nothing_follows_any_more_is_not_shown_as_current(shown: Shown) -> None:
    await shown.begin("a/b/c")
    for name in ("a", "b"):
        await shown.row(name).click()
    await shown.update("a/b/c", "early")
    await expect(shown.row("c")).to_contain_text("early")
    await shown.row("a").click()
    await shown.page.fill("#topic-filter", "c")
    await expect(shown.row("a/b/c")).not_to_contain_text("early")
    await shown.row("a/b/c").click()
    assert await shown.selectors() == ["a/b/c"]
    await shown.update("a/b/c", "late")
    await expect(shown.value).to_have_text('"late"')


async def test_the_selected_topic_is_followed_while_it_is_shown(shown: Shown) -> None:
    await shown.begin("a/b", "a/c")
    await shown.row("a").click()
    await shown.row("b").click()
    await shown.row("a").click()
    await shown.update("a/b", 1)
    await expect(shown.value).to_have_text("1")
    await shown.row("a").click()
    await shown.row("c").click()
    assert await shown.selectors() == ["a/*", "a/c"]
    await shown.page.get_by_role("button", name="Close this panel").click()
    assert await shown.selectors() == ["a/*"]


async def test_a_topic_with_topics_below_it_is_followed_as_well(shown: Shown) -> None:
    await shown.begin("a", "a/b")
    await shown.row("a").click()
    assert await shown.selectors() == ["a", "a/*"]
    await shown.update("a", 1)
    await shown.update("a/b", 2)
    await expect(shown.value).to_have_text("1")
    await expect(shown.row("b")).to_contain_text("2")


async def test_what_is_removed_or_listed_no_more_leaves_the_tree(shown: Shown) -> None:
    await shown.begin("a/b", "a/c", "d/e")
    await expect(shown.summary).to_have_text("3 topics")
    await shown.row("a").click()
    await shown.update("a/b", None, removed=True)
    await expect(shown.row("b")).to_have_count(0)
    await expect(shown.summary).to_have_text("2 topics")
    await shown.update("a/c", None, removed=True)
    await shown.update("a/b", 5)
    await expect(shown.row("b")).to_contain_text("5")
    await expect(shown.summary).to_have_text("2 topics")
    await shown.page.evaluate("world.topics = ['a/b']")
    await shown.page.get_by_role("button", name="Refresh").click()
    await expect(shown.row("d")).to_have_count(0)
    await expect(shown.summary).to_have_text("1 topic")


async def test_the_selected_topic_may_go_and_come_again(shown: Shown) -> None:
    await shown.begin("a/b")
    await shown.row("a").click()
    await shown.row("b").click()
    await shown.update("a/b", None, removed=True)
    await expect(shown.value).to_have_text("removed")
    await shown.row("a").click()
    await shown.update("a/b", "again")
    await expect(shown.value).to_have_text('"again"')
    await expect(shown.summary).to_have_text("1 topic")
    await shown.update("a/b", None, removed=True)
    await expect(shown.value).to_have_text("removed")
    await shown.page.get_by_role("button", name="Close this panel").click()
    await expect(shown.page.get_by_role("treeitem")).to_have_count(0)


async def test_a_list_that_cannot_be_had_is_not_shown_as_empty(shown: Shown) -> None:
    await shown.begin("a")
    await expect(shown.summary).to_have_text("1 topic")
    await shown.page.evaluate("world.problem = 'the grid is unreachable'")
    await shown.page.get_by_role("button", name="Refresh").click()
    await expect(shown.page.get_by_role("alert")).to_have_text("the grid is unreachable")
    await expect(shown.row("a")).to_have_count(1)
    await shown.page.evaluate("world.problem = null; world.topics = []")
    await shown.page.get_by_role("button", name="Refresh").click()
    await expect(shown.page.get_by_role("alert")).to_have_text("")
    await expect(shown.page.locator(".empty")).to_have_text("There are no topics.")
    await shown.page.evaluate("world.problem = 'the grid is unreachable'")
    await shown.page.get_by_role("button", name="Refresh").click()
    await expect(shown.page.get_by_role("alert")).to_have_text("the grid is unreachable")
    await expect(shown.page.locator(".empty")).to_have_text("")
    await expect(shown.summary).to_have_text("")


async def test_the_size_of_a_value_is_told_in_bytes(shown: Shown) -> None:
    await shown.begin("a")
    await shown.row("a").click()
    await shown.update("a", "\N{EURO SIGN}" * 100)
    await expect(shown.page.locator(".facts dd").nth(2)).to_have_text("302 B")
