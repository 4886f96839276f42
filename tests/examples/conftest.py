"""Two nodes, a browser, and the server of the examples."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser

from examples.server import LOOPBACK, application
from gateway.local.ports import free_port
from tests.integration.admin.support import Pair, running_pair
from tests.support.browser import chromium

Serving = Callable[..., AbstractAsyncContextManager[str]]


@pytest_asyncio.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running_pair(tmp_path, origins=("loopback",)) as pair:
        yield pair


@pytest_asyncio.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest.fixture
def serving() -> Serving:
    """Serve the pages, for a gateway at some URLs; yields their origin."""

    @asynccontextmanager
    async def serve(*urls: str) -> AsyncIterator[str]:
        port = free_port()
        runner = web.AppRunner(application([url.replace("http:", "ws:") for url in urls], port), access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, LOOPBACK, port).start()
            yield f"http://{LOOPBACK}:{port}"
        finally:
            await runner.cleanup()

    return serve
