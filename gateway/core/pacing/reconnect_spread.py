"""Over how many seconds clients spread their return, so that no more of them arrive than can be served (ADR 0022).

A node that dies sends all its S sessions back in the same moment. The survivors together take on C clients a second:
as many as their admission admits, and no more than the grid shall claim. A client draws its first delay uniformly from
0 to the window W that it was advised; so S clients arrive at a rate of S / W, and the least window that keeps the
promise is

    W = S / C

Advice grows old: a node that was empty when a client came may be full when it dies. Each connected client is therefore
told anew (with a ping) as soon as the window has grown by more than ``OUTGROWN``, and the advice is larger by that very
factor, so that the promise holds in between.
"""

from __future__ import annotations

from typing import Final

from gateway.core.wire.packets import Backoff

OUTGROWN: Final = 1.5
"""By what the window may grow until connected clients are told: they are told a few times in the life of a node, not
at each arrival."""

WINDOW_SHARE: Final = 0.25
"""Share of a session's window that its client may be asked to wait: what is left is for further attempts."""


def capacity(*, survivors: int, admission_rate: float, claim_rate: float) -> float:
    """Tell how many returning clients a second a cluster takes on; infinity if nothing limits it.

    Args:
        survivors: nodes that are left, at least 1: where there is none, the same one comes back.
        admission_rate: clients per second that one node admits; 0 for no limit.
        claim_rate: claims per second that all nodes together ask of the grid; 0 for no limit.
    """
    nodes = max(1, survivors) * admission_rate if admission_rate else float("inf")
    return min(nodes, claim_rate or float("inf"))


def advise(base: Backoff, *, sessions: float, capacity: float, window: float) -> Backoff:
    """Advise how to come back.

    Args:
        base: what is advised when few would have to.
        sessions: that would come back together.
        capacity: clients per second that are served, as ``capacity`` tells.
        window: seconds that a session is kept by default.
    """
    initial = min(max(base.initial, OUTGROWN * sessions / capacity), max(base.initial, window * WINDOW_SHARE))
    return Backoff(initial=initial, maximum=max(base.maximum, initial), stable_after=base.stable_after)


def is_outgrown(told: Backoff, now: Backoff) -> bool:
    """Tell whether a client has to be told anew."""
    return now.initial > told.initial * OUTGROWN
