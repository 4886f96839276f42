"""What tests do with the console in a browser."""

from __future__ import annotations

from playwright.async_api import Page

from tests.integration.admin.support import Pair


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
