"""Single things that the JavaScript client must do in a browser, which faults at random do not tell apart."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from tests.browser.faults import duplicate, hidden_window
from tests.browser.tab import Tab
from tests.browser.world import SELECTIONS, STEADY, World, world
from tests.cluster.crowds import Figures
from tests.support.faults import eventually, faulty
from tests.support.seeds import SEED

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy]

PATIENT: Final = {"ping_interval": 20, "ping_timeout": 45}
"""Settings of nodes as they are by default: a client that only waits notices a dead connection after 45 s."""

HELD: Final = 10
"""Updates that wait for a page that cannot read them."""

AT_ONCE: Final = 12.0
"""Seconds in which a client that looks at its connection has another one; a quarter of what waiting takes."""


async def _online_again(world: World, _: Tab) -> None:
    """The network goes away, and is another one when it is there again."""
    _lose_the_way(world)
    await world.context.set_offline(True)
    await world.context.set_offline(False)


async def _online_again_with_old_data(world: World, tab: Tab) -> None:
    """Likewise, but the last of the old network is read only then: that it comes does not say that a node is there."""
    await world.context.set_offline(True)
    asked = world.others.ledgers[STEADY[0]]
    before = asked.asked
    await eventually(lambda: asked.asked > before + HELD, "updates are on the way to the page, which cannot read them")
    _lose_the_way(world)
    await world.context.set_offline(False)


async def _visible_again(world: World, tab: Tab) -> None:
    """The page was hidden while the network changed."""
    async with hidden_window(tab):
        _lose_the_way(world)


def _lose_the_way(world: World) -> None:
    """Let nothing pass on connections there are, without telling anybody, and no new ones."""
    world.proxy.stall()
    world.proxy.refuse()


@pytest.mark.parametrize(
    "away",
    [
        _online_again,
        pytest.param(_online_again_with_old_data, marks=pytest.mark.thorough),
        pytest.param(_visible_again, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.thorough
async def test_a_page_that_comes_back_looks_at_its_connection(
    away: Callable[[World, Tab], Awaitable[None]], tmp_path: Path, figures: Figures
) -> None:
    """As after a change of networks: nothing comes on the old connection any more, and nobody says so."""
    async with world(tmp_path, SEED, settings=PATIENT) as everything, faulty(everything.stack.url) as (other_way, _):
        everything.urls.append(other_way)
        async with everything.tab("one") as tab:
            session = tab.view.session
            await away(everything, tab)
            began = time.monotonic()
            await eventually(lambda: "recovery" in tab.view.last, "it is back by another way", within=AT_ONCE)
            figures(f"another connection after {time.monotonic() - began:.1f} s")
            await everything.settle("it came back")
            assert not everything.found, everything.found
            assert tab.view.session == session


@pytest.mark.thorough
@pytest.mark.promise("P8")
async def test_the_next_user_of_a_tab_gets_a_session_of_their_own(tmp_path: Path) -> None:
    """A page that is left without a close, and then opened by somebody else in the same tab (P8)."""
    async with world(tmp_path, SEED) as everything:
        everything.principals["shared"] = "alice"
        async with everything.tab("shared") as tab:
            before = tab.view
            assert before.last["opened"]["principal"] == "alice"
            everything.principals["shared"] = "bob"
            await tab.page.reload()
            await eventually(lambda: tab.ready and tab.view is not before, "the page of the next user has a session")
            opened = tab.view.last["opened"]
            assert opened["principal"] == "bob"
            assert opened["session"] != before.session


async def test_a_page_that_was_reloaded_learns_what_came_of_it(tmp_path: Path) -> None:
    async with world(tmp_path, SEED) as everything, everything.tab("one") as tab:
        before = tab.view
        assert before.last["opened"]["resumed"] is False
        await tab.page.reload()
        await eventually(
            lambda: tab.view is not before and "recovery" in tab.view.last, "the page learns of a recovery"
        )
        opened = tab.view.last["opened"]
        assert opened["session"] == before.session
        assert opened["resumed"] is True
        assert set(opened["selections"]) <= {f"+{each['selector']}" for each in SELECTIONS}
        assert {"+left/**", "+right/**"} <= set(opened["selections"])
        assert tab.view.last["recovery"]["outcome"] == "failed_over", "a page that was reloaded has no buffers"


async def test_the_first_page_of_a_duplicated_tab_learns_who_has_its_session(tmp_path: Path) -> None:
    async with world(tmp_path, SEED) as everything, everything.tab("one") as tab:
        first = tab.view
        await duplicate(everything)
        ended = first.last["ended"]
        assert (ended["name"], ended["code"]) == ("SessionRefused", "superseded")
        await eventually(lambda: tab.ready, "the copy has the session")
        assert tab.view.session == first.session


@pytest.mark.thorough
async def test_a_page_of_another_origin_is_not_admitted(tmp_path: Path) -> None:
    """Only the origin that the nodes allow may connect; the page learns no more than that it cannot."""
    async with world(tmp_path, SEED, settings={"origins": "http://127.0.0.1:1"}) as everything:
        tab = Tab("stranger", everything.context, everything.site, everything.records)
        async with tab:
            await eventually(lambda: tab.known and "connect_failed" in tab.view.last, "the page was refused", within=30)
            assert tab.view.last["connect_failed"]["name"] == "ConnectFailed"
            assert not tab.tokens
