"""A node dies, and then whoever takes over from it, in each stage: the next one finishes all of it (P17).

``python -m tests.cluster.takeover_kills --rounds 5`` kills a winner at each point of each stage, before and after the
grid has executed its request.

```text
n1 dies ──▶ n3 wins ──▶ [request of a stage] ──▶ Redis
                              │ caught by the proxy on its way: kill -9 n3
                              └──▶ n5 goes on … until one is left, which finishes
```
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import click

from gateway.adapters.redis import scripts
from gateway.adapters.redis.keys import Keys
from gateway.catalogue.log_event import LogEvent
from gateway.catalogue.log_events import LEASE_EXPIRED, TAKEOVER_FINISHED
from gateway.catalogue.takeover_log_events import CLEANUP_FINISHED
from gateway.client import Session, SessionState, connect
from gateway.local.proxy import FaultProxy, Way
from gateway.local.stack import Stack
from tests.cluster.crowds import crowd
from tests.cluster.grid_reader import PREFIX, GridReader
from tests.support.faults import eventually
from tests.support.stack import cluster
from tests.support.times import scaled

NODES: Final = 5
VICTIM: Final = "n1"
QUEUE: Final = "jobs/work"
DECLARED: Final = f'[[destination]]\npath = "{QUEUE}"\nkind = "queue"\n'

CROWD: Final = 30
"""Sessions of clients that come back."""

ABSENT: Final = 12
"""Sessions of the victim whose clients are gone with it."""

HELD: Final = 5
"""Messages that each of them holds."""

WINDOW: Final = 3.0
"""Seconds, on a quiet machine, after which their sessions end, and give back what they hold."""

LEASE: Final = 1.5
RENEW: Final = 0.4
HEARTBEAT: Final = 0.2
TRANSIENT_WAIT: Final = 1.0
"""Seconds, on a quiet machine; of the settings by these names."""


class Point(NamedTuple):
    """Where a winner is killed.

    Attributes:
        name: for people.
        script: whose request it is caught with.
        said: what of it tells it from others, beside the name of the victim.
    """

    name: str
    script: scripts.Script
    said: str = ""

    def pattern(self) -> re.Pattern[bytes]:
        """What such a request has, and no other: a request begins with an asterisk, and has no other one."""
        parts = (self.script.sha, rf"{VICTIM}:", *([rf"\n{self.said} "] if self.said else []))
        return re.compile(b"[^*]*?".join(part.encode() for part in parts))


POINTS: Final = (
    Point("sessions, about to begin", scripts.NODE_STAGE, "sessions"),
    Point("sessions, some of them", scripts.SESSION_ORPHAN),
    Point("all stages done", scripts.NODE_STAGE, "done"),
    Point("struck off the list", scripts.NODE_FINISH),
    Point("clean up", scripts.NODE_CLEAN),
    Point("reports", scripts.NODE_STAGE, "reports"),
)
"""In the order in which a takeover comes to them."""

SHORT: Final = (POINTS[1], POINTS[3], POINTS[5])
"""One in each part of it: as many as there are nodes to kill."""


@dataclass
class Round:
    """What came of one death.

    Attributes:
        wrong: what is not as promised.
        killed: who was killed at which point.
        detected: seconds from the death of the victim until its lease was found expired.
        seconds: until all was cleaned up.
    """

    wrong: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    detected: float = 0.0
    seconds: float = 0.0


def proxies(stack: Stack) -> dict[str, FaultProxy]:
    """The proxies between the nodes that run, and Redis."""
    assert stack.links is not None
    return {node: stack.links.grid[node] for node in stack.node_names if stack.nodes[node].running}


async def kill_winner_at(stack: Stack, grid: GridReader, point: Point, *, executed: bool) -> str:
    """Kill whichever node comes to a point, before or after Redis executes its request; returns its name."""
    armed = {node: proxy.stall_at(point.pattern(), Way.UP) for node, proxy in proxies(stack).items()}
    await eventually(lambda: any(each.is_set() for each in armed.values()), f"somebody comes to: {point.name}")
    winner = next(node for node, each in armed.items() if each.is_set())
    proxy = proxies(stack)[winner]
    if executed:
        proxy.stall(Way.DOWN)
        before = proxy.passed[Way.UP]
        proxy.flow(Way.UP)
        await eventually(lambda: proxy.passed[Way.UP] > before, "the request goes on")
        await grid.call("PING")
    await stack.kill_node(winner)
    for each in proxies(stack).values():
        each.flow()
    proxy.cut()
    proxy.flow()
    return winner


class Absent:
    """Sessions of the victim whose clients do not come back: they know no other node.

    Args:
        stack: with the victim.
    """

    def __init__(self, stack: Stack) -> None:
        self._url = stack.node_url(VICTIM)
        self._sessions: list[Session] = []

    async def open(self) -> None:
        """Open them, and have each hold messages."""
        for number in range(ABSENT):
            session = await connect(self._url, f"absent-{number}", window=scaled(WINDOW))
            self._sessions.append(session)
            consumer = await session.consume(QUEUE, credit=HELD, ack="each")
            for message in range(HELD):
                await session.send(QUEUE, number * HELD + message)
            for _ in range(HELD):
                await anext(consumer)

    async def close(self) -> None:
        """Forget them; nobody says good-bye."""
        await asyncio.gather(*(each.close(timeout=0) for each in self._sessions))


def told(stack: Stack, event: LogEvent, since: float) -> list[tuple[float, str]]:
    """Read when and of which node some event was logged by the others; one that dies may not say it."""
    found = []
    for node in stack.node_names:
        for line in stack.log_of(node).read_text().splitlines():
            if f'"{event.name}"' in line:
                entry = json.loads(line)
                found.append((datetime.fromisoformat(entry["time"]).timestamp(), entry["expired"].partition(":")[0]))
    return sorted(each for each in found if each[0] >= since)


async def all_come_back(session: Session) -> Counter[int]:
    """Count the messages that come back when the windows of those are over that held them."""
    seen: Counter[int] = Counter()
    consumer = await session.consume(QUEUE, credit=100, ack="each")
    while len(seen) < ABSENT * HELD:
        message = await anext(consumer)
        seen[message.value] += 1
        await message.accept()
    await consumer.cancel()
    return seen


async def play(stack: Stack, grid: GridReader, points: Sequence[Point], random: Random) -> Round:
    """Kill the victim, and winner after winner at the points; tell what is wrong when all is over."""
    result = Round()
    absent = Absent(stack)
    await absent.open()
    async with crowd(stack.url, CROWD) as members:
        began, died = time.monotonic(), time.time()
        await stack.kill_node(VICTIM)
        dead = [VICTIM]
        for point in points:
            dead.append(await kill_winner_at(stack, grid, point, executed=random.random() < 0.5))
            result.killed.append(f"{dead[-1]}: {point.name}")
        living = [node for node in stack.node_names if node not in dead]

        async def is_over() -> bool:
            return await grid.nodes() == set(living) and not await grid.call("EXISTS", Keys(PREFIX).takeovers)

        await eventually(is_over, "all who died are taken over, and cleaned up")
        result.seconds = time.monotonic() - began
        await absent.close()
        await eventually(
            lambda: all(each.session.state is SessionState.CONNECTED for each in members), "all of the crowd are there"
        )
        async with await connect(stack.url, "heir") as heir:
            twice = [each for each, count in (await all_come_back(heir)).items() if count > 1]
        if twice:
            result.wrong.append(f"messages came twice: {twice}")

        async def is_calm() -> bool:
            return all([(await stack.metrics(node))["gateway_suspects"] == 0 for node in living])

        await eventually(is_calm, "nobody is suspected any more")
    expired = told(stack, LEASE_EXPIRED, died)
    if strangers := {node for _, node in expired} - set(dead):
        result.wrong.append(f"E1: the leases of {sorted(strangers)} expired, who live")
    # Whoever wins tells of the end of the lease first, so that it is told in any case. If it is killed before anything
    # was kept of the takeover, the next one does not know that.
    unkept = sum(point == POINTS[0] for point in points)
    for event, most in ((LEASE_EXPIRED, 1 + unkept), (TAKEOVER_FINISHED, len(dead)), (CLEANUP_FINISHED, 1)):
        times = Counter(node for _, node in told(stack, event, died))
        if any(times[node] > most for node in dead) or (event is CLEANUP_FINISHED and times.keys() != set(dead)):
            result.wrong.append(f"E2: {event.name} was told {dict(times)} times")
    result.detected = expired[0][0] - died
    return result


async def run(folder: Path, rounds: Sequence[Sequence[Point]], *, seed: int) -> list[Round]:
    """Play rounds one after the other; between two of them those who died are started again."""
    file = folder / "destinations.toml"
    file.write_text(DECLARED, "utf-8")
    random, results = Random(seed), []
    settings: dict[str, Any] = {
        "lease": scaled(LEASE),
        "lease_renew": scaled(RENEW),
        "heartbeat": scaled(HEARTBEAT),
        "transient_wait": scaled(TRANSIENT_WAIT),
        "destinations": file,
    }
    async with (
        cluster(folder, nodes=NODES, link_proxies=True, **settings) as stack,
        GridReader(stack.grid_url) as grid,
    ):
        for number, points in enumerate(rounds):
            if number:
                await asyncio.gather(
                    *(stack.start_node(node) for node in stack.node_names if not stack.nodes[node].running)
                )
            results.append(await play(stack, grid, points, random))
    return results


@click.command()
@click.option("--rounds", default=5, show_default=True, help="How often a node dies, with three winners each.")
@click.option("--seed", default=1, show_default=True, help="Of the points, and of what is executed.")
def main(rounds: int, seed: int) -> None:
    """Kill a node, and then those who take over from it, in each stage."""
    random = Random(seed)
    chosen = [sorted(random.sample(POINTS, NODES - 2), key=POINTS.index) for _ in range(rounds)]
    with tempfile.TemporaryDirectory() as folder:
        results = asyncio.run(run(Path(folder), chosen, seed=seed))
    for each in results:
        click.echo(f"detected in {each.detected:.2f} s, over in {each.seconds:.1f} s; killed {', '.join(each.killed)}")
        for wrong in each.wrong:
            click.echo(wrong, err=True)
    raise SystemExit(any(each.wrong for each in results))


if __name__ == "__main__":
    main()
