"""An idle connected session costs the grid nothing (P11)."""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from gateway.adapters.redis.gauges import ASK_INTERVAL
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.scripts import NODE_LIST, NODE_TAKEOVERS, SESSION_OWNERS
from gateway.app.cluster.left_sessions import REAPS
from gateway.app.cluster.transaction_reaper import IDLE_LOOKS
from gateway.app.cluster.value_endings import LOOK_SECONDS
from gateway.core.topics.topics import SESSION_PARTITIONS, TOPIC_PARTITIONS
from gateway.local.ports import LOOPBACK
from gateway.local.stack import Stack
from gateway.ports import FINISH_SECONDS
from gateway.settings import Settings
from tests.cluster.crowds import Figures, Member, crowd
from tests.cluster.grid_reader import PREFIX, GridReader
from tests.support.faults import eventually
from tests.support.stack import cluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.redis,
    pytest.mark.haproxy,
    pytest.mark.promise("P11"),
    pytest.mark.thorough,
]

SESSIONS: Final = 300
WINDOW: Final = 8.0
"""Seconds that are measured: four renewals of each lease, and one or two looks of each reaper."""
PING_INTERVAL: Final = 1.0
"""Seconds between pings; far more often than by default, because keeping sessions alive must cost the grid nothing."""
BLOCK: Final = 2.0
"""Seconds for which a node's read of the streams waits for news, if there is none."""
RENEW_JITTER: Final = 0.9
"""A node's shortest pause between two renewals, as a share of the setting."""
REAP_JITTER: Final = 0.5
"""Likewise between two looks for sessions whose window is over."""
SCRIPT: Final = "lua"
"""What MONITOR tells as the client of a command that a script has called."""
MONITORED: Final = re.compile(r'\+[\d.]+ \[\d+ (\S+)\] "([^"]+)"(.*)')
"""A line of MONITOR: who, which command, its arguments. A script's commands follow the script's line."""
LOOKS_AT_AN_ARRIVAL: Final = 2
"""How often a node reads the list of nodes once it has seen another one arrive: for its links and its namesakes."""
WRITES: Final = "gateway_writes_total"
SELDOM: Final = {"figures", "owners", "left", "takeovers", "transactions", "histories"}
"""Jobs that are done more seldom than a window is long; the second once in each generation of the grid, the fourth
once by a node that has just started, and when others are gone, the last once by a node where no history is kept."""

JOBS: Final = (
    ("xread", "", "tail"),
    ("evalsha", NODE_LIST.sha, "nodes"),
    ("evalsha", NODE_TAKEOVERS.sha, "takeovers"),
    ("evalsha", ":{nodes}:leases", "lease"),
    ("evalsha", ":{nodes}:reports", "report"),
    ("evalsha", r"\{s\d+\}:deadlines", "reaper"),
    ("zrangebyscore", r"\{s\d+\}:deadlines", "left"),
    ("zcard", r"\{s\d+\}:transactions-due", "transactions"),
    ("evalsha", r"\{t\d+\}:ends", "endings"),
    ("hscan", r"\{t\d+\}:logs", "histories"),
    ("info", "", "figures"),
    ("evalsha", SESSION_OWNERS.sha, "owners"),
)
"""A node's jobs: the command, what its arguments say, and the name of the job."""


@dataclass(frozen=True, slots=True)
class Call:
    """One command that a node sent, with the commands that its script called."""

    command: str
    arguments: str
    called: tuple[str, ...]

    @property
    def job(self) -> str:
        """Which job of a node it belongs to; the whole command if to none of those that a node has anyway."""
        for command, said, job in JOBS:
            if self.command == command and re.search(said, self.arguments):
                return job
        return f"{self.command}{self.arguments}"


@dataclass(frozen=True, slots=True)
class Window:
    """What the grid did in the time of a window.

    Attributes:
        calls: every command that was sent, as MONITOR tells.
        stats: how often each command ran, as ``INFO commandstats`` tells, scripts and what they called alike.
    """

    calls: tuple[Call, ...]
    stats: Counter[str]

    @property
    def jobs(self) -> Counter[str]:
        """How often each job was done."""
        return Counter(call.job for call in self.calls)

    @property
    def steady(self) -> set[str]:
        """The jobs that are done in every window; of the others, one comes once in each generation of the grid."""
        return set(self.jobs) - SELDOM

    def steps(self) -> Mapping[str, set[tuple[str, ...]]]:
        """Which commands were called to do each job once."""
        steps: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        for call in self.calls:
            # Nodes do not have equal shares of the partitions; what is looked at in each is the same.
            called = dict.fromkeys(call.called) if call.job == "endings" else call.called
            steps[call.job].add((call.command, *called))
        for each in SELDOM:
            steps.pop(each, None)
        return dict(steps)

    def executed(self) -> Counter[str]:
        """How often each command ran, without reads of streams: MONITOR tells their beginning, INFO their end."""
        names = (name for call in self.calls for name in (call.command, *call.called))
        return Counter(name for name in names if name not in {"info", "xread"})


async def measure(stack: Stack, grid: GridReader) -> Window:
    """Watch the grid from one reading of its counters to the next, a window later."""
    await grid.calls()  # what comes with a first command, such as naming the connection, is over now
    reader, writer = await asyncio.open_connection(LOOPBACK, stack.grid.port)
    try:
        writer.write(b"MONITOR\r\n")
        assert await reader.readline() == b"+OK\r\n"
        lines: list[str] = []
        before = await grid.calls()
        with suppress(TimeoutError):
            async with asyncio.timeout(WINDOW):
                while True:
                    lines.append((await reader.readline()).decode())
        after = await grid.calls()
        readings = [index for index, line in enumerate(lines) if _is_reading(line)]
        while len(readings) < 2:
            lines.append((await reader.readline()).decode())
            if _is_reading(lines[-1]):
                readings.append(len(lines) - 1)
    finally:
        writer.close()
    stats = Counter({name: after[name] - before[name] for name in after if name not in {"info", "xread"}})
    return Window(tuple(_calls(lines[readings[0] + 1 : readings[1]])), +stats)


def _is_reading(line: str) -> bool:
    return '"INFO" "commandstats"' in line


def _calls(lines: list[str]) -> Iterator[Call]:
    """Put commands that a script called to the script's call."""
    parsed = [match.groups() for line in lines if (match := MONITORED.match(line))]
    assert len(parsed) == len(lines), "MONITOR tells something that was not understood"
    tops = [index for index, (client, _, _) in enumerate(parsed) if client != SCRIPT]
    for start, end in zip(tops, [*tops[1:], len(parsed)], strict=True):
        _, command, arguments = parsed[start]
        yield Call(command.lower(), arguments, tuple(name.lower() for _, name, _ in parsed[start + 1 : end]))


async def enter(member: Member, number: int) -> None:
    await member.subscribe("prices/**")
    await member.subscribe(f"orders-{number % 7}/{number}")


async def is_there(grid: GridReader, key: str) -> bool:
    return bool(await grid.call("EXISTS", key))


async def written(stack: Stack) -> float:
    """Messages that the nodes have written to clients."""
    return sum([(await stack.metrics(node))[WRITES] for node in stack.node_names])


async def test_idle_sessions_cost_the_grid_nothing(tmp_path: Path, figures: Figures) -> None:
    async with cluster(tmp_path, ping_interval=PING_INTERVAL) as stack, GridReader(stack.grid_url) as grid:
        # The renewal that makes a node the master takes steps of its own.
        await eventually(lambda: is_there(grid, Keys(PREFIX).master), "the cluster has a master")
        alone = await measure(stack, grid)
        async with crowd(stack.url, SESSIONS, enter) as members:
            pings = await written(stack)
            idle = await measure(stack, grid)
            pings = await written(stack) - pings

            assert pings >= SESSIONS * WINDOW / PING_INTERVAL / 2, "the sessions were not kept alive by pings"
            assert not any(member.recoveries for member in members)
            # No command names a session, or does anything but what nodes do anyway.
            assert idle.steady == alone.steady == {"tail", "lease", "report", "reaper", "nodes", "endings"}
            # No job takes other steps because sessions are there.
            assert idle.steps() == alone.steps()
            assert {job for job, steps in idle.steps().items() if len(steps) != 1} == set()
            # No job is done more often than the nodes' settings say.
            nodes = len(stack.node_names)
            for window, arrivals in ((alone, nodes - 1), (idle, 0)):
                assert window.executed() == window.stats, "MONITOR and INFO do not agree"
                _judge_schedule(window, nodes=nodes, arrivals=arrivals)
            attributable = [call for call in idle.calls if call.job not in alone.jobs and call.job not in SELDOM]
            figures(
                f"{len(attributable) / WINDOW:g} commands/s attributable to {SESSIONS} idle sessions, pinged "
                f"{pings:.0f} times in {WINDOW:g} s; the nodes' own commands: {_describe(alone)} without sessions, "
                f"{_describe(idle)} with"
            )
        assert await grid.of_sessions() == []


def _judge_schedule(window: Window, *, nodes: int, arrivals: int) -> None:
    """Compare with the settings; the first window begins while nodes may still learn of the *arrivals* of others."""
    settings = Settings()
    jobs = window.jobs
    assert jobs["lease"] <= nodes * (1 + WINDOW / (settings.lease_renew * RENEW_JITTER))
    # With each lease that is taken or renewed, a node tells the others of itself, and looks what they tell.
    assert jobs["report"] <= nodes * (1 + WINDOW / (settings.lease_renew * RENEW_JITTER))
    looks = 1 + arrivals * LOOKS_AT_AN_ARRIVAL
    assert jobs["nodes"] <= nodes * (looks + WINDOW / (settings.lease_renew * RENEW_JITTER))
    # The nodes share the partitions, unless one has not seen the others yet.
    assert jobs["reaper"] <= nodes * (1 + WINDOW / (settings.reap_interval * REAP_JITTER)) * SESSION_PARTITIONS
    # They share these partitions, too, and look more seldom.
    assert jobs["left"] <= nodes * (1 + WINDOW / (REAPS * settings.reap_interval * REAP_JITTER)) * SESSION_PARTITIONS
    # So they do where transactions may be open, which is asked with one command a partition.
    assert (
        jobs["transactions"] <= nodes * (1 + WINDOW / (IDLE_LOOKS * FINISH_SECONDS * REAP_JITTER)) * SESSION_PARTITIONS
    )
    # One command looks for all values that end. Where there is no history, a node looks through its partitions once.
    assert jobs["endings"] <= nodes * (1 + WINDOW / (LOOK_SECONDS * REAP_JITTER))
    assert jobs["histories"] <= nodes * TOPIC_PARTITIONS
    assert jobs["tail"] <= nodes * (1 + WINDOW / BLOCK)
    assert jobs["owners"] <= nodes * SESSION_PARTITIONS
    assert jobs["figures"] <= nodes * (1 + WINDOW / (ASK_INTERVAL * RENEW_JITTER))


def _describe(window: Window) -> str:
    return f"{window.stats.total() / WINDOW:.1f}/s ({', '.join(f'{n} {job}' for job, n in window.jobs.items())})"
