"""``follow`` in Chromium: a page of another origin reads a stream with its credentials, if its origin is allowed."""

from __future__ import annotations

from typing import Any, Final

import pytest

from gateway.local.proxy import FaultProxy
from tests.browser.site import Site
from tests.support.browser import chromium
from tests.support.http_calls import call
from tests.support.nodes import running_node
from tests.support.times import PATIENCE, time_limit

FOLLOW: Final = """async ([url, principal]) => {
    const { follow } = await import("/client/index.js");
    const values = [], kinds = [];
    try {
        for await (const event of follow(url, ["page/**"], { principal, secret: "" })) {
            kinds.push(event.type);
            window.followed = kinds.length;
            if (event.type === "update") values.push(event.value);
            if (event.value === "end") break;
        }
    } catch (error) {
        return { failed: error.name, code: error.code };
    }
    return { values, kinds };
}"""
"""Follows in a page until a value says that it is the end."""

FETCH: Final = """async (url) => {
    try {
        await fetch(url, { headers: { Authorization: "Basic YWxpY2U6" } });
        return "read";
    } catch {
        return "refused";
    }
}"""


@pytest.mark.promise("P13")
async def test_a_page_of_an_allowed_origin_reads_and_goes_on_where_it_was_cut() -> None:
    async with Site(lambda _: {}, lambda _: None) as site, chromium() as browser, time_limit(3 * PATIENCE):
        page = await browser.new_page()
        await page.goto(site.away)
        async with (
            running_node(origins=(site.origin,)) as node,
            FaultProxy("127.0.0.1", node.gateway.port) as proxy,
        ):

            async def publish(*values: object) -> None:
                items: list[dict[str, Any]] = [{"topic": "page/a", "value": value} for value in values]
                assert (await call(node, body={"publish": items}))[0] == 200

            await page.evaluate(f"void (window.result = ({FOLLOW})(['http://127.0.0.1:{proxy.port}', 'alice']))")
            await page.wait_for_function("window.followed >= 2")
            await publish(1, 2, 3)
            await page.wait_for_function("window.followed >= 5")
            proxy.cut()
            await publish(4, 5)
            await page.wait_for_function("window.followed >= 8")
            await publish("end")
            told = await page.evaluate("window.result")
            assert told["values"] == [1, 2, 3, 4, 5, "end"]
            assert told["kinds"].count("open") == 2
            assert "gap" not in told["kinds"]
            assert not any("alice" in each for each in site.asked)


async def test_a_page_of_another_origin_learns_nothing() -> None:
    async with Site(lambda _: {}, lambda _: None) as site, chromium() as browser, time_limit(2 * PATIENCE):
        page = await browser.new_page()
        await page.goto(site.away)
        for origins, told in ((("https://else.example",), "refused"), ((site.origin,), "read")):
            async with running_node(origins=origins) as node:
                assert (await call(node, body={"topic": "page/a", "value": 1}))[0] == 200
                url = node.url.replace("ws", "http", 1).replace("/v1/connect", "/v1/values/page/a")
                assert await page.evaluate(FETCH, url) == told
