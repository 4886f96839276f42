"""The states of a session machine and every transition between them. Nothing else decides about states.

Theory of operation
===================
A session is one stream of numbered packets in each direction that outlives its connections. Both ends run the same
machine; this file does not know which role it plays. A connection is *attached* to the machine while packets flow on
it.

```text
            open                     detach                 resume
  FRESH ───────────▶ ATTACHED ──────────────▶ DETACHED ──────────────▶ RESUMING
    ▲                 ▲   ▲                    │     ▲                  │  │  │
    │                 │   │      overflow ┌────┘     └─────detach───────┘  │  │
    │                 │   │               ▼                 reattach       │  │
    │                 │   └──────────── GAP ◀─────overflow─────────────────┼──┘
    │                 │  restart      (only restart leads on)              │
    │                 └──────────────── reattach or restart ◀──────────────┘
```

* ``reattach`` is rung 1 of the ladder: numbering goes on and everything unacknowledged is sent again.
* ``restart`` is rung 4: numbering begins again at 1 in both directions and what was lost is declared, never skipped.
* ``overflow`` means that a packet had to be dropped because the buffer for an absent peer was full. From there no path
  leads to ``reattach``: a gap is declared, or the session ends.
* ``close`` leads to CLOSED from everywhere, and nothing leads out of it.

A pair that is not in the table raises ``LocalProtocolError``: a bug of this side, because no packet of a peer is an
input by itself. Which packets have a place on an attached connection is decided in ``machine.SessionMachine.receive``.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from gateway.core.wire.errors import LocalProtocolError


class Role(Enum):
    """Which end of a session a machine plays."""

    CLIENT = "client"
    SERVER = "server"


class State(Enum):
    """Where a session machine stands."""

    FRESH = "fresh"
    """No packet has been numbered yet."""
    ATTACHED = "attached"
    """Packets flow over a connection."""
    DETACHED = "detached"
    """No connection; packets are kept for resending."""
    RESUMING = "resuming"
    """A connection is there again and the two sides agree on how to go on; nothing is sent meanwhile."""
    GAP = "gap"
    """No connection, and packets had to be dropped: only a restart can follow."""
    CLOSED = "closed"
    """The session has ended."""

    __hash__ = object.__hash__
    """By identity: that of ``Enum`` is a function in Python, and states are looked up for every packet."""


ATTACHED: Final = State.ATTACHED
"""For what is done for every packet: Python 3.11 finds a member of an enumeration by a function call, in 70 ns."""


class Input(Enum):
    """What can happen to a session machine."""

    OPEN = "open"
    SUBMIT = "submit"
    FLUSH = "flush"
    RECEIVE = "receive"
    TICK = "tick"
    DETACH = "detach"
    RESUME = "resume"
    REATTACH = "reattach"
    RESTART = "restart"
    OVERFLOW = "overflow"
    CLOSE = "close"

    __hash__ = object.__hash__
    """As for ``State``."""


TRANSITIONS: Final[dict[State, dict[Input, State]]] = {
    State.FRESH: {
        Input.OPEN: State.ATTACHED,
        Input.TICK: State.FRESH,
        Input.CLOSE: State.CLOSED,
    },
    State.ATTACHED: {
        Input.SUBMIT: State.ATTACHED,
        Input.FLUSH: State.ATTACHED,
        Input.RECEIVE: State.ATTACHED,
        Input.TICK: State.ATTACHED,
        Input.DETACH: State.DETACHED,
        Input.CLOSE: State.CLOSED,
    },
    State.DETACHED: {
        Input.SUBMIT: State.DETACHED,
        Input.FLUSH: State.DETACHED,
        Input.TICK: State.DETACHED,
        Input.DETACH: State.DETACHED,
        Input.RESUME: State.RESUMING,
        Input.OVERFLOW: State.GAP,
        Input.CLOSE: State.CLOSED,
    },
    State.RESUMING: {
        Input.SUBMIT: State.RESUMING,
        Input.FLUSH: State.RESUMING,
        Input.TICK: State.RESUMING,
        Input.DETACH: State.DETACHED,
        Input.REATTACH: State.ATTACHED,
        Input.RESTART: State.ATTACHED,
        Input.OVERFLOW: State.GAP,
        Input.CLOSE: State.CLOSED,
    },
    State.GAP: {
        Input.SUBMIT: State.GAP,
        Input.FLUSH: State.GAP,
        Input.TICK: State.GAP,
        Input.DETACH: State.GAP,
        Input.RESUME: State.GAP,
        Input.RESTART: State.ATTACHED,
        Input.CLOSE: State.CLOSED,
    },
    State.CLOSED: {
        Input.FLUSH: State.CLOSED,
        Input.TICK: State.CLOSED,
        Input.DETACH: State.CLOSED,
        Input.CLOSE: State.CLOSED,
    },
}
"""Next state by state and input."""


def step(state: State, event: Input) -> State:
    """Look a transition up.

    Raises:
        LocalProtocolError: the pair is not in the table.
    """
    following = TRANSITIONS[state].get(event)
    if following is None:
        raise LocalProtocolError(f"{event.value} makes no sense in state {state.value}")
    return following
