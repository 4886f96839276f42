"""A tab with the page in it: what its page recorded, and what the browser itself says of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

from playwright.async_api import BrowserContext, CDPSession, Error, Page

from tests.browser.record import Entry, Life, Records
from tests.browser.site import Site
from tests.support.browser import Watched, new_window

READ_EVERY: Final = 0.2
"""Seconds between two looks at the record of a page."""

_TAKE: Final = "([life, known]) => globalThis.account?.take(life, known) ?? null"

_STORED: Final = """async () => ({
  url: [location.href, document.referrer, JSON.stringify(history.state), window.name],
  document: [document.documentElement.outerHTML, document.cookie],
  localStorage: Object.entries(localStorage).flat(),
  sessionStorage: Object.entries(sessionStorage).flat(),
  databases: (await indexedDB.databases()).map(({ name }) => name),
})"""
"""All that a page can leave behind, by the name of the place."""

_EXPECTED_COMPLAINT: Final = "WebSocket connection to "
"""Begins what Chromium writes on the console for each connection that fails, which faults are for."""


class View:
    """What a page shows by its record, as far as that has been read.

    Attributes:
        session: that it has, or had last.
        state: of the session; connecting before there is one.
        node: that serves it, or served it last.
        held: value and version by stream and topic.
        streams: those of the session that are subscribed.
        waiting: publishes without an answer, by topic and value.
        mark: the last property that was accepted.
        asked_mark: the last one that was asked for.
        pending: whether that has no answer yet.
        last: the last entry of each kind.
        losses: how often it noticed that its connection was gone.
    """

    def __init__(self, life: Life) -> None:
        self.life = life
        self.session = ""
        self.state = "connecting"
        self.node = ""
        self.held: dict[str, dict[str, tuple[int, int]]] = {}
        self.streams: set[str] = set()
        self.waiting: set[tuple[str, int]] = set()
        self.mark = ""
        self.asked_mark = ""
        self.pending = False
        self.last: dict[str, Entry] = {}
        self.losses = 0
        self._wanted = 0
        self._read = 0

    @property
    def subscribed(self) -> bool:
        """Whether the session has everything that the page selects."""
        return 0 < self._wanted == len(self.streams)

    def update(self) -> None:
        """Take in what is new in the record."""
        for entry in self.life.entries[self._read :]:
            self.last[entry.kind] = entry
            self._take(entry)
        self._read = len(self.life.entries)

    def _take(self, entry: Entry) -> None:  # noqa: C901 - one case for each kind
        match entry.kind:
            case "begun":
                self._wanted = entry["selections"]
            case "opened":
                self.session, self.node, self.state = entry["session"], entry["node"], "connected"
                self.held, self.streams, self.mark, self.asked_mark = {}, set(), "", ""
            case "state":
                self.state = entry["state"]
                self.losses += self.state == "recovering"
            case "recovery":
                self.node = entry["node"]
            case "ended":
                self.state = "closed"
            case "subscribed":
                self.streams.add(entry["stream"])
            case "update":
                self.held.setdefault(entry["stream"], {})[entry["topic"]] = (entry["value"], entry["version"])
            case "publish":
                self.waiting.add((entry["topic"], entry["value"]))
            case "receipt" | "refusal":
                self.waiting.discard((entry["topic"], entry["value"]))
            case "properties":
                self.asked_mark, self.pending = entry["value"], True
            case "properties_set":
                self.mark, self.pending = entry["value"], False
            case "properties_refused":
                self.pending = False


class Tab:
    """One tab. Use as ``async with Tab(…) as tab``.

    Args:
        name: of the tab, which tells its page what to do.
        context: of the browser.
        site: where the page comes from.
        records: of all pages.

    Attributes:
        page: what is in the tab now.
        tokens: that were seen on its connections.
        console: what was written on its console.
        complaints: of the browser; nothing that faults cause by themselves.
        urls: of everything that it asked for.
    """

    def __init__(self, name: str, context: BrowserContext, site: Site, records: Records) -> None:
        self.name = name
        self.page: Page
        self.tokens: set[str] = set()
        self.console: list[str] = []
        self._context = context
        self._site = site
        self._records = records
        self._watched: list[Watched] = []
        self._views: dict[str, View] = {}
        self._current: View | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.adopt(await new_window(self._context))
        await self.page.goto(self._site.url(self.name))
        self._reading = asyncio.create_task(self._read_on())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self.page.close()

    # --- What it is -----------------------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """What the page in it shows; of the last one that was read."""
        assert self._current is not None, f"nothing was read of {self.name}"
        return self._current

    @property
    def known(self) -> bool:
        """Whether something was read of its page."""
        return self._current is not None

    @property
    def ready(self) -> bool:
        """Whether its page is connected and has subscribed to everything."""
        view = self._current
        return view is not None and view.state == "connected" and view.subscribed

    @property
    def idle(self) -> bool:
        """Whether its page waits for no answer."""
        return not self.view.waiting and not self.view.pending

    @property
    def complaints(self) -> list[str]:
        """What the browser complains about, but for connections that fail."""
        return [
            each for watched in self._watched for each in watched.complaints if not each.startswith(_EXPECTED_COMPLAINT)
        ]

    @property
    def urls(self) -> list[str]:
        """Everything that its pages asked for."""
        return [url for watched in self._watched for url in watched.urls]

    def adopt(self, page: Page) -> None:
        """Let another page take the place of the one in it."""
        self.page = page
        self._watched.append(Watched(page))
        page.on("console", lambda message: self.console.append(message.text))
        page.on("websocket", lambda socket: socket.on("framereceived", self._heard))
        page.on("websocket", lambda socket: socket.on("framesent", self._heard))

    def _heard(self, payload: str | bytes) -> None:
        if '"token"' in (payload if isinstance(payload, str) else ""):
            packets = json.loads(payload)
            for packet in packets if isinstance(packets, list) else [packets]:
                if isinstance(packet, dict) and isinstance(packet.get("token"), str):
                    self.tokens.add(packet["token"])

    # --- Its record -----------------------------------------------------------------------------------------------

    async def read(self) -> None:
        """Read what the page recorded since the last time; waits while the page is stopped."""
        life = self._current.life if self._current is not None else None
        known = [life.id, len(life.entries)] if life is not None else ["", 0]
        try:
            wire = await self.page.evaluate(_TAKE, known)
        except Error as error:
            if not _between_pages(error):
                raise
            return
        if wire is not None:
            self._show(self._records.take(wire))

    def _show(self, life: Life) -> None:
        self._current = self._views.get(life.id)
        if self._current is None:
            self._current = self._views[life.id] = View(life)
        self._current.update()

    async def _read_on(self) -> None:
        while True:
            await self.read()
            await asyncio.sleep(READ_EVERY)

    # --- What is done to it ---------------------------------------------------------------------------------------

    async def call(self, function: str, *arguments: object) -> Any:
        """Call a function of the page's account."""
        return await self.page.evaluate("([name, given]) => account[name](...given)", [function, list(arguments)])

    async def devtools(self) -> CDPSession:
        """Open a session of the DevTools protocol with the page."""
        return await self._context.new_cdp_session(self.page)

    async def leftovers(self) -> dict[str, list[str]]:
        """Return every text that the page left anywhere but in the kept record, by place; also its console and URLs."""
        found: dict[str, list[str]] = await self.page.evaluate(_STORED)
        stored = iter(found.pop("sessionStorage"))
        kept = list(_but_for(stored, f"session-gateway:{self.name}"))
        return {**found, "sessionStorage": kept, "console": self.console, "requested URLs": self.urls}

    async def photograph(self, folder: Path) -> None:
        """Take a picture of the page."""
        await self.page.screenshot(path=folder / f"{self.name}.png", full_page=True)


def _but_for(stored: Iterator[str], name: str) -> Iterator[str]:
    """Leave the value of one key out of keys and values."""
    for key in stored:
        value = next(stored)
        yield key
        if key != name:
            yield value


def _between_pages(error: Error) -> bool:
    """Tell whether a page was asked while it went away."""
    return any(text in error.message for text in ("Execution context was destroyed", "navigat", "Cannot find context"))
