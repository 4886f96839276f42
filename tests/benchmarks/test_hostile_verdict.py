"""What counts as harm, and what is published: with made-up measurements, so that each kind of harm can be tried."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases.base import OURS, Row
from benchmarks.document import FORMAT, BadResults, Document
from benchmarks.hostile import page
from benchmarks.hostile.account import Account
from benchmarks.hostile.case import FIGURES, Hostile, row
from benchmarks.hostile.catalogue import ATTACKS, GROUPS
from benchmarks.hostile.disturbances import disturbances
from benchmarks.hostile.verdict import (
    LATENCY_BOUND,
    Measurement,
    Phase,
    broken_promises,
    judge,
    quantile,
    remarks,
    seen,
)
from benchmarks.hostile.watch import Counts, Sight
from benchmarks.hostile.witness import SUBSCRIBERS
from benchmarks.publish import RESULTS, ROOT, THREATS, doubts, newest, pages, publish, stored, threat_model
from tests.benchmarks.hostile_data import CALM, NOTHING, measured

# The verdict ----------------------------------------------------------------------------------------------------------


def test_a_node_that_serves_the_others_as_before_holds() -> None:
    assert judge(measured()) == []


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        ({"lost": 2}, "2 updates of the witness were lost"),
        ({"cuts": 1}, "1 times a witness lost its connection"),
        ({"refused": 3}, "3 publishes of the witness were refused"),
        ({"leases_lost": 1}, "1 times the lease was lost"),
        ({"lease_left": -0.5}, "its lease had expired in Redis"),
        ({"falls": 1}, "1 times HAProxy took the node for dead"),
        ({"down": True}, "HAProxy sent no new sessions to the node"),
        ({"unanswered": 4}, "4 health checks had no answer"),
        ({"unready": 1}, "1 times the node was not ready"),
    ],
)
def test_harm_that_can_be_counted_is_told(harm: dict[str, Any], sentence: str) -> None:
    assert broken_promises(measured(**harm)) == [sentence]
    assert judge(measured(**harm)) == [sentence]


def test_disorder_is_harm_whenever_it_happens() -> None:
    assert judge(dataclasses.replace(measured(), disordered=1)) == ["1 updates of the witness came in disorder"]


@pytest.mark.parametrize("name", ["refused", "cuts", "unready", "unanswered"])
def test_what_happened_before_the_attack_as_well_is_not_its_doing(name: str) -> None:
    once: dict[str, Any] = {name: 1}
    before = dataclasses.replace(CALM, **once)
    both = dataclasses.replace(measured(**{name: 5}), quiet=before)

    assert broken_promises(both) == []


@pytest.mark.parametrize(
    ("quiet", "attacked", "holds"),
    [(0.01, 0.249, True), (0.01, 0.25, False), (0.1, 0.99, True), (0.1, 1.0, False)],
)
def test_p99_is_bounded_by_250_ms_or_ten_times_its_quiet_value(quiet: float, attacked: float, holds: bool) -> None:
    both = dataclasses.replace(measured(latencies=[attacked]), quiet=dataclasses.replace(CALM, latencies=[quiet]))

    assert both.bound == pytest.approx(max(LATENCY_BOUND, 10 * quiet))
    assert (judge(both) == []) is holds


def test_a_witness_that_saw_nothing_is_no_good_witness() -> None:
    assert judge(measured(latencies=[])) == ["the witness saw no update"]


def test_a_quantile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(1, 101)]

    assert quantile(values, 0.99) == 99
    assert quantile([7.0], 0.99) == 7
    assert math.isnan(quantile([], 0.99))


def test_an_update_that_never_came_counts_for_as_long_as_it_was_waited_for() -> None:
    account = Account(updates=[(1.0, 0.1), (11.0, 0.2)], missing=[12.0], unanswered=[13.0], ended=20.0)

    found = seen(Phase(10.0, 15.0), account, Sight(), (NOTHING, NOTHING), 0.5)

    assert sorted(found.latencies) == [0.2, *[7.0] * SUBSCRIBERS, 8.0]
    assert found.lost == 1


def test_only_what_belongs_to_a_phase_is_counted() -> None:
    account = Account(
        refused=[(1.0, 0.1, "grid_unavailable"), (11.0, 0.4, "grid_unavailable")],
        cuts=[(2.0, "close 4001"), (14.0, "close 4001")],
        logins=[(1.0, 0.1, ""), (11.0, 0.2, ""), (12.0, 9.0, "no welcome")],
        resumes=[(11.0, 0.3, ""), (16.0, 0.4, "")],
        returns=[(1.0, 0.1, "try_later"), (11.0, 0.5, ""), (12.0, 0.1, "try_later")],
    )
    sight = Sight(
        checks=[(1.0, 2.0, 0), (11.0, 0.1, 200), (12.0, 2.0, 0), (13.0, 0.2, 503)],
        resident=[(1.0, 9), (11.0, 5), (12.0, 7)],
        leases=[(1.0, -1.0), (11.0, 4.0), (12.0, 3.0)],
        down=[1.0],
    )
    before = Counts(cpu=1.0, waited=0.0, falls=2, failed_checks=3, leases_lost=4, refused_by_redis=5)
    after = Counts(cpu=2.0, waited=0.0, falls=3, failed_checks=5, leases_lost=7, refused_by_redis=7)

    found = seen(Phase(10.0, 15.0), account, sight, (before, after), 0.5)

    assert (found.refused, found.cuts, found.failed_logins) == (1, 1, 1)
    assert (found.logins, found.resumes) == ([0.2], [0.3])
    assert (found.returns, found.failed_returns) == ([0.5], 1)
    assert (found.refusals, found.undocumented, found.refused_by_redis) == ([0.4], 1, 2)
    assert (found.unanswered, found.unready, found.slowest_check) == (1, 1, 2.0)
    assert (found.resident, found.lease_left, found.down) == (7, 3.0, False)
    assert (found.falls, found.failed_checks, found.leases_lost, found.cpu) == (1, 2, 3, 0.5)


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        ({"logins": [0.1, 3.0, 4.0]}, "a login took 3.0 s"),
        ({"resumes": [2.0]}, "a resume took 2.0 s"),
        ({"returns": [1.5]}, "a return took 1.5 s"),
        ({"logins": []}, "not one login of the witness came to its end"),
        ({"failed_logins": 2}, "2 logins or resumes of the witness were refused"),
        ({"failed_returns": 1}, "1 returns of the witness were refused"),
    ],
)
def test_newcomers_are_judged(harm: dict[str, Any], sentence: str) -> None:
    assert judge(measured(**harm)) == [sentence]


def test_what_the_witness_was_told_is_told() -> None:
    assert judge(measured(failed_returns=1, failed_logins=1, why_failed={"HTTP 503": 2})) == [
        "1 returns of the witness were refused",
        "1 logins or resumes of the witness were refused",
        "it was told: HTTP 503 (2)",
    ]
    assert judge(measured(why_failed={"HTTP 503": 2})) == [], "what does not count is not told"


def test_a_machine_on_which_logins_are_slow_without_an_attack_is_no_harm() -> None:
    slow = dataclasses.replace(measured(logins=[3.0]), quiet=dataclasses.replace(CALM, logins=[0.5]))
    never = dataclasses.replace(measured(logins=[]), quiet=dataclasses.replace(CALM, logins=[]))

    assert judge(slow) == judge(never) == []


def test_what_was_declared_is_remarked_and_does_not_decide() -> None:
    folded = dataclasses.replace(measured(), folded=3)

    assert judge(folded) == []
    assert remarks(measured()) == []
    assert row("pongs", folded).flags == remarks(folded) == ["3 updates of the witness were folded, and declared"]


def full(**attacked: Any) -> Measurement:
    """Make a measurement of a Redis that was full all the time, so that the witness met what the page promises."""
    found: dict[str, Any] = {
        "latencies": [],
        "logins": [],
        "resumes": [],
        "failed_logins": 8,
        "returns": [0.01],
        "refused": 240,
        "refusals": [0.003] * 240,
        "refused_by_redis": 1_000,
    }
    return dataclasses.replace(measured(**found | attacked), full=True)


def test_a_full_redis_refuses_new_data_and_that_alone() -> None:
    assert judge(full()) == []
    assert remarks(full()) == [
        "as Redis was full, 100% of the witness's publishes and 8 of its logins were refused, to be asked again"
    ]


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        ({"failed_returns": 1}, "1 returns of the witness were refused"),
        ({"returns": []}, "not one return of the witness came to its end"),
        ({"cuts": 1}, "1 times a witness lost its connection"),
        ({"undocumented": 2}, "2 publishes or logins of the witness were refused otherwise than by grid_unavailable"),
        ({"refusals": [3.0] * 240}, "p99 of 3,000 ms, not below 250 ms"),
        (
            {"refused_by_redis": 0},
            "Redis was not full: it refused 0 commands, and 100% of the witness's publishes were refused",
        ),
        (
            {"refused": 2, "refusals": [0.003] * 2, "latencies": [0.003] * 4 * 198},
            "Redis was not full: it refused 1,000 commands, and 1% of the witness's publishes were refused",
        ),
    ],
)
def test_a_full_redis_is_no_reason_for_anything_else(harm: dict[str, Any], sentence: str) -> None:
    assert judge(full(**harm)) == [sentence]


def test_a_redis_that_gets_full_where_it_should_not_is_harm() -> None:
    assert judge(measured(refused_by_redis=1)) == ["1 commands were refused by Redis, as it was full"]


# The row and the page -----------------------------------------------------------------------------------------------


def made(**changes: Any) -> Document:
    """Results of a run of all attacks, in which one did not hold."""
    rows = [row(name, measured(lost=2) if name == "pongs" else measured()) for name in ATTACKS]
    content = {
        "format": FORMAT,
        "date": "2026-01-02T03:04:05+00:00",
        "commit": "0123456789ab",
        "machine": {"processor": "P", "cores": 2, "memory": "1 kB", "kernel": "Linux 6", "distribution": "D"},
        "quick": False,
        "cases": {Hostile.name: {"title": Hostile.title, "about": Hostile.about}},
        "systems": {OURS: {"title": "session gateway", "versions": {}, "settings": {}, "unavailable": None}},
        "figures": {Hostile.name: list(FIGURES)},
        "rows": rows,
        "targets": [],
        "broken": [],
        "failed": True,
    }
    return Document.model_validate(content | changes)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / THREATS).parent.mkdir(parents=True)
    (tmp_path / THREATS).write_text((ROOT / THREATS).read_text())
    return tmp_path


def test_a_row_has_every_figure() -> None:
    found = row("pongs", measured())

    assert set(found.values) == {each.name for each in FIGURES}
    assert found.values["held"] == 1
    assert found.failures == []
    assert row("pongs", measured(lost=1)).values["held"] == 0


def test_the_page_shows_every_row_with_its_verdict() -> None:
    text = page.tables(made())

    assert f"The node held in {len(ATTACKS) - 1} of {len(ATTACKS)} rows." in text
    for title in GROUPS:
        assert f"**{title}**" in text
    for name in ATTACKS:
        assert f"| `{name}`: " in text
    assert text.count("**no**: 2 updates of the witness were lost") == 1
    assert "Redis away for 3 s of both phases; times are net of it" in text


def test_results_are_published_in_their_own_place_and_the_same_again(copy: Path) -> None:
    document = made()
    written = publish(document, copy)
    before = {path: (copy / path).read_bytes() for path in written}

    kept = RESULTS / "hostile" / "2026-01-02.json"
    assert written == [kept, THREATS]
    assert newest(copy) is None
    assert newest(copy, RESULTS / "hostile") == copy / kept
    publish(Document.load(copy / kept), copy)
    assert {path: (copy / path).read_bytes() for path in written} == before


def test_a_busy_machine_is_told_and_not_published() -> None:
    busy = dataclasses.replace(measured(), node_waited=0.2, attacker_waited=0.7, kept_busy=0.25)
    rows = [row(name, busy if name == "pongs" else measured()) for name in ATTACKS]

    assert disturbances(measured()) == []
    assert disturbances(busy) == [
        "the machine was busy: the node waited for its core for 20% of the quiet phase",
        (
            "the machine was busy: the attacker waited for its core for 70% of the attack, "
            "and no more than 25% of its connections kept the node busy"
        ),
    ]
    assert judge(busy) == [], "it says little, and is no verdict"
    assert doubts(made(rows=rows)) == [f"the machine was busy in 1 of {len(ATTACKS)} rows"]


def test_rows_that_did_not_hold_are_published_and_missing_ones_are_not() -> None:
    document = made()
    some = made(rows=[each for each in document.rows if each.contestant != "pongs"])

    assert doubts(document) == []
    assert doubts(some) == ["there is nothing of pongs"]
    assert doubts(made(quick=True)) == ["it was a quick run, to try things"]
    assert "came to nothing" in doubts(made(broken=["hostile, round 1, pongs: it came to nothing"]))[0]


def test_a_run_with_other_cases_is_refused() -> None:
    mixed = made(
        cases={name: {"title": name, "about": ""} for name in ("hostile", "fanout")},
        figures={"hostile": list(FIGURES), "fanout": []},
        rows=[Row("fanout", "flat", OURS, {})],
    )

    with pytest.raises(BadResults, match="published by itself"):
        pages(mixed)


def test_the_threat_model_shows_the_newest_results() -> None:
    file = newest(folder=RESULTS / "hostile")
    document = None if file is None else Document.load(file)

    assert (ROOT / THREATS).read_text() == threat_model(document), "make bench-publish BENCH_JSON=…"
    if file is not None and document is not None:
        assert list(doubts(document)) == []
        assert file.read_text() == stored(document)
