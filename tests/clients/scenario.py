"""A scene of the client's machine that is written down as it is played; ``machine_vectors`` is made of such."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from gateway.core.client import effects
from gateway.core.client.effects import Effect, Purpose
from gateway.core.wire.exchange_packets import Answered
from gateway.core.wire.packets import Reply, Update
from tests.support.client_scene import WELCOME, Scene

Json: TypeAlias = dict[str, Any]


class Scenario:
    """A scene of which everything is written down.

    Args:
        name: what it shows, as a sentence.
        not_javascript: why the JavaScript client cannot play it; None if it can.
        options: of the client.
    """

    def __init__(self, name: str, *, not_javascript: str | None = None, **options: Any) -> None:
        self.name = name
        self.not_javascript = not_javascript
        self.options = {"principal": "alice"} | ({} if options.get("renewable") else {"secret": "s3cret"}) | options
        given: dict[str, Any] = {"secret": None} | self.options
        self.scene = Scene(**given)
        self.steps: list[Json] = []
        self._fetches: deque[Purpose] = deque()

    def do(self, kind: str, play: Callable[..., None], *arguments: Any, **given: Any) -> Scenario:
        """Play one input, and write down what comes of it."""
        before = len(self.scene.transitions)
        play(*arguments)
        scene = self.scene
        self._fetches += [each.purpose for each in scene.of(effects.FetchCredentials)]
        self.steps.append(
            {
                "input": {"type": kind} | given,
                "effects": [told for each in scene.effects if (told := _told(each)) is not None],
                "sent": [_rounded(each) for each in scene.sent],
                "state": scene.machine.state.value,
                "transitions": [[each.value for each in step] for step in scene.transitions[before:]],
            }
        )
        return self

    def start(self) -> Scenario:
        return self.do("start", self.scene.start)

    def connected(self) -> Scenario:
        return self.do("connected", self.scene.connected)

    def unreachable(self) -> Scenario:
        return self.do("unreachable", self.scene.disconnected)

    def drop(self, code: int | None = None) -> Scenario:
        return self.do("drop", self.scene.disconnected, code, code=code)

    def say(self, *packets: Json) -> Scenario:
        return self.do("say", self.scene.say, *packets, packets=list(packets))

    def welcome(self, **different: Any) -> Scenario:
        return self.say(WELCOME | different)

    def wait(self, seconds: float) -> Scenario:
        return self.do("wait", self.scene.wait, seconds, seconds=seconds)

    def publish(self, call: str, topic: str, value: object) -> Scenario:
        return self.do("publish", self.scene.publish, call, topic, value, call=call, topic=topic, value=value)

    def request(self, call: str, path: str, value: object) -> Scenario:
        return self.do("request", self.scene.request, call, path, value, call=call, path=path, value=value)

    def subscribe(self, call: str, selector: str) -> Scenario:
        return self.do("subscribe", self.scene.subscribe, call, selector, call=call, selector=selector)

    def values(self, call: str, selector: str, after: str | None = None, limit: int | None = None) -> Scenario:
        given = {"call": call, "selector": selector, "after": after, "limit": limit}
        return self.do("values", self.scene.values, call, selector, after, limit, **given)

    def set_properties(self, call: str, changes: dict[str, str | None]) -> Scenario:
        return self.do("set_properties", self.scene.set_properties, call, changes, call=call, changes=changes)

    def close(self, seconds: float = 5.0) -> Scenario:
        return self.do("close", self.scene.close, seconds, seconds=seconds)

    def give_up(self) -> Scenario:
        return self.do("give_up", self.scene.abandon)

    def fetched(self, secret: str) -> Scenario:
        return self.do("fetched", self.scene.fetched, secret, self._fetches.popleft(), secret=secret)

    def not_fetched(self) -> Scenario:
        return self.do("not_fetched", self.scene.not_fetched, "none", self._fetches.popleft())

    def open(self, **different: Any) -> Scenario:
        """Open the session."""
        return self.start().connected().welcome(**different)

    def come_back(self, **welcome: Any) -> Scenario:
        """Have the next attempt succeed."""
        return self.wait(0.125).connected().welcome(**welcome)

    def to_json(self) -> Json:
        """Return it as it is written."""
        not_javascript = {} if self.not_javascript is None else {"not_javascript": self.not_javascript}
        return {"name": self.name} | not_javascript | {"options": self.options, "steps": self.steps}


def _told(effect: Effect) -> Json | None:  # noqa: C901, PLR0912 - one place for all of them
    """Return an effect as JSON, without its sentences; None for one that is for logs alone."""
    match effect:
        case effects.Connect(url):
            return {"type": "connect", "url": url}
        case effects.Disconnect(code):
            return {"type": "disconnect", "code": code}
        case effects.FetchCredentials(purpose):
            return {"type": "fetch_credentials", "purpose": purpose.value}
        case effects.Opened(welcome):
            return {"type": "opened", "session": welcome.session, "node": welcome.node}
        case effects.Lost():
            return {"type": "lost"}
        case effects.Recovered(each):
            return {
                "type": "recovered",
                "outcome": each.outcome,
                "numbering": each.numbering.value,
                "reason": each.reason,
                "node": each.node,
                "gap_seconds": round(each.gap_seconds, 6),
                "resent": each.resent,
                "lost": each.lost,
                "conflated": each.conflated,
                "replayed": each.replayed,
                "not_replayed": list(each.not_replayed),
                "attempts": each.attempts,
            }
        case effects.Ended(error):
            return {"type": "ended", "error": type(error).__name__}
        case effects.Resolved(call, reply):
            return {"type": "resolved", "call": call} | _receipt(reply)
        case effects.Rejected(call, error):
            return {"type": "rejected", "call": call, "error": type(error).__name__}
        case effects.Noticed(notice):
            return {"type": "noticed", "code": notice.code}
        case effects.FailedOver():
            return {"type": "failed_over"}
        case Update():
            return {"type": "update", "topic": effect.topic, "version": effect.version, "value": effect.value}
        case _:
            return None


def _receipt(reply: Reply | Answered) -> Json:
    if isinstance(reply, Answered):
        return {"value": reply.value}
    if reply.values is not None:
        items = [[each.topic, each.version, each.event, each.value] for each in reply.values.items]
        return {"value": [items, reply.values.next]}
    return {} if reply.version is None else {"version": reply.version, "event": reply.event}


def _rounded(packet: Json) -> Json:
    """Leave out of a packet what tells of the client and not of the protocol."""
    return {name: value for name, value in packet.items() if name not in {"client", "message", "reason"}}
