"""One session of a storm: speaks ``gateway.v1.json`` and judges every packet it receives.

It does what the protocol asks of a client and no more: hello or resume first, subscriptions in one message, an
acknowledgement at once after a welcome (protocol 10.4) and again when everything awaited has come. Nothing is kept for
resending, because a storm begins when every request has been answered; ``oldest`` is therefore always the next id.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson

from benchmarks.storm import values
from benchmarks.storm.loop import Connection, Loop

SUBPROTOCOL: Final = "gateway.v1.json"
TARGET: Final = "/v1/connect"
KEPT: Final = frozenset({"reattached", "handed_over"})
"""Outcomes by which packet numbers go on."""
_SESSION_PACKETS: Final = frozenset({"update", "reply", "notice"})
"""What a server numbers (protocol 3)."""
_REQUESTS: Final = 256
"""Open at once; what a node announces by default (protocol 9.1)."""
_ACK_PACKETS: Final = 256
"""Received packets after which an acknowledgement is sent alone, as protocol 5.3.2 recommends."""


class Board(Protocol):
    """What the members of a storm share."""

    @property
    def goals(self) -> Mapping[str, int]:
        """By topic: the sequence number that is current."""

    def welcomed(self, member: Member, outcome: str) -> None:
        """A member's session is served."""

    def current(self, member: Member) -> None:
        """A member has the current value of all its topics."""

    def failed(self, member: Member, what: str) -> None:
        """The server broke a rule towards a member."""

    def pinged(self) -> None:
        """A member has answered a ping."""

    def owes(self, member: Member) -> None:
        """A member has received something: ``acknowledge`` is due within 0.5 s (protocol 5.3.2)."""


@dataclass(frozen=True, slots=True)
class Interest:
    """What a member selects.

    Attributes:
        selectors: in the order in which they are subscribed.
        topics: with a value, that they match.
    """

    selectors: tuple[str, ...]
    topics: tuple[str, ...]


class Member:
    """A session and its present connection.

    Attributes:
        name: its principal.
        node: that served the last welcome.
        missing: topics whose current value has not come yet.
        owing: whether the board has been told that something is to be acknowledged.
        latest: topic, publisher's clock and receiver's clock (ns) of the last update; read by latency cases.
    """

    __slots__ = (
        "_acknowledged",
        "_address",
        "_attempt",
        "_board",
        "_connection",
        "_expected",
        "_held",
        "_interest",
        "_loop",
        "_open_requests",
        "_received",
        "_sent",
        "_session",
        "_target",
        "_token",
        "_versions",
        "latest",
        "missing",
        "name",
        "node",
        "owing",
    )

    def __init__(self, loop: Loop, board: Board, name: str, interest: Interest) -> None:
        """Describe a session; ``arrive`` opens it."""
        self._loop = loop
        self._board = board
        self._interest = interest
        self._connection: Connection | None = None
        self._address = ("", 0)
        self._target = TARGET
        self._session = ""
        self._token = ""
        self._attempt = 0
        self._expected = ""
        self._received = 0
        self._acknowledged = 0
        self._sent = 0
        self._open_requests: set[int] = set()
        self._versions: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self.name = name
        self.node = ""
        self.missing: set[str] = set(interest.topics)
        self.owing = False
        self.latest: tuple[str, int, int] = ("", 0, 0)

    def __repr__(self) -> str:
        return f"<Member {self.name} received={self._received} missing={len(self.missing)}>"

    @property
    def interest(self) -> Interest:
        """What it selects."""
        return self._interest

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it selects and that have values."""
        return self._interest.topics

    # --- What a storm does with it ----------------------------------------------------------------------------------

    def arrive(self, address: tuple[str, int], *, expected: str, hint: str | None = None) -> None:
        """Connect: with hello the first time, with resume afterwards.

        Args:
            address: host and port.
            expected: the outcome that the welcome must name.
            hint: node to put into the URL; None for that of the last welcome.
        """
        hint = hint or self.node
        self._address = address
        self._target = f"{TARGET}?node={hint}" if hint else TARGET
        self._expected = expected
        self._connection = self._loop.connect(address, self._target, SUBPROTOCOL, self)

    def cut(self) -> None:
        """Lose the connection, as by a broken network."""
        if self._connection is not None:
            self._connection.cut()
            self._connection = None

    def expect(self, topics: Sequence[str]) -> None:
        """Be incomplete until the goals of *topics* have come."""
        self.missing = set(topics)

    @property
    def outdated(self) -> list[str]:
        """Topics whose current value it has not been sent yet: what a reattach owes it."""
        goals, held = self._board.goals, self._held
        return [topic for topic in self._interest.topics if held.get(topic) != goals[topic]]

    def awaited(self, expected: str) -> Sequence[str]:
        """List the topics of which something will come after a welcome: where numbering goes on, not what it holds."""
        return self.outdated if expected in KEPT else self.topics

    def acknowledge(self) -> None:
        """Send what is owed, if nothing else has carried it meanwhile."""
        self.owing = False
        if self._connection is not None and self._received > self._acknowledged:
            self._acknowledged = self._received
            self._connection.send(b'{"type":"ack","received":%d}' % self._received)

    def bye(self) -> None:
        """End the session; the close that follows is no failure."""
        if self._connection is not None:
            self._expected = "bye"
            self._connection.send(b'{"type":"bye"}')

    # --- Owner of a connection ----------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        """Send the first packet."""
        if not self._token:
            hello = {"type": "hello", "principal": self.name, "client": "storm/1", "supports": ["handed_over"]}
            connection.send(orjson.dumps(hello))
            return
        self._attempt += 1
        connection.send(
            b'{"type":"resume","token":"%b","attempt":%d,"received":%d,"oldest":%d,"supports":["handed_over"]}'
            % (self._token.encode(), self._attempt, self._received, self._sent + 1)
        )

    def received(self, connection: Connection, payload: bytes) -> None:
        """Judge a message."""
        if connection is not self._connection:
            return
        content = orjson.loads(payload)
        numbered = False
        for packet in content if isinstance(content, list) else (content,):
            numbered = self._number(packet, implied=numbered) or numbered
            self._take(packet)
        if self._received - self._acknowledged >= _ACK_PACKETS:
            self.acknowledge()

    def lost(self, connection: Connection, reason: str) -> None:
        """Only a storm ends connections."""
        if connection is not self._connection:
            return
        self._connection = None
        if self._expected == "bye":
            self._board.welcomed(self, "bye")
        else:
            self._fail(f"lost its connection: {reason}")

    # --- Judging ----------------------------------------------------------------------------------------------------

    def _number(self, packet: dict[str, Any], *, implied: bool) -> bool:
        """Check the number of a session packet; within a message, all but the first may leave theirs out.

        Returns:
            Whether it is a session packet.
        """
        if packet.get("type") not in _SESSION_PACKETS:
            return False
        number = packet.get("id", self._received + 1 if implied else None)
        if number != self._received + 1:
            self._fail(f"packet {number} came after packet {self._received}")
        self._received += 1
        return True

    def _take(self, packet: dict[str, Any]) -> None:
        kind = packet.get("type")
        if kind == "update":
            self._update(packet)
        elif kind == "reply":
            self._reply(packet)
        elif kind == "welcome":
            self._welcome(packet)
        elif kind == "ping":
            self._token = packet.get("token", self._token)
            self._acknowledged = self._received
            self._board.pinged()
            if self._connection is not None:
                self._connection.send(b'{"type":"pong","received":%d}' % self._received)
        elif kind not in {"ack", "pong", "bye"} or (kind == "bye" and self._expected != "bye"):
            self._fail(f"was sent {orjson.dumps(packet)[:200]!r}")

    def _welcome(self, packet: dict[str, Any]) -> None:
        outcome = packet["outcome"]
        if outcome != self._expected:
            self._fail(f"was {outcome} ({packet.get('reason')}), not {self._expected}")
            return
        if self._session and (packet["session"] != self._session or packet["principal"] != self.name):
            self._fail(f"came back as session {packet['session']} of {packet['principal']}")
            return
        if packet["token"] == self._token:
            self._fail("was not handed a new token")
        self._session, self._token, self.node = packet["session"], packet["token"], packet["node"]
        if outcome == "created":
            self._subscribe()
            if not self._interest.selectors and self._connection is not None:
                self._connection.send(b'{"type":"ack","received":0}')
        else:
            self._resumed(packet)
        self._board.welcomed(self, outcome)
        if not self.missing:
            self._board.current(self)

    def _resumed(self, packet: dict[str, Any]) -> None:
        if packet["selections"] != [f"+{each}" for each in self._interest.selectors]:
            self._fail(f"came back with the selections {packet['selections']}")
        if packet["outcome"] in KEPT:
            if packet["received"] != self._sent or packet["lost"] != 0:
                self._fail(f"{packet['outcome']} with received={packet['received']}, lost={packet['lost']}")
        else:
            self._received = self._sent = 0
        self._acknowledged = self._received
        # The proof that the new token has arrived (protocol 10.4), with whatever came in the same message.
        if self._connection is not None:
            self._connection.send(b'{"type":"ack","received":%d}' % self._received)

    def _subscribe(self) -> None:
        """Send the subscriptions, as many as may be open at once; all numbers are those of the first connection."""
        packets: list[dict[str, Any]] = []
        while self._sent < len(self._interest.selectors) and len(self._open_requests) < _REQUESTS:
            selector = self._interest.selectors[self._sent]
            self._sent += 1
            self._open_requests.add(self._sent)
            packets.append({"id": self._sent, "type": "subscribe", "request": self._sent, "selector": selector})
        if packets and self._connection is not None:
            if self._received > self._acknowledged:
                packets[0]["received"] = self._acknowledged = self._received
            self._connection.send(orjson.dumps(packets))

    def _reply(self, packet: dict[str, Any]) -> None:
        request = packet.get("request")
        if request not in self._open_requests or packet.get("error") is not None:
            self._fail(f"was answered {packet}")
            return
        self._open_requests.discard(request)
        self._owe()
        if not self._open_requests:
            self._subscribe()

    def _update(self, packet: dict[str, Any]) -> None:
        topic, version = packet["topic"], packet["version"]
        known = self._versions.get(topic, 0)
        if version < known or (version == known and not packet.get("snapshot")):
            self._fail(f"{topic} went back from version {known} to {version}")
            return
        self._versions[topic] = version
        try:
            sequence, sent = values.read(packet["value"])
        except values.CorruptValue as corrupt:
            self._fail(f"{topic}: {corrupt}")
            return
        self.latest = (topic, sent, time.monotonic_ns())
        goal = self._board.goals.get(topic)
        if goal is None or sequence > goal:
            self._fail(f"{topic} has number {sequence}, but {goal} is the last that was published")
            return
        self._held[topic] = sequence
        self._owe()
        if sequence == goal and topic in self.missing:
            self.missing.discard(topic)
            if not self.missing:
                self.acknowledge()
                self._board.current(self)

    def _owe(self) -> None:
        if not self.owing:
            self.owing = True
            self._board.owes(self)

    def _fail(self, what: str) -> None:
        self._board.failed(self, what)
