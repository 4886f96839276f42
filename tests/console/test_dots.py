"""Names that a browser takes out of the path of a URL, in the console: ``.`` and ``..``."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from gateway.core.destinations.destination import Origin
from gateway.core.policy.revocations import RevocationKind
from gateway.core.topics.selectors import parse_selector
from tests.console.browser import console, sign_in
from tests.integration.admin.support import Pair
from tests.support.browser import page_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.thorough]

ACT = """async ([token, name]) => {
  const { Api } = await import("./api.js");
  const api = new Api(token);
  const set = await api.setTopic(name, 1, "a-key");
  const subscribers = await api.subscribers(name);
  await api.deleteTopic(name);
  await api.setDestination(name, { kind: "queue", limits: {} });
  await api.removeDestination(name);
  return [set.topic, subscribers.items];
}"""


@pytest.mark.parametrize("name", [".", "..", "..."])
async def test_topics_and_destinations_of_dots_can_be_acted_on(pair: Pair, browser: Browser, name: str) -> None:
    token = pair.admins.tokens["administrator"]
    async with page_of(browser) as watched:
        await sign_in(watched.page, console(pair), token)
        assert await watched.page.evaluate(ACT, [token, name]) == [name, []]
        assert watched.complaints == []
    table = pair.n1.gateway.node.destinations.table
    assert table.get(Origin.ADMINISTRATOR, parse_selector(name)) is None


async def test_a_principal_of_dots_is_unblocked(pair: Pair, browser: Browser) -> None:
    revocations = pair.n1.gateway.node.revocations
    await revocations.revoke(RevocationKind.PRINCIPAL, "..")
    async with page_of(browser) as watched:
        page = watched.page
        await sign_in(page, console(pair), pair.admins.tokens["administrator"])
        await page.get_by_role("link", name="Revocations").click()
        await page.locator("[role=option]").click()
        await page.get_by_role("button", name="Unblock…").click()
        await page.get_by_role("dialog").get_by_role("button", name="Unblock").click()
        await expect(page.get_by_role("dialog")).to_have_count(0)
        assert revocations.find(RevocationKind.PRINCIPAL, "..") is None
        assert watched.complaints == []
