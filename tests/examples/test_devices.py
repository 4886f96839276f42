"""Devices on a page in Chromium: one is switched off, one is killed, and the gateway says so for both."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, expect

from gateway.local.processes import ManagedProcess
from tests.examples.conftest import Serving
from tests.integration.admin.support import running_pair
from tests.support.browser import page_of
from tests.support.times import scaled


@asynccontextmanager
async def device(name: str, url: str, folder: Path) -> AsyncIterator[ManagedProcess]:
    options = ("--url", url, "--window", str(scaled(0.5)), "--seconds", "0.2")
    command = [sys.executable, "-m", "examples.devices.device", name, *options]
    process = ManagedProcess(name, command, log=folder / f"{name}.log")
    process.start()
    try:
        yield process
    finally:
        await process.stop(grace=0)


async def test_a_device_that_dies_is_told_of_by_its_last_will(
    tmp_path: Path, browser: Browser, serving: Serving
) -> None:
    async with (
        running_pair(tmp_path, origins=("loopback",), reap_interval=0.2) as pair,
        serving(pair.n2.url) as origin,
        page_of(browser, viewport={"width": 390, "height": 844}) as watched,
        device("cellar", pair.n1.url, tmp_path) as cellar,
        device("attic", pair.n1.url, tmp_path) as attic,
    ):
        page = watched.page
        await page.goto(f"{origin}/devices/")
        await expect(page.locator("tbody th")).to_have_text(["attic", "cellar"])
        states = page.locator("tbody td:nth-child(2)")
        temperatures = page.locator("tbody td:nth-child(3)")
        await expect(states).to_have_text(["on", "on"])
        await expect(temperatures.first).to_contain_text("°C")

        await attic.terminate(timeout=scaled(20.0))
        await expect(states).to_have_text(["off", "on"])
        await cellar.kill()
        await expect(states).to_have_text(["off", "lost"])
        # Their last readings end, so that nobody takes them for the present ones.
        await expect(temperatures).to_have_text(["none", "none"])
        assert watched.complaints == []
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
