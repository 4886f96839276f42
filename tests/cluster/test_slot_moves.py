"""The program that measures moves of slots: it publishes to what moves, and nothing is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.slot_moves import Load, measure, table, topics_of_slots

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.thorough]


async def test_publishes_are_measured_before_and_while_slots_move(tmp_path: Path) -> None:
    (row,) = await measure(tmp_path, [Load("three", 3, 0.01)], slots=3, calm=0.5, pause=0.05)
    assert row.calm.seconds
    assert row.moving.seconds
    assert not row.calm.refused + row.moving.refused
    assert table([row])[-1].startswith("| three | ")


def test_each_topic_is_in_a_slot_of_its_own() -> None:
    assert len(set(topics_of_slots(12).values())) == 12
