"""The harness measures: cheap rows against real nodes for seconds, and a node that stands still, which must be seen.

Times are in the published table. Here counts are judged, which do not depend on how busy the machine is.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from benchmarks.hostile.account import Account
from benchmarks.hostile.attack import Attacker, Needs
from benchmarks.hostile.attacker import BEGIN
from benchmarks.hostile.case import row
from benchmarks.hostile.catalogue import ATTACKS
from benchmarks.hostile.measurement import Lengths, _line, _process, measure
from benchmarks.hostile.stack import ATTACKED, running
from benchmarks.hostile.verdict import FULL_SHARE, Phase, broken_promises, seen
from benchmarks.hostile.watch import Watch
from benchmarks.hostile.witness import SUBSCRIBERS
from benchmarks.placement import Placement
from benchmarks.progress import Silent
from tests.support.times import scaled, time_limit

pytestmark = [pytest.mark.redis, pytest.mark.haproxy, pytest.mark.cluster, pytest.mark.thorough]

LENGTHS: Final = Lengths(quiet=1.5, attack=1.5, scale=0.1)
"""Long enough for a login, which comes every second, and for sixty updates."""

REFUSALS: Final = {"unauthenticated", "close 4201", "try_later", "close 4101"}
"""What a wrong secret is told, by packet or close code: that it is wrong, or that there is no time to look at it."""

MEBIBYTE: Final = 1024**2
_POLL: Final = 0.05


@pytest.fixture
def placement() -> Placement:
    """Two cores, or the same one twice where there is one: nothing here is about time."""
    cores = sorted(os.sched_getaffinity(0))
    return Placement(cores[0], cores[-1])


@pytest.mark.parametrize("name", ["acks", "publish", "admin-health"])
async def test_a_row_is_measured(name: str, tmp_path: Path, placement: Placement) -> None:
    measured = await measure(ATTACKS[name], tmp_path, placement, LENGTHS, Silent())

    for phase in (measured.quiet, measured.attacked):
        assert len(phase.latencies) > 50
        assert len(phase.logins) + phase.failed_logins > 0
        assert phase.cpu > 0
        assert phase.resident > 10 * MEBIBYTE
        assert phase.lost == 0
        assert phase.leases_lost == 0
    assert measured.disordered == 0
    assert measured.effort.done > 0
    assert measured.effort.sent > 0
    assert measured.attacker_cpu > 0
    found = row(name, measured)
    assert found.values["done"] > 0
    assert found.values["attacker_bytes"] > 0
    assert found.details["about"] == ATTACKS[name].about


@pytest.mark.parametrize(
    "name",
    [
        *("upgrades-local", "hellos-gone-balanced", "forged-tokens-addresses", "wrong-hellos-100-console"),
        *("agent-talks", "admin-viewer-sessions", "descriptors-hard", "stranger-behind-close-many", "http-405"),
        "wrong-hellos-100-service",
    ],
)
async def test_attacks_from_everywhere_and_at_every_port_come_to_something(
    name: str, tmp_path: Path, placement: Placement
) -> None:
    """An attack that does not reach the node is no row: nothing is done then."""
    attack = ATTACKS[name]
    async with running(attack.needs, tmp_path, placement, scale=LENGTHS.scale) as (_, target):
        file = tmp_path / "target.json"
        target.write(file)
        arguments = [name, str(file), "--seconds", str(scaled(2))]
        async with _process("attacker", arguments, tmp_path, placement.others) as attacker:
            assert (await _line(attacker, scaled(60))).decode().strip() == BEGIN
            told = json.loads(await _line(attacker, scaled(60)))

    assert told["done"] > 0


async def test_a_redis_that_is_to_be_full_is_full_before_the_attack_begins(
    tmp_path: Path, placement: Placement
) -> None:
    """P20: all new data is refused, and established sessions return; nothing of that is about time."""
    measured = await measure(ATTACKS["full-redis"], tmp_path, placement, LENGTHS, Silent())

    assert measured.full
    assert measured.quiet.refused == measured.quiet.refused_by_redis == 0
    assert measured.attacked.refused_by_redis > 0
    assert measured.attacked.refused_share >= FULL_SHARE
    assert measured.attacked.undocumented == 0
    assert measured.attacked.returns
    assert broken_promises(measured) == []


async def test_what_a_stack_needs_is_there(tmp_path: Path, placement: Placement) -> None:
    """Secrets, a policy and TLS together: witnesses log in by all of it, and the attack is refused, not broken.

    The attack lasts until a guess was refused: how many come to that in a time is the machine's matter.
    """
    async with running(Needs(users=True, policy=True, tls=True), tmp_path, placement) as (_, target):
        file, out = tmp_path / "target.json", tmp_path / "account.json"
        target.write(file)
        async with _process("witness", [str(file), str(out)], tmp_path, placement.others) as witness:
            await until(out.with_name("account.json.ready").exists)
            attacker = Attacker(target, lambda: None)
            attack = asyncio.create_task(ATTACKS["wrong-hellos-15"].run(attacker, scaled(600)))
            await until(lambda: bool(REFUSALS & attacker.effort.refused.keys()) or attack.done())
            assert not attack.done()
            attack.cancel()
            await asyncio.gather(attack, return_exceptions=True)
            witness.send_signal(signal.SIGTERM)
            async with time_limit(60):
                assert await witness.wait() == 0

    account = Account.read(out)
    assert account.updates
    assert account.missing == []
    assert attacker.effort.done > 0


async def test_a_node_that_stands_still_is_seen(tmp_path: Path, placement: Placement) -> None:
    """The worst attack there is: every figure by which a row is judged must show it."""
    async with running(Needs(), tmp_path, placement) as (stack, target):
        file, out = tmp_path / "target.json", tmp_path / "account.json"
        target.write(file)
        async with _process("witness", [str(file), str(out)], tmp_path, placement.others) as witness:
            await until(out.with_name("account.json.ready").exists)
            watch = Watch(stack)
            async with watch.watching() as sight:
                before, begin = await watch.counts(), time.monotonic()
                stack.pause_node(ATTACKED)
                await until(lambda: any(left <= 0 for _, left in sight.leases))
                await until(lambda: bool(sight.down))
                stack.resume_node(ATTACKED)
                after = await watch.counts()
                while after.leases_lost == 0:
                    await asyncio.sleep(_POLL)
                    after = await watch.counts()
                phase = Phase(begin, time.monotonic())
            witness.send_signal(signal.SIGTERM)
            async with time_limit(60):
                assert await witness.wait() == 0

    found = seen(phase, Account.read(out), sight, (before, after), 0.0)
    assert found.falls > 0
    assert found.failed_checks > 0
    assert found.unanswered > 0
    assert found.down
    assert found.lease_left <= 0
    assert found.leases_lost > 0
    # The lease is six seconds long, and everything that was due in them was late.
    assert found.p99 > 1


async def test_witnesses_come_back_and_account_for_it(tmp_path: Path, placement: Placement) -> None:
    """A node that is killed cuts them all; the next one restores them, and what was open is asked again."""
    async with running(Needs(), tmp_path, placement) as (stack, target):
        file, out = tmp_path / "target.json", tmp_path / "account.json"
        target.write(file)
        async with _process("witness", [str(file), str(out)], tmp_path, placement.others) as witness:
            await until(out.with_name("account.json.ready").exists)
            await stack.kill_node(ATTACKED)
            killed = time.monotonic()
            await stack.start_node(ATTACKED)
            back = time.monotonic()
            async with time_limit(60):
                # Nobody else has sessions there.
                while (await stack.metrics(ATTACKED))['gateway_sessions{state="connected"}'] <= SUBSCRIBERS:  # noqa: ASYNC110 - metrics are asked for
                    await asyncio.sleep(_POLL)
            witness.send_signal(signal.SIGTERM)
            async with time_limit(60):
                assert await witness.wait() == 0

    account = Account.read(out)
    assert len([why for at, why in account.cuts if at >= killed]) > SUBSCRIBERS
    assert account.unanswered == []
    assert account.disordered == 0
    # What was due while nobody was there is accounted for: it came late, or not at all to who was back after it.
    late = [due for due, _ in account.updates if killed < due < back]
    missing = [due for due in account.missing if killed < due < back]
    assert len(late) + len(missing) + account.folded >= SUBSCRIBERS


async def until(condition: Callable[[], bool]) -> None:
    async with time_limit(60):
        while not condition():  # noqa: ASYNC110 - it is files and lists that are looked at
            await asyncio.sleep(_POLL)
