"""Consoles of other nodes: which pages may ask a node's admin port, and which may not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
import pytest

from gateway.adapters.admin.console_origins import FRESH_SECONDS, MOST, ConsoleOrigins, origin_of
from gateway.client import ConnectFailed, connect
from gateway.ports import GridUnavailable
from tests.integration.admin.support import Pair, running_pair
from tests.support.nodes import FREQUENT_RENEWALS


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running_pair(tmp_path, **FREQUENT_RENEWALS) as pair:
        yield pair


async def test_the_console_of_another_node_may_read_answers_and_refusals(pair: Pair) -> None:
    said = {"Origin": pair.n2.admin}
    bearer = {"Authorization": f"Bearer {pair.admins.tokens['viewer']}"}
    async with aiohttp.ClientSession() as http:
        for headers, status in ((said | bearer, 200), (said, 401)):
            async with http.get(f"{pair.n1.admin}/v1/nodes", headers=headers) as answer:
                assert answer.status == status
                assert answer.headers["Access-Control-Allow-Origin"] == pair.n2.admin
                assert "Origin" in answer.headers["Vary"]
                assert "Access-Control-Allow-Credentials" not in answer.headers
        asked = said | {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization"}
        async with http.options(f"{pair.n1.admin}/v1/topics/a", headers=asked) as answer:
            assert answer.status == 204
            assert answer.headers["Access-Control-Allow-Origin"] == pair.n2.admin
            assert "PUT" in answer.headers["Access-Control-Allow-Methods"]
            assert "authorization" in answer.headers["Access-Control-Allow-Headers"]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1", "http://localhost:9101"])
async def test_no_other_page_may(pair: Pair, origin: str) -> None:
    bearer = {"Authorization": f"Bearer {pair.admins.tokens['viewer']}"}
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{pair.n1.admin}/v1/nodes", headers=bearer | {"Origin": origin}) as answer:
            assert answer.status == 200
            assert "Access-Control-Allow-Origin" not in answer.headers
        async with http.options(f"{pair.n1.admin}/v1/nodes", headers={"Origin": origin}) as answer:
            assert "Access-Control-Allow-Origin" not in answer.headers
    with pytest.raises(ConnectFailed, match="403"):
        await connect(
            pair.n1.admin,
            principal="console",
            secret=pair.admins.tokens["viewer"],
            headers={"Origin": origin},
            connect_timeout=2,
        )


async def test_metrics_and_health_are_for_no_page(pair: Pair) -> None:
    async with aiohttp.ClientSession() as http:
        for path in ("/metrics", "/healthz", "/readyz", "/openapi.json", "/console/"):
            async with http.get(pair.n1.admin + path, headers={"Origin": pair.n2.admin}) as answer:
                assert "Access-Control-Allow-Origin" not in answer.headers


async def test_a_console_of_another_node_may_connect(pair: Pair) -> None:
    headers = {"Origin": pair.n2.admin}
    secret = pair.admins.tokens["viewer"]
    async with connect(pair.n1.admin, principal="console", secret=secret, headers=headers) as console:
        assert console.principal == "admin:the-viewer"


class Listing:
    """Where nodes are, as the grid tells it."""

    def __init__(self) -> None:
        self.addresses: Sequence[str | None] = ()
        self.reads = 0
        self.away = False
        self.now = 0.0

    async def read(self) -> Sequence[str | None]:
        self.reads += 1
        if self.away:
            raise GridUnavailable("away")
        return self.addresses


@pytest.mark.promise("P20")
async def test_who_asks_again_and_again_causes_no_more_reads() -> None:
    listing = Listing()
    origins = ConsoleOrigins(listing.read, now=lambda: listing.now)
    for _ in range(100):
        await origins.knows("http://evil.example")
    assert listing.reads == 1
    listing.now += FRESH_SECONDS
    await origins.all()
    assert listing.reads == 2


async def test_a_node_that_died_is_remembered_also_while_the_grid_is_away() -> None:
    listing = Listing()
    origins = ConsoleOrigins(listing.read, now=lambda: listing.now)
    listing.addresses = ["http://n1:9101", "http://n2:9101", None]
    assert await origins.knows("http://n1:9101")
    listing.now, listing.addresses = FRESH_SECONDS, ["http://n2:9101"]
    assert await origins.knows("http://n1:9101")
    listing.now, listing.away = 2 * FRESH_SECONDS, True
    assert await origins.all() == ["http://n1:9101", "http://n2:9101"]
    listing.now, listing.away = 3 * FRESH_SECONDS, False
    listing.addresses = [f"http://m{number}:9101" for number in range(MOST)]
    assert len(await origins.all()) == MOST
    assert not await origins.knows("http://n1:9101")


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("http://127.0.0.1:9101", "http://127.0.0.1:9101"),
        ("https://N1.example:443/", "https://n1.example"),
        ("http://[::1]:9101", "http://[::1]:9101"),
        ("http://n1:9101; script-src *", None),
        ("http://n1 'unsafe-inline'", None),
        ("javascript:alert(1)", None),
        ("http://n1:x", None),
        ("", None),
        ("http://*", None),
    ],
)
def test_only_what_is_an_origin_comes_into_a_header(address: str, origin: str | None) -> None:
    assert origin_of(address) == origin
