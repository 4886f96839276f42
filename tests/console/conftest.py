"""Two nodes, people who have sessions there, and a browser; figures that tests measure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from gateway.client import Session, connect
from tests.console.browser import console
from tests.integration.admin.support import Pair, running_pair
from tests.support.browser import chromium, page_of
from tests.support.times import scaled


@pytest.fixture
def figures(record_property: Callable[[str, object], None], request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that takes one line with what was measured; ``tests/cluster/conftest.py`` shows them."""

    def report(line: str) -> None:
        record_property("figures", f"{request.node.name}: {line}")

    return report


@pytest_asyncio.fixture(loop_scope="module")
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running_pair(tmp_path, lease_renew=scaled(0.3), lease=scaled(1.5)) as pair:
        yield pair


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def page(pair: Pair, browser: Browser) -> AsyncIterator[Page]:
    """The page before anybody has signed in, for tests that show a view of it themselves; it must not complain."""
    async with page_of(browser) as watched:
        await watched.page.goto(console(pair))
        await expect(watched.page.locator("#token")).to_be_visible()
        yield watched.page
        assert watched.complaints == []


@pytest_asyncio.fixture(loop_scope="module")
async def people(pair: Pair) -> AsyncIterator[list[Session]]:
    """Some sessions at both nodes."""
    async with AsyncExitStack() as stack:
        sessions = []
        for number, name in enumerate(("alice", "bob", "carol")):
            urls = [pair.n2.url, pair.n1.url] if number % 2 else [pair.n1.url, pair.n2.url]
            session = connect(urls, principal=name, properties={"team": "fx" if number else "rates"})
            sessions.append(await stack.enter_async_context(session))
        yield sessions
