"""The last thing before a planned stop: the grid, as it is now, holds the sessions that are left here (P7, ADR 0064).

A node notices by and by that the grid was replaced by an older or empty one. Nodes that stay write their sessions again
then. A node that left before it noticed would have written them to a grid that nobody asks any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from typing import Final

from gateway.app.cluster.grid_recovery import RETRY, GridRecovery
from gateway.app.context import Context
from gateway.catalogue import log_events as events
from gateway.ports import GridUnavailable

LEAST_TIME: Final = 5.0
"""Seconds that there are for it even if the drain has used up its time, because a client did not leave: enough to be
answered (two seconds at most), to adopt another grid and to write some thousand sessions."""


class Departure:
    """Makes sure of the sessions of a node that is about to leave.

    Args:
        context: of the node.
        held: lists the sessions that must not be lost by it.
        recovery: writes them again.
    """

    def __init__(self, context: Context, held: Callable[[], Sized], recovery: GridRecovery) -> None:
        self._grid = context.grid
        self._replicated = context.parameters.replicated
        self._clock = context.clock
        self._log = context.log
        self._held = held
        self._recovery = recovery
        self._error = ""
        self._written_again = False

    async def confirm(self, until: float) -> bool:
        """Ask the grid whether it is still the one that was adopted; write the sessions again first if it is not.

        A node that holds no session asks nothing, as it has nothing to lose.

        Args:
            until: when to give up, by the monotonic clock; there are some seconds in any case.

        Returns:
            True if the grid holds all sessions; else others have to take over from this node.
        """
        held = len(self._held())
        if not self._replicated or not held:
            return True
        began = self._clock.monotonic()
        self._error, self._written_again = "the grid has not answered", False
        try:
            async with asyncio.timeout(max(until - began, LEAST_TIME)):
                await self._confirm()
        except TimeoutError:
            seconds = round(self._clock.monotonic() - began, 3)
            self._log.emit(events.STOP_UNCONFIRMED, sessions=held, error=self._error, seconds=seconds)
            return False
        seconds = round(self._clock.monotonic() - began, 3)
        self._log.emit(events.STOP_CONFIRMED, sessions=held, written_again=self._written_again, seconds=seconds)
        return True

    async def _confirm(self) -> None:
        generation = self._grid.generation
        while True:
            try:
                await self._grid.verify()
            except GridUnavailable as error:
                self._error = str(error)
            else:
                if self._grid.generation == generation and await self._recovery.is_caught_up():
                    return
                # Somebody may be at it already, so that this returns at once; and the grid is asked again afterwards,
                # because what was written there counts only if it is still the grid.
                generation = self._grid.generation
                self._error, self._written_again = "there was no time to write all sessions again", True
                await self._recovery.rejoin()
            await asyncio.sleep(RETRY)
