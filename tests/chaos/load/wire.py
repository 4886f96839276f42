"""The state of one session as protocol.md asks of a client: numbers, acknowledgements, requests, promises. Pure.

It knows no connection and no time. Packets go in and come out as they are on the wire, and what is wrong with one that
came in is told to a function.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tests.chaos.account.recoveries import KEPT
from tests.chaos.account.sessions import Identity
from tests.chaos.load.places import Places

SUBPROTOCOL: Final = "gateway.v1.json"

SUPPORTS: Final = ("handed_over", "mirrored")
"""What a witness understands of what came after the protocol's first version (4.1.1)."""

REPLAY: Final = "replay"
"""What a witness names besides that tells its server how far it has come (10.6)."""


def supports(*, replays: bool) -> list[str]:
    """What a witness names in its first packet."""
    return [*SUPPORTS, REPLAY] if replays else list(SUPPORTS)


Packet: TypeAlias = dict[str, Any]

Violated: TypeAlias = Callable[[str, str], None]
"""Takes the promise that was broken, and what was seen."""


class Wire:
    """One session, from its first welcome on.

    Args:
        welcome: that created it.
        principal: who it belongs to.
        properties: user-defined ones that the hello gave it.
        violated: is told what is wrong with what came in.
        replays: whether it tells its server how far it has come.

    Attributes:
        id: of the session.
        token: to resume with.
        node: the route hint.
        window: granted, in seconds.
        silence: seconds after which the node is given up (``ping_timeout``).
        bound: packets that may be unacknowledged.
        received: id of the last packet received in order.
        acknowledged: what was last told of that.
        requests: without a reply, by number.
        properties: user-defined ones that were promised.
        selections: that were promised.
        places: how far it has come; None if it does not tell.
    """

    def __init__(
        self, welcome: Packet, principal: str, properties: Packet, violated: Violated, *, replays: bool = False
    ) -> None:
        self.id: str = welcome["session"]
        self.window: float = welcome["window"]
        self.received = self.acknowledged = 0
        self.requests: OrderedDict[int, Packet] = OrderedDict()
        self.properties: dict[str, str] = dict(properties)
        self.selections: list[str] = []
        self.places = Places() if replays else None
        self._named: dict[str, Any] = {}
        self._principal = principal
        self._violated = violated
        self._sent: list[tuple[int, Packet]] = []
        self._next_id = self._next_request = 1
        self._attempt = self._answered = 0
        self._take_advice(welcome)

    # --- Coming back (4.2, 5.4, 5.5) ------------------------------------------------------------------------------

    def resume(self) -> Packet:
        """Make the first packet of the next connection."""
        self._attempt += 1
        self._named = {} if self.places is None else self.places.named(self._unanswered())
        return {
            "type": "resume",
            "token": self.token,
            "attempt": self._attempt,
            "received": self.received,
            "oldest": self._oldest,
            "supports": supports(replays=self.places is not None),
            **self._named,
        }

    def is_replayed(self, welcome: Packet) -> tuple[bool, bool]:
        """Tell what a welcome says of what was missed (10.6.4).

        Returns:
            Whether it had to say something: positions were named, and not only unknown ones are missing; and whether
            everything follows.
        """
        replayed = welcome.get("replayed")
        if replayed is not None and not self._named:
            self._violated("P13", f"replayed is {replayed}, and no positions were named")
        if replayed is True and welcome["lost"] != 0:
            self._violated("P13", f"everything is replayed, and {welcome['lost']} packets are lost")
        is_known = not isinstance(replayed, dict) or set(replayed.values()) != {"unnamed"}
        return bool(self._named) and is_known, replayed is True

    def resumed(self, welcome: Packet) -> bool:
        """Take the welcome of a resume in.

        Returns:
            Whether no resume before it was left without an answer, since the last welcome.
        """
        only = self._attempt == self._answered + 1
        self._answered = self._attempt
        self._take_advice(welcome)
        received = welcome["received"]
        outcome = welcome["outcome"]
        if outcome in KEPT:
            if not self._oldest - 1 <= received < self._next_id:
                self._violated("P2", f"{outcome} with received {received}, of {self._oldest} to {self._next_id - 1}")
            self._sent = [(number, packet) for number, packet in self._sent if number > received]
            self.acknowledged = self.received
            return only
        if received != 0:
            self._violated("P2", f"{outcome} with received {received}")
        if self.places is not None:
            self.places.restarted(welcome.get("replayed") if self._named else None)
        self.received = self.acknowledged = 0
        self._sent.clear()
        self._next_id = 1
        for number, body in self.requests.items():
            self._number({**body, "request": number, "resubmitted": True})
        return only

    def unacknowledged(self) -> list[Packet]:
        """List what is to be sent again, with its numbers."""
        return [{"id": number, **packet} for number, packet in self._sent]

    def may_be(self) -> list[Identity]:
        """Tell what the session may be: without an answer, each request may have been executed, in their order."""
        properties, selections = dict(self.properties), list(self.selections)
        allowed = [Identity(self.id, self._principal, dict(properties), tuple(selections))]
        for body in self.requests.values():
            if body["type"] == "subscribe":
                selections.append(f"+{body['selector']}")
            elif body["type"] == "properties":
                properties |= body["set"]
            allowed.append(Identity(self.id, self._principal, dict(properties), tuple(selections)))
        return allowed

    # --- What comes in --------------------------------------------------------------------------------------------

    def take_number(self, packet: Packet) -> None:
        """See that numbers follow (5.1, 5.7); without one, a packet has the number above that before it."""
        number = packet.get("id", self.received + 1)
        if number != self.received + 1:
            self._violated("P2", f"packet {number} came after packet {self.received}: {str(packet)[:200]}")
        self.received = number
        if packet.get("received") is not None:
            self.take_acknowledgement(packet["received"])

    def take_acknowledgement(self, received: int) -> None:
        """Forget what the node has."""
        if received >= self._next_id:
            self._violated("P2", f"packet {received} is acknowledged, {self._next_id - 1} was the last that was sent")
        self._sent = [(number, packet) for number, packet in self._sent if number > received]

    def take_reply(self, packet: Packet) -> Packet | None:
        """Find the request that a reply answers, and take what it promises in.

        Returns:
            The body of the request; None if there is none, which is a violation.
        """
        body = self.requests.pop(packet["request"], None)
        if body is None:
            self._violated("P5", f"a reply came to request {packet['request']}, which has none open: {packet}")
        elif packet.get("error") is None and body["type"] == "properties":
            self.properties |= body["set"]
        elif packet.get("error") is None and body["type"] == "subscribe" and self.places is not None:
            self.places.subscribed(packet["request"], body["selector"])
        return body

    def is_asked_for(self, topic: str) -> bool:
        """Tell whether a topic is selected, or may be already."""
        asked = [f"+{body['selector']}" for body in self.requests.values() if body["type"] == "subscribe"]
        return any(topic.startswith(f"{selection[1:-3]}/") for selection in (*self.selections, *asked))

    # --- What goes out --------------------------------------------------------------------------------------------

    @property
    def next_request(self) -> int:
        """The number of the next request."""
        return self._next_request

    def request(self, body: Packet) -> Packet:
        """Number a request."""
        number = self._next_request
        self._next_request += 1
        self.requests[number] = body
        return self._number({**body, "request": number})

    def acknowledgement(self) -> Packet:
        """Acknowledge all that was received."""
        self.acknowledged = self.received
        return {"type": "ack", "received": self.received}

    def _unanswered(self) -> dict[int, str]:
        return {number: body["selector"] for number, body in self.requests.items() if body["type"] == "subscribe"}

    # --- Inside ---------------------------------------------------------------------------------------------------

    @property
    def _oldest(self) -> int:
        return self._sent[0][0] if self._sent else self._next_id

    def _take_advice(self, welcome: Packet) -> None:
        self.token: str = welcome["token"]
        self.node: str = welcome["node"]
        self.silence: float = welcome["ping_timeout"]
        self.bound: int = welcome["limits"]["resend_packets"]

    def _number(self, packet: Packet) -> Packet:
        number = self._next_id
        self._next_id += 1
        self._sent.append((number, packet))
        return {"id": number, **packet}
