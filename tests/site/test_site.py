"""The documentation site as `make docs` makes it: whole, readable at every width, and searched without a server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import expect

from tests.support.browser import chromium, page_of
from tests.support.times import scaled

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.timeout(scaled(600)), pytest.mark.thorough]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once, by the command; it fails at any warning of Sphinx, and at links that lead nowhere."""
    folder = tmp_path_factory.mktemp("site") / "site"
    made = subprocess.run(
        [sys.executable, "-m", "scripts.site", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(500),
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert made.stdout == f"Open {(folder / 'index.html').as_uri()}\n"
    return folder


def test_every_document_is_a_page(site: Path) -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "deploy" / "README.md"]

    missing = [each for each in documents if not (site / each.relative_to(ROOT).with_suffix(".html")).exists()]
    assert missing == []


async def test_words_are_found_without_a_server(site: Path) -> None:
    async with chromium() as browser, page_of(browser) as watched:
        page = watched.page
        await page.goto((site / "index.html").as_uri())
        await page.get_by_placeholder("Search").first.fill("drain")
        await page.keyboard.press("Enter")
        found = page.locator("ul.search li a")
        await expect(found.filter(has_text="Roll out a version").first).to_be_visible()
        await found.filter(has_text="Roll out a version").first.click()
        await expect(page.locator("h1")).to_contain_text("Roll out a version")

        assert watched.complaints == []
        assert [url for url in watched.urls if not url.startswith("file:")] == []


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pages_fit_every_window_and_follow_its_theme(
    site: Path, width: int, scheme: Literal["light", "dark"]
) -> None:
    viewport = {"width": width, "height": 900}
    async with chromium() as browser, page_of(browser, viewport=viewport, color_scheme=scheme) as watched:
        grounds = set()
        for name in ("index", "docs/reference/metrics", "docs/explanation/threat-model", "docs/how-to/use-from-python"):
            await watched.page.goto((site / f"{name}.html").as_uri())
            assert await watched.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
            grounds.add(await watched.page.evaluate("getComputedStyle(document.body).backgroundColor"))

        (ground,) = grounds
        assert (ground == "rgb(255, 255, 255)") is (scheme == "light")
