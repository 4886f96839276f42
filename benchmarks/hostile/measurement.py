"""Measures one attack: a fresh stack, a quiet phase, the attack, and what is left when the attacker has gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from benchmarks.hostile.account import Account
from benchmarks.hostile.attack import Attack, Effort
from benchmarks.hostile.attacker import BEGIN
from benchmarks.hostile.outage import Outage, came_back
from benchmarks.hostile.stack import ATTACKED, running
from benchmarks.hostile.target import BALANCER, Entry
from benchmarks.hostile.verdict import Measurement, Phase, busy_share, seen
from benchmarks.hostile.watch import LOOK_EVERY, Watch
from benchmarks.hostile.witness import SETTLE_SECONDS
from benchmarks.placement import Placement, bound_to
from benchmarks.processes import die_with_us
from benchmarks.progress import Progress
from benchmarks.systems.base import SystemFailed
from gateway.local.processes import ProcessFailed
from gateway.local.stack import Stack

T = TypeVar("T")

REPOSITORY: Final = Path(__file__).parents[2]

READY_SECONDS: Final = 60.0
"""For the witnesses to log in, and for an attacker to prepare itself."""

END_SECONDS: Final = 30.0
"""For an attacker to end when its time is up, and for witnesses to end beyond what they wait for."""

SETTLE: Final = 1.0
"""Seconds between the start of the witnesses and the quiet phase: caches fill, first acknowledgements are sent."""

AFTERMATH: Final = 2.0
"""Seconds after the attack that still count as it: what it has begun ends, and HAProxy's checks have their say."""

_OUTAGE_AFTER: Final = 1.0
"""Seconds into a phase at which Redis becomes unreachable."""

_BACK_SECONDS: Final = 10.0
"""For the node to have Redis again; it tries every second at least."""

_POLL: Final = 0.05
_LAST_OUTPUT_BYTES: Final = 2_000


@dataclass(frozen=True)
class Lengths:
    """How long the phases are, in seconds, and how large the attacks are.

    Attributes:
        quiet: before the attack.
        attack: the attack.
        scale: see ``Target.scale``.
    """

    quiet: float
    attack: float
    scale: float = 1.0


async def measure(
    attack: Attack, folder: Path, placement: Placement, lengths: Lengths, progress: Progress
) -> Measurement:
    """Measure an attack once.

    Args:
        attack: which one.
        folder: scratch of this measurement alone.
        placement: cores: the node has one to itself.
        lengths: of the phases.
        progress: told what goes on.

    Raises:
        SystemUnavailable: a program is not installed.
        SystemFailed: the stack did not come up, the witnesses could not begin, or the attack came to nothing.
    """
    run = _Run(attack, folder, placement.others, lengths, progress)
    try:
        with bound_to(placement.others):  # this process looks at the node, and stays off the node's core
            progress.say("starting Redis, two nodes and HAProxy")
            async with running(attack.needs, folder, placement, scale=lengths.scale) as (stack, target):
                target.write(run.target)
                names = [str(run.target), str(run.account)]
                async with _process("witness", names, folder, placement.others) as witness:
                    await run.witnessed(witness)
                    return await run.phases(stack, witness)
    except ProcessFailed as failed:
        raise SystemFailed(str(failed)) from failed


@dataclass(frozen=True)
class _Run:
    """One measurement as it goes: see ``measure``."""

    attack: Attack
    folder: Path
    core: int
    lengths: Lengths
    progress: Progress

    @property
    def target(self) -> Path:
        return self.folder / "target.json"

    @property
    def _peers(self) -> Sequence[str]:
        """Where the node sees the attacker come from."""
        return (BALANCER,) if self.attack.entry is Entry.BALANCER else self.attack.addresses

    @property
    def account(self) -> Path:
        return self.folder / "account.json"

    async def witnessed(self, witness: asyncio.subprocess.Process) -> None:
        """Wait until the witnesses say that everything flows."""
        ready = self.account.with_name(f"{self.account.name}.ready")
        deadline = time.monotonic() + READY_SECONDS
        while not ready.exists():
            if witness.returncode is not None or time.monotonic() > deadline:
                raise SystemFailed(f"the witnesses could not begin: {_last(self.folder, 'witness')}")
            await asyncio.sleep(_POLL)

    async def phases(self, stack: Stack, witness: asyncio.subprocess.Process) -> Measurement:
        """Let the phases pass, and collect what was seen."""
        outage, watch = self.attack.needs.outage, Watch(stack, self._peers)
        async with watch.watching() as sight:
            await asyncio.sleep(SETTLE)
            self.progress.say("a quiet phase")
            calm, begin = await watch.counts(), time.monotonic()
            _, first = await _with_outage(stack, outage, asyncio.sleep(self.lengths.quiet))
            quiet, calm_end = Phase(begin, time.monotonic()), await watch.counts()

            self.progress.say(self.attack.about)
            arguments = [self.attack.name, str(self.target), "--seconds", str(self.lengths.attack)]
            async with _process("attacker", arguments, self.folder, self.core) as attacker:
                await self._begun(attacker)
                storm, begin = await watch.counts(), time.monotonic()
                told, second = await _with_outage(stack, outage, self._told(attacker))
                attack, storm_end = Phase(begin, time.monotonic()), await watch.counts()
            await asyncio.sleep(AFTERMATH)
            attacked, aftermath = Phase(begin, time.monotonic()), await watch.counts()
            await asyncio.sleep(2 * LOOK_EVERY)
            resident = [next(size for at, size in sight.resident if at >= quiet.begin), sight.resident[-1][1]]

            self.progress.say("waiting for what is under way")
            witness.send_signal(signal.SIGTERM)
            await self._ended(witness)
        account = Account.read(self.account)
        effort = Effort(**{each.name: told[each.name] for each in fields(Effort)})
        if not effort.done:
            raise SystemFailed(f"{self.attack.name} came to nothing: {effort.refused or 'nothing was refused either'}")
        return Measurement(
            quiet=seen(
                quiet, account, sight, (calm, calm_end), (calm_end.cpu - calm.cpu) / quiet.seconds, outage=first
            ),
            attacked=seen(
                attacked,
                account,
                sight,
                (storm, aftermath),
                (storm_end.cpu - storm.cpu) / attack.seconds,
                outage=second,
            ),
            effort=effort,
            attacker_cpu=told["cpu"] / told["seconds"],
            attack_seconds=told["seconds"],
            attacker_waited=told["waited"] / told["seconds"],
            kept_busy=busy_share(sight, attack),
            node_waited=max(0.0, calm_end.waited - calm.waited) / quiet.seconds,
            node_waited_attacked=max(0.0, storm_end.waited - storm.waited) / attack.seconds,
            resident_before=resident[0],
            resident_after=resident[1],
            disordered=account.disordered,
            folded=account.folded,
            full=self.attack.needs.full,
        )

    async def _begun(self, attacker: asyncio.subprocess.Process) -> None:
        line = await _line(attacker, READY_SECONDS)
        if line.strip().decode() != BEGIN:
            raise SystemFailed(f"the attacker could not begin: {_last(self.folder, 'attacker')}")

    async def _told(self, attacker: asyncio.subprocess.Process) -> dict[str, Any]:
        line = await _line(attacker, self.lengths.attack + END_SECONDS)
        if not line:
            raise SystemFailed(f"the attacker did not come to its end: {_last(self.folder, 'attacker')}")
        told: dict[str, Any] = json.loads(line)
        return told

    async def _ended(self, witness: asyncio.subprocess.Process) -> None:
        try:
            async with asyncio.timeout(SETTLE_SECONDS + END_SECONDS):
                code: int | None = await witness.wait()
        except TimeoutError:
            code = None
        if code != 0:
            raise SystemFailed(f"the witnesses did not come to their end: {_last(self.folder, 'witness')}")


async def _line(process: asyncio.subprocess.Process, seconds: float) -> bytes:
    """Read a line of what a process says; nothing if it says none in time."""
    if process.stdout is None:
        raise AssertionError("its output is a pipe")
    try:
        async with asyncio.timeout(seconds):
            return await process.stdout.readline()
    except TimeoutError:
        return b""


def _last(folder: Path, name: str) -> str:
    """Tell what a process complained of last."""
    return (folder / f"{name}.log").read_bytes()[-_LAST_OUTPUT_BYTES:].decode(errors="replace").strip() or "no word"


async def _with_outage(stack: Stack, seconds: float | None, phase: Coroutine[Any, Any, T]) -> tuple[T, Outage | None]:
    """Let a phase pass; if *seconds* are given, without Redis for so long of it, from its second second on.

    Returns:
        What came of the phase, and when Redis was unreachable.
    """
    passing, outage = asyncio.ensure_future(phase), None
    try:
        if seconds is not None:
            await asyncio.sleep(_OUTAGE_AFTER)
            outage = await _outage(stack, seconds)
        return await passing, outage
    finally:
        passing.cancel()


async def _outage(stack: Stack, seconds: float) -> Outage:
    """Take Redis away for so many seconds, and wait until the node has it again."""
    begin, log = time.monotonic(), stack.log_of(ATTACKED)
    await stack.grid.process.kill()
    await asyncio.sleep(seconds)
    await stack.grid.start()
    answered = time.monotonic()
    while (back := came_back(log, begin)) is None and time.monotonic() < answered + _BACK_SECONDS:  # noqa: ASYNC110 - it is a log
        await asyncio.sleep(_POLL)
    return Outage(begin, answered, back)


@contextlib.asynccontextmanager
async def _process(
    name: str, arguments: Sequence[str], folder: Path, core: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a module of this package for the length of the block; what it says beside its result goes to a log."""
    log = _log(folder / f"{name}.log")
    try:
        process = await asyncio.create_subprocess_exec(
            *die_with_us(),
            sys.executable,
            "-m",
            f"benchmarks.hostile.{name}",
            *arguments,
            "--core",
            str(core),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        )
    finally:
        log.close()
    try:
        yield process
    finally:
        if process.returncode is None:
            # By its pid: ``process.kill`` would look first whether it has ended, and take that from who waits for it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        await process.wait()


def _log(file: Path) -> BinaryIO:
    return file.open("wb")
