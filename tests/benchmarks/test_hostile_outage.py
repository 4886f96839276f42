"""Rows that take Redis away: what took long for that alone is no latency, and the node has to come back by itself."""

from __future__ import annotations

import dataclasses
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from benchmarks.hostile.account import Account
from benchmarks.hostile.outage import Outage, came_back
from benchmarks.hostile.verdict import RETURN_BOUND, Phase, judge, remarks, seen
from benchmarks.hostile.watch import Sight
from benchmarks.hostile.witness import SUBSCRIBERS
from tests.benchmarks.hostile_data import NOTHING, measured

AWAY: Final = Outage(begin=11.0, answered=14.0, back=14.5)


@pytest.mark.parametrize(
    ("due", "took", "left"),
    [
        (10.0, 0.5, 0.5),  # over before
        (10.9, 4.0, 0.5),  # under way when it began: 0.1 s before it, 0.4 s after
        (11.0, 3.5, 0.0),  # due in it, and there as soon as it was over
        (12.0, 2.7, 0.2),
        (12.0, 1.0, 0.0),  # needed no Redis
        (14.5, 0.3, 0.3),  # due when it was over
    ],
)
def test_a_time_without_the_outage_counts_from_the_return(due: float, took: float, left: float) -> None:
    assert AWAY.without(due, took) == pytest.approx(left)


def test_where_redis_was_unreachable_every_time_of_the_phase_is_without_it() -> None:
    account = Account(
        updates=[(10.9, 4.0), (12.0, 2.7), (14.6, 0.1)],
        missing=[12.0],
        logins=[(12.0, 2.6, "")],
        resumes=[(10.0, 0.1, "")],
        ended=20.0,
    )

    found = seen(Phase(10.0, 15.0), account, Sight(), (NOTHING, NOTHING), 0.5, outage=AWAY)

    assert found.latencies == pytest.approx([0.5, 0.2, 0.1, 5.5])
    assert found.logins == pytest.approx([0.1])
    assert found.resumes == pytest.approx([0.1])
    assert found.outage == AWAY


@pytest.mark.parametrize(
    ("due", "told", "declared"),
    [
        (10.9, [14.6] * SUBSCRIBERS, True),
        (13.0, [14.6] * SUBSCRIBERS, True),
        (10.9, [14.6] * (SUBSCRIBERS - 1), False),  # not to everybody
        (10.9, [5.0] * SUBSCRIBERS, False),  # of another outage
        (8.9, [14.6] * SUBSCRIBERS, False),  # written long before
        (14.6, [14.7] * SUBSCRIBERS, True),  # published when Redis was back, and nobody was told yet
        (14.6, [14.5, *[14.7] * (SUBSCRIBERS - 1)], False),  # one of them was
    ],
)
def test_what_went_with_redis_is_lost_unless_every_subscriber_was_told(
    due: float, told: list[float], declared: bool
) -> None:
    account = Account(missing=[due], loss_declared=told, ended=20.0)

    found = seen(Phase(8.0, 15.0), account, Sight(), (NOTHING, NOTHING), 0.5, outage=AWAY)
    without = seen(Phase(8.0, 15.0), account, Sight(), (NOTHING, NOTHING), 0.5)

    assert (found.declared, found.lost) == ((1, 0) if declared else (0, 1))
    assert bool(found.latencies) is not declared
    assert (without.declared, without.lost) == (0, 1), "where Redis was not taken away nothing may be lost"


def test_what_went_with_redis_is_remarked() -> None:
    assert judge(measured(declared=8)) == []
    assert remarks(measured(declared=8)) == [
        "8 updates of the witness were lost with Redis, and every subscriber was told"
    ]


@pytest.mark.parametrize(
    ("back", "sentences"),
    [
        (14.0 + RETURN_BOUND, []),
        (17.0, [f"the node had Redis again 3.0 s after it answered, not within {RETURN_BOUND} s"]),
        (None, ["the node did not come back to Redis"]),
    ],
)
def test_a_node_may_not_take_long_to_have_redis_again(back: float | None, sentences: list[str]) -> None:
    assert judge(measured(outage=dataclasses.replace(AWAY, back=back))) == sentences


def test_an_outage_that_the_node_did_not_survive_ends_when_redis_answered() -> None:
    assert dataclasses.replace(AWAY, back=None).without(12.0, 4.0) == 2.0


def test_the_log_tells_when_the_node_had_redis_again(tmp_path: Path) -> None:
    def line(event: str, moment: float) -> str:
        told = datetime.fromtimestamp(moment + time.time() - time.monotonic(), UTC).isoformat()
        return json.dumps({"time": told, "level": "warning", "event": event, "about": "grid_back"})

    log, now = tmp_path / "n1.log", time.monotonic()
    log.write_text(
        "\n".join((line("grid_back", now - 50), line("grid_unreachable", now - 30), line("grid_back", now - 20), "")),
    )

    assert came_back(log, now - 60) == pytest.approx(now - 50, abs=0.1)
    assert came_back(log, now - 40) == pytest.approx(now - 20, abs=0.1)
    assert came_back(log, now - 10) is None
