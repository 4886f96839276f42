"""The master is killed and drained, again and again: followers go with it, and in replication nobody else serves (P19).

``python -m tests.cluster.master_changes --changes 50`` does so at full length.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.core.wire.codes import ClusterMode
from tests.cluster.crowds import Figures
from tests.cluster.master_changes import KINDS, run, served_elsewhere

pytestmark = pytest.mark.promise("P19")


@pytest.mark.cluster
@pytest.mark.redis
@pytest.mark.haproxy
@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ClusterMode)
async def test_clients_are_at_each_new_master_in_time_and_miss_nothing(
    tmp_path: Path, figures: Figures, mode: ClusterMode
) -> None:
    trial = await run(tmp_path, changes=2 * len(KINDS), seed=1, mode=mode)
    assert trial.wrong == []
    assert {each.kind for each in trial.changes} == set(KINDS)
    figures(trial.describe())


def test_a_session_that_begins_at_another_node_than_the_master_is_found() -> None:
    def told(at: int, kind: str, run: str) -> dict[str, Any]:
        return {"at": at, "type": kind, "node": run, "incarnation": "1", "session": "s"}

    journal = [
        told(1, "master_elected", "n1"),
        told(2, "session_opened", "n1"),
        told(3, "master_elected", "n2"),
        told(4, "session_resumed", "n2"),
    ]
    assert served_elsewhere(journal) == (2, [])
    count, wrong = served_elsewhere([*journal, told(5, "session_resumed", "n1")])
    assert (count, len(wrong)) == (3, 1)
    assert "s began at n1:1" in wrong[0]
