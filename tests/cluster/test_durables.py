"""A durable subscription survives its readers and their nodes: each event is acknowledged once (P14)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.durable_kills import run

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P14")]


async def test_each_event_is_acknowledged_once_while_readers_are_killed_with_their_nodes(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    account, seconds = await run(tmp_path, events=500, kills=3, seed=3)
    assert account.wrong == []
    figures(f"{len(account.had)} events in {seconds:.0f} s, {account.again} came again")
