"""``make demo``: clients keep their sessions while everything under them is cut, killed, stopped and emptied.

Each step names beforehand whom it may disturb and by which rung of the ladder those must come back; then the checker
compares. The demonstration fails if any promise is broken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from gateway.catalogue import log_events
from gateway.local import admin
from gateway.local.checker import (
    FAILED_OVER,
    HANDED_OVER,
    MIRRORED,
    REATTACHED,
    DeliveryLedger,
    Expectation,
    Verdict,
    Violation,
)
from gateway.local.fleet import Fleet, read_grid
from gateway.local.grid_server import GridRestart
from gateway.local.narration import Narrator, describe_recoveries
from gateway.local.ports import LOOPBACK
from gateway.local.processes import POLL_SECONDS
from gateway.local.proxy import FaultProxy
from gateway.local.stack import Stack

RECOVERY_SECONDS: Final = 30.0
"""How long everybody concerned may take to come back; a hung node has to be noticed by HAProxy first."""
CURRENT_SECONDS: Final = 20.0
"""How long it may take until every subscriber sees a publish made after the fault."""
CALM_SECONDS: Final = 2.0
"""Before each fault, so that buffers and values are as in the middle of a day, and people can read."""
_FENCED_SECONDS: Final = 15.0
"""How long a node that wakes up may hold sessions that have moved on: it learns of it at its next write or renewal."""
_RESTORED_SECONDS: Final = 30.0
"""How long nodes may take to write their sessions back into an emptied grid."""
_GONE_SECONDS: Final = 10.0
"""How long nodes may take to forget sessions that were closed."""

_WITHOUT_ITS_NODE: Final = frozenset({MIRRORED, FAILED_OVER})
"""How a session goes on whose node is dead or hangs: with the copy that the node's backup has, or, if that lacks what
was under way in the last moment, by a failover. Whoever has to miss nothing is replayed then."""

_PLANNED: Final = frozenset({HANDED_OVER, MIRRORED})
"""How a session goes on whose node is drained: its node hands it over or, on a machine too busy to do so in the time
that a handoff may take, the copy of the backup is taken. Neither loses anything."""

Act = Callable[[], Awaitable[list[Violation]]]
"""Does something and says which promises it saw broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """How much there is to see.

    Attributes:
        sessions: subscribing sessions; publishers come on top.
        rate: publishes per second and topic.
    """

    sessions: int = 48
    rate: float = 10.0


class Demo:
    """One run of the demonstration."""

    def __init__(self, stack: Stack, options: DemoOptions, narrator: Narrator | None = None) -> None:
        """Prepare a run.

        Args:
            stack: described and not started; with HAProxy.
            options: how much there is to see.
            narrator: tells what happens.
        """
        self._stack = stack
        self._options = options
        self._narrator = narrator or Narrator()
        self._fleet = Fleet()
        self._verdict = Verdict()
        self._fresh = stack.node_names[0]

    async def run(self) -> Verdict:
        """Start the stack, do all faults, stop the stack.

        Raises:
            ProcessFailed: a part of the stack did not do what it was told.
            ConnectFailed: a session could not be opened in the first place.
        """
        began = time.monotonic()
        self._stack.clear()
        with self._narrator.busy("starting Redis, nodes and HAProxy …"):
            await self._stack.start()
        try:
            async with FaultProxy(LOOPBACK, self._stack.options.ports.entry) as cutter:
                await self._board(cutter)
                await self._faults(cutter)
                await self._end()
        finally:
            await self._stack.stop()
        self._narrator.verdict(self._verdict, time.monotonic() - began)
        return self._verdict

    async def _board(self, cutter: FaultProxy) -> None:
        stack, fleet = self._stack, self._fleet
        self._narrator.say(
            f"Started Redis, {len(stack.node_names)} nodes and HAProxy on {LOOPBACK}; logs in {stack.logs}"
        )
        through_cutter = stack.url.replace(str(stack.options.ports.entry), str(cutter.port))
        with self._narrator.busy("opening sessions …"):
            await fleet.board([stack.url, through_cutter], subscribers=self._options.sessions, rate=self._options.rate)
            if not await fleet.current(timeout=CURRENT_SECONDS):
                self._broken([Violation("P6", "before any fault: not every subscriber sees every topic")])
        spread = ", ".join(f"{len(fleet.on_node(node))} on {node}" for node in stack.node_names)
        self._narrator.say(
            f"Opened {len(fleet.members)} sessions through HAProxy ({spread}): {len(fleet.publishers)} publishers that "
            f"count on a topic each, {self._options.rate:g} times a second, and {len(fleet.subscribers)} subscribers."
        )

    @property
    def _subscribers(self) -> frozenset[str]:
        """Who has to get every update; publishers follow no topic."""
        return frozenset(each.name for each in self._fleet.subscribers)

    # --- The faults -----------------------------------------------------------------------------------------------

    async def _faults(self, cutter: FaultProxy) -> None:
        """Do one fault after the other, up to the first that breaks a promise: what follows would only echo it."""
        for fault in (
            partial(self._cut_sockets, cutter),
            partial(self._kill_node, "A kill without a loss: kill -9 {node}", whole=True),
            self._stop_node,
            self._drain_node,
            self._restart_haproxy,
            self._empty_redis,
            partial(self._kill_node, "A node dies again: kill -9 {node}; the grid must know its sessions nevertheless"),
        ):
            if self._verdict.passed:
                await fault()

    async def _cut_sockets(self, cutter: FaultProxy) -> None:
        # Members take the two ways in turn; see Fleet.board.
        affected = frozenset(member.name for member in self._fleet.members if int(member.name.rpartition("-")[2]) % 2)

        async def cut() -> list[Violation]:
            count = cutter.cut()
            if count == len(affected):
                return []
            return [Violation("P7", f"{count} sockets were open for {len(affected)} sessions")]

        await self._step(
            f"The network fails: {len(affected)} sockets are cut",
            Expectation("cutting sockets", affected, frozenset({REATTACHED})),
            cut,
        )

    async def _kill_node(self, title: str, *, whole: bool = False) -> None:
        node = self._fresh = self._fleet.busiest(self._stack.node_names)

        async def kill() -> list[Violation]:
            await self._stack.kill_node(node)
            return []

        async def start_again() -> list[Violation]:
            await self._stack.start_node(node)
            await self._stack.balanced()
            return []

        await self._step(
            title.format(node=node),
            Expectation(
                f"killing {node}",
                self._fleet.on_node(node),
                _WITHOUT_ITS_NODE,
                whole=self._subscribers if whole else frozenset(),
            ),
            kill,
            start_again,
        )

    async def _stop_node(self) -> None:
        node = self._fleet.busiest(self._stack.node_names)

        async def pause() -> list[Violation]:
            self._stack.pause_node(node)
            return []

        async def resume() -> list[Violation]:
            self._stack.resume_node(node)
            await self._stack.balanced()
            left = await self._sessions_left(node, _FENCED_SECONDS)
            if left:
                return [Violation("P3", f"{node} woke up and still holds {left:g} sessions that have moved on")]
            return []

        await self._step(
            f"A node hangs: kill -STOP {node}; later it wakes up (kill -CONT) and must let its old sessions go",
            Expectation(f"stopping {node}", self._fleet.on_node(node), _WITHOUT_ITS_NODE),
            pause,
            resume,
        )

    async def _drain_node(self) -> None:
        node = self._fleet.busiest(self._stack.node_names)

        async def drain() -> list[Violation]:
            code = await self._stack.drain_node(node)
            return [Violation("P12", f"{node} drained and ended with exit code {code}")] if code else []

        async def start_again() -> list[Violation]:
            await self._stack.start_node(node)
            await self._stack.balanced()
            return []

        await self._step(
            f"A deploy without a gap: kill -TERM {node} drains it, then its new version starts",
            Expectation(f"draining {node}", self._fleet.on_node(node), _PLANNED, whole=self._subscribers),
            drain,
            start_again,
        )

    async def _restart_haproxy(self) -> None:
        async def restart() -> list[Violation]:
            await self._stack.restart_haproxy()
            return []

        everybody = frozenset(member.name for member in self._fleet.members)
        await self._step(
            "The load balancer dies: kill -9 HAProxy, and start it again",
            Expectation("restarting HAProxy", everybody, frozenset({REATTACHED})),
            restart,
        )

    async def _empty_redis(self) -> None:
        logs = {node: self._stack.log_of(node).stat().st_size for node in self._stack.node_names}

        async def empty() -> list[Violation]:
            await self._stack.restart_redis(GridRestart.EMPTY)
            return []

        async def restored() -> list[Violation]:
            late = [
                node
                for node in self._stack.node_names
                if self._fleet.on_node(node) and not await self._has_restored(node, logs[node])
            ]
            return [Violation("P10", f"{node} has not written its sessions back") for node in late]

        await self._step(
            "The grid loses everything: kill -9 Redis, and start it empty",
            Expectation("emptying Redis", frozenset(), frozenset()),
            empty,
            restored,
        )

    async def _step(self, title: str, expectation: Expectation, fault: Act, mend: Act | None = None) -> None:
        """Do one fault and judge it.

        Args:
            title: for people.
            expectation: whom it may disturb, and how. If it names sessions that miss nothing, every update is counted.
            fault: does it.
            mend: puts things right when all have recovered; nobody may notice that.
        """
        fleet = self._fleet
        with self._narrator.step(title):
            await asyncio.sleep(CALM_SECONDS)
            fleet.longest_publish()
            marks, ledger = fleet.marks(), DeliveryLedger(fleet.watches)
            violations = await fault()
            # Whoever does not come back in time is named by the expectation.
            await fleet.recovered(expectation.affected, marks, timeout=RECOVERY_SECONDS)
            if mend is not None:
                violations += await mend()
            if not await fleet.current(timeout=CURRENT_SECONDS):
                violations.append(Violation("P6", f"{expectation.step}: not every subscriber is current again"))
            recoveries = fleet.recoveries_since(marks)
            violations += expectation.judge(recoveries)
            violations += ledger.judge(expectation.step) if expectation.whole else []
        seen = describe_recoveries(recoveries, len(fleet.members))
        if expectation.whole:
            seen += f"; {len(expectation.whole)} subscribers got {ledger.came:,} of {ledger.due:,} updates"
        slowest = fleet.longest_publish()
        self._verdict.slowest_publish = max(self._verdict.slowest_publish, slowest)
        self._narrator.seen(f"{seen}; the slowest publish took {slowest:.2f} s", violations)
        self._broken(violations)

    # --- The end --------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        fleet, verdict = self._fleet, self._verdict
        with self._narrator.busy("comparing publishers, grid and subscribers …"):
            verdict.judge_sessions(
                {member.name: member.before for member in fleet.members},
                {member.name: member.after for member in fleet.members},
            )
            verdict.judge_recoveries(fleet.recoveries())
            if verdict.passed and not await fleet.quiet(timeout=CURRENT_SECONDS):
                self._broken([Violation("P6", "at the end: not every subscriber has every publisher's last value")])
            verdict.judge_deliveries([publisher.ledger for publisher in fleet.publishers], fleet.watches)
            if verdict.passed:
                # The node that was killed last is fresh: it has to read what the grid really holds.
                verdict.judge_values(
                    [publisher.ledger for publisher in fleet.publishers],
                    fleet.watches,
                    await read_grid(self._stack.node_url(self._fresh), timeout=CURRENT_SECONDS),
                    [subscriber.name for subscriber in fleet.subscribers],
                )
            await self._close_sessions()
        for member in fleet.members:
            self._broken(member.troubles)

    async def _close_sessions(self) -> None:
        try:
            await self._fleet.close()
        except TimeoutError:
            self._broken([Violation("P7", "not every session could be closed")])
            return
        for node in self._stack.node_names:
            left = await self._sessions_left(node, _GONE_SECONDS)
            if left:
                self._broken([Violation("P7", f"{node} still holds {left:g} sessions that were closed")])

    def _broken(self, violations: list[Violation]) -> None:
        self._verdict.violations += violations

    async def _sessions_left(self, node: str, seconds: float) -> float:
        """Wait until *node* holds no session; returns how many it still holds after *seconds*."""
        deadline = time.monotonic() + seconds
        while True:
            left = float("nan")
            try:
                metrics = await self._stack.metrics(node)
                left = sum(value for name, value in metrics.items() if name.startswith("gateway_sessions{"))
            except admin.UNREACHABLE:
                pass
            if left == 0 or time.monotonic() >= deadline:
                return left
            await asyncio.sleep(POLL_SECONDS)

    async def _has_restored(self, node: str, position: int) -> bool:
        """Wait until *node* has logged, after *position* of its log, that its sessions are in the grid again."""
        deadline = time.monotonic() + _RESTORED_SECONDS
        while time.monotonic() < deadline:
            with self._stack.log_of(node).open("rb") as log:
                log.seek(position)
                if log_events.GRID_RESTORED.name.encode() in log.read():
                    return True
            await asyncio.sleep(POLL_SECONDS)
        return False
