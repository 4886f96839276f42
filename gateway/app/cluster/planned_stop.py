"""From the wish to stop a node to the moment when it may leave, and back if somebody thinks better of it (P12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.app.cluster.departure import Departure
from gateway.app.cluster.drain import Drain
from gateway.app.cluster.session_mover import SessionMover
from gateway.app.context import Context
from gateway.ports.administration import Conflict


class PlannedStop:
    """Drains a node, makes sure that it may leave, and undoes a drain that is not to end in a stop.

    Args:
        context: of the node.
        drain: moves its clients.
        moves: finishes the moves that a drain has begun.
        departure: has the grid confirm the sessions that are left.
        arriving: connections that may still bring a session.
        end_streams: ends the streams of events, whose readers come back elsewhere.
        tell_soon: has the other nodes, and HAProxy, hear of a change soon.
    """

    def __init__(
        self,
        context: Context,
        *,
        drain: Drain,
        moves: SessionMover,
        departure: Departure,
        arriving: Callable[[], int],
        end_streams: Callable[[], Coroutine[Any, Any, None]],
        tell_soon: Callable[[], None],
    ) -> None:
        self._clock = context.clock
        self._timeout = context.parameters.drain.timeout
        self._background = context.background
        self._drain = drain
        self._moves = moves
        self._departure = departure
        self._arriving = arriving
        self._end_streams = end_streams
        self._tell_soon = tell_soon
        self._task: asyncio.Task[None] | None = None
        self._may_leave = False
        self._lifecycle = context.lifecycle

    def begin(self) -> None:
        """Begin to move all clients to other nodes, unless that is under way; see ``undo``."""
        self._lifecycle.draining = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="drain")
        self._tell_soon()

    async def undo(self) -> None:
        """Take new sessions again; moves that have begun are finished.

        Raises:
            Conflict: the node is being stopped.
        """
        if self._lifecycle.stopping:
            raise Conflict("the node is being stopped; start it again to have it take sessions")
        task, self._task = self._task, None
        self._lifecycle.draining = self._may_leave = False
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            self._background.once(self._moves.finish(), "finish-moves")
        self._tell_soon()

    async def run(self) -> None:
        """Move all clients to other nodes, to be stopped then; new connections must not come any more.

        Returns when the grid, as it is by then, holds the sessions that are left, or the time for that is over.
        """
        self._lifecycle.stopping = True
        until = self._clock.monotonic() + self._timeout
        self.begin()
        task = self._task
        if task is not None:
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                task.cancel()
                raise
            self._may_leave = False
            confirmed = await self._departure.confirm(until)
            self._may_leave = confirmed and not self._arriving()

    async def close(self) -> bool:
        """End what is under way, and close the consoles if all clients have moved.

        Returns:
            True if the node may give its lease back: nobody needs to take over from it.
        """
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._may_leave:
            self._may_leave = await self._drain.let_consoles_go()
        return self._may_leave

    async def _run(self) -> None:
        _, self._may_leave = await asyncio.gather(self._end_streams(), self._drain.run())
        self._tell_soon()
