"""A value that another node put back into a grid that had lost it is a current value, and no update (P2, P6)."""

from __future__ import annotations

import pytest

from gateway.core.types import EventId, GridGeneration, TopicPath, Version
from gateway.ports import StreamPosition, TailBatch, TopicValue
from tests.support.delivery import GENERATION, DeliveryBench, Reader

NEXT = GridGeneration(GENERATION + 1)
"""The generation of the grid that came back without the values."""


@pytest.mark.promise("P2", "P6")
@pytest.mark.parametrize(
    ("event_generation", "snapshot"),
    [
        pytest.param(GENERATION, True, id="put back"),
        pytest.param(NEXT, False, id="published"),
    ],
)
async def test_what_is_put_back_is_sent_as_a_current_value(event_generation: GridGeneration, snapshot: bool) -> None:
    """Nobody at this node has the updates before it, and a session that is new misses none of them."""
    bench, reader = DeliveryBench(), Reader()
    await bench.subscribe(bench.session(reader), "a/**")
    number = bench.partition("a/1").number
    value = TopicValue(TopicPath("a/1"), Version(448), EventId(f"{number}-{event_generation}-7"), b"448")
    bench.delivery.replicas.take_in(TailBatch(number, (value,), StreamPosition(NEXT, 1)), lambda: None)
    await bench.turns(3)
    assert [(update.version, update.snapshot) for _, update in reader.updates] == [(448, snapshot)]
    await bench.close()
