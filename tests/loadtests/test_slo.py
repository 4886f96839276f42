"""Thresholds decide, what did not happen meets none of them, and a file that is wrong says where."""

from __future__ import annotations

import json
import tomllib
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import loadtests
from loadtests.figures import FIGURES, Measured, Requests, figures
from loadtests.slo import Bound, InvalidThresholds, Outcome, Threshold, Verdict, judge, load
from loadtests.tally import Tally
from loadtests.verdict import advice, as_html, headline, put_into_report, show, write_json

SHIPPED = Path(loadtests.__file__).with_name("slo.toml")


def measured(tally: Tally | None = None, /, **requests: Requests) -> Measured:
    return Measured(requests=requests, tally=tally or Tally(), rate=2.0, publishers=5)


def written(folder: Path, text: str) -> Path:
    file = folder / "slo.toml"
    file.write_text(text)
    return file


# Figures --------------------------------------------------------------------------------------------------------------


def test_every_figure_that_is_named_is_computed() -> None:
    assert set(figures(measured())) == set(FIGURES)


def test_a_quantile_is_the_smallest_time_that_enough_requests_keep_to() -> None:
    requests = Requests(100, 0, {1.0: 50, 2.0: 49, 900.0: 1})
    assert [requests.quantile(share) for share in (0.01, 0.5, 0.51, 0.99, 1.0)] == [1, 1, 2, 2, 900]
    assert Requests(1, 0, {7.0: 1}).quantile(0.5) == 7
    assert Requests().quantile(0.5) is None


def test_recoveries_are_measured_together_whatever_their_outcome() -> None:
    requests = {"resume reattached": Requests(1, 0, {10.0: 1}), "resume failed_over": Requests(1, 0, {500.0: 1})}
    assert figures(measured(**requests))["resume_p99_ms"] == 500


def test_shares_are_of_what_was_planned() -> None:
    tally = Tally(subscribed_seconds=20.0, updates=190, publishing_seconds=10.0, published=20, fresh=99, owed=100)
    tally.add(Tally(reattached=3, handed_over=2, mirrored=1, failed_over=4, replayed=3, not_replayed=1))
    values = figures(measured(tally))
    assert values["throughput_share"] == pytest.approx(0.95)
    assert (values["publish_share"], values["completeness"]) == (1.0, 0.99)
    shares = ("reattached_share", "handed_over_share", "mirrored_share", "failed_over_share", "replayed_share")
    assert values["recoveries"] == 10
    assert [values[name] for name in shares] == [0.3, 0.2, 0.1, 0.4, 0.75]
    assert values["not_replayed"] == 1


def test_all_failures_count_of_all_requests() -> None:
    values = figures(measured(deliver=Requests(99, 0), integrity=Requests(1, 1)))
    assert values["failure_ratio"] == 0.01


def test_tallies_of_workers_add_up_and_maxima_do_not() -> None:
    total = Tally()
    for dumped in (Tally(updates=2, longest_silence=1.5).dump(), Tally(updates=3, longest_silence=0.5).dump()):
        total.add(Tally.load(json.loads(json.dumps(dumped)) | {"of_another_version": 1}))
    assert (total.updates, total.longest_silence) == (5, 1.5)


# Thresholds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "value", "met"),
    [
        (Bound.AT_MOST, 10.0, True),
        (Bound.AT_MOST, 10.1, False),
        (Bound.AT_LEAST, 10.0, True),
        (Bound.AT_LEAST, 9.9, False),
        (Bound.AT_MOST, None, False),
        (Bound.AT_LEAST, None, False),
    ],
)
def test_a_threshold_is_met_on_its_side_and_by_nothing_never(bound: Bound, value: float | None, met: bool) -> None:
    assert Threshold("recoveries", bound, 10).met_by(value) is met


def test_a_scenario_adds_to_what_holds_for_every_one_and_overrides_it(tmp_path: Path) -> None:
    file = written(tmp_path, "[every.at_most]\nviolations = 0\nrecoveries = 0\n[storm.at_most]\nrecoveries = 9\n")
    assert load(file, "storm") == (
        Threshold("recoveries", Bound.AT_MOST, 9),
        Threshold("violations", Bound.AT_MOST, 0),
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[calm.at_most]\nrecoveries = 0", "no thresholds for 'storm'; it has: calm"),
        ("[storm.at_most]\nrecoverys = 0", "storm.at_most.recoverys is no figure; there are: deliver_p50_ms"),
        ("[storm.below]\nrecoveries = 0", "storm.below is not known; there are the tables at_most, at_least"),
        ("[storm]\nrecoveries = 0", "storm.recoveries is not known"),
        ("storm = 1", "storm must be a table"),
        ("[storm.at_most]\nrecoveries = true", "must be a number, not True"),
        ('[storm.at_most]\nrecoveries = "few"', "must be a number, not 'few'"),
        ("[storm.at_most]\nrecoveries = []", "must be a number, not []"),
        ("[storm", "is no TOML"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidThresholds, match=r"slo\.toml") as caught:
        load(written(tmp_path, text), "storm")
    assert complaint in str(caught.value)


def test_a_file_that_is_not_utf_8_is_no_toml(tmp_path: Path) -> None:
    file = tmp_path / "slo.toml"
    file.write_bytes(b"[storm.at_most]\nrecoveries = 0 # caf\xe9\n")
    with pytest.raises(InvalidThresholds, match="is no TOML"):
        load(file, "storm")


def test_a_missing_file_is_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(InvalidThresholds, match="cannot be read: No such file"):
        load(tmp_path / "none.toml", "steady")


def test_the_shipped_file_has_floors_for_every_scenario() -> None:
    """A run in which nothing happens fails in each of them."""
    scenarios = sorted(set(tomllib.loads(SHIPPED.read_text())) - {"every"})
    assert scenarios == ["node-kill", "ramp", "rolling-deploy", "steady", "storm"]
    for scenario in scenarios:
        thresholds = load(SHIPPED, scenario)
        floors = {each.figure for each in thresholds if each.bound is Bound.AT_LEAST}
        assert {"throughput_share", "publish_share", "completeness", "sessions"} <= floors
        idle = judge(scenario, thresholds, figures(measured()))
        missed = {finding.threshold.figure for finding in idle.findings if not finding.met}
        assert floors <= missed
        assert not idle.met


# The verdict ----------------------------------------------------------------------------------------------------------


def verdict(*, recoveries: float | None) -> Verdict:
    thresholds = (Threshold("recoveries", Bound.AT_MOST, 0), Threshold("deliver_p50_ms", Bound.AT_MOST, 25))
    return judge("steady", thresholds, {"recoveries": recoveries, "deliver_p50_ms": 3.0, "sessions": 4})


def test_one_missed_objective_decides() -> None:
    assert verdict(recoveries=0).met
    assert not verdict(recoveries=1).met
    assert not verdict(recoveries=None).met
    assert not judge("steady", (), {}).met, "no objectives at all are not met"
    assert headline(verdict(recoveries=0)) == "steady: all 2 objectives met"
    assert headline(verdict(recoveries=1)) == "steady: 1 of 2 objectives MISSED"


NOBODY = dict.fromkeys(("senders", "consumers", "readers", "callers", "askers", "handlers"), 0)


def test_objectives_of_users_that_nobody_asked_for_are_left_out_and_named(tmp_path: Path) -> None:
    thresholds = load(SHIPPED, "steady")
    good = {each.figure: each.limit for each in thresholds}
    optional = {
        *("receive_p50_ms", "receive_p99_ms", "settle_p99_ms", "accepted_share", "redelivered"),
        *("read_p99_ms", "events_read", "call_p99_ms", "request_p99_ms", "answered_share"),
    }
    values = good | dict.fromkeys(optional, None)
    assert not judge("steady", thresholds, values).met
    found = judge("steady", thresholds, values, NOBODY)
    assert found.met
    assert {each.figure for each in found.left_out} == optional
    out = StringIO()
    show(found, Console(file=out, width=130))
    said = "Left out, because no users were asked for that it takes: receive_p50_ms, "
    assert said in out.getvalue()
    assert said in as_html(found)
    write_json(found, tmp_path / "verdict.json")
    written_down = json.loads((tmp_path / "verdict.json").read_text())["left_out"]
    assert {each["figure"] for each in written_down} == optional


def test_objectives_of_users_that_are_there_are_judged() -> None:
    thresholds = load(SHIPPED, "steady")
    everybody = judge("steady", thresholds, {}, NOBODY | dict.fromkeys(NOBODY, 2))
    assert everybody.left_out == ()
    consumed = judge("steady", thresholds, {}, NOBODY | {"consumers": 3, "callers": 1})
    left = {each.figure for each in consumed.left_out}
    assert left == {"read_p99_ms", "events_read", "request_p99_ms", "answered_share"}
    assert not consumed.met, "what was asked for and did not happen"
    alone = judge("steady", thresholds, {}, NOBODY | {"consumers": 3, "askers": 1})
    assert {"receive_p50_ms", "request_p99_ms"} <= {each.figure for each in alone.left_out}


@pytest.mark.parametrize(("width", "meaning"), [(130, True), (80, False)])
def test_the_table_shows_each_threshold_with_its_value(width: int, meaning: bool) -> None:
    out = StringIO()
    show(verdict(recoveries=1205), Console(file=out, width=width))
    table = out.getvalue()
    assert "✗ │ recoveries     │    1,205 │       ≤ 0" in table
    assert "✓ │ deliver_p50_ms │     3 ms │   ≤ 25 ms" in table
    assert ("connections that were lost and got back" in table) is meaning


def test_the_verdict_is_written_for_programs_and_into_the_report(tmp_path: Path) -> None:
    write_json(verdict(recoveries=None), tmp_path / "verdict.json")
    content = json.loads((tmp_path / "verdict.json").read_text())
    assert (content["scenario"], content["met"], content["figures"]["sessions"]) == ("steady", False, 4)
    assert content["objectives"][0] == {
        "figure": "recoveries",
        "bound": "at_most",
        "limit": 0,
        "measured": None,
        "met": False,
    }
    report = tmp_path / "report.html"
    report.write_text("<html><body><div id='root'></div></body></html>")
    put_into_report(verdict(recoveries=None), report)
    page = report.read_text()
    assert page.index("<section") < page.index("<div id='root'>")
    assert "1 of 2 objectives MISSED" in page
    assert '<td class="number">nothing</td>' in as_html(verdict(recoveries=None))


def of_generator(*, late: float | None, deliver: float = 3.0, violations: float = 0) -> Verdict:
    thresholds = (
        Threshold("deliver_p50_ms", Bound.AT_MOST, 25),
        Threshold("violations", Bound.AT_MOST, 0),
        Threshold("generator_late_share", Bound.AT_MOST, 0.05),
    )
    figures = {"deliver_p50_ms": deliver, "violations": violations, "generator_late_share": late}
    return judge("steady", thresholds, figures)


@pytest.mark.parametrize(
    ("late", "deliver", "violations", "outcome"),
    [
        (0.01, 3, 0, Outcome.MET),
        (0.01, 300, 0, Outcome.MISSED),
        (0.2, 300, 0, Outcome.INVALID),
        (0.2, 3, 0, Outcome.INVALID),
        (None, 3, 0, Outcome.INVALID),
        (0.2, 300, 1, Outcome.MISSED),
    ],
    ids=["in time", "slow", "late and slow", "late and fast", "not measured", "late, and a promise is broken"],
)
def test_a_late_generator_has_measured_itself(
    late: float | None, deliver: float, violations: float, outcome: Outcome
) -> None:
    verdict = of_generator(late=late, deliver=deliver, violations=violations)
    assert (verdict.outcome, verdict.met) == (outcome, outcome is Outcome.MET)


def test_an_invalid_run_is_called_invalid_and_not_missed(tmp_path: Path) -> None:
    verdict = of_generator(late=0.2, deliver=300)
    out = StringIO()
    show(verdict, Console(file=out, width=130))
    assert headline(verdict) == "steady: INVALID, the load generator itself was late"
    assert "MISSED" not in out.getvalue()
    assert "? │ deliver_p50_ms" in out.getvalue()
    assert "✓ │ violations" in out.getvalue()
    assert "✗ │ generator_late_share" in out.getvalue()
    assert "Nothing is known about the gateway by this run" in out.getvalue()
    assert '<h2 class="invalid">' in as_html(verdict)
    assert advice(of_generator(late=0.01)) == ""

    write_json(verdict, tmp_path / "verdict.json")
    content = json.loads((tmp_path / "verdict.json").read_text())
    assert (content["outcome"], content["met"]) == ("invalid", False)


def test_the_how_to_lists_every_figure() -> None:
    page = (SHIPPED.parents[1] / "docs" / "how-to" / "load-test.md").read_text()
    listed = {name: line for line in page.splitlines() if (name := line.partition(" ")[0]) in FIGURES}
    assert [name for name, figure in FIGURES.items() if listed.get(name) != f"{name:24}{figure.meaning}"] == []
