"""Sessions that come to this node from elsewhere are taken in before it is known on which rung they go on."""

from __future__ import annotations

from collections.abc import Callable

from gateway.app.connections.claimer import ClaimedSession
from gateway.app.context import Context
from gateway.app.registry.sessions import Sessions
from gateway.core.stream.transitions import State
from gateway.core.types import GridGeneration
from gateway.ports import TokenClaims


class Arrivals:
    """Takes sessions in.

    Args:
        context: of the node.
        sessions: the sessions held here.
        has_lost: whether the grid has lost writes since this node began to work.
    """

    def __init__(self, context: Context, *, sessions: Sessions, has_lost: Callable[[], bool]) -> None:
        self._clock = context.clock
        self._grid = context.grid
        self._sessions = sessions
        self._has_lost = has_lost

    def take_in(self, claimed: ClaimedSession) -> None:
        """Take a session in as one that begins to number; does nothing if that has been done.

        From then on the node hears of it when another one claims the session, whatever it still waits for.
        """
        session = claimed.session
        if session.machine.state is not State.FRESH:
            return
        session.declared = self.declared_to(claimed.attempt.token)
        self._sessions.add(session)
        session.machine.open(self._clock.monotonic(), generation=session.token_generation)

    def declared_to(self, token: TokenClaims) -> GridGeneration:
        """Tell up to which generation of the grid a client has been told of lost writes, as its token says (P2).

        A token of the first release says nothing; then what was lost while this node has worked counts as not told.
        """
        grid_generation = self._grid.generation
        if token.grid_generation is not None:
            return token.grid_generation
        return GridGeneration(grid_generation - 1) if self._has_lost() else grid_generation
