"""How fast redis-py alone is: bare XADDs in pipelines, and one round trip.

The gateway's confirmed publishes end in Redis scripts sent by redis-py, so these are the bounds of what it can reach
with that client: the first for its rate, the second for the latency of a publish. Measured in a process of its own on
the server's core, so that its CPU is told apart and the placement is the gateway's; ``measure`` starts Redis and it, or
to see the figures alone::

    python -m benchmarks.references.redis_bare
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import redis
import redis.asyncio
import uvloop

from benchmarks.measure import process_cpu
from benchmarks.placement import Placement
from benchmarks.processes import HOST, PinnedProcess, redis_server, scratch_folder, wait_until

BATCHES: Final = (100, 200, 500)
"""Commands per pipeline. Larger ones were no faster; the gateway's own batches are of this size under load."""

ASYNCIO_WRITERS: Final = (1, 2)
"""With two, one packs its commands while Redis works on the other's; with more nothing was gained."""

FIELDS: Final[dict[Any, Any]] = {"v": b"x" * 100}
"""100 bytes, like the values of all delivery cases. (redis-py's own type for it is invariant, hence Any.)"""

STREAM: Final = "bare"

STREAM_LENGTH: Final = 10_000
"""Entries kept, approximately, so that memory does not grow with speed; trimming whole nodes costs next to nothing."""

ROUND_TRIPS: Final = 5_000
"""Enough that the median does not move by a microsecond from run to run."""

WARM_UP_SECONDS: Final = 0.2
"""Before each measurement: connections are opened, and the interpreter specialises its bytecode."""

SECONDS: Final = 2.0
"""For each way of sending; the client's CPU clock is exact to a nanosecond, so this is enough."""

SPARE_SECONDS: Final = 30.0
"""For the measuring process beside its windows: start, round trips, a loaded machine."""

MICROSECONDS: Final = 1e6
"""In a second."""


@dataclass(frozen=True)
class Rate:
    """What one way of sending XADDs reached.

    Attributes:
        client: ``sync``, or ``asyncio`` (on uvloop).
        writers: pipelines under way at once, each on a connection of its own.
        batch: commands per pipeline.
        per_second: entries added and confirmed per second.
        cpu_per_entry_us: microseconds of the client's CPU, user and system, per entry.
    """

    client: str
    writers: int
    batch: int
    per_second: float
    cpu_per_entry_us: float


@dataclass(frozen=True)
class RedisBare:
    """The result.

    Attributes:
        rates: of all ways that were tried.
        round_trip_p50_us: median of a PING by the asyncio client, which is the gateway's, each sent when the one before
            was answered; microseconds.
        sync_round_trip_p50_us: the same by the sync client, which has no event loop to go through.
        redis_cpu_per_entry_us: microseconds of Redis's CPU per entry, over all ways.
    """

    rates: Sequence[Rate]
    round_trip_p50_us: float
    sync_round_trip_p50_us: float
    redis_cpu_per_entry_us: float

    @property
    def best(self) -> Rate:
        """The fastest way: the one that ours is compared with."""
        return max(self.rates, key=lambda each: each.per_second)


def measure(placement: Placement, *, seconds: float = SECONDS) -> RedisBare:
    """Measure with a Redis of its own on ``placement.others`` and the client on ``placement.server``.

    Args:
        placement: cores, as for the systems under test.
        seconds: for each way of sending.

    Raises:
        SystemUnavailable: redis-server is not installed.
        SystemFailed: Redis or the measuring process failed.
    """
    ways = len(BATCHES) * (1 + len(ASYNCIO_WRITERS))
    with redis_server(placement.others) as (server, port), scratch_folder("redis-bare") as folder:
        output = folder / "rates.json"
        with PinnedProcess(
            [sys.executable, "-m", "benchmarks.references.redis_bare", str(port), str(seconds), output],
            core=placement.server,
            folder=folder,
            directory=Path(__file__).parents[2],
        ) as client:
            deadline = SPARE_SECONDS + ways * (seconds + WARM_UP_SECONDS)
            wait_until(lambda: client.process.poll() is not None, "redis-py has been measured", within=deadline)
            if client.process.returncode != 0:
                client.check()
        measured = json.loads(output.read_text())
        with redis.Redis(host=HOST, port=port) as connection:
            entries = int(connection.xinfo_stream(STREAM)["entries-added"])
        return RedisBare(
            rates=[Rate(**each) for each in measured["rates"]],
            round_trip_p50_us=measured["round_trip_p50_us"],
            sync_round_trip_p50_us=measured["sync_round_trip_p50_us"],
            redis_cpu_per_entry_us=process_cpu(server.pid) / entries * MICROSECONDS,
        )


def _sync_rate(port: int, batch: int, seconds: float) -> Rate:
    """Send one pipeline after the other."""
    with redis.Redis(host=HOST, port=port) as connection:

        def add_for(window: float) -> int:
            added = 0
            end = time.perf_counter() + window
            while time.perf_counter() < end:
                pipeline = connection.pipeline(transaction=False)
                for _ in range(batch):
                    pipeline.xadd(STREAM, FIELDS, maxlen=STREAM_LENGTH, approximate=True)
                added += len(pipeline.execute())
            return added

        add_for(WARM_UP_SECONDS)
        started, cpu = time.perf_counter(), time.process_time()
        added = add_for(seconds)
        elapsed, used = time.perf_counter() - started, time.process_time() - cpu
    return Rate("sync", 1, batch, added / elapsed, used / added * MICROSECONDS)


async def _asyncio_rate(port: int, writers: int, batch: int, seconds: float) -> Rate:
    """Keep *writers* pipelines under way."""
    async with redis.asyncio.Redis(host=HOST, port=port) as connection:

        async def add_for(window: float) -> int:
            added = 0
            end = time.perf_counter() + window
            while time.perf_counter() < end:
                pipeline = connection.pipeline(transaction=False)
                for _ in range(batch):
                    pipeline.xadd(STREAM, FIELDS, maxlen=STREAM_LENGTH, approximate=True)
                added += len(await pipeline.execute())
            return added

        async def all_writers(window: float) -> int:
            return sum(await asyncio.gather(*(add_for(window) for _ in range(writers))))

        await all_writers(WARM_UP_SECONDS)
        started, cpu = time.perf_counter(), time.process_time()
        added = await all_writers(seconds)
        elapsed, used = time.perf_counter() - started, time.process_time() - cpu
    return Rate("asyncio", writers, batch, added / elapsed, used / added * MICROSECONDS)


def _sync_round_trip(port: int) -> float:
    with redis.Redis(host=HOST, port=port) as connection:
        times = []
        for _ in range(ROUND_TRIPS):
            started = time.perf_counter()
            connection.ping()
            times.append(time.perf_counter() - started)
    return statistics.median(times) * MICROSECONDS


async def _asyncio_round_trip(port: int) -> float:
    async with redis.asyncio.Redis(host=HOST, port=port) as connection:
        times = []
        for _ in range(ROUND_TRIPS):
            started = time.perf_counter()
            await connection.ping()
            times.append(time.perf_counter() - started)
    return statistics.median(times) * MICROSECONDS


def _measure_here(port: int, seconds: float) -> dict[str, object]:
    """Measure in this process, which ``measure`` has put on its core."""
    rates = [_sync_rate(port, batch, seconds) for batch in BATCHES]
    rates += [
        uvloop.run(_asyncio_rate(port, writers, batch, seconds)) for writers in ASYNCIO_WRITERS for batch in BATCHES
    ]
    return {
        "rates": [asdict(each) for each in rates],
        "round_trip_p50_us": uvloop.run(_asyncio_round_trip(port)),
        "sync_round_trip_p50_us": _sync_round_trip(port),
    }


def main() -> None:
    """Measure and print; or, started by ``measure`` with a port, seconds and a file, write the rates to that file."""
    if arguments := sys.argv[1:]:
        port, seconds, output = arguments
        Path(output).write_text(json.dumps(_measure_here(int(port), float(seconds))))
        return
    result = measure(Placement.of_this_machine())
    for each in result.rates:
        print(
            f"{each.client:8} {each.writers} x {each.batch:3}  {each.per_second:9,.0f} XADD/s"
            f"  {each.cpu_per_entry_us:5.2f} µs of client CPU"
        )
    print(
        f"Redis {result.redis_cpu_per_entry_us:.2f} µs per entry; round trip p50 {result.round_trip_p50_us:.0f} µs"
        f" (asyncio), {result.sync_round_trip_p50_us:.0f} µs (sync)"
    )


if __name__ == "__main__":
    main()
