"""Reading values as an application asks for it, and what is made of the reply."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.client import CurrentValue, InvalidSelector, InvalidTopic, ValuesPage
from gateway.client.supervisor import Supervisor
from gateway.client.values import ValueCalls
from gateway.core.client.request_sender import _word_for
from gateway.core.client.request_table import UNNUMBERED, ClientAsk
from gateway.core.types import EventId, Version
from gateway.core.wire.packets import Reply
from gateway.core.wire.value_packets import ReadValues, ValueItem, ValuesPart


class Answering(ValueCalls):
    """A session that has the same answer to everything."""

    def __init__(self, values: ValuesPart | None = None) -> None:
        self.asked: list[tuple[ClientAsk, float | None]] = []
        self._values = values
        self._supervisor = cast("Supervisor", self)

    async def request(self, ask: ClientAsk, seconds: float | None) -> Reply:
        self.asked.append((ask, seconds))
        return Reply(request=UNNUMBERED, values=self._values)


async def test_a_page_is_asked_for_as_the_caller_says() -> None:
    session = Answering()
    await session.values("prices/**")
    await session.values("prices/*", "prices/a", 7, timeout=2.5)
    assert session.asked == [
        (ReadValues(UNNUMBERED, "prices/**"), None),
        (ReadValues(UNNUMBERED, "prices/*", "prices/a", 7), 2.5),
    ]


async def test_a_page_has_values_and_says_where_the_next_one_begins() -> None:
    items = (
        ValueItem("a/1", Version(3), EventId("7-1-2"), {"bid": 1}),
        ValueItem("a/2", Version(1), EventId("7-1-3"), None),
    )
    assert await Answering(ValuesPart(items, "a/2")).values("a/*") == ValuesPage(
        (CurrentValue("a/1", {"bid": 1}, 3, "7-1-2"), CurrentValue("a/2", None, 1, "7-1-3")), "a/2"
    )
    assert await Answering(ValuesPart()).values("a/*") == ValuesPage((), None)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"selector": "a//b"}, InvalidSelector),
        ({"selector": 7}, InvalidSelector),
        ({"selector": "a", "after": "a/*"}, InvalidTopic),
        ({"selector": "a", "after": ""}, InvalidTopic),
        ({"selector": "a", "after": 7}, InvalidTopic),
        ({"selector": "a", "limit": 0}, ValueError),
        ({"selector": "a", "limit": -1}, ValueError),
    ],
)
async def test_what_makes_no_sense_is_refused_before_it_is_sent(given: dict[str, Any], error: type[Exception]) -> None:
    session = Answering()
    with pytest.raises(error):
        await session.values(**given)
    assert session.asked == []


def test_older_nodes_are_not_asked() -> None:
    assert _word_for(ReadValues(UNNUMBERED, "a")) == "values"
