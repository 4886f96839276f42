"""Where `make observe` sends people: to a page that the Prometheus of this machine has."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from gateway.local.observatory import Observation, Observatory
from gateway.local.ports import LOOPBACK, PortPlan


def observatory(folder: Path) -> Observatory:
    return Observatory(
        "prometheus", ports=PortPlan.free(1), folder=folder, logs=folder, observation=Observation(), detached=False
    )


@pytest.mark.parametrize(
    ("pages", "shown"),
    [
        pytest.param(("/", "/alerts"), "/alerts", id="a build of the project"),
        pytest.param(("/", "/classic/alerts"), "/classic/alerts", id="a build of Debian"),
        pytest.param(("/", "/alerts", "/classic/alerts"), "/alerts", id="one with both"),
        pytest.param(("/",), "", id="one with neither"),
    ],
)
async def test_the_link_is_to_a_page_that_is_there(tmp_path: Path, pages: tuple[str, ...], shown: str) -> None:
    prometheus = observatory(tmp_path)

    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<title>Prometheus</title>", content_type="text/html")

    application = web.Application()
    for each in pages:
        application.router.add_get(each, page)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, int(prometheus.url.rpartition(":")[2])).start()

        assert await prometheus.alerts_url() == prometheus.url + shown
    finally:
        await runner.cleanup()


async def test_without_an_answer_the_link_is_to_its_first_page(tmp_path: Path) -> None:
    prometheus = observatory(tmp_path)

    assert await prometheus.alerts_url() == prometheus.url
