"""Chromium, as Debian has it, for tests: of the console, and of the JavaScript client in a page.

``chromium`` starts it with what Playwright changes so that tests of pages are quick and alike: pages always count as
visible and focused, and none is slowed down or kept in the back/forward cache. ``unaltered_chromium`` starts it as
people have it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from gateway.local.processes import ManagedProcess
from tests.support.times import scaled

PATIENCE: Final = 1000 * scaled(20.0)
"""Milliseconds until something that the page must show counts as missing; usual are some dozens."""

START_SECONDS: Final = scaled(30.0)
"""How long Chromium may take until it can be driven; usually one second."""

# In a container there is no user namespace for its sandbox; what it loads here are our own pages.
_ARGUMENTS: Final = ("--no-sandbox", "--disable-gpu")

_LISTENING: Final = re.compile(r"^DevTools listening on (ws://\S+)$", re.MULTILINE)
"""What Chromium says once it can be driven."""

expect.set_options(timeout=PATIENCE)


class BrowserMissing(Exception):
    """Chromium is not installed."""


def chromium_program() -> str:
    """Return the path of Chromium.

    Raises:
        BrowserMissing: there is none.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        raise BrowserMissing("chromium is not installed; scripts/system-packages chromium does it")
    return program


def _program() -> str:
    """Return the path of Chromium; skips where there is none, but fails under CI."""
    try:
        return chromium_program()
    except BrowserMissing as missing:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"{missing}; CI must not skip tests", pytrace=False)
        pytest.skip(str(missing))


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Run a browser; skips where there is none, but fails under CI."""
    program = _program()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=[*_ARGUMENTS])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def unaltered_chromium(folder: Path) -> AsyncIterator[BrowserContext]:
    """Run a browser that treats pages as it does for people; skips where there is none, but fails under CI.

    Hidden pages are slowed down, pages that are left go into the back/forward cache, and visibility is what it is. Each
    window is one of its own; see ``new_window``.

    Args:
        folder: for its profile and log.

    Yields:
        Its only context.
    """
    log = folder / "chromium.log"
    options = ("--headless=new", "--no-first-run", "--remote-debugging-port=0", f"--user-data-dir={folder / 'profile'}")
    process = ManagedProcess("chromium", [_program(), *_ARGUMENTS, *options, "about:blank"], log=log)
    process.start()
    found: list[str] = []

    async def listens() -> bool:
        found[:] = _LISTENING.findall(log.read_text(errors="replace"))
        return bool(found)

    try:
        await process.ready(listens, timeout=START_SECONDS)
        async with async_playwright() as playwright:
            browser = await playwright.chromium.connect_over_cdp(found[-1], no_defaults=True)
            [context] = browser.contexts
            context.set_default_timeout(PATIENCE)
            yield context
            await browser.close()
    finally:
        await process.stop()


async def new_window(context: BrowserContext) -> Page:
    """Open a page in a window of its own, so that another one does not hide it."""
    browser = context.browser
    assert browser is not None
    session = await browser.new_browser_cdp_session()
    async with context.expect_page() as opened:
        await session.send("Target.createTarget", {"url": "about:blank", "newWindow": True})
    await session.detach()
    return await opened.value


class Watched:
    """A page whose complaints are noted: errors, violations of its policy, and everything that it asks for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.urls: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.on("dialog", lambda dialog: self.complaints.append(f"a dialog: {dialog.message}"))
        page.on("request", lambda request: self.urls.append(request.url))
        page.on("websocket", lambda websocket: self.urls.append(websocket.url))


@asynccontextmanager
async def page_of(browser: Browser, **options: Any) -> AsyncIterator[Watched]:
    """Open a page in a context of its own."""
    context = await browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
    context.set_default_timeout(PATIENCE)
    try:
        yield Watched(await context.new_page())
    finally:
        await context.close()
