"""More connections than a process has descriptors for: those above are refused, and the admin port answers (P20)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from gateway.bootstrap.descriptors import Descriptors
from tests.fuzz.node import watched_node
from tests.fuzz.wire import Wire
from tests.support.clock import eventually
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P20")

SOFT: Final = 256
HARD: Final = 1024
"""Open files that the node may have: as little as a shell gives it at worst."""

WATCHING: Final = 2
"""Connections of the witness and the speaker."""

TOO_MANY: Final = 40
"""Connections above what there is room for."""


SIDE_BY_SIDE: Final = 32
"""Connections that are opened at a time: fewer than may have asked for nothing yet."""


async def upgrade(wire: Wire) -> None:
    await wire.dial()
    await wire.upgrade()


async def test_a_node_takes_no_more_connections_than_it_has_descriptors_for(tmp_path: Path) -> None:
    room = Descriptors(HARD).connections(0)
    async with (
        time_limit(120.0),
        watched_node(tmp_path, (SOFT, HARD), handshake_timeout="60") as node,
    ):
        wires = [Wire(node.port) for _ in range(room - WATCHING + TOO_MANY)]
        for start in range(0, len(wires), SIDE_BY_SIDE):
            await asyncio.gather(*map(upgrade, wires[start : start + SIDE_BY_SIDE]))
        answers = Counter(wire.answer[9:12] for wire in wires)
        # And as many that say nothing, of which some make room for the others.
        silent = [Wire(node.port) for _ in range(2 * Descriptors(HARD).requests)]
        for wire in silent:
            await wire.dial()

        async def has_made_room() -> bool:
            return (await node.metrics())['gateway_upgrades_refused_total{reason="crowded_out"}'] > 0

        await eventually(has_made_room)
        await node.look()
        metrics = await node.metrics()

        assert answers == {b"101": room - WATCHING, b"503": TOO_MANY}
        assert metrics["process_max_fds"] == HARD
        assert metrics["process_open_fds"] < HARD
        assert '"descriptors_short"' in node.log()
        assert '"connections_not_accepted"' not in node.log()
        await asyncio.gather(*(wire.close() for wire in [*wires, *silent]))
        await node.settle()
