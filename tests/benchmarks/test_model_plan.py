"""What workloads need, and the command that tells it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.model import pictures
from benchmarks.model.__main__ import main
from benchmarks.model.costs import EXAMPLE, BadFile, Calibration
from benchmarks.model.document import BLOCKS, PAGE, update
from benchmarks.model.plan import Impossible, Plan, Rules, Workload, plan

from .model_data import COSTS, results, write

pytestmark = pytest.mark.thorough

IDLE = Workload(sessions=1_000_000, topics=1_000, churn=100.0)
ALL = replace(IDLE, updates=10.0, audience=1e6)
OWN = replace(IDLE, updates=10_000.0, audience=1.0)


def found(workload: Workload, rules: Rules | None = None) -> Plan:
    return plan(COSTS, workload, rules or Rules())


def test_idle_sessions_need_ports_and_memory_before_cores() -> None:
    idle = found(IDLE)
    assert idle.bottleneck in {"ports", "memory"}
    assert idle.nodes == max(idle.wanted.values())
    assert found(IDLE, Rules(balancers=1)).wanted["ports"] == pytest.approx(2 * idle.wanted["ports"], abs=1)


def test_deliveries_need_cores_in_proportion() -> None:
    one, two = found(ALL), found(replace(ALL, sessions=2_000_000, audience=2e6))
    assert one.bottleneck == "CPU"
    assert two.nodes == pytest.approx(2 * one.nodes, rel=0.1)
    assert one.node_busy <= Rules().busy
    assert two.haproxy_cores == pytest.approx(2 * one.haproxy_cores, rel=0.1)


def test_cores_are_enough_for_what_the_costs_say() -> None:
    one = found(ALL)
    most = 10 * COSTS.deliver.tick(1, 1e6 / one.nodes) * 1e-6
    most += 1e6 / one.nodes * COSTS.idle_server * 1e-6 + 100 / one.nodes * COSTS.connect.server * 1e-6
    # Updates come at random, so that some are joined and cost less.
    assert 0.75 * most < one.node_busy <= most
    assert 1.0 < one.joined < 1.5


def test_one_node_less_would_be_too_few() -> None:
    for workload in (IDLE, ALL, OWN):
        enough = found(workload)
        assert plan(COSTS, workload, Rules(), nodes=enough.nodes).nodes == enough.nodes
        with pytest.raises(Impossible, match="too few"):
            plan(COSTS, workload, Rules(), nodes=enough.nodes - 1)


def test_every_node_reads_every_update_whatever_their_number() -> None:
    # 8 µs each: 100,000 updates a second are 0.8 of every core.
    with pytest.raises(Impossible, match=r"takes 80 % of each node's core.*--interest"):
        found(replace(OWN, updates=100_000.0))
    assert found(replace(OWN, updates=100_000.0, interest=0.1)).nodes > 0


def test_copies_that_do_not_fit_are_told() -> None:
    with pytest.raises(Impossible, match=r"copies of the values alone take 4\.7 of 2 GiB"):
        found(replace(IDLE, topics=10_000_000))


def test_one_partition_has_one_redis_core() -> None:
    with pytest.raises(Impossible, match="a partition has one"):
        found(replace(OWN, updates=60_000.0, roots=1, interest=0.01))


def test_redis_reads_for_every_node() -> None:
    few, many = found(OWN), plan(COSTS, OWN, Rules(), nodes=10 * found(OWN).nodes)
    grown = (10_000 * COSTS.follow_redis + COSTS.idle_redis) * (many.nodes - few.nodes) * 1e-6
    assert many.redis_cores - few.redis_cores == pytest.approx(grown, rel=0.05)
    assert many.masters > few.masters
    assert many.redis_egress == pytest.approx(few.redis_egress * many.nodes / few.nodes)


def test_recovery_within_a_shorter_time_needs_more_nodes() -> None:
    slow, fast = found(IDLE, Rules(nodes_lost=5)), found(IDLE, Rules(nodes_lost=5, recover_within=0.5))
    assert fast.nodes > slow.nodes
    assert fast.bottleneck == "recovery"
    assert fast.recovery.last <= 0.5


def test_no_number_of_nodes_makes_up_for_late_detection() -> None:
    with pytest.raises(Impossible, match="--detection"):
        found(IDLE, Rules(detection=45.0))


def test_more_selections_cost_memory_and_time() -> None:
    many = found(replace(IDLE, selections=103))
    assert many.node_memory * many.nodes > 2 * found(IDLE).node_memory * found(IDLE).nodes
    assert many.redis_memory > found(IDLE).redis_memory


# --- The command ------------------------------------------------------------------------------------------------------


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def test_a_plan_is_a_table_with_its_assumptions() -> None:
    result = run("plan", "--sessions", "1000000", "--updates", "1", "--nodes-lost", "1")
    assert result.exit_code == 0
    assert result.stdout.startswith("what ")
    for word in ("Redis masters", "HAProxy, cores", "taken for granted", "costs: measured 20"):
        assert word in result.stdout
    assert all(not line.endswith(" ") for line in result.stdout.splitlines())


def test_a_plan_for_programs_is_json() -> None:
    result = run("plan", "--sessions", "10000", "--json")
    assert json.loads(result.stdout)["nodes"] >= 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["plan"], 2, "Missing option '--sessions'"),
        (["plan", "--sessions", "0"], 2, "0 is not in the range"),
        (["plan", "--sessions", "10", "--costs", "/nowhere/costs.json"], 1, "No such file"),
        (["plan", "--sessions", "1000000", "--nodes", "2"], 1, "2 nodes are too few"),
        (["plan", "--sessions", "1000000", "--updates", "1e6", "--audience", "1"], 1, "partition"),
        (["calibrate"], 2, "Missing argument"),
        (["calibrate", "/nowhere/results.json"], 1, "No such file"),
        (["measure", "--only", "moods"], 2, "unknown: moods; there are deliveries"),
    ],
)
def test_what_cannot_be_done_is_said_on_standard_error(arguments: Sequence[str], code: int, message: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_calibrating_and_checking_go_together(tmp_path: Path) -> None:
    made = run("calibrate", write(tmp_path / "results.json", results()))
    assert made.exit_code == 0
    costs = tmp_path / "costs.json"
    costs.write_text(made.stdout)
    checked = run("check", "--costs", costs)
    assert (checked.exit_code, checked.stderr) == (0, "")
    assert "deliver: 10,000 subscribers" in checked.stdout
    costs.write_text(made.stdout.replace('"failover": {\n   "server": 300.0', '"failover": {\n   "server": 3000.0'))
    checked = run("check", "--costs", costs)
    assert checked.exit_code == 1
    assert "too far apart" in checked.stderr
    assert " !" in checked.stdout
    assert run("plan", "--costs", costs, "--sessions", "1000").exit_code == 0


# --- The page ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def computed() -> Mapping[str, str]:
    """The generated parts of the page, which take seconds, by their names."""
    example = Calibration.read(EXAMPLE)
    return {name: block(example) for name, block in BLOCKS.items()}


@pytest.fixture
def quick(computed: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the command not compute them again."""

    def known(name: str) -> Callable[[Calibration], str]:
        return lambda _: computed[name]

    for name in computed:
        monkeypatch.setitem(BLOCKS, name, known(name))


@pytest.mark.usefixtures("quick")
def test_the_page_says_what_the_example_says() -> None:
    assert run("document", "--check").exit_code == 0


@pytest.mark.usefixtures("quick")
def test_a_page_with_an_old_figure_is_found_out_and_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "SESSIONS", (100_000,))
    page = tmp_path / "page.md"
    text = PAGE.read_text()
    page.write_text(text.replace(" µs", " ms"))
    checked = run("document", page, "--check")
    assert checked.exit_code == 1
    assert "run python -m benchmarks.model document" in checked.stderr
    assert run("document", page).exit_code == 0
    # What is written by hand stays as it was found.
    assert run("document", page, "--check").exit_code == 0
    assert {each.name for each in (tmp_path / "figures").iterdir()} >= {"scaling-joining.svg", "scaling-nodes.svg"}


def test_a_page_without_a_part_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- generated: costs -->\n<!-- end of generated -->\n")
    with pytest.raises(BadFile, match=f"not {', '.join(BLOCKS)}"):
        update(page, Calibration.read(EXAMPLE), write=True)


def test_pictures_that_the_page_shows_are_there() -> None:
    shown = [
        line.partition("(figures/")[2].partition(")")[0]
        for line in PAGE.read_text().splitlines()
        if "](figures/" in line
    ]
    assert shown
    assert all((PAGE.parent / "figures" / each).is_file() for each in shown)
