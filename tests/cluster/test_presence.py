"""Who is present, on real nodes, Redis and HAProxy: nobody flaps, counts are exact, and who is lost leaves (P1, P7)."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from gateway.client import Presence, PresenceEvent
from gateway.core.wire.codes import Outcome
from gateway.local.stack import Stack
from tests.cluster.crowds import Figures, Member, crowd
from tests.cluster.grid_reader import GridReader
from tests.support.faults import eventually
from tests.support.stack import cluster
from tests.support.times import scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P1", "P7")]

ROOM: Final = "rooms/7"
MARKED: Final = '[[destination]]\nselector = "rooms/*/**"\nkind = "value"\npresence = true\n'
STAYING: Final = 30
"""Members who are there all the time."""

LEAVING: Final = 12
"""Members who die with a node, and never come back."""

WATCHING: Final = 3
"""Sessions that watch, spread over the nodes."""

WINDOW: Final = scaled(6.0)
"""Seconds for which the session of one who does not come back is kept."""

LEASES: Final[dict[str, Any]] = {"lease": scaled(2.0), "lease_renew": scaled(0.5), "drain_jitter": 0.05}
"""Of nodes that are missed soon, also where the machine is busy."""

ABANDONED: Final = """
import asyncio, sys
from gateway.client import connect

async def main(url, count, window):
    sessions = [await connect(url, principal=f"lost-{number}", window=window) for number in range(count)]
    streams = [await session.subscribe("rooms/7/chat") for session in sessions]
    print(*(session.node for session in sessions), flush=True)
    await asyncio.sleep(3600)

asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
"""


class Watcher:
    """Somebody who watches a tree, and writes down what is told, and when.

    Attributes:
        presence: what is known.
        moves: who has come and gone.
        counts: every count that was told.
    """

    def __init__(self, presence: Presence) -> None:
        self.presence = presence
        self.moves: list[tuple[float, PresenceEvent]] = []
        self.counts: list[int] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.presence:
            if event.member is None:
                self.counts.append(event.count)
            else:
                self.moves.append((time.monotonic(), event))

    def of(self, kind: str) -> Counter[str]:
        """Count the moves of a kind, by principal."""
        return Counter(event.member.principal for _, event in self.moves if event.kind == kind and event.member)

    def sees(self, sessions: set[str]) -> bool:
        """Tell whether exactly these are there, and counted, and the events of that were read."""
        presence = self.presence
        is_known = presence.members.keys() == sessions and presence.count == presence.listed == len(sessions)
        # What is known may be ahead of the events.
        return is_known and self.of("joined").total() - self.of("left").total() == len(sessions)

    def close(self) -> None:
        """Watch no more."""
        self._reading.cancel()


@asynccontextmanager
async def rooms(folder: Path, **settings: Any) -> AsyncIterator[Stack]:
    """Run a cluster in which rooms tell who is there."""
    destinations = folder / "destinations.toml"
    destinations.write_text(MARKED)
    async with cluster(folder / "run", destinations=destinations, **(LEASES | settings)) as stack:
        yield stack


@asynccontextmanager
async def watched(stack: Stack, tree: str = ROOM) -> AsyncIterator[list[Watcher]]:
    """Have a tree watched from several nodes."""
    async with crowd(stack.url, WATCHING, role="watcher") as members:
        watchers = [Watcher(await each.session.presence(tree)) for each in members]
        yield watchers
        for each in watchers:
            each.close()


async def all_see(watchers: Sequence[Watcher], sessions: set[str], what: str) -> None:
    await eventually(
        lambda: all(each.sees(sessions) for each in watchers),
        f"{what}: {len(sessions)} are there, of {[each.presence.count for each in watchers]}",
    )


async def join(member: Member, _: int) -> None:
    await member.subscribe(f"{ROOM}/chat")


def recoveries(members: Sequence[Member]) -> int:
    return sum(len(each.recoveries) for each in members)


def have_recovered(members: Sequence[Member], before: int) -> bool:
    """Tell whether somebody has recovered since then."""
    return recoveries(members) > before


def judge(watchers: Sequence[Watcher], members: Sequence[Member]) -> None:
    """Check that nobody who was there all the time has come twice, or seemed to leave."""
    for watcher in watchers:
        joined, left = watcher.of("joined"), watcher.of("left")
        assert {joined[each.name] for each in members} == {1}
        assert not [each.name for each in members if left[each.name]]


async def test_whoever_dies_with_a_node_stays_through_the_wait_and_leaves_then(
    tmp_path: Path, figures: Figures
) -> None:
    async with rooms(tmp_path) as stack, GridReader(stack.grid_url) as grid:
        async with crowd(stack.url, STAYING, join) as members, watched(stack) as watchers:
            staying = {each.session.id for each in members}
            await all_see(watchers, staying, "the members are there")
            lost = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", ABANDONED, stack.url, str(LEAVING), str(WINDOW)),
                stdout=asyncio.subprocess.PIPE,
            )
            assert lost.stdout is not None
            nodes = Counter((await lost.stdout.readline()).decode().split())
            await eventually(
                lambda: all(each.presence.count == STAYING + LEAVING for each in watchers), "more have come"
            )
            victim = nodes.most_common(1)[0][0]
            told = [len(each.counts) for each in watchers]
            died = time.monotonic()
            lost.kill()
            await stack.kill_node(victim)
            await lost.wait()
            moved = [each for each in members if each.session.node == victim]
            await eventually(lambda: all(each.recoveries for each in moved), "the others go on elsewhere")
            await all_see(watchers, staying, "those who are lost have left")
            await eventually(lambda: all(each.counts[-1] == STAYING for each in watchers), "their number is told")
            judge(watchers, members)
            left = [[at - died for at, event in each.moves if event.kind == "left"] for each in watchers]
            for watcher, upto, gone in zip(watchers, told, left, strict=True):
                assert len(gone) == LEAVING
                assert min(gone) >= WINDOW, "members stay while their windows run"
                assert min(watcher.counts[upto:]) == STAYING, "nobody else was missed for a while"
            figures(
                f"{LEAVING} members and node {victim} killed: all stayed {min(map(min, left)):.1f} s and have left "
                f"after {max(map(max, left)):.1f} s (window {WINDOW:g} s); {len(moved)} others recovered, none flapped"
            )
        await eventually(lambda: _nothing_left(grid), "nothing is left of them")


@pytest.mark.thorough
@pytest.mark.parametrize("backup", ["", "auto"])
async def test_counts_stay_exact_and_nobody_flaps_over_any_rung(tmp_path: Path, figures: Figures, backup: str) -> None:
    """Nodes are killed, drained and cut off in turn, while others come and go all the time."""
    random = Random(17)
    async with (
        rooms(tmp_path, **({"backup": backup} if backup else {})) as stack,
        crowd(stack.url, STAYING, join) as members,
        crowd(stack.url, STAYING, role="guest") as guests,
        watched(stack) as watchers,
    ):
        await all_see(watchers, {each.session.id for each in members}, "the members are there")
        there: set[Member] = set()
        stopping = asyncio.Event()

        async def churn() -> None:
            while not stopping.is_set():
                guest = random.choice(guests)
                if guest in there:
                    await guest.session.unsubscribe(f"{ROOM}/chat")
                    there.discard(guest)
                else:
                    await guest.subscribe(f"{ROOM}/chat")
                    there.add(guest)
                moved[0] += 1

        moved = [0]
        for fault in ("cut", "drain", "kill", "drain", "kill", "cut", "kill"):
            stopping.clear()
            churning = asyncio.create_task(churn())
            await eventually(lambda: moved[0] > 0, "guests come and go")
            recovered = recoveries(members)
            node = random.choice([each.session.node for each in members])
            if fault == "cut":
                await stack.restart_haproxy()
            elif fault == "drain":
                assert await stack.drain_node(node) == 0
            else:
                await stack.kill_node(node)
            await eventually(partial(have_recovered, members, recovered), f"{fault}: members recover")
            if fault != "cut":
                await stack.start_node(node)
                await stack.balanced()
            stopping.set()
            await churning
            moved[0] = 0
            sessions = {each.session.id for each in (*members, *there)}
            await all_see(watchers, sessions, f"after {fault} of {node}")
        judge(watchers, members)
        outcomes = Counter(each.outcome for member in members for each in member.recoveries)
        assert outcomes[Outcome.MIRRORED if backup else Outcome.FAILED_OVER]
        assert outcomes[Outcome.HANDED_OVER]
        figures(f"members recovered {dict(outcomes)}, and none flapped; guests moved {len(watchers[0].moves)} times")


async def _nothing_left(grid: GridReader) -> bool:
    return await grid.of_sessions() == []
