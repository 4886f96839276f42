"""One run: a cluster, a load, the faults of a plan, and the verdict."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from redis.exceptions import RedisError

from gateway.app.cluster.queue_sweeper import LOOK_SECONDS
from gateway.core.client.errors import SessionEnded
from tests.chaos import grid_links, node_links
from tests.chaos.account.account import Account
from tests.chaos.account.clock import Told, bases, judge_clock, judge_shifts, read_starts, read_told
from tests.chaos.account.forgotten import NodeEnd
from tests.chaos.account.recoveries import BUSY, GRID, Trouble
from tests.chaos.account.remains import judge_connections, judge_keys, judge_log
from tests.chaos.account.transactions import OUTPUT, Look
from tests.chaos.account.violation import Violation
from tests.chaos.deadlines import Stuck, bounded, ended, in_time
from tests.chaos.faults import CATALOGUE
from tests.chaos.faults.fault import possible
from tests.chaos.load.application import Application, Publisher
from tests.chaos.load.clients import applications
from tests.chaos.load.crowd import ROOTS, Crowd
from tests.chaos.load.habits import ABSENT, BACKLOG, DEAF, LEAVER, MUTE
from tests.chaos.load.queueing import LOOKED_AT
from tests.chaos.load.witness import Witness
from tests.chaos.mirrors import SYNC
from tests.chaos.outcome import Outcome, Struck
from tests.chaos.plan import Plan, Step
from tests.chaos.promotions import Promotions
from tests.chaos.reader import AWAY, UNREADABLE, Claims, Reader
from tests.chaos.target import READY, WINDOW, NotHealed, Target, running
from tests.chaos.turns import Tell, Turns
from tests.chaos.waiting import Waiting
from tests.support.times import scaled

HEALED: Final = 30.0
"""Seconds, on a quiet machine, in which everything must work again after the last fault."""

AUDIBLE: Final = 20.0
"""Seconds, on a quiet machine, in which everybody must hold what was published last, after everything works again."""

SETTLED: Final = 2 * 1.5 * LOOK_SECONDS + 15.0
"""Seconds, on a quiet machine, until the second look after a loss has dismissed consumers that are gone (ADR 0144)."""

CLOSED: Final = 30.0
"""Seconds, on a quiet machine, in which all clients must have said bye."""

LOOKS: Final = 0.5
"""Seconds between two looks into Redis."""

SLOW_LOOK: Final = 1.5
"""Seconds above which a look into Redis, past all proxies, tells that nodes get no answers in time, either: they wait
for one second (``grid_timeout``)."""

COPIES: Final = 6.0
"""Seconds between two copies of the data of a Redis, to roll back to."""

STRUCK: Final = 240.0
"""Seconds, on a quiet machine, in which everything that was struck must be healed after the plan has ended. Each fault
has deadlines of its own, which are shorter in sum: until it begins, for a vote of Sentinels, and for nodes."""

HEARD: Final = 210.0
"""Seconds, on a quiet machine, until everybody holds what was published last; deadlines within it are shorter."""

TOLD: Final = 90.0
"""Seconds, on a quiet machine, for reading the whole grid and the logs once more."""

CLOCK_SET: Final = "redis-clock-set"
"""The fault for which Redis needs a clock of its own."""

ROLLED_BACK: Final = frozenset({"redis-rolled-back", "masters-rolled-back"})
"""The faults for which copies of the data are made."""

HABITS: Final = (
    frozenset[str](),
    frozenset({ABSENT}),
    frozenset({DEAF, MUTE}),
    frozenset({LEAVER}),
    frozenset({LEAVER, ABSENT}),
    frozenset({LEAVER, MUTE}),
    frozenset({ABSENT, DEAF}),
    frozenset({BACKLOG}),
)
"""Of the witnesses, one each."""


class Run:
    """Strikes one plan.

    Args:
        plan: what is struck.
        target: the cluster.
        tell: takes lines that show how it goes on.
        url: where clients connect; through the links of the target if not given.
        audible: seconds in which everybody must hold what was published last.
    """

    def __init__(
        self, plan: Plan, target: Target, tell: Tell, *, url: str | None = None, audible: float = AUDIBLE
    ) -> None:
        self._plan = plan
        self._target = target
        self._tell = tell
        self._audible = audible
        self._began = time.monotonic()
        self._epoch = time.time()
        self.account = Account()
        self.account.recoveries.copied = plan.mirror == SYNC
        self._reader = Reader(target.stack.grid_url)
        self._crowd = Crowd(
            url or target.links.url, self.account, self.now, WINDOW, self._excused, self._has_replaced, plan.seed
        )
        self._crowd.publishing.set()
        self._applications = applications(self._crowd)
        self._witnesses = [
            # Every other one is of the time before clients could tell how far they had come.
            Witness(self._crowd, f"witness-{number}", habits=habits, replays=number % 2 == 0)
            for number, habits in enumerate(HABITS)
        ]
        self._outcome = Outcome(plan, target.stack.logs)
        self._turns = Turns(self._outcome, self.now, tell)
        self._connections: Counter[str] = Counter()
        self._promotions = Promotions(plan.grid)
        target.now = self.now
        target.saves = any(step.fault in ROLLED_BACK for step in plan.steps)
        target.about_to_forget = self._about_to_forget
        target.forgotten = self.account.publishes.forgotten.append
        target.node_ended = lambda node: self.account.node_ends.append(NodeEnd(self.now(), node))
        target.live_sessions = self._live_sessions

    def now(self) -> float:
        """Seconds since the beginning of the run."""
        return time.monotonic() - self._began

    async def run(self) -> Outcome:
        """Do it all."""
        async with AsyncExitStack() as exits:
            await exits.enter_async_context(self._background(self._watch(), "watch"))
            if self._target.saves:
                await self._target.save()
                await exits.enter_async_context(self._background(self._copy(), "copy"))
            async with self._load():
                await self._part(self._strike_all(), "striking", self._plan.seconds + STRUCK)
                await self._part(self._heal(), "healing", 3 * HEALED + READY)
                await self._part(self._converge(), "hearing everybody", HEARD)
                await self._part(self._end(), "saying bye", 2 * CLOSED)
        await self._part(self._look_at_remains(), "looking at what is left", WINDOW + HEALED + TOLD)
        self._outcome.violations = self.account.judge()
        self._figures()
        return self._outcome

    async def _part(self, work: Coroutine[Any, Any, None], what: str, within: float) -> None:
        """Do a part of the run, and go on with the next if it does not end."""
        try:
            await bounded(work, what, within)
        except Stuck as stuck:
            self._crowd.violated("bug", "the run", str(stuck))

    # --- Faults ---------------------------------------------------------------------------------------------------

    async def _strike_all(self) -> None:
        began = self.now()
        async with asyncio.TaskGroup() as strikes:
            for step in self._plan.steps:
                delay = began + step.at - self.now()
                if delay > 0:
                    await asyncio.sleep(delay)
                strikes.create_task(self._strike(step), name=f"chaos-{step.fault}")
            await asyncio.sleep(max(0.0, began + self._plan.seconds - self.now()))

    async def _strike(self, step: Step) -> None:
        fault = CATALOGUE[step.fault]
        parameters = dict(step.parameters)
        async with self._turns.turn(step) as began:
            if began is None:
                return
            trouble = ""
            try:
                async with fault.strike(self._target, parameters):
                    await asyncio.sleep(step.lasts)
            except NotHealed as failed:
                trouble = str(failed)
                self.account.found.append(Violation("P10", self.now(), step.fault, trouble))
            ended = self.now()
            self._outcome.struck.append(Struck(step, began, ended, trouble))
            self.account.recoveries.troubles += fault.troubles(parameters, began, ended)
            await asyncio.sleep(fault.settles)

    def _has_replaced(self) -> bool:
        return self._target.lineage > 0

    def _excused(self, opened: float) -> bool:
        return opened <= self._target.clock_unknown

    async def _about_to_forget(self) -> None:
        """Read the logs while there are some, if the nodes have adopted this Redis."""
        try:
            if await self._reader.adopted():
                await self._look_at_logs()
        except UNREADABLE:
            pass

    async def _look_at_logs(self, *, is_final: bool = False) -> None:
        """Read all logs, and what was passed on in transactions.

        Raises:
            UNREADABLE: that cannot be now.
        """
        began = self.now()
        snapshot = await self._reader.snapshot(began)
        self.account.snapshots.append(snapshot)
        output = await self._reader.queue(OUTPUT, began)
        self.account.transactions.looks.append(Look(began, self.now(), output, snapshot, is_final))

    def _live_sessions(self) -> list[str]:
        return [life.id for life in self.account.sessions.lives.values() if life.ended is None]

    # --- Meanwhile ------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Look into Redis: who owns what (P3), and which generation nodes have adopted."""
        waiting = Waiting()
        before = self.now()
        while True:
            now = self.now()
            for node in waiting.busy(self._target.pids()):
                self.account.recoveries.troubles.append(Trouble(before, now, BUSY, node))
            before = now
            try:
                await self._look(now)
            except UNREADABLE as error:
                is_away = isinstance(error, AWAY)
            else:
                is_away = self.now() - now > SLOW_LOOK
            if is_away:
                self._grid_was_away(now)
            await asyncio.sleep(LOOKS)

    async def _look(self, now: float) -> None:
        """Look once.

        Raises:
            UNREADABLE: nothing, or not all of it, can be seen now.
        """
        lineage = self._target.lineage
        if self._target.kind != "single":
            claims = await self._reader.claims(self._target.replicated.redis_ports)
            self._look_at_masters(now, await self._reader.masters(), claims)
        generation = await self._reader.generation()
        if not self.account.generations or self.account.generations[-1][1] != generation:
            self.account.generations.append((now, generation))
        found = await self._reader.owners(self._live_sessions())
        if lineage == self._target.lineage:
            for session, (epoch, owner) in found.items():
                self.account.sessions.owned(now, str(lineage), session, epoch, owner)
        await self._look_at_queues()
        for server, count in (await self._reader.connections()).items():
            self._connections[server] = max(count, self._connections[server])

    async def _look_at_queues(self) -> int:
        """Look into all queues; returns how many messages are not settled."""
        for queue in LOOKED_AT:
            self.account.messages.look(await self._reader.queue(queue, self.now()))
        return sum(look.unsettled for look in self.account.messages.looks.values())

    def _grid_was_away(self, since: float) -> None:
        """Note that nodes could not reach the grid either, by a fault or not: Sentinels vote, or lack a processor."""
        self._target.grid_away = self.now()
        self.account.recoveries.troubles.append(Trouble(since, self.now(), GRID))

    def _look_at_masters(self, now: float, masters: frozenset[int], claims: Claims) -> None:
        self._target.masters = masters
        has_changed, lost = self._promotions.look(now, masters, claims)
        self._target.lineage += has_changed
        if lost is not None:
            self.account.publishes.forgotten.append(lost)

    async def _copy(self) -> None:
        while True:
            await asyncio.sleep(COPIES)
            async with self._turns.lock("grid"):
                if self._target.kind != "single" or self._target.stack.grid.process.running:
                    with suppress(RedisError):  # one that is just being replaced; there is an older copy
                        await self._target.save()

    @asynccontextmanager
    async def _load(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(client.run(), name=client.name) for client in self._clients()]
        try:
            yield
        finally:
            for task, end in zip(tasks, await ended(*tasks), strict=True):
                if isinstance(end, Exception):
                    told = "".join(traceback.format_exception(end)[-3:])
                    self._crowd.violated("bug", task.get_name(), f"the client failed: {told}")

    @asynccontextmanager
    async def _background(self, work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
        task = asyncio.create_task(work, name=f"chaos-{name}")
        try:
            yield
        finally:
            (end,) = await ended(task)
            if isinstance(end, Exception):
                raise end

    # --- The end --------------------------------------------------------------------------------------------------

    async def _heal(self) -> None:
        began = self.now()
        for proxy in self._target.proxies():
            proxy.heal()
        for wrong in await self._target.healed(HEALED):
            self._crowd.violated("P10", "cluster", f"{HEALED:g} s after all faults: {wrong}")
        if self._target.clock_off:
            await self._compare_clocks()
        self._outcome.figures["healed after"] = f"{self.now() - began:.1f} s"
        self._tell(f"{self.now():6.1f} s  healed")

    async def _compare_clocks(self) -> None:
        """Every node finds that the clock of Redis is right again."""
        wrong: list[Violation] = []
        starts = self._starts()

        async def ownership() -> bool:
            nonlocal wrong
            forgotten = self.account.publishes.forgotten
            possible = bases(self._target.clock_off, forgotten, self.now(), starts=starts)
            wrong = judge_shifts(self.now(), await self._target.clock_shifts(), possible)
            return not wrong

        if not await in_time(ownership, HEALED):
            self.account.found += wrong

    async def _converge(self) -> None:
        """Everybody gets to hear again, and holds what is there; then welcomes count what open connections folded."""
        began = self.now()
        self._crowd.ending.set()
        topics = self.account.publishes.topics
        before = {name: len(topic.receipts) for name, topic in topics.items()}

        def published() -> set[str]:
            return {
                name.partition("/")[0] for name, topic in topics.items() if len(topic.receipts) > before.get(name, 0)
            }

        # Publishers end with the run, so that fresh ones speak: into every root.
        beacons = [_Beacon(self._crowd, f"beacon-{number}") for number in range(len(ROOTS))]
        tasks = [asyncio.create_task(beacon.run(), name=beacon.name) for beacon in beacons]
        self._applications += beacons
        if not await in_time(lambda: published() >= set(ROOTS), self._audible):
            missing = sorted(set(ROOTS) - published())
            self._crowd.violated(
                "P10", "cluster", f"nobody could publish to {missing} {self._audible:g} s after all was healed"
            )
        self._crowd.publishing.clear()
        # One that asks for what nobody answers is cancelled; whether its session lives is looked at below.
        await asyncio.wait(tasks, timeout=scaled(self._audible))
        for task, end in zip(tasks, await ended(*tasks), strict=True):
            if isinstance(end, Exception):
                self._crowd.violated("bug", task.get_name(), f"the client failed: {end!r}")
        await self._everybody_hears("after the faults")
        await self._all_is_settled("after the faults", SETTLED)
        # What was folded on connections that never broke is counted by the next welcome.
        self._target.links.entry.cut()
        await self._everybody_hears("after a last cut")
        await self._all_is_settled("after a last cut", self._audible)
        self._outcome.figures["converged after"] = f"{self.now() - began:.1f} s"
        try:
            await self._look_at_logs(is_final=True)
            await self._compare_properties()
        except UNREADABLE as error:
            self._crowd.violated("P10", "cluster", f"the grid cannot be read at the end: {error!r}")
        self._tell(f"{self.now():6.1f} s  everybody was heard")

    async def _everybody_hears(self, when: str) -> None:
        """Every session is connected, and holds what the grid holds (P6, P10)."""
        state: dict[str, list[str]] = {}

        async def hears() -> bool:
            nonlocal state
            for client in self._applications:
                client.look()
            if not all(client.connected for client in self._clients()):
                state = {client.name: ["not connected"] for client in self._clients() if not client.connected}
                return False
            try:
                values = await self._reader.values()
            except UNREADABLE as error:
                state = {"grid": [repr(error)]}
                return False
            state = self.account.behind(values, self._sessions())
            state |= self.account.readers_behind(values)
            return not state

        if not await in_time(hears, self._audible):
            for who, wrong in state.items():
                life = self.account.sessions.lives.get(who)
                name = who if life is None else f"{life.who} ({who})"
                self._crowd.violated("P10", name, f"{self._audible:g} s {when}: {len(wrong)} wrong, such as {wrong[0]}")

    async def _all_is_settled(self, when: str, within: float) -> None:
        """No message is held by anybody, or waits (P15)."""

        async def settled() -> bool:
            try:
                return await self._look_at_queues() == 0
            except UNREADABLE:
                return False

        if not await in_time(settled, within):
            left = [f"{queue}: {look.left}" for queue, look in self.account.messages.looks.items() if look.unsettled]
            self._crowd.violated("P15", "queues", f"{within:g} s {when}: messages are not settled: {left}")

    def _clients(self) -> list[Application | Witness]:
        return [*self._applications, *self._witnesses]

    def _sessions(self) -> list[str]:
        ids = [client.session.id for client in self._applications if client.session is not None]
        return ids + [witness.wire.id for witness in self._witnesses if witness.wire is not None]

    async def _compare_properties(self) -> None:
        """The grid holds what every session was promised (P1, P4)."""
        promised = {
            client.session.id: (client.name, client.properties, client.promised)
            for client in self._applications
            if client.session is not None and client.properties is not None
        }
        for session, stored in (await self._reader.properties(promised)).items():
            name, wanted, at = promised[session]
            if stored != wanted:
                what = f"the grid has {stored} of session {session}, promised at {at:.1f} s was {wanted}"
                self.account.found.append(Violation("P1", at, name, what))

    async def _end(self) -> None:
        """Everybody says bye."""
        for witness in self._witnesses:
            witness.close()
        ends = asyncio.gather(*(client.close() for client in self._applications))
        if not await in_time(lambda: all(witness.wire is None for witness in self._witnesses), CLOSED):
            left = [witness.name for witness in self._witnesses if witness.wire is not None]
            self._crowd.violated("P7", ", ".join(left), f"no bye was answered within {CLOSED:g} s")
        await ends

    async def _look_at_remains(self) -> None:
        """Nothing is left of sessions (P7); the nodes were not loud, and met no bug."""
        lives = {life.id: life.confirmed for life in self.account.sessions.lives.values()}
        left: list[Violation] = []

        async def nothing_left() -> bool:
            nonlocal left
            try:
                left = judge_keys(self.now(), await self._reader.keys(), lives)
            except UNREADABLE:
                return False
            return not left

        began = self.now()
        if not await in_time(nothing_left, WINDOW + HEALED):
            self.account.found += left
        self._outcome.figures["nothing left after"] = f"{self.now() - began:.1f} s"
        for server, count in self._connections.items():
            self.account.found += judge_connections(self.now(), server, count, len(self._target.stack.node_names))
        told: list[Told] = []
        for node in self._target.stack.node_names:
            lines = self._target.stack.log_of(node).read_text(errors="replace").splitlines()
            self.account.found += judge_log(node, lines, began=self._epoch)
            told += read_told(node, lines, began=self._epoch)
        self.account.found += judge_clock(
            told, self._target.clock_off, starts=self._starts(), forgotten=self.account.publishes.forgotten
        )
        if self._target.clock_off:
            self._outcome.figures["clock of Redis"] = f"set {len(self._target.clock_off)} times, told {len(told)} times"

    def _starts(self) -> dict[str, list[float]]:
        """Tell of each node when it started, and when it then reached the grid."""
        logs = {node: self._target.stack.log_of(node) for node in self._target.stack.node_names}
        return {
            node: read_starts(log.read_text(errors="replace").splitlines(), began=self._epoch)
            for node, log in logs.items()
        }

    def _figures(self) -> None:
        account = self.account
        updates = account.updates.values()
        self._outcome.folded = sum(each.folds.updates for each in updates)
        confirmed = sum(life.confirmed for life in account.sessions.lives.values())
        self._outcome.figures = {
            "faults": str(len(self._outcome.struck)),
            "sessions": f"{len(account.sessions.lives)}, {confirmed} ended by a confirmed bye",
            "publishes": f"{sum(topic.asked for topic in account.publishes.topics.values())} asked, "
            f"{account.publishes.acknowledged} acknowledged",
            "updates": f"{sum(each.delivered for each in updates)}, "
            f"and {self._outcome.folded} folded by {sum(each.folds.marks for each in updates)} marks; "
            f"{sum(each.holes for each in updates)} holes declared by notices",
            "recoveries": ", ".join(f"{count} {outcome}" for outcome, count in sorted(account.outcomes.items())),
            "demanded": f"{account.recoveries.handoffs} times nothing lost, {account.recoveries.copies} copies, "
            f"{account.recoveries.replays} replays",
            "messages": account.messages.figures,
            "transactions": account.transactions.figures,
            "history": account.readers.figures,
            "durables": account.readers.durable_figures,
            "shared": "; ".join(each.figures for each in account.shared.values()),
            "generations": " ".join(str(number) for _, number in account.generations),
            **({"replicas took over": str(self._promotions.count)} if self._target.kind != "single" else {}),
            "most clients of a Redis": str(max(self._connections.values(), default=0)),
            **self._outcome.figures,
        }
        missing = possible(CATALOGUE.values(), self._plan.grid)[1]
        if missing:
            self._outcome.figures["not on this machine"] = "; ".join(f"{name}: {why}" for name, why in missing.items())


class _Beacon(Publisher):
    """Publishes to one root after everything was healed."""

    async def run(self) -> None:
        """Open a session and publish until there is nothing more to publish."""
        try:
            await self._speak()
        except SessionEnded:
            pass  # ``look`` judges that
        finally:
            self._over = True

    async def _speak(self) -> None:
        while self.crowd.publishing.is_set():
            session = await self._open()
            if session is None:
                continue
            number = int(self.name.rpartition("-")[2])
            topic = f"{ROOTS[number]}/{self.name}/{session.id[:8]}"
            while self.crowd.publishing.is_set():
                value = self.crowd.account.publishes.ask(self.crowd.now(), topic, session.id)
                receipt = await session.publish(topic, value)
                now = self.crowd.now()
                self.crowd.account.publishes.acknowledge(now, topic, value, receipt.version, receipt.event_id)
                await asyncio.sleep(0.2)
            return


async def strike(plan: Plan, folder: Path, tell: Tell) -> Outcome:
    """Start a cluster, strike a plan, and judge.

    Args:
        plan: what is struck.
        folder: for data and logs.
        tell: takes lines that show how it goes on.
    """
    clocked = any(step.fault == CLOCK_SET for step in plan.steps)
    needs = {CATALOGUE[step.fault].unavailable for step in plan.steps}
    linked, parted = grid_links.unavailable in needs, node_links.unavailable in needs
    judged: tuple[Outcome, float] | None = None
    try:
        parts = {"clocked": clocked, "linked": linked, "parted": parted}
        async with running(plan.grid, folder, mirror=plan.mirror, **parts) as target:
            run = Run(plan, target, tell)
            judged = await run.run(), run.now()
    except Stuck as stuck:
        if judged is None:
            raise
        # What was found counts all the same.
        judged[0].violations.append(Violation("bug", judged[1], "the run", str(stuck)))
    return judged[0]


def command_line(plan: Plan, options: Sequence[str] = ()) -> str:
    """The command that repeats a run."""
    words = [f"--seed {plan.seed}", f"--grid {plan.grid}", f"--minutes {plan.seconds / 60:g}"]
    words += [f"--mirror {plan.mirror}", *options]
    return f'make chaos OPTIONS="{" ".join(words)}"'
