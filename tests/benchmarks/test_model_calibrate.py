"""Costs from results, and the file that keeps them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.model.calibrate import calibrate
from benchmarks.model.costs import EXAMPLE, BadFile, Calibration, Costs
from benchmarks.model.predict import TOLERANCES, compare, predict

from .model_data import COSTS, delivery, results, row, write


@pytest.fixture
def calibration(tmp_path: Path) -> Calibration:
    return calibrate([write(tmp_path / "all.json", results())])


def test_known_costs_are_found_again(calibration: Calibration) -> None:
    found, known = asdict(calibration.costs), asdict(COSTS)
    assert found.pop("deliver") == pytest.approx(known.pop("deliver"), rel=0.05)
    assert found.pop("path") == pytest.approx(known.pop("path"), rel=0.2)
    for name, value in known.items():
        assert found[name] == pytest.approx(value), name


def test_results_of_several_runs_are_medians_over_all(tmp_path: Path) -> None:
    wild = [row("32 publishers", {"server_cpu": 500.0, "redis_cpu": 10.0}, case="publish")]
    usual = [row("32 publishers", {"server_cpu": 20.0, "redis_cpu": 10.0}, case="publish")]
    files = [write(tmp_path / f"{number}.json", rows) for number, rows in enumerate((results(), wild, usual))]
    assert calibrate(files).costs.publish.server == 20.0


def test_large_crowds_and_long_storms_are_held_out(calibration: Calibration, tmp_path: Path) -> None:
    rows = [each for each in results() if "10,000 subscribers" not in each["variant"]]
    rows = [each for each in rows if "5,000 sessions" not in each["variant"]]
    # Calibrated without them, the costs are the same.
    assert calibrate([write(tmp_path / "fewer.json", rows)]).costs == calibration.costs
    fitted = {point.name for point in calibration.points if point.fitted}
    assert "deliver: 10,000 subscribers, 5 updates/s" not in fitted
    assert "failover: 5,000 sessions" not in fitted
    assert "failover: 2,000 sessions" in fitted


def test_nothing_but_cpu_is_ever_fitted(calibration: Calibration) -> None:
    assert {point.figure for point in calibration.points if point.fitted} == {"server_cpu"}


def test_what_a_saturated_or_resting_node_shows_is_not_predicted(tmp_path: Path) -> None:
    for number, rate in enumerate((1.0, 10_000)):
        extra = delivery(100, rate)
        found = calibrate([write(tmp_path / f"{number}.json", [*results(), extra])])
        assert extra["variant"] not in {point.name for point in found.points}


def test_held_out_work_is_predicted(calibration: Calibration) -> None:
    assert [each for each in compare(calibration) if not each.holds] == []
    assert {each.point.figure for each in compare(calibration) if not each.point.fitted} == {
        "server_cpu", "p50", "seconds", "cpu_per_delivery",
    }  # fmt: skip


def test_a_wrong_model_is_found_out(calibration: Calibration) -> None:
    costs = calibration.costs
    wrong = replace(calibration, costs=replace(costs, deliver=replace(costs.deliver, write=30.0)))
    assert any(not each.holds for each in compare(wrong))


@pytest.mark.parametrize(
    ("left_out", "command"),
    [
        ("publish", "make bench ONLY=publish"),
        ("memory", "make bench ONLY=memory"),
        ("grid_cost", "make bench ONLY=grid_cost"),
        ("deliver", "benchmarks.model measure"),
        ("failover", "benchmarks.model measure"),
        ("foreign", "benchmarks.model measure"),
        ("forward", "benchmarks.model measure"),
        ("selections", "benchmarks.model measure"),
        ("values", "benchmarks.model measure"),
    ],
)
def test_what_was_not_measured_is_named_with_the_command_that_does(left_out: str, command: str, tmp_path: Path) -> None:
    rows = [each for each in results() if left_out != each["case"] and not each["variant"].startswith(left_out)]
    with pytest.raises(BadFile, match=command):
        calibrate([write(tmp_path / "some.json", rows)])


def test_a_row_that_failed_is_no_measurement(tmp_path: Path) -> None:
    bad = row("connect: 500 sessions", {"sessions": 500.0}, failures=["7 x lost"])
    with pytest.raises(BadFile, match=r"connect: 500 sessions failed \(7 x lost\)"):
        calibrate([write(tmp_path / "bad.json", [*results(), bad])])


def test_costs_of_two_machines_are_not_mixed(tmp_path: Path) -> None:
    here = write(tmp_path / "here.json", results())
    there = write(tmp_path / "there.json", [], machine={"processor": "abacus"})
    with pytest.raises(BadFile, match="another machine"):
        calibrate([here, there])


def test_reading_that_costs_nothing_is_not_believed(tmp_path: Path) -> None:
    rows = [each for each in results() if not each["variant"].startswith("foreign")]
    rows += [
        row(
            f"foreign updates: {number} nodes follow", {"followers": float(number), "reader_cpu": 1.0, "redis_cpu": 9.0}
        )
        for number in range(3)
    ]
    with pytest.raises(BadFile, match="too busy with other things"):
        calibrate([write(tmp_path / "odd.json", rows)])


@pytest.mark.parametrize("text", ["", "[]", '{"rows": 3}', '{"date": "", "commit": "", "machine": {}, "rows": [1]}'])
def test_what_is_no_result_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text)
    with pytest.raises(BadFile, match=r"odd\.json"):
        calibrate([file])


def test_a_file_of_costs_comes_back_as_it_was(calibration: Calibration, tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    file.write_text(calibration.as_json())
    again = Calibration.read(file)
    assert again.as_json() == calibration.as_json()
    assert asdict(again.costs)["deliver"] == pytest.approx(asdict(calibration.costs)["deliver"], rel=1e-3)


def _broken(change: dict[str, Any]) -> str:
    return json.dumps(json.loads(EXAMPLE.read_text()) | change)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        (_broken({"format": 0}), "format 0 is not 1"),
        (_broken({"costs": {}}), "is missing; calibrate anew"),
        (_broken({"costs": asdict(COSTS) | {"more": 1.0}}), "costs.more is unknown"),
        (_broken({"costs": asdict(COSTS) | {"forward": -1.0}}), "costs.forward must be a number that is not negative"),
        (_broken({"costs": asdict(COSTS) | {"forward": True}}), "costs.forward must be a number"),
        (_broken({"costs": asdict(COSTS) | {"publish": 1}}), "costs.publish must be an object"),
        (_broken({"points": [{"name": "odd"}]}), "calibrate anew"),
    ],
)
def test_a_file_that_is_not_right_says_where(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    file.write_text(text)
    with pytest.raises(BadFile, match=message):
        Calibration.read(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"none\.json: No such file"):
        Calibration.read(tmp_path / "none.json")


def test_costs_are_read_from_json() -> None:
    assert Costs.of(json.loads(json.dumps(asdict(COSTS)))) == COSTS


# --- The committed example --------------------------------------------------------------------------------------------


def test_the_model_reproduces_what_was_measured() -> None:
    apart = [
        f"{each.point.name}, {each.point.figure}: measured {each.point.measured:g}, model {each.predicted:g}"
        for each in compare(Calibration.read(EXAMPLE))
        if not each.holds
    ]
    assert apart == []


def test_the_example_has_points_of_all_kinds_used_and_held_out() -> None:
    points = Calibration.read(EXAMPLE).points
    kinds = {(point.figure, point.fitted) for point in points}
    assert kinds >= set(TOLERANCES) - {("cpu_per_delivery", False)}
    assert any(point.parameters.get("subscribers") == 10_000 for point in points)


def test_a_figure_that_nobody_knows_is_refused() -> None:
    point = replace(Calibration.read(EXAMPLE).points[0], name="flying: high")
    with pytest.raises(ValueError, match="nothing is known of"):
        predict(COSTS, point)
