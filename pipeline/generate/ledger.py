"""What lives leave behind: the events that are told of them, and how many sessions and connections runs have."""

from __future__ import annotations

import numpy as np

from gateway.core.journal import EventType
from pipeline.generate.population import Population
from pipeline.generate.rows import Rows, rows
from pipeline.generate.units import MILLISECOND, Numbers, Times


class Ledger:
    """Keeps account of a population.

    Args:
        population: whose sessions live.
        runs: how many runs of nodes there are.

    Attributes:
        told: what has been told and not been taken yet, also of instants that have not come.
        attached: when connections came to a run or left it: instant, run, +1 or -1.
        held: the same of sessions that a run holds.
        orphans: how many sessions each run left behind when it expired.
    """

    def __init__(self, population: Population, runs: int) -> None:
        self._all = population
        self.told: list[Rows] = []
        self.attached: list[tuple[Times, Numbers, int]] = []
        self.held: list[tuple[Times, Numbers, int]] = []
        self.orphans = np.zeros(runs, np.int64)

    def attach(self, who: Numbers, at: Times) -> None:
        """Connections of sessions came to their runs."""
        self.attached.append((at, self._all.run[who], 1))

    def detach(self, who: Numbers, at: Times) -> None:
        """Connections of sessions left their runs."""
        self.attached.append((at, self._all.run[who], -1))

    def hold(self, at: Times, run: Numbers) -> None:
        """Runs hold sessions from now on."""
        self.held.append((at, run, 1))

    def release(self, at: Times, run: Numbers) -> None:
        """Runs hold sessions no more."""
        self.held.append((at, run, -1))

    def leave_behind(self, runs: Numbers) -> None:
        """Runs expired and left a session each behind."""
        self.orphans += np.bincount(runs, minlength=len(self.orphans))

    def tell(
        self,
        kind: EventType,
        who: Numbers,
        *,
        at: Times | None = None,
        after: Numbers | None = None,
        run: Numbers | None = None,
        epoch: Numbers | int | None = None,
        **told: Numbers | int,
    ) -> None:
        """Tell an event of each of some sessions, by default where and when each is.

        Args:
            kind: of event.
            who: places of the sessions in the population.
            at: when; None for now.
            after: milliseconds after that; None for none.
            run: who tells it; None for the run that holds the session.
            epoch: of the session; None for its own.
            told: further fields of the event.
        """
        if not len(who):
            return
        population = self._all
        when = population.at[who] if at is None else at
        if "principal" in kind.fields:
            told["principal"] = population.principal[who]
        self.told.append(
            rows(
                kind,
                when if after is None else when + after * MILLISECOND,
                population.run[who] if run is None else run,
                session=population.number[who],
                stream=population.stream[who],
                epoch=population.epoch[who] if epoch is None else epoch,
                **told,
            )
        )
