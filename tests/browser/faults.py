"""What is done to pages, to their network and to the gateway; each fault ends what it began.

A fault returns when it is over; ``World.settle`` then waits until the pages have recovered, and judges what they hold.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from gateway.local.grid_server import GridRestart
from gateway.local.proxy import Way
from tests.browser.account import Permitted
from tests.browser.tab import Tab
from tests.browser.world import BRIEF, PING_TIMEOUT, SETTLED, SHORT_WINDOW, World
from tests.support.faults import eventually

Fault = Callable[[World], Awaitable[None]]

STOPPED: Final = 20.0
"""Seconds for which pages are stopped: a laptop's lid, a debugger, a machine that swaps."""

NOTICED: Final = 4 * PING_TIMEOUT
"""Seconds until a page must have noticed that its connection is dead; it is due after one ping timeout."""

AWAY: Final = 3.0
"""Seconds for which pages are offline, hidden, frozen or left."""

FLOOD: Final = 2_000
"""Updates while a page is busy: several times of what it may leave unacknowledged."""

PORTION: Final = 60
"""Updates that a page may leave unacknowledged, with room for those that come besides."""

PORTIONS: Final = 20

BUSY: Final = 700
"""Milliseconds for which the page's main thread is busy at a time; between, it may read a little."""

BUSY_TIMES: Final = 5

HALF_READ: Final = 20_000
"""Bytes that may pass before a connection is cut in the middle of a message."""


# --- The gateway ------------------------------------------------------------------------------------------------------


async def kill(world: World) -> None:
    """Kill the node that serves a page, and start it again once the page is back at another one."""
    node = world.victim().view.node
    await world.stack.kill_node(node)
    await _elsewhere(world, node)
    await world.stack.start_node(node)
    await world.stack.balanced()


async def drain(world: World) -> None:
    """Stop the node that serves a page as a deploy does, and start it again."""
    node = world.victim().view.node
    code = await world.stack.drain_node(node)
    assert code == 0, f"the drain of {node} ended with {code}"
    await _elsewhere(world, node)
    await world.stack.start_node(node)
    await world.stack.balanced()


async def _elsewhere(world: World, node: str) -> None:
    await eventually(
        lambda: all(tab.ready and tab.view.node != node for tab in world.tabs),
        f"every page that {node} served is at another node",
        within=SETTLED,
    )


async def redis(world: World) -> None:
    """Kill Redis and start it again as it was."""
    began = time.time()
    await world.stack.restart_redis(GridRestart.AS_IT_WAS)
    world.restarts.append((began, time.time()))


async def balancer(world: World) -> None:
    """Kill HAProxy and start it again."""
    await world.stack.restart_haproxy()


# --- The network ------------------------------------------------------------------------------------------------------


async def cut(world: World) -> None:
    """Reset every connection of the pages."""
    world.proxy.cut()


async def cut_between(world: World) -> None:
    """Cut connections in the middle of a message, in one direction and then in the other."""
    for way in world.random.sample(list(Way), 2):
        before = world.proxy.cuts
        world.proxy.cut_after(world.random.randrange(HALF_READ), way)
        await eventually(lambda before=before: world.proxy.cuts > before, f"a connection is cut {way}")  # type: ignore[misc]


async def stall_up(world: World) -> None:
    """Let nothing pass from the pages until they have noticed."""
    await _stall(world, Way.UP)


async def stall_down(world: World) -> None:
    """Let nothing pass to the pages until they have noticed."""
    await _stall(world, Way.DOWN)


async def stall(world: World) -> None:
    """Let nothing pass either way until the pages have noticed."""
    await _stall(world, *Way)


async def _stall(world: World, *ways: Way) -> None:
    noticed = _noticing(world)
    world.proxy.stall(*ways)
    try:
        await eventually(noticed, f"pages notice that nothing passes {' and '.join(ways)}", within=NOTICED)
    finally:
        world.proxy.flow()


async def offline(world: World) -> None:
    """Take the browser off the network, as its own emulation does: new connections fail, open ones pass nothing."""
    await world.context.set_offline(True)
    try:
        await asyncio.sleep(AWAY * world.random.random())
    finally:
        await world.context.set_offline(False)


async def offline_for_long(world: World) -> None:
    """Likewise, until every page has noticed."""
    noticed = _noticing(world)
    await world.context.set_offline(True)
    try:
        await eventually(noticed, "pages notice that they are offline", within=NOTICED)
    finally:
        await world.context.set_offline(False)


def _noticing(world: World) -> Callable[[], bool]:
    """Return what tells whether every page has noticed since that its connection is gone."""
    before = {tab.name: tab.view.losses for tab in world.tabs}
    return lambda: all(tab.view.losses > before[tab.name] for tab in world.tabs)


# --- The page ---------------------------------------------------------------------------------------------------------


async def reload(world: World) -> None:
    """Reload a page in the middle of its publishes."""
    tab = world.victim()
    life = tab.view.life
    await tab.page.reload()
    await eventually(lambda: tab.view.life is not life, f"{tab.name} has a new page")


async def duplicate(world: World) -> None:
    """Duplicate a tab, which copies what it keeps; the first one is superseded, and closed once it was told."""
    tab = world.victim()
    first, life = tab.page, tab.view.life
    await tab.call("finish")
    async with world.context.expect_page() as opened:
        await tab.page.evaluate("window.open(location.href) && null")
    copy = await opened.value
    await eventually(
        lambda: "ended" in tab.view.last, f"the page in {tab.name} is told that another one has its session"
    )
    tab.adopt(copy)
    await eventually(lambda: tab.view.life is not life, f"the copy of {tab.name} is read")
    await first.close()


async def back_forward(world: World) -> None:
    """Leave a page, and come back to it as it was: the browser has kept it, but not its connection."""
    tab = world.victim()
    shown = tab.view.last.get("pageshow")
    await tab.page.goto(world.site.away)
    await asyncio.sleep(AWAY * world.random.random())
    # A page that comes back is not loaded.
    await tab.page.go_back(wait_until="commit")
    await eventually(lambda: tab.view.last.get("pageshow") is not shown, f"{tab.name} is shown again")
    if tab.view.last["pageshow"]["persisted"]:
        return
    raise AssertionError(f"the browser did not keep the page of {tab.name}, so that nothing was tried")


async def hidden(world: World) -> None:
    """Hide a page, so that the browser slows its timers down to one a second."""
    async with hidden_window(world.victim()):
        await asyncio.sleep(AWAY)


async def frozen(world: World) -> None:
    """Freeze a hidden page, as browsers do to save power, and let it go on."""
    tab = world.victim()
    async with hidden_window(tab):
        devtools = await tab.devtools()
        await devtools.send("Page.setWebLifecycleState", {"state": "frozen"})
        await asyncio.sleep(AWAY)
        await devtools.send("Page.setWebLifecycleState", {"state": "active"})
        await devtools.detach()
    await eventually(lambda: "resume" in tab.view.last, f"{tab.name} was frozen, and goes on")


@asynccontextmanager
async def hidden_window(tab: Tab) -> AsyncIterator[None]:
    """Hide the window of a page for as long as the block lasts."""
    devtools = await tab.devtools()
    window = (await devtools.send("Browser.getWindowForTarget"))["windowId"]
    bounds = {"windowId": window, "bounds": {"windowState": "minimized"}}
    await devtools.send("Browser.setWindowBounds", bounds)
    try:
        await eventually(lambda: _visibility(tab) == "hidden", f"{tab.name} is hidden")
        yield
    finally:
        await devtools.send("Browser.setWindowBounds", {**bounds, "bounds": {"windowState": "normal"}})
        await devtools.detach()
    await eventually(lambda: _visibility(tab) == "visible", f"{tab.name} is visible again")


def _visibility(tab: Tab) -> str:
    seen = tab.view.last.get("visibility")
    return "visible" if seen is None else str(seen["state"])


async def busy(world: World) -> None:
    """Keep a page's main thread busy while more is published than it can take: it reads slowly."""
    tab = world.victim()
    flood = asyncio.create_task(world.others.flood(FLOOD))
    for _ in range(BUSY_TIMES):
        await tab.call("block", BUSY)
    await flood


async def crowded(world: World) -> None:
    """Publish much, in portions that a page can take without a pause."""
    for _ in range(PORTIONS):
        await world.others.flood(PORTION)


async def stopped(world: World) -> None:
    """Stop all pages with SIGSTOP: one whose window is longer keeps its session, one whose is shorter does not."""
    name = f"{BRIEF}-{len(world.permitted)}"
    async with world.tab(name) as brief:
        session = brief.view.session
        async with _renderers_stopped(world):
            began = time.time()
            await asyncio.sleep(STOPPED)
            async with world.grid() as grid:
                gone = await grid.session(session) is None
        # Not before the node could notice the silence, and the window was over.
        world.permitted.append(Permitted(session, began + SHORT_WINDOW))
        assert gone, f"the window of {name} was over long ago, and the grid still has its session"
        await eventually(
            lambda: brief.ready and brief.view.session != session, f"{name} has a new session", within=SETTLED
        )
        await world.settle("being stopped for longer than its window")


@asynccontextmanager
async def _renderers_stopped(world: World) -> AsyncIterator[None]:
    browser = world.context.browser
    assert browser is not None
    devtools = await browser.new_browser_cdp_session()
    running = (await devtools.send("SystemInfo.getProcessInfo"))["processInfo"]
    await devtools.detach()
    renderers = [process["id"] for process in running if process["type"] == "renderer"]
    for process in renderers:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in renderers:
            os.kill(process, signal.SIGCONT)


GATEWAY: Final[dict[str, Fault]] = {each.__name__: each for each in (kill, drain, redis, balancer)}
"""Faults of what the pages are connected to."""

NETWORK: Final[dict[str, Fault]] = {
    each.__name__: each for each in (cut, cut_between, stall_up, stall_down, stall, offline, offline_for_long)
}
"""Faults of the way there."""

PAGE: Final[dict[str, Fault]] = {
    each.__name__: each for each in (reload, duplicate, back_forward, hidden, frozen, busy, crowded)
}
"""Faults of the page."""

STOP: Final[dict[str, Fault]] = {stopped.__name__: stopped}
"""What takes long."""

FAULTS: Final = {**GATEWAY, **NETWORK, **PAGE, **STOP}
"""All, by name."""
