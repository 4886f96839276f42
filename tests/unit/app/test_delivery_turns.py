"""What concerns many sessions or topics of a node is done in portions, between which others have a turn (P20)."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from gateway.core.topics import selection_index
from tests.support.clock import eventually
from tests.support.delivery import DeliveryBench, Reader

MANY = 25
"""Sessions or topics, and portions of a few of them."""


async def test_what_a_change_of_selections_makes_outdated_is_given_up_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One subscriber more of everything makes the answer for each topic wrong that has a subscriber of its own."""
    monkeypatch.setattr(selection_index, "TIDIED_AT_ONCE", 5)
    bench = DeliveryBench()
    index = bench.delivery._index
    await bench.subscribe(bench.session(Reader()), "a/**")
    for number in range(MANY):
        await bench.subscribe(bench.session(Reader()), f"a/{number}")
    bench.publish(*(f"a/{number}" for number in range(MANY)))
    await eventually(lambda: len(index._made) == MANY)
    await bench.subscribe(bench.session(Reader()), "a/**")
    left = [index.outdated]
    while left[-1]:
        await asyncio.sleep(0)
        left.append(index.outdated)
    assert left[0] == MANY - 5
    assert all(before - after <= 5 for before, after in pairwise(left))
    assert not index._made
    await bench.close()
