import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from gateway.adapters.admin import AdminServer
from gateway.adapters.memory import MemoryEventLog, MemoryMetrics


class Site:
    """An admin server whose readiness a test decides."""

    def __init__(self) -> None:
        self.reasons: list[str] | None = []
        self.log = MemoryEventLog()
        self.server = AdminServer(
            "127.0.0.1",
            0,
            ready=self.ready,
            metrics_text=lambda: b"gateway_up 1\n",
            metrics=MemoryMetrics(),
            log=self.log,
        )

    def ready(self) -> list[str]:
        if self.reasons is None:
            raise RuntimeError("secret details")
        return self.reasons

    async def get(self, path: str, method: str = "GET") -> tuple[int, str, object]:
        url = f"http://127.0.0.1:{self.server.port}{path}"
        async with aiohttp.ClientSession() as client, client.request(method, url) as answer:
            is_json = answer.content_type.endswith("json")
            return (
                answer.status,
                answer.headers.get("Content-Type", ""),
                await (answer.json() if is_json else answer.text()),
            )


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    found = Site()
    await found.server.start()
    yield found
    await found.server.close()


async def test_alive_even_if_not_ready(site: Site) -> None:
    site.reasons = ["the grid is unreachable"]

    assert await site.get("/healthz") == (200, "application/json", {"alive": True})


async def test_ready_without_reasons_against_it(site: Site) -> None:
    assert await site.get("/readyz") == (200, "application/json", {"ready": True, "reasons": [], "warnings": []})


async def test_not_ready_with_reasons(site: Site) -> None:
    site.reasons = ["the grid is unreachable", "draining"]

    status, _, body = await site.get("/readyz")

    assert (status, body) == (503, {"ready": False, "reasons": ["the grid is unreachable", "draining"], "warnings": []})


async def test_not_ready_if_nobody_can_tell(site: Site) -> None:
    site.reasons = None

    status, _, body = await site.get("/readyz")

    assert (status, body) == (
        503,
        {"ready": False, "reasons": ["readiness cannot be determined: RuntimeError"], "warnings": []},
    )


async def test_metrics_in_the_format_of_prometheus(site: Site) -> None:
    expected = (200, "text/plain; version=0.0.4; charset=utf-8", "gateway_up 1\n")

    assert await site.get("/metrics") == expected


async def test_other_pages_name_those_that_exist(site: Site) -> None:
    status, kind, body = await site.get("/")

    assert (status, kind) == (404, "application/problem+json")
    assert isinstance(body, dict)
    assert body["type"] == "urn:session-gateway:problem:no-such-page"
    assert "/healthz, /readyz, /metrics" in body["detail"]


async def test_nothing_can_be_changed(site: Site) -> None:
    status, _, body = await site.get("/readyz", method="POST")

    assert status == 405
    assert isinstance(body, dict)
    assert body["detail"] == "this page knows GET, HEAD, OPTIONS"


async def test_a_page_tells_what_can_be_done_with_it(site: Site) -> None:
    assert await site.get("/readyz", method="OPTIONS") == (204, "", "")


async def test_a_taken_port_is_an_os_error_and_leaves_nothing_behind(site: Site) -> None:
    second = AdminServer(
        "127.0.0.1", site.server.port, ready=list, metrics_text=bytes, metrics=MemoryMetrics(), log=site.log
    )

    with pytest.raises(OSError, match="in use"):
        await second.start()

    await second.close()
    assert (await site.get("/healthz"))[0] == 200


async def test_closing_frees_the_port() -> None:
    found = Site()
    await found.server.start()
    port = found.server.port
    await found.server.close()
    await found.server.close()

    with pytest.raises(OSError, match=r"refused|failed"):
        await asyncio.open_connection("127.0.0.1", port)
