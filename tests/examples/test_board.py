"""The board of prices in Chromium, built from its JSX as README.md says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser, expect

from examples.server import PAGES
from gateway.client import connect
from tests.clients.driver import node_environment
from tests.examples.conftest import Serving
from tests.integration.admin.support import Pair
from tests.support.browser import page_of
from tests.support.faults import faulty
from tests.support.times import scaled

ROOT: Final = Path(__file__).resolve().parents[2]
BOARD: Final = ROOT / "examples" / "board"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `npm ci && npm run build` makes, in a copy of the checkout."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    root = tmp_path_factory.mktemp("board")
    board = root / "examples" / "board"
    shutil.copytree(BOARD, board, ignore=shutil.ignore_patterns("node_modules", "dist"))
    shutil.copytree(
        ROOT / "clients" / "javascript", root / "clients" / "javascript", ignore=shutil.ignore_patterns("node_modules")
    )
    for command in (("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"), ("npm", "run", "build")):
        done = subprocess.run(
            command,
            cwd=board,
            env=node_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=scaled(100),
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return board / "dist"


async def test_prices_are_shown_and_go_on_after_a_cut(
    pair: Pair, browser: Browser, serving: Serving, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PAGES, "board", built)
    async with (
        connect(pair.n1.url, principal="prices") as publisher,
        faulty(pair.n1.url) as (url, proxy),
        serving(url) as origin,
        page_of(browser, viewport={"width": 390, "height": 844}) as watched,
    ):
        await publisher.publish("demo/prices/ACME", {"price": 101})
        await publisher.publish("demo/prices/ZENITH", {"cost": "unknown"})
        page = watched.page
        await page.goto(f"{origin}/board/")
        await expect(page.get_by_role("status")).to_have_text("connected at n1")
        await expect(page.locator("tbody tr")).to_have_text(["ACME101.00"])

        await publisher.publish("demo/prices/ACME", {"price": 102.5})
        await publisher.publish("demo/prices/GLOBEX", {"price": 48})
        await expect(page.locator("tbody tr")).to_have_text(["ACME102.50", "GLOBEX48.00"])
        await expect(page.locator("tbody tr").first).to_have_class("up")
        assert watched.complaints == []
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0

        assert proxy.cut() == 1
        await publisher.publish("demo/prices/ACME", {"price": 99})
        await expect(page.locator("tbody tr")).to_have_text(["ACME99.00", "GLOBEX48.00"])
        await expect(page.get_by_role("status")).to_have_text("connected at n1; came back by reattached")
