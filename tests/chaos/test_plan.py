"""A plan is a function of its seed, and says what can be struck."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.local.checker import Violation as PagesViolation
from tests.browser.run import Outcome as PagesOutcome
from tests.chaos.__main__ import GRIDS, main
from tests.chaos.account.violation import Violation
from tests.chaos.faults import CATALOGUE
from tests.chaos.faults.fault import NODES
from tests.chaos.load.queueing import declare
from tests.chaos.outcome import Outcome
from tests.chaos.plan import Plan, PlanUnreadable, draw
from tests.chaos.run import command_line
from tests.chaos.turns import Tell
from tests.chaos.zones import GRID

ALL = list(CATALOGUE.values())


def claims_of(plan: Plan, number: int) -> frozenset[str]:
    step = plan.steps[number]
    return CATALOGUE[step.fault].claims(dict(step.parameters))


@pytest.mark.parametrize("grid", GRIDS)
def test_the_same_seed_gives_the_same_plan(grid: str) -> None:
    first, again, other = (draw(seed=seed, grid=grid, seconds=300, faults=ALL) for seed in (7, 7, 8))
    assert first == again
    assert first != other
    assert {step.fault for step in first.steps} > {"node-killed", "link-cut"}


def test_a_plan_depends_on_nothing_but_its_seed() -> None:
    """Not on the order of hashes, nor on the machine: who repeats a run by its seed wants the same faults."""
    few = [CATALOGUE[name] for name in ("node-killed", "redis-flushed", "link-cut")]
    plan = draw(seed=1, grid="single", seconds=20, faults=few)
    assert [(step.at, str(step)) for step in plan.steps] == EXPECTED


EXPECTED = [(4.0, "redis-flushed"), (14.6, "node-killed node=n1"), (16.82, "link-cut link=n3 ways=['up']")]


@pytest.mark.parametrize("grid", [*GRIDS, GRID])
def test_every_fault_occurs_in_a_long_plan(grid: str) -> None:
    """What hits all nodes at once seldom fits beside others, and is not left to luck for that."""
    for seed in range(5):
        plan = draw(seed=seed, grid=grid, seconds=420, faults=ALL)
        assert {step.fault for step in plan.steps} == {name for name, fault in CATALOGUE.items() if grid in fault.grids}


@pytest.mark.parametrize("grid", [*GRIDS, GRID])
def test_every_fault_is_of_its_grid_ends_in_time_and_hits_nothing_that_is_hit(grid: str) -> None:
    for seed in range(20):
        plan = draw(seed=seed, grid=grid, seconds=120, faults=ALL)
        assert len(plan.steps) > 10
        for number, step in enumerate(plan.steps):
            assert grid in CATALOGUE[step.fault].grids
            assert step.at + step.lasts <= 120
            for earlier in range(number):
                before = plan.steps[earlier]
                if before.at + before.lasts > step.at:
                    assert not claims_of(plan, number) & claims_of(plan, earlier), (before, step)


@pytest.mark.parametrize("grid", GRIDS)
def test_one_node_is_always_left_alone_by_faults_of_single_nodes(grid: str) -> None:
    for seed in range(20):
        plan = draw(seed=seed, grid=grid, seconds=120, faults=ALL)
        for number, step in enumerate(plan.steps):
            overlapping = [
                earlier
                for earlier in range(number + 1)
                if plan.steps[earlier].at + plan.steps[earlier].lasts > step.at or earlier == number
            ]
            claims = [claims_of(plan, each) for each in overlapping]
            single = [each for each in claims if not {f"node:{node}" for node in NODES} <= each]
            assert not {claim.partition(":")[2] for each in single for claim in each} >= set(NODES)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = draw(seed=3, grid="single", seconds=60, faults=ALL)
    plan.write(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json", CATALOGUE) == plan


def test_every_other_seed_has_backups_unless_it_is_said(tmp_path: Path) -> None:
    plans = [draw(seed=seed, grid="single", seconds=20, faults=ALL) for seed in range(4)]
    assert [plan.mirror for plan in plans] == ["off", "async", "off", "sync"]
    said = draw(seed=1, grid="single", seconds=20, faults=ALL, mirror="off")
    assert (said.mirror, said.steps) == ("off", plans[1].steps)
    assert "--mirror off" in command_line(said)
    arguments = ["--dry", "--seed", "2", "--mirror", "async", "--minutes", "1", "--folder", str(tmp_path)]
    assert "mirror async" in CliRunner().invoke(main, arguments).output
    assert Plan.read(tmp_path / "single-2" / "plan.json", CATALOGUE).mirror == "async"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"steps": [{"at": 1, "fault": "earthquake", "lasts": 1, "parameters": {}}]}, "earthquake"),
        ({"grid": "sentinel", "steps": [{"at": 1, "fault": "redis-flushed", "lasts": 1, "parameters": {}}]}, "flushed"),
        ({"steps": [{"at": 1}]}, "is no plan"),
        ({"seed": None}, "is no plan"),
        ({"mirror": "glass"}, "no mirror"),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, change: dict[str, object], match: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"seed": 1, "grid": "single", "seconds": 10, "steps": [], **change}))
    with pytest.raises(PlanUnreadable, match=match):
        Plan.read(file, CATALOGUE)
    assert CliRunner().invoke(main, ["--plan", str(file)]).exit_code == 2


def test_the_page_tells_all_faults_and_of_which_grid_each_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "break-a-cluster.md").read_text()
    told = {}
    for names, grids in re.findall(r"^\| (`[^|]+`) \| ([a-z, ]+) \|", page, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", names):
            told[name] = set(GRIDS) if grids == "all" else set(grids.split(", "))
    assert told == {name: set(fault.grids) for name, fault in CATALOGUE.items()}


def test_the_command_lists_and_shows_without_striking(tmp_path: Path) -> None:
    listed = CliRunner().invoke(main, ["--list"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in CATALOGUE)

    arguments = ["--dry", "--seed", "5", "--minutes", "1", "--grid", "cluster", "--folder", str(tmp_path)]
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 0, shown.output
    assert Plan.read(tmp_path / "cluster-5" / "plan.json", CATALOGUE).seed == 5


@pytest.mark.parametrize(
    ("grid", "left"), [("single", {"link-cut", "grid-link-cut"}), ("sentinel", {"link-cut"}), ("cluster", {"link-cut"})]
)
def test_a_fault_that_this_machine_cannot_do_is_left_out_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grid: str, left: set[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    arguments = ["--dry", "--seed", "1", "--minutes", "5", "--folder", str(tmp_path), "--grid", grid]
    shown = CliRunner().invoke(main, [*arguments, "--faults", "redis-clock-set,grid-link-cut,link-cut"])
    assert shown.exit_code == 0
    assert "redis-clock-set is left out: the clock of Redis" in shown.output
    assert ("grid-link-cut is left out: links between nodes and several Redis" in shown.output) is (grid != "single")
    steps = Plan.read(tmp_path / f"{grid}-1" / "plan.json", CATALOGUE).steps
    assert {step.fault for step in steps} == left


@pytest.mark.parametrize(
    ("of_clients", "of_pages", "code"), [(0, 0, 0), (1, 0, 1), (0, 1, 1)], ids=["held", "clients", "pages"]
)
def test_what_pages_have_found_counts_as_what_clients_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_clients: int, of_pages: int, code: int
) -> None:
    async def strike(plan: Plan, folder: Path, tell: Tell) -> Outcome:
        return Outcome(plan, folder, violations=[Violation("P6", 1.0, "alice", "went back")] * of_clients)

    async def strike_pages(folder: Path, *, seed: int, seconds: float, tell: Tell) -> PagesOutcome:
        assert (seed, seconds) == (1, 60.0)
        return PagesOutcome(seed, violations=[PagesViolation("C1", "went back")] * of_pages)

    for name, stand_in in (("strike", strike), ("strike_pages", strike_pages), ("require_browser", lambda: None)):
        monkeypatch.setattr(f"tests.chaos.__main__.{name}", stand_in)
    shown = CliRunner().invoke(main, ["--seed", "1", "--minutes", "1", "--browser", "--folder", str(tmp_path)])
    assert shown.exit_code == code, shown.output
    assert "--browser" in shown.output.rpartition("again: make chaos")[2]


def test_pages_need_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    shown = CliRunner().invoke(main, ["--seed", "1", "--browser", "--folder", str(tmp_path)])
    assert shown.exit_code == 2
    assert "chromium is not installed" in shown.output
    assert not list(tmp_path.iterdir()), "nothing was struck"


@pytest.mark.parametrize("arguments", [["--faults", "earthquake"], ["--grid", "paper"], ["--minutes", "0.01"]])
def test_what_cannot_be_run_is_told_by_exit_code_2(tmp_path: Path, arguments: list[str]) -> None:
    assert CliRunner().invoke(main, [*arguments, "--folder", str(tmp_path)]).exit_code == 2


def test_nodes_find_the_file_of_destinations_wherever_they_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert declare(Path(".local/run")) == tmp_path.resolve() / ".local/run/destinations.toml"
