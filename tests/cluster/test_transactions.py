"""Messages are passed on in transactions through kills: the output has each input exactly once (P16)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.transaction_kills import run

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P16")]


async def test_the_output_has_each_input_once_while_nodes_are_killed(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    account, seconds = await run(tmp_path, messages=200, kills=3, restarts=1, seed=3)
    assert account.complaints(200) == []
    figures(f"200 messages in {seconds:.0f} s, {account.refused} transactions were refused")


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.promise("P2")
async def test_the_output_has_each_input_once_while_masters_are_killed(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """What a replica lacks that takes over is declared, and of a transaction it is all or nothing."""
    account, seconds = await run(tmp_path, messages=600, kills=3, restarts=4, seed=6, grid="sentinel")
    assert account.complaints(600) == []
    figures(
        f"600 messages in {seconds:.0f} s, {len(account.lost_inputs)} were lost with a master, "
        f"{account.refused} transactions were refused"
    )


@pytest.mark.thorough
@pytest.mark.timeout(600)
async def test_the_output_has_each_input_once_on_a_cluster(tmp_path: Path, figures: Callable[[str], None]) -> None:
    account, seconds = await run(tmp_path, messages=500, kills=6, restarts=0, seed=3, grid="cluster")
    assert account.complaints(500) == []
    figures(f"500 messages in {seconds:.0f} s, {account.refused} transactions were refused")
