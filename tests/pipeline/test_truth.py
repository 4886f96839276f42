"""The comparison of `make demo-pipeline` finds whatever a report may tell wrongly."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.demo_pipeline.clients import Seen
from scripts.demo_pipeline.truth import MOST_APART_MS, Happened, compare

SEEN = Seen(left="n1", node="n2", rung="failed_over", away_ms=500.0, lost=None, replayed=False)
HAPPENED = Happened("death", "n1", {"a": SEEN, "b": SEEN})
INCIDENT = {"incident": "death-x", "kind": "death", "node": "n1", "sessions": 2, "comebacks": 2}
ROW = {"incident": "death-x", "back_node": "n2", "rung": "failed_over", "away_ms": 500, "lost": None, "replayed": False}


def rows(**wrong: Any) -> list[dict[str, Any]]:
    return [ROW | {"session": "a"}, ROW | {"session": "b", **wrong}]


def test_the_truth_has_no_differences() -> None:
    compared = compare(HAPPENED, [INCIDENT], rows(away_ms=500 + MOST_APART_MS))
    assert list(compared.differences) == []
    assert compared.most_apart_ms == MOST_APART_MS
    assert compared.told == INCIDENT


def test_on_a_busy_machine_times_differ_by_what_a_round_trip_takes() -> None:
    busy = Happened("death", "n1", HAPPENED.seen, clock_ms=250.0)
    assert list(compare(busy, [INCIDENT], rows(away_ms=850)).differences) == []
    assert len(compare(busy, [INCIDENT], rows(away_ms=851)).differences) == 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"session": "c"}, "b was touched, and the report does not say so"),
        ({"rung": "reattached"}, "b: the report says rung reattached, its client saw failed_over"),
        ({"back_node": "n3"}, "b: the report says node n3, its client saw n2"),
        ({"lost": 0}, "b: the report says losses 0, its client saw None"),
        ({"replayed": True}, "b: the report says replayed True, its client saw False"),
        ({"replayed": None}, "b: the report says replayed None, its client saw False"),
        ({"away_ms": None}, "b: the report does not say how long it was away"),
        ({"away_ms": 501 + MOST_APART_MS}, "b: away 601 ms by the report, 500 ms by its client"),
    ],
)
def test_whatever_is_told_wrongly_of_a_session_is_found(wrong: dict[str, Any], says: str) -> None:
    assert says in compare(HAPPENED, [INCIDENT], rows(**wrong)).differences


def test_a_session_too_many_is_found() -> None:
    differences = compare(HAPPENED, [INCIDENT], [*rows(), ROW | {"session": "c"}]).differences
    assert list(differences) == ["c was not touched, and the report says so"]


@pytest.mark.parametrize("wrong", [{"sessions": 3}, {"comebacks": 1}])
def test_wrong_sums_are_found(wrong: dict[str, int]) -> None:
    assert len(compare(HAPPENED, [INCIDENT | wrong], rows()).differences) == 1


def test_an_incident_that_is_told_twice_or_not_at_all_is_found() -> None:
    assert compare(HAPPENED, [], []).differences == ["0 incidents are reported of the death of n1"]
    twice = compare(HAPPENED, [INCIDENT, INCIDENT], rows())
    assert twice.differences == ["2 incidents are reported of the death of n1"]
    assert compare(HAPPENED, [INCIDENT | {"kind": "drain"}], rows()).differences
