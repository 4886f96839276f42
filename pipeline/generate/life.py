"""Lives of sessions: what each does next, and what the journal tells of it.

All sessions whose next step falls into a slice of time take it together, and again until none has another one there.
"""

from __future__ import annotations

import numpy as np

from gateway.core.journal import events
from gateway.core.wire.codes import GOING_AWAY, PING_TIMEOUT, SLOW_CONSUMER, ErrorCode, FailoverReason, Outcome
from pipeline.generate.behaviour import (
    BEHAVIOURS,
    BUFFER_PACKETS,
    DUPLICATES,
    GAP,
    LATEST_REFUSAL,
    LONG_RETURN,
    LONG_TAIL,
    NOTICED_CUT,
    NOTICED_DEATH,
    NOTICED_HANG,
    PACKETS_PER_SECOND,
    PING_SILENCE,
    PROPERTY_CHANGES,
    QUICK_RETURN,
    QUICK_SPREAD,
    REAPER,
    REPLAYED_WITHIN,
    REVOKED,
    SILENT,
    STICKY,
    TRY_LATER,
    UNAWARE,
)
from pipeline.generate.ledger import Ledger
from pipeline.generate.population import Population, Step
from pipeline.generate.rows import NONE, word
from pipeline.generate.units import MILLISECOND, NEVER, SECOND, Numbers, Times
from pipeline.generate.world import World


class Lives:
    """Moves a population through a world.

    Args:
        world: with its nodes.
        population: whose sessions live.
        ledger: where it is written down.
    """

    def __init__(self, world: World, population: Population, ledger: Ledger) -> None:
        self._world = world
        self._all = population
        self._ledger = ledger
        self._ends = world.times("ends")
        self._drains = world.times("drains")
        self._killed = world.times("killed").astype(bool)
        self._hangs = world.times("hangs")
        self._wakes = world.times("wakes")
        self._expires = world.times("expires")
        self._lived = world.times("lived")
        self._heirs = world.times("heir")
        self._resets = np.array([*world.resets, NEVER], np.int64)
        self._outage_begins = np.array([NEVER, *(each.begins for each in world.outages)], np.int64)
        self._outage_begins[0] = 0
        self._outage_ends = np.array([0, *(each.ends for each in world.outages)], np.int64)
        self._rates = {
            name: np.array([getattr(each, name) for each in BEHAVIOURS], float)
            for name in ("change", "loss", "slow", "gone", "long", "bye")
        }
        self._clients = np.array([word(each.name) for each in BEHAVIOURS], np.int64)

    def live(self, random: np.random.Generator, end: int) -> None:
        """Let all sessions take all their steps before *end*."""
        population = self._all
        due = np.flatnonzero(population.at < end)
        while len(due):
            steps = population.step[due]
            for step, act in (
                (Step.OPEN, self._open),
                (Step.CHANGE, self._change),
                (Step.LOSE, self._lose),
                (Step.SLOW, self._too_slow),
                (Step.LEAVE, self._leave),
                (Step.NODE_GOES, self._node_goes),
                (Step.CUT, self._cut),
                (Step.RETURN, self._return),
                (Step.EXPIRE, self._expire),
            ):
                who = due[steps == step]
                if len(who):
                    act(random, who)
            due = due[population.at[due] < end]
        population.forget_the_dead()

    # --- Connected ----------------------------------------------------------------------------------------------------

    def _open(self, random: np.random.Generator, who: Numbers) -> None:
        population = self._all
        at = population.at[who]
        population.run[who] = self._any_run(random, at)
        population.epoch[who] = 1
        self._ledger.tell(
            events.SESSION_OPENED,
            who,
            client=self._clients[population.kind[who]],
            window_ms=population.window[who] // MILLISECOND,
        )
        self._ledger.attach(who, at)
        self._ledger.hold(at, population.run[who])
        count = random.integers(1, 6, len(who))
        self._ledger.tell(
            events.SESSION_SELECTIONS_CHANGED, who, after=random.integers(2, 60, len(who)), names=count, count=count
        )
        self._stay(random, who)

    def _change(self, random: np.random.Generator, who: Numbers) -> None:
        properties = random.random(len(who)) < PROPERTY_CHANGES
        for kind, those in (
            (events.SESSION_PROPERTIES_CHANGED, who[properties]),
            (events.SESSION_SELECTIONS_CHANGED, who[~properties]),
        ):
            count = random.integers(1, 4, len(those))
            self._ledger.tell(kind, those, names=count, count=count)
        self._stay(random, who)

    def _stay(self, random: np.random.Generator, who: Numbers) -> None:
        """Find out what ends the peace of connected sessions, and when."""
        population, count = self._all, len(who)
        now, kind, run = population.at[who], population.kind[who], population.run[who]
        rivals = np.empty((6, count), np.int64)
        for step, rate in ((Step.CHANGE, "change"), (Step.LOSE, "loss"), (Step.SLOW, "slow")):
            rivals[step] = (
                now + MILLISECOND + (random.standard_exponential(count) * self._rates[rate][kind]).astype(np.int64)
            )
        rivals[Step.LEAVE] = np.maximum(population.leaves[who], now + 100 * MILLISECOND)
        moves = np.maximum(self._drains[run], now)
        room = np.maximum(self._ends[run] - SECOND - moves, MILLISECOND)
        moves = np.where(self._drains[run] < NEVER, moves + (random.random(count) * room).astype(np.int64), NEVER)
        goes = np.where(self._killed[run], self._ends[run], moves)
        rivals[Step.NODE_GOES] = np.minimum(goes, np.where(self._hangs[run] > now, self._hangs[run], NEVER))
        rivals[Step.CUT] = self._resets[np.searchsorted(self._resets, now, side="right")]
        step = rivals.argmin(axis=0)
        population.step[who] = step
        population.at[who] = rivals[step, np.arange(count)]

    def _leave(self, random: np.random.Generator, who: Numbers) -> None:
        population = self._all
        bye = random.random(len(who)) < self._rates["bye"][population.kind[who]]
        byes = who[bye]
        why = np.where(random.random(len(byes)) < REVOKED, word(ErrorCode.REVOKED), word("normal"))
        self._ledger.tell(events.SESSION_CLOSED, byes, reason=why)
        self._ledger.detach(byes, population.at[byes])
        self._ledger.release(population.at[byes], population.run[byes])
        self._end(byes)
        rest = who[~bye]
        self._disconnect(rest, word("connection_lost"), NONE)
        self._away(random, rest, returns=np.full(len(rest), NEVER, np.int64))

    # --- Connections end ----------------------------------------------------------------------------------------------

    def _lose(self, random: np.random.Generator, who: Numbers) -> None:
        population, count = self._all, len(who)
        at, kind = population.at[who], population.kind[who]
        draw = random.random(count)
        quick = self._quick(random, count)
        long = (LONG_RETURN * (1 + random.pareto(LONG_TAIL, count))).clip(max=LATEST_REFUSAL).astype(np.int64)
        gone, longs = self._rates["gone"][kind], self._rates["long"][kind]
        delay = np.where(draw < gone, NEVER, np.where(draw < gone + longs, long, quick))
        silent = (random.random(count) < SILENT) & (delay > PING_SILENCE)
        self._disconnect(
            who,
            np.where(silent, word(PING_TIMEOUT.name), word("connection_lost")),
            np.where(silent, PING_TIMEOUT.code, NONE),
        )
        lost = np.where(silent, at - PING_SILENCE // 2, at)
        self._away(random, who, returns=at + delay, lost=lost)

    def _too_slow(self, random: np.random.Generator, who: Numbers) -> None:
        packets = random.integers(500, 2_000, len(who))
        self._ledger.tell(
            events.SESSION_SLOW_CLOSED, who, packets=packets, bytes=packets * random.integers(80, 400, len(who))
        )
        self._all.at[who] += MILLISECOND
        self._disconnect(who, word(SLOW_CONSUMER.name), SLOW_CONSUMER.code, packets=packets)
        self._away(random, who, returns=self._all.at[who] + self._quick(random, len(who)) + SECOND)

    def _cut(self, random: np.random.Generator, who: Numbers) -> None:
        population = self._all
        population.at[who] += random.integers(0, 50 * MILLISECOND, len(who))
        self._disconnect(who, word("connection_lost"), NONE)
        delay = random.integers(20 * MILLISECOND, NOTICED_CUT, len(who))
        self._away(random, who, returns=population.at[who] + delay)

    def _node_goes(self, random: np.random.Generator, who: Numbers) -> None:
        population = self._all
        at, run = population.at[who], population.run[who]
        hangs = at == self._hangs[run]
        dies = self._killed[run] & ~hangs
        moved = who[~hangs & ~dies]
        self._disconnect(moved, word(GOING_AWAY.name), GOING_AWAY.code)
        self._away(random, moved, returns=population.at[moved] + random.integers(15, 200, len(moved)) * MILLISECOND)
        dead = who[dies]
        back = random.integers(30 * MILLISECOND, NOTICED_DEATH, len(dead)) + self._quick(random, len(dead)) // 2
        self._orphan(random, dead, back, np.zeros(len(dead), np.int64))
        hung = who[hangs]
        noticed = random.integers(*NOTICED_HANG, len(hung))
        self._orphan(random, hung, noticed + self._quick(random, len(hung)), noticed)

    def _orphan(self, random: np.random.Generator, who: Numbers, delay: Times, noticed: Times) -> None:
        """The node went without a word: who is not back when survivors notice is put on the clock by them."""
        if not len(who):
            return
        population = self._all
        at, run = population.at[who], population.run[who]
        gone = random.random(len(who)) < self._rates["gone"][population.kind[who]] / 4
        returns = np.where(gone, NEVER, at + delay)
        taken = self._expires[run] + random.integers(10, 400, len(who)) * MILLISECOND
        late = returns > taken
        those, dead = who[late], run[late]
        heir = self._heirs[dead]
        self._ledger.tell(
            events.SESSION_ORPHANED,
            those,
            at=taken[late],
            run=heir,
            peer=dead,
            since=self._lived[dead],
            until=self._expires[dead],
        )
        self._ledger.leave_behind(dead)
        self._ledger.detach(who, at)
        self._away(random, who, returns=returns, lost=at + noticed, begins=np.where(late, taken, at), killer=1)

    def _disconnect(
        self, who: Numbers, cause: Numbers | int, code: Numbers | int, packets: Numbers | int = NONE
    ) -> None:
        self._ledger.tell(events.SESSION_DISCONNECTED, who, cause=cause, code=code, packets=packets)
        self._ledger.detach(who, self._all.at[who])

    # --- Away ---------------------------------------------------------------------------------------------------------

    def _away(
        self,
        random: np.random.Generator,
        who: Numbers,
        *,
        returns: Times,
        lost: Times | None = None,
        begins: Times | None = None,
        killer: int = 0,
    ) -> None:
        population = self._all
        at = population.at[who]
        window_ends = (at if begins is None else begins) + population.window[who]
        in_time = returns < window_ends
        # Nobody can end a session while the grid is unreachable.
        place = np.searchsorted(self._outage_begins, window_ends, side="right") - 1
        ends = np.maximum(window_ends, self._outage_ends[place]) + random.integers(0, REAPER, len(who))
        population.lost[who] = at if lost is None else lost
        population.returns[who] = returns
        population.deadline[who] = window_ends
        population.killer[who] = killer
        population.step[who] = np.where(in_time, Step.RETURN, Step.EXPIRE)
        population.at[who] = np.where(in_time, returns, ends)

    def _return(self, random: np.random.Generator, who: Numbers) -> None:
        population, count = self._all, len(who)
        at, old = population.at[who], population.run[who]
        draw = random.random((3, count))
        new = self._any_run(random, at)
        takers, _counts = self._world.taking(at)
        home = ((takers == old[:, None]).any(axis=1)) & (draw[0] < STICKY)
        new = np.where(home, old, new)
        place = np.searchsorted(self._outage_begins, at, side="right") - 1
        outage_ends = self._outage_ends[place]
        no_grid = (at < outage_ends) & ~((new == old) & (draw[1] < UNAWARE))
        later = ~no_grid & (population.killer[who] == 1) & (draw[1] < TRY_LATER)
        again = np.where(no_grid, outage_ends, at) + random.integers(SECOND, 4 * SECOND, count)
        for refused, reason in ((no_grid, ErrorCode.GRID_UNAVAILABLE), (later, ErrorCode.TRY_LATER)):
            those = who[refused]
            self._refuse(those, at[refused], new[refused], word(reason))
            population.returns[those] = again[refused]
            population.killer[those] = 0
            in_time = (again[refused] < population.deadline[those]) | (reason is ErrorCode.GRID_UNAVAILABLE)
            population.step[those] = np.where(in_time, Step.RETURN, Step.EXPIRE)
            population.at[those] = np.where(in_time, again[refused], population.deadline[those] + REAPER)
        served = ~(no_grid | later)
        self._resume(random, who[served], new[served], gap=draw[2][served] < GAP)

    def _resume(
        self, random: np.random.Generator, who: Numbers, new: Numbers, gap: np.typing.NDArray[np.bool_]
    ) -> None:
        if not len(who):
            return
        population, count = self._all, len(who)
        at, old = population.at[who], population.run[who]
        away = np.maximum(at - population.lost[who], 0)
        missed = random.poisson(np.minimum(away / SECOND * PACKETS_PER_SECOND, 4 * BUFFER_PACKETS))
        same = new == old
        gap = (gap | (missed > BUFFER_PACKETS)) & same
        reattached = same & ~gap
        replayed = away < REPLAYED_WITHIN
        duplicates = random.poisson(DUPLICATES, count)
        population.epoch[who] += 1
        population.run[who] = new
        self._ledger.tell(
            events.SESSION_RESUMED,
            who,
            rung=np.where(reattached, word(Outcome.REATTACHED), word(Outcome.FAILED_OVER)),
            reason=np.where(reattached, NONE, np.where(gap, word(FailoverReason.GAP), word(FailoverReason.OTHER_NODE))),
            replayed=np.where(reattached, NONE, replayed),
            away_ms=away // MILLISECOND,
            resent=np.where(reattached, missed, NONE),
            conflated=np.where(reattached, missed // 8, NONE),
            deduplicated=np.where(reattached, NONE, duplicates),
            lost=np.where(reattached, NONE, np.where(replayed, 0, np.where(gap, np.maximum(missed, 1), NONE))),
            peer=old,
        )
        self._ledger.attach(who, at)
        moved = ~same
        self._ledger.hold(at[moved], new[moved])
        self._ledger.release(at[moved], old[moved])
        self._fence(random, who[moved], old[moved], at[moved])
        self._stay(random, who)

    def _fence(self, random: np.random.Generator, who: Numbers, old: Numbers, at: Times) -> None:
        """The old owner, if it lives, learns of the claim: soon, or when it wakes up."""
        learns = at + random.integers(2, 80, len(who)) * MILLISECOND
        asleep = (self._hangs[old] <= learns) & (learns < self._wakes[old])
        learns = np.where(asleep, self._wakes[old] + random.integers(5, 500, len(who)) * MILLISECOND, learns)
        lives = learns < self._ends[old]
        those = who[lives]
        self._ledger.tell(
            events.SESSION_FENCED, those, at=learns[lives], run=old[lives], epoch=self._all.epoch[those] - 1
        )

    def _expire(self, random: np.random.Generator, who: Numbers) -> None:
        population = self._all
        at, run = population.at[who], population.run[who]
        takers, _counts = self._world.taking(at)
        owner = (takers == run[:, None]).any(axis=1)
        self._ledger.tell(events.SESSION_EXPIRED, who, run=np.where(owner, run, self._any_run(random, at)))
        self._ledger.release(at, run)
        returns = population.returns[who]
        late = (returns < NEVER) & (returns > at)
        self._refuse(who[late], returns[late], self._any_run(random, returns[late]), word(ErrorCode.SESSION_EXPIRED))
        self._end(who)

    # --- Helpers ------------------------------------------------------------------------------------------------------

    def _refuse(self, who: Numbers, at: Times, run: Numbers, reason: int) -> None:
        away = np.maximum(at - self._all.lost[who], 0) // MILLISECOND
        self._ledger.tell(events.SESSION_REFUSED, who, at=at, run=run, epoch=NONE, reason=reason, away_ms=away)

    def _end(self, who: Numbers) -> None:
        self._all.step[who] = Step.OVER
        self._all.at[who] = NEVER

    def _any_run(self, random: np.random.Generator, at: Times) -> Numbers:
        takers, counts = self._world.taking(at)
        return takers[np.arange(len(at)), (random.random(len(at)) * counts).astype(np.int64)]

    def _quick(self, random: np.random.Generator, count: int) -> Times:
        return (QUICK_RETURN * np.exp(QUICK_SPREAD * random.standard_normal(count))).astype(np.int64)
