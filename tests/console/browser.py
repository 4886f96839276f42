"""Chromium, as Debian has it, for tests of the console."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.integration.admin.support import Pair
from tests.support.times import scaled

PATIENCE: Final = 1000 * scaled(20.0)
"""Milliseconds until something that the page must show counts as missing; usual are some dozens."""

expect.set_options(timeout=PATIENCE)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Run a browser; skips where there is none, but fails under CI."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("chromium is not installed; CI must not skip tests", pytrace=False)
        pytest.skip("chromium is not installed; scripts/system-packages chromium does it")
    async with async_playwright() as playwright:
        # In a container there is no user namespace for its sandbox; what it loads here are our own pages.
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            await browser.close()


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


async def sign_in(page: Page, url: str, token: str) -> None:
    """Sign in by keyboard, as the form wants it."""
    await page.goto(url)
    await page.keyboard.type(token)
    await page.keyboard.press("Enter")
    await page.get_by_text("live at", exact=False).wait_for()


def console(pair: Pair) -> str:
    """Tell where the console of the first node is."""
    return f"{pair.n1.admin}/console/"


async def tab_until(page: Page, what: str, wanted: str) -> None:
    """Go on with the tab key until what has the focus has a property."""
    for _ in range(60):
        if await page.evaluate(f"document.activeElement.{what}") == wanted:
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"the focus never comes to {wanted}")
