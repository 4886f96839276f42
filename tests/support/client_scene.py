"""A client's machine on a stage: a test plays the application, the network and the clock, and sees every effect."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from gateway.core.client import effects
from gateway.core.client.effects import Effect, Purpose
from gateway.core.client.endings import Ending
from gateway.core.client.errors import SessionClosed
from gateway.core.client.machine import ClientMachine
from gateway.core.client.options import ClientOptions
from gateway.core.client.request_table import UNNUMBERED, ClientAsk
from gateway.core.client.transitions import Event, State, step
from gateway.core.wire.codec import json_text
from gateway.core.wire.exchange_packets import Ask
from gateway.core.wire.packets import Publish, SetProperties, Subscribe, Unsubscribe, Update
from gateway.core.wire.value_packets import ReadValues

URL: Final = "wss://gateway.example/v1/connect"
MOST_TICKS: Final = 1000
"""Calls of the timer within one wait: far more than any scene needs."""
BEGIN: Final = 1000.0
"""Seconds on the clock when a scene begins."""

WELCOME: Final[dict[str, Any]] = {
    "type": "welcome",
    "session": "s-1",
    "principal": "alice",
    "node": "n1",
    "token": "token-1",
    "outcome": "created",
    "received": 0,
    "resent": 0,
    "lost": 0,
    "conflated": 0,
    "window": 60,
    "ping_interval": 20,
    "ping_timeout": 45,
    "replicated": True,
    "limits": {
        "message_bytes": 65536,
        "value_bytes": 32768,
        "requests": 256,
        "selections": 1000,
        "resend_packets": 8,
        "resend_bytes": 1048576,
    },
    "backoff": {"initial": 0.25, "maximum": 10, "stable_after": 10},
    "properties": {"$session": "s-1"},
    "selections": [],
}
"""A welcome that opens a session; scenes say what is different in theirs."""

REATTACHED: Final[dict[str, Any]] = {"outcome": "reattached", "numbering": "kept", "token": "token-2"}
FAILED_OVER: Final[dict[str, Any]] = {
    "outcome": "failed_over",
    "numbering": "restarted",
    "reason": "other_node",
    "node": "n2",
    "token": "token-2",
    "lost": None,
    "conflated": None,
}


class Scene:
    """One client's machine, and everything that came out of it.

    Args:
        random: what chance says, always.
        options: in the place of the usual ones.

    Attributes:
        machine: on the stage.
        now: of the clock.
        effects: of the last input, and of what came due with it.
        sent: packets written since the last input.
        transitions: all that were made so far, as state, event and state.
    """

    def __init__(self, *, random: float = 0.5, **options: Any) -> None:
        given = {"urls": (URL,), "principal": "alice", "secret": "s3cret", "client": "test"} | options
        self.machine = ClientMachine(ClientOptions(**given), random=lambda: random)
        self.now = BEGIN
        self.effects: list[Effect] = []
        self.sent: list[dict[str, Any]] = []
        self.transitions: list[tuple[State, Event, State]] = []
        self._abandon_at: float | None = None

    # --- The application ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        with self._input():
            self._add(self.machine.start(self.now))

    def ask(self, call: Hashable, ask: ClientAsk) -> None:
        with self._input():
            self._add(self.machine.request(call, ask, self.now))

    def publish(self, call: Hashable, topic: str, value: object) -> None:
        self.ask(call, Publish(UNNUMBERED, topic, json.dumps(value).encode()))

    def request(self, call: Hashable, path: str, value: object) -> None:
        self.ask(call, Ask(UNNUMBERED, path, json_text(value), 5.0))

    def subscribe(self, call: Hashable, selector: str) -> None:
        self.ask(call, Subscribe(UNNUMBERED, selector))

    def unsubscribe(self, call: Hashable, selector: str, *keep: str) -> None:
        self.ask(call, Unsubscribe(UNNUMBERED, selector, keep=keep))

    def set_properties(self, call: Hashable, changes: dict[str, str | None]) -> None:
        self.ask(call, SetProperties(UNNUMBERED, changes))

    def values(self, call: Hashable, selector: str, after: str | None = None, limit: int | None = None) -> None:
        self.ask(call, ReadValues(UNNUMBERED, selector, after, limit))

    def withdraw(self, call: Hashable) -> bool:
        return self.machine.withdraw(call)

    def close(self, seconds: float = 5.0) -> None:
        """Close as a shell does it: what no node confirms in time is abandoned."""
        with self._input():
            self._add(self.machine.close(self.now))
            self._abandon_at = self.now + seconds

    def abandon(self) -> None:
        with self._input():
            self._add(self.machine.abandon(SessionClosed("the test has seen enough")))

    def fetched(self, secret: str, purpose: Purpose = Purpose.ATTEMPT) -> None:
        with self._input():
            self._add(self.machine.fetched(purpose, secret, self.now))

    def not_fetched(self, reason: str = "no wallet", purpose: Purpose = Purpose.ATTEMPT) -> None:
        with self._input():
            self._add(self.machine.not_fetched(purpose, reason, self.now))

    # --- The network --------------------------------------------------------------------------------------------------

    def connected(self) -> None:
        with self._input():
            self._add(self.machine.connected(self.now))

    def disconnected(self, code: int | None = None, message: str = "the connection was lost", **ending: Any) -> None:
        with self._input():
            self._add(self.machine.disconnected(Ending(message=message, code=code, **ending), self.now))

    def say(self, *packets: dict[str, Any]) -> None:
        """Have the node send one message."""
        self.say_text(json.dumps(packets[0] if len(packets) == 1 else packets))

    def say_text(self, text: str) -> None:
        with self._input():
            self._add(self.machine.receive(text, self.now))

    def welcome(self, **different: Any) -> None:
        self.say(WELCOME | different)

    # --- The clock ----------------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Let time pass; what is due happens in order."""
        end = self.now + seconds
        with self._input():
            ticks = 0
            while (due := self._next_due()) is not None and due <= end:
                ticks += 1
                assert ticks < MOST_TICKS, f"{self.machine} asks to be called over and over"
                self.now = max(self.now, due)
                if self._abandon_at == due:
                    self._abandon_at = None
                    self._add(self.machine.abandon(SessionClosed("no node confirmed it")))
                else:
                    self._add(self.machine.tick(self.now))
            self.now = end

    def _next_due(self) -> float | None:
        if self.machine.ended is not None:
            return None
        times = [each for each in (self.machine.next_deadline(), self._abandon_at) if each is not None]
        return min(times, default=None)

    # --- All together -------------------------------------------------------------------------------------------------

    def open(self, **different: Any) -> Scene:
        """Open the session."""
        self.start()
        self.connected()
        self.welcome(**different)
        return self

    def come_back(self, **welcome: Any) -> None:
        """Have the next attempt succeed."""
        while self.machine.state is State.WAITING:
            self.wait(0.05)
        self.connected()
        self.welcome(**welcome)

    # --- What came out ------------------------------------------------------------------------------------------------

    def stands(self, state: State) -> bool:
        """Tell whether the machine is in a state; a call, lest type checkers take it for known ever after."""
        return self.machine.state is state

    def of(self, *kinds: type[Effect]) -> list[Any]:
        """Return the last effects of some kinds."""
        return [each for each in self.effects if isinstance(each, kinds)]

    def one(self, kind: type[Any]) -> Any:
        """Return the last effect of a kind, of which there must be one."""
        (only,) = [each for each in self.effects if isinstance(each, kind)]
        return only

    @property
    def updates(self) -> list[tuple[str, object]]:
        return [(each.topic, each.value) for each in self.effects if isinstance(each, Update)]

    @property
    def sent_types(self) -> list[str]:
        return [each["type"] for each in self.sent]

    @contextmanager
    def _input(self) -> Iterator[None]:
        self.effects, self.sent = [], []

        def watched(state: State, event: Event) -> State:
            following = step(state, event)
            self.transitions.append((state, event, following))
            return following

        with (
            patch("gateway.core.client.attempts.step", watched),
            patch("gateway.core.client.machine.step", watched),
        ):
            yield

    def _add(self, outcome: Iterable[Effect]) -> None:
        for effect in outcome:
            self.effects.append(effect)
            if isinstance(effect, effects.Disconnect):
                self._write(effect.last_messages)
        self._write(self.machine.flush())

    def _write(self, messages: Iterable[bytes]) -> None:
        for message in messages:
            packets = json.loads(message)
            self.sent += packets if isinstance(packets, list) else [packets]
