"""Messages of a queue survive nodes, consumers and restarts of Redis: none is missing, none is settled twice (P15)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.queue_kills import run

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P15")]


@pytest.mark.thorough
async def test_each_message_is_settled_once_while_nodes_are_killed(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    account, wrong, seconds = await run(tmp_path, messages=2_000, kills=10, restarts=1, seed=3)
    assert wrong == []
    figures(f"{len(account.settled)} messages in {seconds:.0f} s, {sum(account.marked.values())} came again, marked")
