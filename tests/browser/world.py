"""What a run consists of: a cluster, a browser with tabs, other publishers, and what was seen of them.

```text
tabs ──▶ fault proxy ──▶ HAProxy ──▶ n1, n2 ──▶ Redis ◀── reader of the account
other publishers ──────────▲
```
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from playwright.async_api import BrowserContext

from gateway.client import RequestFailed, RequestRefused, Session, connect
from gateway.core.wire.errors import GatewayError
from gateway.local.checker import Violation
from gateway.local.proxy import FaultProxy
from gateway.local.stack import Stack
from tests.browser.account import (
    DeclaredLoss,
    Permitted,
    Publishes,
    Receipt,
    judge_behaviour,
    judge_publishes,
    judge_secrecy,
    judge_sessions,
    judge_updates,
    publishes_of,
)
from tests.browser.record import Records
from tests.browser.site import Site
from tests.browser.tab import Tab
from tests.cluster.grid_reader import GridReader
from tests.support.browser import unaltered_chromium
from tests.support.faults import eventually, faulty
from tests.support.stack import cluster

ROOTS: Final = ("left", "right")
"""First segments of all topics: two partitions of the grid, between which nothing has an order."""

STEADY: Final = tuple(f"{root}/steady" for root in ROOTS)
"""Topics of the other publishers; pages select one of them by its name, too."""

FLOODED: Final = "left/flood"
"""The topic of which there are more updates than a busy page can take."""

SECRET: Final = "the-proof-of-a-page"
"""What pages show with their hello; it must be nowhere else."""

PING_TIMEOUT: Final = 4.0
"""Seconds of silence after which either side gives a connection up; long enough for a busy machine."""

NODES: Final[Mapping[str, Any]] = {
    "lease": 3,
    "lease_renew": 1,
    "reap_interval": 0.5,
    "ping_interval": 1,
    "ping_timeout": PING_TIMEOUT,
    "backoff_initial": 0.1,
    "backoff_maximum": 1,
    "backoff_stable": 1,
    "drain_jitter": 0.2,
    # A page that is busy for some seconds is owed more than this, so that updates are folded for it.
    "limit_resend_packets": 300,
    # The account needs every entry of the logs.
    "stream_length": 1_000_000,
}
"""Settings of the nodes: what takes a minute in production takes seconds."""

WINDOW: Final = 60.0
"""Seconds for which a page's session is kept; longer than any fault that it must survive."""

SHORT_WINDOW: Final = 4.0
"""Seconds, for a page whose session shall end while it is stopped."""

BRIEF: Final = "brief"
"""Begins the names of tabs whose sessions have the short window."""

STEADY_EVERY: Final = 0.05
PAGE_EVERY: Final = 200
"""Seconds, and milliseconds, between two publishes on one topic."""

LOST_WRITES: Final = "grid_lost_writes"
"""The notice by which nodes declare that the grid came back with less than it had."""

UNWRITTEN: Final = 2.5
"""Seconds that a Redis may keep writes back, if the disk is busy, and a bit more."""

UNREAD: Final = 5.0
"""Seconds after a restart until a page has recorded what it was sent before."""

SETTLED: Final = 30.0
"""Seconds after a fault until every page is connected and holds the current values; usual is one."""

NO_SETTINGS: Final[Mapping[str, Any]] = {}
NO_SABOTAGE: Final[Mapping[str, Mapping[str, bool]]] = {}

Report = Callable[[str], None]
"""Takes a line for people."""


class Others:
    """Publishers that are no pages: each counts on a topic of its own."""

    def __init__(self, session: Session) -> None:
        self.ledgers = {topic: Publishes(topic) for topic in (*STEADY, FLOODED)}
        self._session = session
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._tasks = [asyncio.create_task(self._steadily(topic)) for topic in STEADY]

    async def _steadily(self, topic: str) -> None:
        while True:
            await self._flowing.wait()
            await self._publish(topic)
            await asyncio.sleep(STEADY_EVERY)

    async def _publish(self, topic: str) -> None:
        ledger = self.ledgers[topic]
        ledger.asked += 1
        value = ledger.asked
        try:
            receipt = await self._session.publish(topic, value)
        except RequestFailed:
            return
        except RequestRefused:
            ledger.refused.add(value)
            return
        ledger.receipts[value] = Receipt(receipt.event_id, receipt.version, time.time())

    async def flood(self, count: int) -> None:
        """Publish that often, as fast as the client may."""
        await asyncio.gather(*(self._publish(FLOODED) for _ in range(count)))

    @property
    def idle(self) -> bool:
        """Whether every publish has its answer."""
        return all(each.asked == len(each.receipts) + len(each.refused) for each in self.ledgers.values())

    def pause(self, wanted: bool) -> None:
        """Publish nothing more, or go on."""
        if wanted:
            self._flowing.clear()
        else:
            self._flowing.set()

    async def stop(self) -> None:
        """Stop for good; raises what went wrong with a publisher."""
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        if errors := [end for end in ends if isinstance(end, Exception)]:
            raise ExceptionGroup("publishers failed", errors)


@dataclass
class World:
    """Everything of a run.

    Attributes:
        stack: the cluster.
        proxy: between the pages and HAProxy.
        context: of the browser.
        site: where pages come from.
        records: of all pages.
        others: who publishes besides the pages.
        random: decides moments and victims.
        report: takes lines for people.
        urls: of the gateway, which pages try in turn.
        principals: of tabs, where it is not the name of the tab; what pages find there when they load.
        tabs: that are open.
        restarts: of the grid, from when to when in seconds since 1970.
        permitted: ends of sessions that faults were meant to bring about.
        found: violations that were seen on the way.
    """

    stack: Stack
    proxy: FaultProxy
    context: BrowserContext
    site: Site
    records: Records
    others: Others
    random: random.Random
    report: Report
    urls: list[str]
    principals: dict[str, str]
    tabs: list[Tab] = field(default_factory=list)
    restarts: list[tuple[float, float]] = field(default_factory=list)
    permitted: list[Permitted] = field(default_factory=list)
    found: list[Violation] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)
    _gone: dict[str, list[str]] = field(default_factory=dict)

    @asynccontextmanager
    async def tab(self, name: str) -> AsyncIterator[Tab]:
        """Open a tab with a session of its own."""
        async with Tab(name, self.context, self.site, self.records) as tab:
            self.tabs.append(tab)
            await eventually(lambda: tab.ready, f"the page of {name} has a session", within=SETTLED)
            try:
                yield tab
            finally:
                self.tabs.remove(tab)
                self._seen |= tab.tokens
                self._gone.setdefault(name, []).extend(tab.complaints)

    def named(self, name: str) -> Tab:
        """Return the tab of a name."""
        return next(tab for tab in self.tabs if tab.name == name)

    def victim(self) -> Tab:
        """Choose a tab."""
        return self.random.choice(self.tabs)

    def grid(self) -> GridReader:
        """Open a reader of the grid, behind the gateway's back; not for long, as Redis is restarted."""
        return GridReader(self.stack.grid_url)

    # --- Peace ----------------------------------------------------------------------------------------------------

    async def settle(self, after: str) -> None:
        """Wait until every page is connected and holds what the grid holds, with nothing published meanwhile (P1, P6).

        Raises:
            AssertionError: it did not come to that in time.
        """
        await eventually(
            lambda: all(tab.ready for tab in self.tabs), f"every page is connected after {after}", within=SETTLED
        )
        await self._pause(True)
        try:
            await eventually(self._idle, f"every publish is answered after {after}", within=SETTLED)
            async with self.grid() as grid:
                values = await grid.values()
            for tab in self.tabs:
                await self._current(tab, values, after)
                await self._stored(tab, after)
                await self._secret(tab)
        finally:
            await self._pause(False)

    async def _pause(self, wanted: bool) -> None:
        self.others.pause(wanted)
        for tab in self.tabs:
            await tab.call("pause", wanted)

    async def _idle(self) -> bool:
        for tab in self.tabs:
            await tab.read()
        return self.others.idle and all(tab.ready and tab.idle for tab in self.tabs)

    async def _current(self, tab: Tab, values: Mapping[str, tuple[int, int]], after: str) -> None:
        wanted = {
            f"{tab.view.session} {selection['selector']}": {
                topic: stored for topic, stored in values.items() if _matches(selection["selector"], topic)
            }
            for selection in SELECTIONS
        }
        try:
            await eventually(lambda: tab.view.held == wanted, "current", within=SETTLED)
        except AssertionError:
            held = tab.view.held
            differing = {
                f"{stream} {topic}": (held.get(stream, {}).get(topic), wanted.get(stream, {}).get(topic))
                for stream in held.keys() | wanted.keys()
                for topic in held.get(stream, {}).keys() | wanted.get(stream, {}).keys()
                if held.get(stream, {}).get(topic) != wanted.get(stream, {}).get(topic)
            }
            what = f"{tab.name} at {tab.view.node}: after {after} it does not hold the current values; (has, grid)"
            self.found.append(Violation("P6", f"{what}: {differing}"))

    async def _stored(self, tab: Tab, after: str) -> None:
        view = tab.view
        async with self.grid() as grid:
            stored = await grid.session(view.session)
        if stored is None:
            self.found.append(Violation("P7", f"{tab.name}: after {after} the grid has no session {view.session}"))
            return
        marks = {view.mark, view.asked_mark}
        if view.mark and stored.properties.get("mark") not in marks:
            what = f"after {after} the grid has the property {stored.properties.get('mark')!r}, not one of {marks}"
            self.found.append(Violation("P1", f"{tab.name}: {what}"))
        selections = {f"+{each['selector']}" for each in SELECTIONS}
        # A selection that a later one covers decides nothing and may be left out.
        if not {f"+{root}/**" for root in ROOTS} <= set(stored.selections) <= selections:
            what = f"after {after} the grid has the selections {stored.selections}"
            self.found.append(Violation("P1", f"{tab.name}: {what}"))

    async def _secret(self, tab: Tab) -> None:
        self._seen |= tab.tokens
        leftovers = await tab.leftovers()
        self.found += judge_secrecy(
            self._seen, [SECRET], {f"{tab.name}: {name}": leftovers[name] for name in leftovers}
        )

    # --- The end --------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all sessions on purpose; nothing of them may be left (P7)."""
        await self.others.stop()
        for tab in self.tabs:
            session = tab.view.session
            await tab.call("close")
            await tab.read()
            async with self.grid() as grid:
                left = await grid.session(session)
            if left is not None:
                self.found.append(Violation("P7", f"{tab.name}: of its closed session the grid has {left}"))
            await self._secret(tab)

    async def judge(self) -> list[Violation]:
        """Judge the whole run, with what was found on the way."""
        async with self.grid() as grid:
            log = await grid.logs(*ROOTS)
        lives = list(self.records)
        losses = self._losses()
        complaints = {name: list(texts) for name, texts in self._gone.items()}
        for tab in self.tabs:
            complaints.setdefault(tab.name, []).extend(tab.complaints)
        ledgers = [*publishes_of(lives), *self.others.ledgers.values()]
        logs = [self.stack.log_of(name).read_text(errors="replace") for name in (*self.stack.node_names, "haproxy")]
        return [
            *self.found,
            *judge_updates(lives, log, losses=losses),
            *judge_publishes(ledgers, log, losses=losses),
            *judge_sessions(lives, principals=_Principals(), permitted=self.permitted),
            *judge_behaviour(lives, complaints),
            *judge_secrecy(self._seen, [SECRET], {"the site's requests": self.site.asked, "a log": logs}),
        ]

    def _losses(self) -> list[DeclaredLoss]:
        """Tell which restarts of the grid have lost writes, as pages were told."""
        told = [entry.at for life in self.records for entry in life.of("notice") if entry["code"] == LOST_WRITES]
        return [
            DeclaredLoss(began - UNWRITTEN, ended + UNREAD)
            for began, ended in self.restarts
            if any(at >= began for at in told)
        ]


class _Principals(dict[str, str]):
    """Every tab is its own principal."""

    def __missing__(self, tab: str) -> str:
        return tab


SELECTIONS: Final[tuple[dict[str, Any], ...]] = (
    {"selector": "left/**", "listen": True},
    {"selector": "right/**", "listen": False},
    {"selector": STEADY[0], "listen": False},
)
"""What every page selects: by wildcards and by a name, which overlap; with a listener and by iteration."""


def _matches(selector: str, topic: str) -> bool:
    """Match as far as the selections of the pages need it; not by the gateway's own rules."""
    root, wild, _ = selector.partition("/**")
    return topic.startswith(f"{root}/") if wild else topic == selector


@asynccontextmanager
async def world(
    folder: Path,
    seed: int,
    report: Report = lambda _: None,
    sabotage: Mapping[str, Mapping[str, bool]] = NO_SABOTAGE,
    settings: Mapping[str, Any] = NO_SETTINGS,
) -> AsyncIterator[World]:
    """Start everything; no tab is open yet.

    Args:
        folder: for data, logs and the profile of the browser.
        seed: decides victims and moments.
        report: takes lines for people.
        sabotage: mistakes that the page of a tab shall make, for tests of the account; see ``page/sabotage.js``.
        settings: of the nodes, over ``NODES``.
    """
    records = Records()
    urls: list[str] = []
    principals: dict[str, str] = {}

    def configuration(tab: str) -> Mapping[str, object]:
        return {
            "urls": urls,
            "principal": principals.get(tab, tab),
            "secret": SECRET,
            "keep": tab,
            "window": SHORT_WINDOW if tab.startswith(BRIEF) else WINDOW,
            "selections": SELECTIONS,
            "roots": ROOTS,
            "publishEvery": PAGE_EVERY,
            "inFlight": 4,
            "propertiesEvery": 500,
            "sabotage": sabotage.get(tab, {}),
        }

    async with AsyncExitStack() as parts:
        site = await parts.enter_async_context(Site(configuration, records.take))
        stack = await parts.enter_async_context(
            cluster(folder, nodes=2, **{"origins": site.origin, **NODES, **settings})
        )
        url, proxy = await parts.enter_async_context(faulty(stack.url))
        urls.append(url)
        context = await parts.enter_async_context(unaltered_chromium(folder / "browser"))
        session = await connect(stack.url, principal="others")
        others = Others(session)
        parts.push_async_callback(_end, others, session)
        yield World(stack, proxy, context, site, records, others, random.Random(seed), report, urls, principals)


async def _end(others: Others, session: Session) -> None:
    await others.stop()
    try:
        await session.close()
    except GatewayError:
        return
