"""The account of a run with pages finds what pages, or the client in them, do wrong; and nothing else."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.browser.faults import crowded
from tests.browser.world import World, world
from tests.support.faults import eventually
from tests.support.seeds import SEED

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.thorough]

MISTAKES: Final = {
    "dropping": {"drop": True, "leak": True},
    "swapping": {"swap": True, "reject": True},
    "forgetting": {"forget": True, "repeat": True},
}
"""What the page of each tab does wrong; ``tests/browser/page/sabotage.js`` says what it is."""

HONEST: Final = "honest"
"""A tab whose page does nothing wrong."""


async def test_every_mistake_is_found(tmp_path: Path) -> None:
    async with world(tmp_path, SEED, sabotage=MISTAKES) as everything, AsyncExitStack() as tabs:
        for name in (HONEST, *MISTAKES):
            await tabs.enter_async_context(everything.tab(name))
        # Of a thousand updates one is lost, or comes after the next one.
        await crowded(everything)
        await everything.settle("much traffic")
        before = everything.named("forgetting").view.session
        await everything.named("forgetting").page.reload()
        await eventually(lambda: _has_another(everything, before), "the page that forgot its token has a new session")
        await everything.settle("a reload")
        found = [str(violation) for violation in await everything.judge()]
    repeated = next(life.id for life in everything.records if life.tab == "forgetting")
    expected = {
        "drop": "P2: dropping, {}: 1 updates are missing between version",
        "swap": "P6: swapping, {}: went back from version",
        "forget": f"P7: forgetting: session {before} was left for",
        "repeat": f"P5: the grid has on left/{repeated} 2 times value",
        "reject": "C1: swapping: unhandled rejection: Error: nobody waits for this",
        "leak": "P8: a token is in dropping: url",
    }
    for mistake, text in expected.items():
        begin, _, end = text.partition("{}")
        assert any(each.startswith(begin) and end in each for each in found), f"{mistake} is not found: {found}"
    assert not [each for each in found if HONEST in each], "whoever does nothing wrong is not accused"


def _has_another(everything: World, session: str) -> bool:
    tab = everything.named("forgetting")
    return tab.ready and tab.view.session != session
