"""The sessions that are alive, as columns."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.generate.behaviour import (
    BEHAVIOURS,
    DIURNAL,
    EVENTS_PER_SESSION,
    PRINCIPALS_PER_SESSION,
    QUIETEST_HOUR,
)
from pipeline.generate.texts import session_letters, streams_of
from pipeline.generate.units import DAY, MILLISECOND, MINUTE, NEVER, SECOND, Numbers, Times

FIRST_ARRIVAL: Final = 2 * SECOND
"""After the beginning; all nodes have started by then."""


class Step(IntEnum):
    """What a session does next. The first six are rivals while it is connected: the earliest wins."""

    CHANGE = 0
    LOSE = 1
    SLOW = 2
    LEAVE = 3
    NODE_GOES = 4
    CUT = 5
    OPEN = 6
    RETURN = 7
    EXPIRE = 8
    OVER = 9


class Population:
    """Columns with a row for each session that is alive.

    Attributes:
        number: which session, from 0 in the order of arrival.
        stream: of the journal, which carries its events.
        kind: place of its behaviour in ``BEHAVIOURS``.
        principal: number of its principal.
        window: as a length of time.
        leaves: when its client has had enough.
        run: which incarnation owns it.
        epoch: 0 until it is opened.
        step: what it does next.
        at: when.
        lost: since when its client is away, as the client knows.
        returns: when the client comes back, which may be too late.
        deadline: when its window ends, if it is away.
        killer: whether it is away because its node went without a word.
    """

    COLUMNS: Final = (
        "number", "stream", "kind", "principal", "window", "leaves", "run", "epoch", "step", "at", "lost", "returns",
        "deadline", "killer",
    )  # fmt: skip

    def __init__(self) -> None:
        for name in self.COLUMNS:
            setattr(self, name, np.empty(0, np.int64))

    number: Numbers
    stream: Numbers
    kind: Numbers
    principal: Numbers
    window: Times
    leaves: Times
    run: Numbers
    epoch: Numbers
    step: Numbers
    at: Times
    lost: Times
    returns: Times
    deadline: Times
    killer: Numbers

    def __len__(self) -> int:
        return len(self.number)

    def add(self, **columns: Numbers) -> None:
        """Append sessions."""
        for name in self.COLUMNS:
            setattr(self, name, np.concatenate((getattr(self, name), columns[name])))

    def forget_the_dead(self) -> None:
        """Drop those that are over."""
        alive: NDArray[np.bool_] = self.step != Step.OVER
        if not alive.all():
            for name in self.COLUMNS:
                setattr(self, name, getattr(self, name)[alive])


class Arrivals:
    """Who comes, and when: a Poisson process whose rate swings over the day.

    Args:
        seed: of the journal; ids of sessions come from it.
        begins: first instant of the journal.
        length: within which so many events are wanted.
        events: how many.
    """

    def __init__(self, seed: int, *, begins: int, length: int, events: int) -> None:
        self._seed = seed
        self._begins = begins
        self._per_minute = events / EVENTS_PER_SESSION / _swing(np.arange(begins, begins + length, MINUTE)).sum()
        self._principals = max(1, int(events / EVENTS_PER_SESSION * PRINCIPALS_PER_SESSION))
        self._count = 0
        self._shares = np.array([each.share for each in BEHAVIOURS])
        self._medians = np.array([each.life for each in BEHAVIOURS], dtype=float)
        self._spreads = np.array([each.spread for each in BEHAVIOURS])
        self._windows = np.array([each.window_ms for each in BEHAVIOURS]) * MILLISECOND

    def come(self, population: Population, random: np.random.Generator, begin: int, end: int) -> None:
        """Add those who come from *begin* to *end*, both whole minutes after the beginning."""
        minutes = np.arange(begin, end, MINUTE, dtype=np.int64)
        counts = random.poisson(self._per_minute * _swing(minutes))
        at = np.sort(np.repeat(minutes, counts) + random.integers(0, MINUTE, counts.sum()))
        at = at[at >= self._begins + FIRST_ARRIVAL]
        count = len(at)
        kind = random.choice(len(BEHAVIOURS), count, p=self._shares)
        life = self._medians[kind] * np.exp(self._spreads[kind] * random.standard_normal(count))
        numbers = np.arange(self._count, self._count + count, dtype=np.int64)
        self._count += count
        zeros, never = np.zeros(count, np.int64), np.full(count, NEVER, np.int64)
        population.add(
            number=numbers,
            stream=streams_of(session_letters(self._seed, numbers)),
            kind=kind,
            principal=random.integers(0, self._principals, count),
            window=self._windows[kind],
            leaves=at + SECOND + np.minimum(life, NEVER / 4).astype(np.int64),
            run=zeros,
            epoch=zeros.copy(),
            step=np.full(count, Step.OPEN, np.int64),
            at=at,
            lost=never,
            returns=never.copy(),
            deadline=never.copy(),
            killer=zeros.copy(),
        )


def _swing(minutes: Times) -> NDArray[np.float64]:
    """Tell how many arrive at some instants, as a share of the mean of a day."""
    swing: NDArray[np.float64] = 1 - DIURNAL * np.cos(2 * np.pi * ((minutes - QUIETEST_HOUR) % DAY) / DAY)
    return swing
