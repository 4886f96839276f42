"""The sessions of witnesses: some that select a topic, and one that publishes to it by a schedule.

Each comes back when it loses its connection, as a good client would, and says how often.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, Protocol

import orjson

from benchmarks.hostile.account import Account
from benchmarks.hostile.connection import Connection, Lost
from benchmarks.storm import wire
from gateway.core.wire.packets import NoticeCode

TOPIC: Final = "witness/updates"
RATE: Final = 40.0
"""Updates a second, to each subscriber: enough for a p99 of some seconds, and little beside what a node can do."""

WINDOW: Final = 200
"""Publishes without a reply; below what a node announces. Later ones wait here, and their latency grows."""

_COME_BACK: Final = 0.25
"""Seconds before a lost connection is opened again: the first bound of a node's advice."""

_ACKNOWLEDGE: Final = 0.25
"""Seconds between two acknowledgements of a subscriber (protocol 5.3.2 asks for less than 0.5)."""

_LOST_WRITES: Final = NoticeCode.GRID_LOST_WRITES.value
"""What a notice says when Redis came back with less than it had."""

_LAST: Final = 9007199254740991
"""What a client without its packets says of the oldest that it can resend (protocol 5.4.4)."""


class Others(Protocol):
    """What the sessions of all witnesses share.

    Attributes:
        account: what they saw.
        due: when each update was due, by its number.
        stopping: whether nothing more is to be published.
    """

    account: Account
    due: list[float]
    stopping: bool

    async def session(self) -> Connection:
        """Open a session.

        Raises:
            Lost: the node refused.
        """

    async def resumed(
        self, token: str, attempt: int, *, received: int, oldest: int
    ) -> tuple[Connection, dict[str, Any]]:
        """Come back to a session; returns the connection and the welcome.

        Raises:
            Lost: the node refused.
        """


class ReturningSession:
    """A session that comes back when its connection is lost."""

    def __init__(self, witnesses: Others) -> None:
        self._witnesses = witnesses
        self._connection: Connection
        self._attempt = 0
        self._token = ""

    async def begin(self) -> None:
        """Open the session and take part.

        Raises:
            Lost: the node refused.
        """
        self._connection = await self._witnesses.session()
        self._token = self._connection.token
        await self._enter()

    async def live(self) -> None:
        """Take what comes, and come back when the connection is lost; never ends by itself."""
        while True:
            try:
                while True:
                    for packet in await self._connection.packets():
                        await self._take(packet)
                    await self._after()
            except Lost as lost:
                self._witnesses.account.cuts.append((time.monotonic(), str(lost)))
                self._connection.cut()
                await self._come_back()

    async def _come_back(self) -> None:
        old = self._connection
        received, oldest = self._position()
        while True:
            await asyncio.sleep(_COME_BACK)
            self._attempt += 1
            try:
                self._connection, welcome = await self._witnesses.resumed(
                    self._token, self._attempt, received=received, oldest=oldest
                )
            except Lost as lost:
                self._witnesses.account.cuts.append((time.monotonic(), f"coming back: {lost}"))
                continue
            self._token = self._connection.token
            kept = welcome["numbering"] == "kept"
            self._connection.number = old.number if kept else 0
            self._connection.request = old.request
            # The handshake has counted what came with the welcome; here each is counted as it is taken.
            self._connection.received = received if kept else 0
            for packet in self._connection.first[1:]:
                await self._take(packet)
            await self._returned()
            return

    def _position(self) -> tuple[int, int]:
        """Tell what was received, and the oldest packet that can be sent again."""
        return self._connection.received, self._connection.number + 1

    def _numbered(self, packet: dict[str, Any]) -> None:
        """Count a session packet."""
        self._connection.received = int(packet.get("id", self._connection.received + 1))

    async def _answer(self, packet: dict[str, Any]) -> None:
        if packet.get("type") == "ping":
            self._token = packet.get("token", self._token)
            await self._connection.send(wire.frame(b'{"type":"pong","received":%d}' % self._connection.received))

    async def _enter(self) -> None:
        """Begin, after the first welcome."""

    async def _returned(self) -> None:
        """Go on, after a later welcome."""

    async def _after(self) -> None:
        """Called after the packets of a message."""

    async def _take(self, packet: dict[str, Any]) -> None:
        """Take one packet."""
        raise NotImplementedError


class Subscriber(ReturningSession):
    """Selects the topic.

    Attributes:
        seen: numbers of the updates that came.
        folded: updates that were declared as folded.
    """

    def __init__(self, witnesses: Others) -> None:
        super().__init__(witnesses)
        self._acknowledged_at = 0.0
        self._newest = -1
        self.seen: set[int] = set()
        self.folded = 0

    async def _enter(self) -> None:
        self._connection.number = self._connection.request = 1
        await self._connection.send(
            wire.frame(b'{"id":1,"type":"subscribe","request":1,"selector":"%b"}' % TOPIC.encode())
        )

    async def _take(self, packet: dict[str, Any]) -> None:
        kind = packet.get("type")
        if kind in {"reply", "update", "notice"}:
            self._numbered(packet)
        if kind == "reply" and packet.get("error"):
            raise RuntimeError(f"a witness may not select its topic: {packet['error']}")
        if kind == "update":
            self._update(packet)
        elif kind == "notice" and packet.get("code") == _LOST_WRITES:
            self._witnesses.account.loss_declared.append(time.monotonic())
        await self._answer(packet)

    def _update(self, packet: dict[str, Any]) -> None:
        account = self._witnesses.account
        self.folded += int(packet.get("folded", 0))
        if packet.get("value") is None:
            return
        number = int(packet["value"])
        if packet.get("snapshot") and number <= self._newest:
            account.disordered += number < self._newest
            return
        if number <= self._newest:
            account.disordered += 1
            return
        self._newest = number
        self.seen.add(number)
        due = self._witnesses.due[number]
        account.updates.append((due, time.monotonic() - due))

    async def _after(self) -> None:
        now = time.monotonic()
        if now >= self._acknowledged_at + _ACKNOWLEDGE:
            self._acknowledged_at = now
            await self._connection.send(wire.frame(b'{"type":"ack","received":%d}' % self._connection.received))


class Publisher(ReturningSession):
    """Publishes by the schedule.

    Attributes:
        promised: numbers of the publishes that the node has confirmed.
    """

    def __init__(self, witnesses: Others) -> None:
        super().__init__(witnesses)
        self._open: dict[int, int] = {}
        """Numbers of updates by their request."""
        self._waiting: list[int] = []
        self._here = False
        self._news = asyncio.Event()
        self.promised: set[int] = set()

    @property
    def idle(self) -> bool:
        """Whether everything that was due has been answered."""
        return not self._open and not self._waiting

    def open_numbers(self) -> list[int]:
        """Tell which updates have no answer."""
        return [*self._open.values(), *self._waiting]

    async def follow_schedule(self) -> None:
        """Note what is due until the witnesses stop; a node that takes nothing does not stop the schedule."""
        began = time.monotonic()
        due = self._witnesses.due
        while not self._witnesses.stopping:
            moment = began + len(due) / RATE
            await asyncio.sleep(max(0.0, moment - time.monotonic()))
            self._witnesses.account.late.append((moment, time.monotonic() - moment))
            self._waiting.append(len(due))
            due.append(moment)
            self._news.set()

    async def send_on(self) -> None:
        """Publish what waits whenever there is news: something is due, or the window has room; never ends by itself."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self._publish()

    async def _enter(self) -> None:
        self._here = True

    async def _take(self, packet: dict[str, Any]) -> None:
        kind = packet.get("type")
        if kind in {"reply", "update", "notice"}:
            self._numbered(packet)
        if kind == "reply":
            number = self._open.pop(int(packet["request"]), None)
            if number is not None and packet.get("error"):
                due = self._witnesses.due[number]
                self._witnesses.account.refused.append((due, time.monotonic() - due, str(packet["error"]["code"])))
            elif number is not None:
                self.promised.add(number)
        await self._answer(packet)

    async def _after(self) -> None:
        self._news.set()

    async def _publish(self) -> None:
        """Send what the window has room for; a lost connection is for ``live`` to notice."""
        connection, packets = self._connection, []
        while self._here and self._waiting and len(self._open) < WINDOW:
            number = self._waiting.pop(0)
            connection.request += 1
            self._open[connection.request] = number
            packets.append(self._packet(connection.request, number))
        await self._send(packets)

    def _packet(self, request: int, number: int, **more: bool) -> dict[str, Any]:
        self._connection.number += 1
        return {
            "id": self._connection.number,
            "received": self._connection.received,
            "type": "publish",
            "request": request,
            **more,
            "topic": TOPIC,
            "value": number,
        }

    async def _send(self, packets: list[dict[str, Any]]) -> None:
        if packets:
            try:
                await self._connection.send(wire.frame(orjson.dumps(packets)))
            except Lost:
                self._connection.cut()

    def _position(self) -> tuple[int, int]:
        # It keeps no packets, only requests: the node restores it, and all that is unanswered is asked again.
        self._here = False
        return 0, _LAST

    async def _returned(self) -> None:
        await self._send([self._packet(request, number, resubmitted=True) for request, number in self._open.items()])
        self._here = True
        self._news.set()
