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
