"""The master of a cluster changes, again and again, and its clients go with it: acceptance of following (P19).

```console
$ python -m tests.cluster.master_changes --changes 50
$ python -m tests.cluster.master_changes --changes 50 --mode replication
```

Kills and drains are mixed: SIGKILL, SIGTERM, and a drain by the admin API that is taken back. After each change all
clients that follow must be at the new master within 10 s of the fault. In the end each of them must have had every
update of each topic once, in order.

```text
publisher ──▶ HAProxy ──▶ n1 (master)  n2  n3 ──▶ Redis        ✗ n1: who is it now, and when are all followers there?
followers ──▶ HAProxy, or the nodes by their URLs
```

In the mode ``replication`` all clients are to be at the master, and nobody else may serve one: the other nodes answer
503 and name it, HAProxy sends nobody there, and the journal has no session that began at a node without the role.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

import aiohttp
import click

from gateway.client import Recovery, Session, SessionState, connect
from gateway.core.journal import Record
from gateway.core.wire.codes import ClusterMode
from gateway.local.admin import UNREACHABLE
from gateway.local.stack import Stack
from tests.clients.driver import Driver
from tests.cluster.admin_calls import ask
from tests.cluster.crowds import Counting, percentile
from tests.cluster.journal_reader import read_journal
from tests.cluster.ledgers import difference
from tests.support.faults import eventually
from tests.support.nodes import UPGRADE
from tests.support.stack import cluster
from tests.support.times import scaled

NODES: Final = 3
SELECTORS: Final = ("log/**", "prices/**")
TOPICS: Final = ("log/0", "log/1", "prices/0", "prices/1")
DECLARED: Final = '[[destination]]\nselector = "log/**"\nkind = "history"\ncount = 100_000\nbytes = "64MiB"\n'

PACE: Final = 0.1
"""Seconds between two publishes to a topic."""

WITHIN: Final = {ClusterMode.ACTIVE: 10.0, ClusterMode.REPLICATION: 40.0}
"""Seconds, on a quiet machine, from a fault until all clients are at the new master, at most. In ``replication`` the
other nodes refuse clients, also while there is no master, and a client that knows three URLs pauses for up to 10 s
before it tries each of them (protocol 8.3)."""

RETURNED: Final = 60.0
"""Seconds, on a quiet machine, until all nodes are ready again; they start as slowly as the machine is busy."""

SHORTEST_PAUSE: Final = 10.0
"""Seconds from the moment at which all is well to the next fault, at least: the ``stable_after`` of the welcome. A
client whose connections last for less pauses longer before each one, for up to 10 s, whatever becomes of the master."""

LONGEST_PAUSE: Final = 11.0
"""The same, at most; when within them is drawn."""

MICROSECONDS: Final = 1_000_000

KINDS: Final = ("killed", "terminated", "drained")
"""What is done to a master: SIGKILL; SIGTERM, a drain that ends its process; a drain that is taken back."""


class Follower(Protocol):
    """A client that is to be at the master.

    Attributes:
        name: for people.
    """

    name: str

    async def node(self) -> str | None:
        """Tell which node serves it; None while none does."""

    async def where(self) -> str:
        """Say for people how it is served."""

    def seen(self, topic: str) -> list[int]:
        """List what it was sent of a topic."""

    def wrong(self) -> list[str]:
        """List what it was told that it should not have been."""


class PythonFollower:
    """A follower by the client for Python.

    Attributes:
        name: for people.
        recoveries: all there were.
    """

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self.recoveries: list[Recovery] = []
        self._session = session
        self._seen: dict[str, list[int]] = {}
        self._wrong: list[str] = []
        self._tasks = [asyncio.create_task(self._hear())]

    async def read(self) -> None:
        """Begin to read: topics with history from their beginning, the others from now on."""
        for selector, options in zip(SELECTORS, ({"start": "earliest"}, {}), strict=True):
            stream = await self._session.subscribe(selector, **options)  # type: ignore[call-overload]
            self._tasks.append(asyncio.create_task(self._keep(stream)))

    async def node(self) -> str | None:
        """See ``Follower``."""
        session = self._session
        return session.node if session.state is SessionState.CONNECTED else None

    async def where(self) -> str:
        """See ``Follower``."""
        session = self._session
        return f"{self.name}: {session.state.value} at {session.node}, following {session.following}"

    def seen(self, topic: str) -> list[int]:
        """See ``Follower``."""
        return self._seen.get(topic, [])

    def wrong(self) -> list[str]:
        """See ``Follower``."""
        return self._wrong + [f"{self.name} has ended: {each!r}" for each in self._tasks if each.done()]

    async def close(self) -> None:
        """Close the session, and end reading."""
        await self._session.close()
        await asyncio.gather(*self._tasks)

    async def _hear(self) -> None:
        async for recovery in self._session.recoveries():
            self.recoveries.append(recovery)

    async def _keep(self, stream: Any) -> None:
        async for update in stream:
            numbers = self._seen.setdefault(update.topic, [])
            if getattr(update, "gap", None) or (update.snapshot and numbers):
                self._wrong.append(f"{self.name} was told that something is missing: {update}")
            numbers.append(update.value)


class JavaScriptFollower:
    """A follower by the client for JavaScript, in a process of Node.js.

    Attributes:
        name: for people.
    """

    def __init__(self, name: str, driver: Driver) -> None:
        self.name = name
        self._driver = driver

    async def node(self) -> str | None:
        """See ``Follower``."""
        status = await self._driver.do("status")
        return str(status["node"]) if status["state"] == "connected" else None

    async def where(self) -> str:
        """See ``Follower``."""
        status = await self._driver.do("status")
        return f"{self.name}: {status['state']} at {status['node']}"

    def seen(self, topic: str) -> list[int]:
        """See ``Follower``."""
        return [each["value"] for each in self._driver.events["update"] if each["topic"] == topic]

    def wrong(self) -> list[str]:
        """See ``Follower``: a hole in what it was sent tells of the rest."""
        return []


@dataclass(frozen=True, slots=True)
class Change:
    """One change of master.

    Attributes:
        kind: what was done to the old one.
        old: its name.
        new: the name of the new one.
        elected: seconds from the fault until another node was seen to be the master.
        there: seconds from the fault until all followers were at it.
    """

    kind: str
    old: str
    new: str
    elected: float
    there: float

    def __str__(self) -> str:
        return f"{self.old} {self.kind}, {self.new} after {self.elected:.2f} s, all there after {self.there:.2f} s"


@dataclass
class Trial:
    """What came of a run.

    Attributes:
        mode: of the cluster.
        changes: of master.
        wrong: what is not as promised.
        outcomes: of recoveries of the followers in Python.
        updates: published.
        begun: sessions that began at a node or came back to it, in the mode ``replication``, as the journal tells.
    """

    mode: ClusterMode
    changes: list[Change] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    updates: int = 0
    begun: int = 0

    def describe(self) -> str:
        """Say how long it took until followers were at the new master."""
        lines = []
        for kind in (*KINDS, "any"):
            chosen = [each for each in self.changes if kind in {each.kind, "any"}]
            if not chosen:
                continue
            told = [
                f"p50 {percentile(times, 0.5):.2f} s, max {max(times):.2f} s"
                for times in ([each.elected for each in chosen], [each.there for each in chosen])
            ]
            lines.append(f"{kind:>10}: {len(chosen):3} changes; another master {told[0]}; all there {told[1]}")
        outcomes = ", ".join(f"{outcome} {count}" for outcome, count in sorted(self.outcomes.items()))
        lines.append(f"{self.mode.value}: {self.updates:,} updates, recoveries: {outcomes}; {self.begun} begun")
        return "\n".join(lines)


class Masters:
    """A cluster whose master changes.

    Args:
        stack: the cluster.
        followers: who are to be at the master.
        mode: of the cluster.
        random: chooses what is done when.
    """

    def __init__(self, stack: Stack, followers: Sequence[Follower], mode: ClusterMode, random: Random) -> None:
        self._stack = stack
        self._followers = followers
        self._mode = mode
        self._random = random

    async def current(self) -> str | None:
        """Tell the master, as a node knows it that answers; None if there is none."""
        try:
            items = (await ask(self._stack, "GET", "/v1/nodes"))["items"]
        except UNREACHABLE:
            return None
        return next((str(each["node"]) for each in items if each["master"] and each["state"] == "ready"), None)

    async def change(self, kind: str) -> Change:
        """Take the role from the master in some way, and wait until all is as before but for the master.

        Raises:
            AssertionError: the followers are not at the new master in time.
        """
        old = await self.well()
        await asyncio.sleep(self._random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))
        began, elected, new = time.monotonic(), 0.0, ""
        ending = asyncio.create_task(self._take(kind, old))

        async def are_there() -> bool:
            nonlocal elected, new
            master = await self.current()
            if master in {None, old}:
                return False
            if new != master:
                elected, new = time.monotonic() - began, str(master)
            return all([await each.node() == new for each in self._followers])

        try:
            await eventually(
                are_there, f"all followers are at another master than {old}, {kind}", within=WITHIN[self._mode]
            )
        except AssertionError as error:
            raise AssertionError(f"{error}; {await self._where()}") from None
        finally:
            there = time.monotonic() - began
            await ending
        if kind == "drained":
            await ask(self._stack, "POST", f"/v1/nodes/{old}/undrain")
        else:
            await self._stack.start_node(old)
        return Change(kind, old, new, elected, there)

    async def _where(self) -> str:
        return "; ".join([f"the master is {await self.current()}", *[await each.where() for each in self._followers]])

    async def _take(self, kind: str, node: str) -> None:
        match kind:
            case "killed":
                await self._stack.kill_node(node)
            case "terminated":
                await self._stack.drain_node(node)
            case _:
                await ask(self._stack, "POST", f"/v1/nodes/{node}/drain")

    async def well(self) -> str:
        """Wait until all nodes are ready, and all followers at the master; returns the master."""
        found = ""

        async def are_well() -> bool:
            nonlocal found
            try:
                items = (await ask(self._stack, "GET", "/v1/nodes"))["items"]
            except UNREACHABLE:
                return False
            ready = {each["node"]: each["master"] for each in items if each["state"] == "ready"}
            found = next((node for node, is_master in ready.items() if is_master), "")
            there = [await each.node() == found for each in self._followers]
            return ready.keys() == set(self._stack.node_names) and bool(found) and all(there)

        try:
            await eventually(are_well, "all nodes are ready, and followers at the master", within=RETURNED)
        except AssertionError as error:
            raise AssertionError(f"{error}; {await self._where()}") from None
        if self._mode is ClusterMode.REPLICATION:
            await eventually(lambda: self._others_stand_by(found), f"nobody but {found} serves", within=RETURNED)
        return found

    async def _others_stand_by(self, master: str) -> bool:
        """Tell whether a stranger is turned away everywhere else, by the nodes and by HAProxy."""
        for node in set(self._stack.node_names) - {master}:
            if await turned_away(self._stack.node_url(node)) != (503, master):
                return False
            metrics = await self._stack.metrics(node)
            if metrics['gateway_sessions{state="connected"}'] or metrics["gateway_master"]:
                return False
        return await self._stack.nodes_up() == {master}


async def turned_away(url: str) -> tuple[int, str | None]:
    """Ask for a WebSocket; returns the status, and the master that the answer names."""
    async with aiohttp.ClientSession() as http, http.get(url.replace("ws", "http", 1), headers=UPGRADE) as answer:
        return answer.status, answer.headers.get("X-Gateway-Master")


def served_elsewhere(journal: Sequence[Record]) -> tuple[int, list[str]]:
    """Look in a journal for sessions that began, or went on, at a node that was not the master.

    Returns:
        How many began or went on, and which of them at another node.
    """
    master, count, wrong = "", 0, []
    for each in journal:
        run = f"{each['node']}:{each['incarnation']}"
        match each["type"]:
            case "master_elected":
                master = run
            case "session_opened" | "session_resumed":
                count += 1
                if run != master:
                    seconds = int(each["at"]) / MICROSECONDS
                    wrong.append(f"{each['session']} began at {run} at {seconds:.3f}; the master was {master}")
    return count, wrong


@asynccontextmanager
async def followers_of(stack: Stack, mode: ClusterMode, python: int, javascript: int) -> AsyncIterator[list[Follower]]:
    """Have clients that are to be at the master: some come by HAProxy, and some know the nodes."""
    direct = [stack.node_url(node) for node in stack.node_names]
    follows = mode is ClusterMode.ACTIVE
    found: list[Follower] = []
    opened: list[PythonFollower] = []
    async with AsyncExitStack() as exits:
        for number in range(python):
            urls = direct if number % 2 else [stack.url]
            name = f"python-{number}"
            session = await connect(urls, name, follow_master=follows, connect_timeout=None)
            opened.append(PythonFollower(name, session))
            await opened[-1].read()
        for number in range(javascript):
            name = f"javascript-{number}"
            driver = await exits.enter_async_context(Driver())
            options = {"principal": name, "followMaster": follows}
            await driver.do("connect", urls=direct if number % 2 else [stack.url], options=options)
            for selector in SELECTORS:
                await driver.do("subscribe", selector=selector)
            exits.push_async_callback(driver.do, "close")
            found.append(JavaScriptFollower(name, driver))
        yield [*opened, *found]
        for each in opened:
            await each.close()


async def trade(publishing: Sequence[Counting], stopping: asyncio.Event) -> None:
    """Publish to each topic until it is told to stop."""

    async def to_one(topic: Counting) -> None:
        while not stopping.is_set():
            await asyncio.gather(topic.publish(), asyncio.sleep(PACE))

    async with asyncio.TaskGroup() as tasks:
        for each in publishing:
            tasks.create_task(to_one(each))


def settings_of(folder: Path, mode: ClusterMode) -> dict[str, Any]:
    """Settings of the nodes; times are those by default."""
    file = folder / "destinations.toml"
    file.write_text(DECLARED, "utf-8")
    return {
        "cluster_mode": mode.value,
        "destinations": file,
        "history_bytes": 256 * 1024**2,
        # A slow machine is not a gap.
        "stream_length": 100_000,
        "replay_events": 100_000,
        "limit_resend_packets": 10_000,
        "limit_resend_bytes": 16 * 1024**2,
        "journal": "true",
        "journal_length": 100_000,
    }


async def run(
    folder: Path,
    *,
    changes: int,
    seed: int,
    mode: ClusterMode = ClusterMode.ACTIVE,
    followers: tuple[int, int] = (8, 2),
    tell: bool = False,
) -> Trial:
    """Change the master so often, and account for each update.

    Args:
        folder: for data and logs.
        changes: how many.
        seed: of what is done to the master, and when.
        mode: of the cluster.
        followers: clients in Python, and in JavaScript.
        tell: whether to say how it goes.
    """
    trial, random = Trial(mode), Random(seed)
    kinds = [KINDS[number % len(KINDS)] for number in range(changes)]
    random.shuffle(kinds)
    async with (
        cluster(folder, nodes=NODES, **settings_of(folder, mode)) as stack,
        followers_of(stack, mode, *followers) as clients,
        await connect(stack.url, "publisher", connect_timeout=None, request_timeout=scaled(RETURNED)) as session,
    ):
        publishing = [Counting(session, topic) for topic in TOPICS]
        stopping = asyncio.Event()
        trading = asyncio.create_task(trade(publishing, stopping))
        masters = Masters(stack, clients, mode, random)
        try:
            for number, kind in enumerate(kinds, 1):
                trial.changes.append(change := await masters.change(kind))
                if tell:
                    click.echo(f"{time.strftime('%H:%M:%S')} change {number:3}: {change}")
            await masters.well()
        except AssertionError as error:
            trial.wrong.append(f"change {len(trial.changes) + 1}: {error}")
        stopping.set()
        await trading
        await judge(trial, clients, publishing)
        if mode is ClusterMode.REPLICATION:
            trial.begun, elsewhere = served_elsewhere(await whole_journal(stack, session))
            trial.wrong += elsewhere
    return trial


async def whole_journal(stack: Stack, session: Session) -> list[Record]:
    """Read the journal once it has what happened until now: another session of the publisher, that comes and goes."""
    async with await connect(stack.url, "last", connect_timeout=None) as last:
        mark = last.id
    found: list[Record] = []

    async def is_whole() -> bool:
        found[:] = await read_journal(stack.grid_url)
        return any(each["type"] == "session_closed" and each.get("session") == mark for each in found)

    await eventually(is_whole, "the journal has what happened last")
    assert session.state is SessionState.CONNECTED
    return found


async def judge(trial: Trial, clients: Sequence[Follower], publishing: Sequence[Counting]) -> None:
    """Compare what followers had with what was published."""
    wanted = {each.topic: list(range(1, each.asked + 1)) for each in publishing}
    trial.updates = sum(map(len, wanted.values()))

    def have_all() -> bool:
        return all(client.seen(topic)[-1:] == numbers[-1:] for client in clients for topic, numbers in wanted.items())

    try:
        await eventually(have_all, "everybody has the last update of each topic", within=RETURNED)
    except AssertionError as error:
        trial.wrong.append(str(error))
    for client in clients:
        trial.wrong += client.wrong()
        for topic, numbers in wanted.items():
            if told := difference(numbers, client.seen(topic)):
                trial.wrong.append(f"{topic} at {client.name}: {told}")
        if isinstance(client, PythonFollower):
            trial.outcomes.update(each.outcome for each in client.recoveries)


@click.command()
@click.option("--changes", default=50, show_default=True, help="How often the master changes.")
@click.option("--seed", default=1, show_default=True, help="Of what is done to the master, and when.")
@click.option("--mode", type=click.Choice([each.value for each in ClusterMode]), default="active", show_default=True)
def main(changes: int, seed: int, mode: str) -> None:
    """Change the master of a cluster, and account for each update that its followers should have had."""
    folder = Path(tempfile.mkdtemp(prefix="master-changes-"))
    trial = asyncio.run(run(folder, changes=changes, seed=seed, mode=ClusterMode(mode), tell=True))
    click.echo(trial.describe())
    for each in trial.wrong:
        click.echo(each, err=True)
    if trial.wrong:
        click.echo(f"logs in {folder}", err=True)
        raise SystemExit(1)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
