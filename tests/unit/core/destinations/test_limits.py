"""Limits of histories and queues: what is not given is as by default, and nothing beyond the bounds gets in."""

from __future__ import annotations

from dataclasses import fields

import pytest

from gateway.core.destinations.limits import (
    HISTORY_LIMITS,
    LIMITS,
    QUEUE_LIMITS,
    VALUE_LIMITS,
    HistoryLimits,
    InvalidDestination,
    Kind,
    Limit,
    QueueLimits,
    Unit,
    ValueLimits,
    WhenFull,
    default_of,
    kind_of,
    limit_fields,
    read_limits,
)

AMOUNTS = [
    (kind, each)
    for kind, limits in LIMITS.items()
    for each in limits
    if each.unit in {Unit.NUMBER, Unit.SECONDS, Unit.BYTES}
]


def test_what_is_not_given_is_as_by_default() -> None:
    assert read_limits(Kind.VALUE, {}) == ValueLimits()
    assert read_limits(Kind.VALUE, {"ttl": 30}) == ValueLimits(ttl=30)
    assert read_limits(Kind.HISTORY, {}) == HistoryLimits()
    assert read_limits(Kind.HISTORY, {"age": 60}) == HistoryLimits(age=60)
    assert read_limits(Kind.QUEUE, {"full": "drop_oldest", "ack_within": 1.5}) == QueueLimits(
        full=WhenFull.DROP_OLDEST, ack_within=1.5
    )


def test_every_limit_is_declared_once_and_its_default_is_within_its_bounds() -> None:
    for limits, declared in (
        (ValueLimits(), VALUE_LIMITS),
        (HistoryLimits(), HISTORY_LIMITS),
        (QueueLimits(), QUEUE_LIMITS),
    ):
        assert sorted(each.name for each in fields(limits)) == sorted(each.name for each in declared)
        for each in declared:
            assert each.read(getattr(limits, each.name)) == default_of(kind_of(limits), each.name)
    with pytest.raises(KeyError):
        default_of(Kind.VALUE, "count")
    with pytest.raises(KeyError):
        default_of(Kind.HISTORY, "full")


@pytest.mark.parametrize(("kind", "limit"), AMOUNTS, ids=lambda each: getattr(each, "name", str(each)))
def test_the_bounds_themselves_are_allowed_and_nothing_beyond(kind: Kind, limit: Limit) -> None:
    for value in (limit.low, limit.high):
        assert limit_fields(read_limits(kind, {limit.name: value}))[limit.name] == value
    for value, wrong in ((limit.low - 1, "too small"), (limit.high + 1, "too large")):
        with pytest.raises(InvalidDestination, match=f"{limit.name} is {wrong}; give .* between"):
            read_limits(kind, {limit.name: value})


@pytest.mark.parametrize("value", [True, "10", [1], {}, float("nan"), float("inf"), -float("inf")])
def test_an_amount_is_a_finite_number(value: object) -> None:
    with pytest.raises(InvalidDestination, match="count is not a number"):
        read_limits(Kind.HISTORY, {"count": value})


def test_what_is_counted_is_whole() -> None:
    assert read_limits(Kind.HISTORY, {"count": 5.0}) == HistoryLimits(count=5)
    assert isinstance(limit_fields(read_limits(Kind.HISTORY, {"count": 5.0}))["count"], int)
    for name in ("count", "bytes"):
        with pytest.raises(InvalidDestination, match="is not a whole number"):
            read_limits(Kind.HISTORY, {name: 9000.5})
    assert read_limits(Kind.HISTORY, {"age": 1.5}) == HistoryLimits(age=1.5)


def test_only_some_limits_can_be_without_a_bound() -> None:
    assert read_limits(Kind.QUEUE, {"expires": None, "ack_within": None}) == QueueLimits()
    with pytest.raises(InvalidDestination, match="count is not a number"):
        read_limits(Kind.QUEUE, {"count": None})


def test_switches_and_choices_are_exact() -> None:
    assert read_limits(Kind.QUEUE, {"exclusive": True}) == QueueLimits(exclusive=True)
    with pytest.raises(InvalidDestination, match="exclusive is not true or false"):
        read_limits(Kind.QUEUE, {"exclusive": 1})
    for value in ("REFUSE", "", None, 3, ["refuse"]):
        with pytest.raises(InvalidDestination, match='give "refuse" or "drop_oldest"'):
            read_limits(Kind.QUEUE, {"full": value})


def test_a_limit_of_another_kind_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidDestination, match="'deliveries' is no limit of a history; give any of count, age, byt"):
        read_limits(Kind.HISTORY, {"deliveries": 3})
    with pytest.raises(InvalidDestination, match="'count' is no limit of a value; give any of ttl"):
        read_limits(Kind.VALUE, {"count": 3})


def test_limits_read_as_they_are_written() -> None:
    for limits in (
        ValueLimits(ttl=1.5),
        HistoryLimits(count=3, age=2.5),
        QueueLimits(full=WhenFull.DROP_OLDEST, expires=7.0),
    ):
        assert read_limits(kind_of(limits), limit_fields(limits)) == limits
