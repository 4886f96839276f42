"""What nodes tell of themselves: their lives, the grid, and once a minute what passed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import numpy as np

from gateway.core.journal import EventType, events, journal_partition
from gateway.core.types import NodeId
from gateway.core.wire.codes import ErrorCode
from pipeline.generate.behaviour import BAD_TOKENS_PER_MINUTE
from pipeline.generate.ledger import Ledger
from pipeline.generate.rows import NONE, Rows, length, rows, word
from pipeline.generate.texts import node_name
from pipeline.generate.units import MILLISECOND, MINUTE, NEVER, SECOND, Numbers, Times
from pipeline.generate.world import Run, World

ROOTS: Final = (
    ("prices", 0.62, 180),
    ("orders", 0.17, 420),
    ("chat", 0.13, 260),
    ("news", 0.06, 900),
    ("*", 0.02, 120),
)
"""Roots of topics: name, share of the deliveries, bytes of a value."""

DELIVERIES_PER_CONNECTION: Final = 2.5
"""A second."""

PUBLISHES_PER_DELIVERY: Final = 0.02

CPU_PER_DELIVERY: Final = 9.0
"""Microseconds."""

CPU_IDLE: Final = 0.004
"""Share of a core that a node takes when nothing passes."""

CPU_PER_CONNECTION: Final = 20.0
"""Microseconds a second: pings, acknowledgements."""


QUEUES: Final = (("jobs/render", 0.02, 900), ("jobs/mail", 0.005, 150))
"""Queues: name, messages of each connection a second, mean milliseconds from sending to acceptance."""

RELEASED: Final = 0.01
"""Share of the messages that are given back once."""

REJECTED: Final = 0.001
"""Share that is rejected."""

LINKS: Final = (("c-paris/0", "paris", "out"), ("from:c-tokyo/0", "tokyo", "in"))
"""Links with other clusters: name, the other end, direction. Each node has one of them, or none."""

EVENTS_PER_LINK: Final = 40.0
"""A second."""

EVENT_BYTES: Final = 220
"""Of a value that crosses."""

REPEATED: Final = 0.02
"""Share of the events that come by two ways."""

REFUSED: Final = 0.001
"""Share that may not be taken."""

BEHIND: Final = 30
"""Entries that a link is behind, at most."""

LINK_LASTS: Final = 40 * MINUTE
"""From when a link came up to when it is lost."""

ELECTED_AFTER: Final = 2 * SECOND
"""From the end of a master to the next one."""

UNMISSED: Final = 3
"""Every master of so many is followed before anybody notices that there is none."""

SUSPECTED_AFTER: Final = 1_200 * MILLISECOND
"""From the silence of a node to the suspicion of another one that has a link with it."""

CLEANED_UP_AFTER: Final = 30 * SECOND
"""From the expiry of a lease to the removal of what was transient of the node."""

STAGE: Final = "sessions"
"""Of a takeover, in which who took over before did not finish."""


class Nodes:
    """Tells the events of nodes.

    Args:
        world: with the nodes.
        ledger: of the sessions that they hold.
    """

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger
        self.streams: Final = np.array([journal_partition(NodeId(node_name(run.node))) for run in world.runs], np.int64)
        self._attached = np.zeros(len(world.runs), np.int64)
        self._held = np.zeros(len(world.runs), np.int64)
        self._plan = self._planned()

    def tell(self, random: np.random.Generator, begin: int, end: int) -> list[Rows]:
        """Tell what happens to nodes from *begin* to *end*, both whole minutes after the journal's beginning."""
        attached = _Counter(self._attached, self._ledger.attached, end)
        held = _Counter(self._held, self._ledger.held, end)
        told = [each for each in self._plan if begin <= each["at"][0] < end]
        for each in told:
            run = int(each["run"][0])
            if "sessions" in each:
                each["sessions"] = np.array([held.at(run, each["at"])[0]])
            if "count" in each:
                each["count"] = self._ledger.orphans[each["peer"]]
        for number, incarnation in enumerate(self._world.runs):
            marks = np.arange(begin + MINUTE, end + MINUTE, MINUTE, dtype=np.int64) - SECOND + number * 7 * MILLISECOND
            hangs = (incarnation.hangs <= marks) & (marks < incarnation.wakes)
            awake = (marks > incarnation.begins) & (marks < incarnation.ends) & ~hangs
            marks = marks[awake]
            if len(marks):
                told += self._traffic(random, number, marks, attached.at(number, marks), held.at(number, marks))
                told += self._queues(random, number, marks, attached.at(number, marks))
                told += self._links(random, number, marks)
                told.append(self._bad_tokens(random, number, marks))
        self._attached, self._ledger.attached = attached.rest()
        self._held, self._ledger.held = held.rest()
        return told

    def _traffic(
        self, random: np.random.Generator, run: int, at: Times, connections: Numbers, held: Numbers
    ) -> list[Rows]:
        since = np.maximum(at - MINUTE, self._world.runs[run].begins)
        seconds = (at - since) / SECOND
        mean = connections * seconds * DELIVERIES_PER_CONNECTION
        told, totals = [], np.zeros((3, len(at)), np.int64)
        for name, share, size in ROOTS:
            deliveries = random.poisson(mean * share)
            publishes = random.poisson(deliveries * PUBLISHES_PER_DELIVERY)
            volume = deliveries * size + random.integers(0, size, len(at))
            totals += np.stack((deliveries, publishes, volume))
            root = rows(
                events.TRAFFIC_MEASURED, at, run, stream=int(self.streams[run]), root=word(name),
                since=since, until=at, deliveries=deliveries, publishes=publishes, bytes=volume,
            )  # fmt: skip
            told.append({column: values[deliveries > 0] for column, values in root.items()})
        deliveries, publishes, volume = totals
        used = deliveries * CPU_PER_DELIVERY + seconds * (connections * CPU_PER_CONNECTION + CPU_IDLE * SECOND)
        cpu = used * random.uniform(0.95, 1.05, len(at)) / MILLISECOND
        told.append(
            rows(
                events.TRAFFIC_MEASURED, at, run, stream=int(self.streams[run]), since=since, until=at,
                deliveries=deliveries, publishes=publishes, bytes=volume, connections=connections,
                sessions=np.maximum(held, connections), cpu_ms=cpu.astype(np.int64),
            )
        )  # fmt: skip
        return [each for each in told if length(each)]

    def _queues(self, random: np.random.Generator, run: int, at: Times, connections: Numbers) -> list[Rows]:
        since = np.maximum(at - MINUTE, self._world.runs[run].begins)
        seconds = (at - since) / SECOND
        told = []
        for name, messages, mean_ms in QUEUES:
            sent = random.poisson(connections * seconds * messages)
            # Nodes of senders and of consumers are not the same, so that each tells of other messages.
            accepted = random.poisson(connections * seconds * messages)
            released = random.binomial(accepted, RELEASED)
            rejected = random.binomial(accepted, REJECTED)
            settle = accepted * random.integers(mean_ms // 2, 2 * mean_ms, len(at))
            measured = rows(
                events.QUEUE_MEASURED, at, run, stream=int(self.streams[run]), queue=word(name), since=since,
                until=at, sent=sent, given=accepted + released + rejected, redelivered=released, accepted=accepted,
                rejected=rejected, released=released, settle_ms=settle,
                settle_max_ms=np.where(accepted > 0, 20 * mean_ms, 0),
            )  # fmt: skip
            told.append({column: values[sent + accepted > 0] for column, values in measured.items()})
        return [each for each in told if length(each)]

    def _links(self, random: np.random.Generator, run: int, at: Times) -> list[Rows]:
        if run % 3 >= len(LINKS):
            return []
        link, remote, direction = LINKS[run % 3]
        since = np.maximum(at - MINUTE, self._world.runs[run].begins)
        passed = random.poisson((at - since) / SECOND * EVENTS_PER_LINK)
        comes = direction == "in"
        repeated = random.binomial(passed, REPEATED) if comes else np.zeros_like(passed)
        refused = random.binomial(passed - repeated, REFUSED) if comes else np.zeros_like(passed)
        measured = rows(
            events.ZONE_LINK_MEASURED, at, run, stream=int(self.streams[run]), link=word(link), remote=word(remote),
            direction=word(direction), since=since, until=at, events=passed, bytes=passed * EVENT_BYTES,
            taken=passed - repeated - refused if comes else repeated, repeated=repeated, refused=refused,
            behind=repeated if comes else random.integers(0, BEHIND, len(at)),
        )  # fmt: skip
        return [{column: values[passed > 0] for column, values in measured.items()}]

    def _bad_tokens(self, random: np.random.Generator, run: int, marks: Times) -> Rows:
        at = np.repeat(marks, random.poisson(BAD_TOKENS_PER_MINUTE, len(marks)))
        reasons = np.array([word(ErrorCode.TOKEN_INVALID), word(ErrorCode.TOKEN_EXPIRED)])
        return rows(
            events.SESSION_REFUSED,
            at - random.integers(0, 30 * SECOND, len(at)),
            run,
            stream=int(self.streams[run]),
            reason=random.choice(reasons, len(at)),
        )

    def _plan_links(self, tell: Callable[..., None]) -> None:
        for number, run in enumerate(self._world.runs):
            if number % 3 >= len(LINKS):
                continue
            names = zip(("link", "remote", "direction"), map(word, LINKS[number % 3]), strict=True)
            link = dict(names)
            up, down = run.begins + SECOND, run.begins + SECOND + LINK_LASTS
            if up >= self._over(run):
                continue
            tell(events.ZONE_LINK_CONNECTED, up, number, **link)
            if down + SECOND < self._over(run):
                reason = ("lost", "refused", "given_up")[number // 3 % 3]
                tell(events.ZONE_LINK_LOST, down, number, **link, since=up, reason=word(reason))
                tell(events.ZONE_LINK_CONNECTED, down + SECOND // 2, number, **link)
                if reason == "refused":
                    tell(events.ZONE_GAP_FOUND, down + SECOND, number, **link)

    def _plan_masters(self, tell: Callable[..., None]) -> None:
        """The node that has begun first is the master until it is over, and then the next one is that lives."""
        runs = self._world.runs
        at, before, term = min(run.begins for run in runs) + SECOND, NONE, 0
        while True:
            number = next((number for number, run in enumerate(runs) if run.begins <= at < self._over(run)), None)
            if number is None:
                coming = [run.begins for run in runs if run.begins > at]
                if not coming:
                    return
                at = min(coming) + SECOND
                continue
            term += 1
            tell(events.MASTER_ELECTED, at, number, term=term, peer=before)
            run = runs[number]
            over = self._over(run)
            if over == NEVER:
                return
            missed = over + SECOND
            witness = next((each for each, run in enumerate(runs) if run.begins <= missed < self._over(run)), None)
            if witness is not None and term % UNMISSED:
                tell(events.MASTER_MISSED, missed, witness, term=term, peer=number)
            at, before = over + ELECTED_AFTER, number

    @staticmethod
    def _over(run: Run) -> int:
        """Tell when a run does not count among the living any more."""
        return min(run.drains, run.expires, run.ends)

    def _planned(self) -> list[Rows]:
        """All that the plan of the world decides, one row each."""
        told = []

        def tell(kind: EventType, at: int, run: int, **columns: int) -> None:
            told.append(rows(kind, np.array([at]), run, stream=int(self.streams[run]), **columns))

        for number, run in enumerate(self._world.runs):
            tell(events.NODE_STARTED, run.begins, number)
            if run.drains < NEVER:
                tell(events.NODE_DRAINING, run.drains, number, sessions=NONE)
                tell(events.NODE_STOPPED, run.ends - MILLISECOND, number, sessions=NONE)
            if run.expires < NEVER:
                silent = min(run.ends, run.hangs)
                tell(events.NODE_SUSPECTED, silent + SUSPECTED_AFTER, run.heir, peer=number)
                times = {"peer": number, "since": run.lived, "until": run.expires}
                tell(events.NODE_EXPIRED, run.expires, run.heir, **times)
                tell(events.NODE_TAKEN_OVER, run.expires + SECOND // 2, run.heir, peer=number, count=NONE)
                if run.killed and number % 2:
                    tell(events.NODE_CLEANED_UP, run.expires + CLEANED_UP_AFTER, run.heir, peer=number)
                    half = run.expires + SECOND // 4
                    tell(events.NODE_TAKEOVER_CONTINUED, half, run.heir, peer=number, reason=word(STAGE))
            if run.hangs < NEVER:
                tell(events.NODE_SUSPICION_CLEARED, run.wakes + 2 * MILLISECOND, run.heir, peer=number)
                tell(events.NODE_LEASE_LOST, run.wakes + MILLISECOND, number)
        self._plan_links(tell)
        self._plan_masters(tell)
        generation = 1
        for outage in self._world.outages:
            generation += outage.lost_writes
            for number, run in enumerate(self._world.runs):
                noticed = outage.begins + (number * 37 % 400) * MILLISECOND
                back = outage.ends - (number * 53 % 200) * MILLISECOND
                if run.begins < noticed and back < run.ends:
                    tell(events.GRID_LOST, noticed, number)
                    tell(
                        events.GRID_REGAINED, back, number, generation=generation,
                        lost_writes=int(outage.lost_writes), away_ms=(back - noticed) // MILLISECOND,
                    )  # fmt: skip
        return told


class _Counter:
    """How many each run had at any instant: the count before a slice, and what changed within.

    Args:
        before: for each run.
        changes: instant, run, and +1 or -1; also of instants after the slice.
        end: of the slice.
    """

    def __init__(self, before: Numbers, changes: list[tuple[Times, Numbers, int]], end: int) -> None:
        at = np.concatenate([np.empty(0, np.int64), *(each[0] for each in changes)])
        run = np.concatenate([np.empty(0, np.int64), *(each[1] for each in changes)])
        by = np.repeat(np.array([each[2] for each in changes], np.int64), [len(each[0]) for each in changes])
        later = at >= end
        self._later = [(at[later & (by == sign)], run[later & (by == sign)], sign) for sign in (1, -1)]
        order = np.argsort(at, kind="stable")
        order = order[np.argsort(run[order].astype(np.uint16), kind="stable")]
        at, run, by = at[order], run[order], by[order]
        bounds = np.searchsorted(run, np.arange(len(before) + 1))
        self._before = before
        self._at = [at[low:high] for low, high in pairwise(bounds)]
        self._sums = [np.cumsum(by[low:high]) for low, high in pairwise(bounds)]
        self._end = end

    def at(self, run: int, instants: Times) -> Numbers:
        """Tell how many *run* had at these instants."""
        places = np.searchsorted(self._at[run], instants, side="right")
        count: Numbers = self._before[run] + np.concatenate(([0], self._sums[run]))[places]
        return count

    def rest(self) -> tuple[Numbers, list[tuple[Times, Numbers, int]]]:
        """Return the counts at the end of the slice, and the changes that come later."""
        end = np.array([self._end - 1])
        return np.array([self.at(run, end)[0] for run in range(len(self._before))]), self._later
