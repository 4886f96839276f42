"""Times to live and wills as an application gives them."""

from __future__ import annotations

import pytest

from gateway.client import InvalidTopic, InvalidValue, Will
from gateway.client.arguments import ttl_of
from gateway.client.wills import _written
from gateway.core.client.request_sender import EVERYWHERE, _word_for
from gateway.core.client.request_table import UNNUMBERED, ClientAsk
from gateway.core.types import RequestNumber
from gateway.core.wire.packets import Publish
from gateway.core.wire.transaction_packets import Stage
from gateway.core.wire.will_packets import EndKind, SetWills


def test_a_time_to_live_is_seconds_or_none() -> None:
    assert [ttl_of(each) for each in (None, 0, 30, 0.5)] == [None, 0.0, 30.0, 0.5]


@pytest.mark.parametrize("given", [-1, 1e9, 10**400, float("nan"), float("inf"), "30", True, 0.0001, [1]])
def test_nothing_else_is_a_time_to_live(given: object) -> None:
    with pytest.raises(ValueError, match="ttl is 0, or seconds from"):
        ttl_of(given)


def test_a_will_is_for_the_ends_that_nobody_asked_for() -> None:
    assert _written(Will("a", 1)).when == (EndKind.EXPIRED, EndKind.REMOVED)
    assert _written(Will("a", 1, when=("removed", EndKind.CLOSED))).when == (EndKind.CLOSED, EndKind.REMOVED)
    assert _written(Will("a", 1, when="closed")).when == (EndKind.CLOSED,)


def test_a_will_that_cannot_be_is_refused() -> None:
    for when in ((), ("never",)):
        with pytest.raises(ValueError, match=r"end|never"):
            _written(Will("a", 1, when=when))
    with pytest.raises(InvalidTopic):
        _written(Will("a//b", 1))
    with pytest.raises(InvalidValue):
        _written(Will("a", float("nan")))


def test_older_nodes_are_not_asked_for_what_they_would_not_do() -> None:
    ends, stays = (Publish(UNNUMBERED, "a", b"1", ttl=ttl) for ttl in (0.0, None))
    asks: list[tuple[ClientAsk, str]] = [
        (ends, "ttl"),
        (stays, EVERYWHERE),
        (Stage(UNNUMBERED, RequestNumber(1), ends), "ttl"),
        (Stage(UNNUMBERED, RequestNumber(1), stays), EVERYWHERE),
        (SetWills(UNNUMBERED), "wills"),
    ]
    assert [_word_for(ask) for ask, _ in asks] == [word for _, word in asks]
