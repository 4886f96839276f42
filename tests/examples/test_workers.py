"""Work that is shared among processes: one is killed while it works, and each piece has one result."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from examples.workers.enqueue import QUEUE
from examples.workers.worker import RESULTS
from gateway.client import connect
from gateway.local.processes import ManagedProcess
from tests.integration.admin.support import Pair
from tests.support.faults import eventually
from tests.support.nodes import declare_queues
from tests.support.times import time_limit

JOBS: Final = 12


@asynccontextmanager
async def worker(pair: Pair, name: str, folder: Path) -> AsyncIterator[ManagedProcess]:
    command = [sys.executable, "-u", "-m", "examples.workers.worker", "--url", pair.n1.url, "--seconds", "0.1"]
    process = ManagedProcess(name, command, log=folder / f"{name}.log")
    process.start()
    try:
        yield process
    finally:
        await process.stop(grace=0)


def told(folder: Path, name: str) -> str:
    return (folder / f"{name}.log").read_text()


@pytest.mark.promise("P15", "P16")
async def test_each_piece_of_work_has_one_result_though_a_worker_is_killed(pair: Pair, tmp_path: Path) -> None:
    await declare_queues(pair.n1, QUEUE)
    async with (
        connect(pair.n1.url, principal="boss") as session,
        worker(pair, "first", tmp_path) as first,
        worker(pair, "second", tmp_path),
    ):
        results = await session.subscribe(f"{RESULTS}/*")
        await eventually(lambda: "is ready" in told(tmp_path, "first"), "the first worker is ready")
        await eventually(lambda: "is ready" in told(tmp_path, "second"), "the second worker is ready")
        enqueue = [sys.executable, "-m", "examples.workers.enqueue", "--url", pair.n1.url, "--count", str(JOBS)]
        sending = await asyncio.create_subprocess_exec(*enqueue, stdout=asyncio.subprocess.PIPE)
        await eventually(lambda: "took" in told(tmp_path, "first"), "the first worker has something")
        await first.kill()
        output, _ = await sending.communicate()
        assert output.decode() == f"{JOBS} jobs are in {QUEUE}\n"

        squares: dict[str, tuple[object, int]] = {}
        async with time_limit(30.0):
            async for update in results:
                squares[update.topic] = (update.value, update.version)
                if len(squares) == JOBS:
                    break
    # Version 1: nobody published a second time.
    assert squares == {f"{RESULTS}/{number}": (number**2, 1) for number in range(1, JOBS + 1)}
