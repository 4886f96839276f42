"""A node dies at any moment of its work, and its clients go on from the copies of its backup (M2, M3, P12)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from gateway.app.cluster.mirror.gate import GatedConnection
from gateway.core.wire.codes import MirrorMode
from tests.integration.client.handoff_scene import Scene, scene
from tests.support.nodes import eventually
from tests.support.seeds import seeds
from tests.support.times import scaled, time_limit

pytestmark = pytest.mark.promise("P2", "P5", "P12")


class Moments:
    """Counts what a node does, and has it die right before the n-th of it.

    Args:
        at: which, from 1; 0 for none.
        die: kills it.

    Attributes:
        count: how many there were.
        is_watching: whether they count.
    """

    def __init__(self, at: int, die: Callable[[], None]) -> None:
        self._at = at
        self._die = die
        self.count = 0
        self.is_watching = False

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function like another one, each call of which is such a moment."""

        def call(*arguments: Any, **named: Any) -> Any:
            if self.is_watching:
                self.count += 1
                if self.count == self._at:
                    self._die()
            return function(*arguments, **named)

        return call


async def die(patch: pytest.MonkeyPatch, mode: MirrorMode, at: int, *, to_backup: bool) -> tuple[Scene, int]:
    """Have n1 die under traffic before the n-th frame, acknowledgement of one, or message that leaves."""
    async with scene(patch, backup="n2", mirror=mode, mirror_patience=scaled(20.0)) as found:
        n1 = found.n1.gateway.node
        mirror, links = n1.mirror, n1.links
        assert mirror is not None
        assert links is not None
        next_node = found.n2 if to_backup else found.n3

        def kill() -> None:
            found.kill(found.n1)
            found.lead_to(next_node)

        moments = Moments(at, kill)
        patch.setattr(mirror, "_write", moments.before(mirror._write))
        patch.setitem(links._records, "mirrored", moments.before(links._records["mirrored"]))
        patch.setattr(GatedConnection, "let_out", moments.before(GatedConnection.let_out))
        await eventually(lambda: mirror.backup is not None)
        async with time_limit(60), found.traffic():
            await found.goes_on()
            moments.is_watching = True
            if at:
                await eventually(lambda: len(found.recoveries) >= 1)
            await found.goes_on()
        found.judge()
        return found, moments.count


@pytest.mark.parametrize("to_backup", [True, False], ids=["at the backup", "elsewhere"])
@pytest.mark.parametrize("at", [1, 2, 3, 5, 8, 13, 21])
async def test_sync_whatever_it_was_about_to_do_nothing_is_lost_or_doubled(at: int, to_backup: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found, _ = await die(patch, MirrorMode.SYNC, at, to_backup=to_backup)
    assert [each.outcome for each in found.recoveries] == ["mirrored"]


@pytest.mark.parametrize("seed", seeds(4))
async def test_async_what_the_copy_lacks_is_replayed(seed: int) -> None:
    """It fails over then, which brings every update as well; a publish is executed once either way."""
    at = random.Random(seed).randint(1, 30)
    with pytest.MonkeyPatch.context() as patch:
        found, _ = await die(patch, MirrorMode.ASYNC, at, to_backup=bool(seed % 2))
    assert [each.outcome for each in found.recoveries] in (["mirrored"], ["failed_over"])
