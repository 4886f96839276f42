"""The states of a client and every transition between them. Nothing else decides about states.

Theory of operation
===================
A client has one session and at most one connection. Whatever happens to the connection, the client comes back to
WAITING, where the plan of reconnecting says when and where the next attempt begins, or that there will be none.

```text
          begin            pause over             fetched                connected
    NEW ─────────▶ WAITING ───────────▶ FETCHING ──────────▶ CONNECTING ───────────▶ HANDSHAKE
                    ▲   ▲                  │                     │                   │     │
                    │   └───── failed ─────┴─────── failed ──────┴────── failed ─────┘     │ welcomed
                    │                                                                      ▼
                    └────── lost ─── FINISHING ◀──finish── LEAVING ◀──go away───────── ATTACHED ─── lost ──▶ WAITING
                    └────── lost ───────────────────────────┘
```

* FETCHING is passed through at once where the next attempt shows no fresh credentials.
* The first packet of HANDSHAKE is a hello until a node has opened the session, and a resume ever after. The states are
  the same for both: who opens and who resumes differ in their ``handshake`` roles alone.
* LEAVING is ATTACHED with a date: a node has asked to go away, and the client goes at a moment it has drawn. FINISHING
  comes when the moment has come: nothing is asked any more, and what was asked is waited for, in a bounded time (P12).
* ``end`` leads to ENDED from everywhere: the plan gave up, a node said that the session is over, or the application
  had enough. Nothing leads out of it, and what comes in late (a connection, a secret, a message) does nothing.

A session that is being closed goes through the same states: it comes back to say good-bye, if it has to. A pair that is
not in the table raises ``LocalProtocolError``: a bug of the shell or of the machine, because no packet of a node is an
input by itself. What a packet means in which state is decided in ``machine``.

Three more machines run beside this one, and change its states in no way: the session machine of ``core.stream`` (ids,
acknowledgements, resend buffers), the table of requests, and the credential refresher.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from gateway.core.wire.errors import LocalProtocolError


class State(Enum):
    """Where a client stands."""

    NEW = "new"
    """Nothing has begun."""
    WAITING = "waiting"
    """There is no connection, and the next attempt begins after a pause."""
    FETCHING = "fetching"
    """The application makes fresh credentials for the attempt."""
    CONNECTING = "connecting"
    """A connection is being made."""
    HANDSHAKE = "handshake"
    """A connection is there; hello or resume was sent and the welcome has not come."""
    ATTACHED = "attached"
    """A node serves the session on the connection."""
    LEAVING = "leaving"
    """The same, and the node has asked to go away; the moment to do so has yet to come."""
    FINISHING = "finishing"
    """The moment has come: nothing more is asked, and the answers to what was asked are waited for."""
    ENDED = "ended"
    """The session is over, or could not be opened."""

    __hash__ = object.__hash__
    """By identity: that of ``Enum`` is a function in Python, and states are looked up for every message."""


class Event(Enum):
    """What can happen to a client."""

    BEGIN = "begin"
    PAUSE_OVER = "pause_over"
    FETCHED = "fetched"
    CONNECTED = "connected"
    WELCOMED = "welcomed"
    FAILED = "failed"
    GO_AWAY = "go_away"
    FINISH = "finish"
    LOST = "lost"
    END = "end"

    __hash__ = object.__hash__
    """As for ``State``."""


TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    State.NEW: {
        Event.BEGIN: State.WAITING,
        Event.END: State.ENDED,
    },
    State.WAITING: {
        Event.PAUSE_OVER: State.FETCHING,
        Event.END: State.ENDED,
    },
    State.FETCHING: {
        Event.FETCHED: State.CONNECTING,
        Event.FAILED: State.WAITING,
        Event.END: State.ENDED,
    },
    State.CONNECTING: {
        Event.CONNECTED: State.HANDSHAKE,
        Event.FAILED: State.WAITING,
        Event.END: State.ENDED,
    },
    State.HANDSHAKE: {
        Event.WELCOMED: State.ATTACHED,
        Event.FAILED: State.WAITING,
        Event.END: State.ENDED,
    },
    State.ATTACHED: {
        Event.GO_AWAY: State.LEAVING,
        Event.LOST: State.WAITING,
        Event.END: State.ENDED,
    },
    State.LEAVING: {
        Event.GO_AWAY: State.LEAVING,
        Event.FINISH: State.FINISHING,
        Event.LOST: State.WAITING,
        Event.END: State.ENDED,
    },
    State.FINISHING: {
        Event.GO_AWAY: State.FINISHING,
        Event.LOST: State.WAITING,
        Event.END: State.ENDED,
    },
    State.ENDED: {},
}
"""Next state by state and event."""

ATTACHED_STATES: Final = frozenset({State.ATTACHED, State.LEAVING, State.FINISHING})
"""States in which a node serves the session."""


def step(state: State, event: Event) -> State:
    """Look a transition up.

    Raises:
        LocalProtocolError: the pair is not in the table.
    """
    following = TRANSITIONS[state].get(event)
    if following is None:
        raise LocalProtocolError(f"{event.value} makes no sense in state {state.value}")
    return following
