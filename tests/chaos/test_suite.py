"""The suite on a real cluster: what is broken on purpose is found, and what is not, holds.

``make chaos`` is the same for longer and with seeds of your own; ``TEST_SEED=7 pytest tests/chaos`` tries others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from random import Random

import pytest

from gateway.adapters.redis.keys import Keys
from tests.chaos.__main__ import GRIDS
from tests.chaos.account.account import Account
from tests.chaos.faults import CATALOGUE
from tests.chaos.faults.fault import possible
from tests.chaos.plan import Plan, draw
from tests.chaos.report import report
from tests.chaos.run import Run, strike
from tests.chaos.tampering_relay import Harm, LostMark, LostUpdate, tampering_relay
from tests.chaos.target import Target, running
from tests.chaos.zones import GRID as ZONES
from tests.chaos.zones import strike_zones
from tests.cluster.grid_reader import PREFIX
from tests.support.faults import eventually
from tests.support.seeds import SEED
from tests.support.times import scaled

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.redis,
    pytest.mark.haproxy,
    # What looks into a Redis that is just being killed is cut off in the middle, and its connection with it.
    pytest.mark.filterwarnings("ignore:unclosed Connection:ResourceWarning"),
]

SECONDS = 45.0
"""For which faults are struck here: a dozen of them, and with start and end the test takes twice as long."""

FEW_SECONDS = 24.0
"""For which the fiercest of them are struck after every change, on the grid that most people have: some eight."""

FIERCE = ("node-killed", "node-drained", "node-stopped-long", "redis-killed", "redis-flushed", "link-torn")

QUIET = Plan(seed=1, grid="single", seconds=scaled(10.0), steps=())


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("grid", "seconds", "faults"),
    [
        pytest.param("single", FEW_SECONDS, FIERCE, id="single for a few seconds"),
        *(pytest.param(grid, SECONDS, CATALOGUE, id=grid, marks=pytest.mark.thorough) for grid in GRIDS),
    ],
)
async def test_a_cluster_that_is_broken_at_random_keeps_its_promises(
    tmp_path: Path,
    grid: str,
    seconds: float,
    faults: Collection[str],
    record_property: Callable[[str, object], None],
) -> None:
    wanted = [CATALOGUE[name] for name in faults]
    plan = draw(seed=SEED, grid=grid, seconds=seconds, faults=possible(wanted, grid)[0])
    outcome = await strike(plan, tmp_path, print)
    assert not outcome.violations, report(outcome)
    assert len(outcome.struck) + len(outcome.left_out) == len(plan.steps)
    assert outcome.struck
    assert outcome.folded > 0, "a witness lets the buffer of its node fill up, so that it must fold"
    record_property("figures", f"chaos on {grid}, seed {SEED}: {outcome.figures}")


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.promise("P18")
async def test_clusters_that_are_linked_lose_and_repeat_nothing_when_they_are_broken_at_random(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    outcome = await strike_zones(
        draw(seed=SEED, grid=ZONES, seconds=SECONDS, faults=[*CATALOGUE.values()]), tmp_path, print
    )
    assert not outcome.violations, report(outcome)
    assert outcome.struck
    record_property("figures", f"chaos on three clusters, seed {SEED}: {outcome.figures}")


async def _steal(target: Target, account: Account) -> None:
    """Take a publish that was acknowledged out of the log of its topic."""
    await eventually(lambda: account.publishes.acknowledged > 100, "there is something to steal")
    receipt = next(topic.receipts[1] for topic in account.publishes.topics.values() if 1 in topic.receipts)
    partition, _, number = receipt.event.partition("-")
    assert await target.command("XDEL", Keys(PREFIX).stream[int(partition)], number) == 1


@pytest.mark.thorough
@pytest.mark.timeout(400)
async def test_what_is_broken_on_purpose_is_found(tmp_path: Path) -> None:
    harms: list[LostUpdate] = []
    marks = LostMark()

    def make_harm() -> Harm:
        lost = LostUpdate(every=Random(len(harms)).randint(40, 80))
        harms.append(lost)
        return lambda packet: marks(lost(packet))

    async with running("single", tmp_path) as target, tampering_relay(target.links.url, make_harm) as url:
        run = Run(QUIET, target, print, url=url, audible=3.0)
        outcome, _ = await asyncio.gather(run.run(), _steal(target, run.account))
    assert sum(harm.count for harm in harms) > 0
    assert marks.count > 0
    text = [str(violation) for violation in outcome.violations]
    assert any("delivered twice" in each or "went back" in each for each in text), text
    assert any("witness" in each and "lost in silence" in each for each in text), text
    assert any("the welcome counts" in each and "the marks" in each for each in text), text
    assert any("acknowledged publishes of this generation are not in the log" in each for each in text), text
    assert "make chaos" in report(outcome)
