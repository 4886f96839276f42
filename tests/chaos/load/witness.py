"""A client written from protocol.md alone. It checks on the wire what libraries look after: numbers, versions, replies.

It knows nothing of the gateway's code. It stays away for part of its window, stops reading, stops acknowledging, loses
its transport, says bye; and each time it knows what must come of that.

```text
Witness ──▶ Wire        what protocol.md asks of a client, without network and time
        ──▶ Connection  the WebSocket
        ──▶ Habits      what it does besides
        ──▶ account     everything it was told
```
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

import aiohttp

from tests.chaos.account.folds import Welcome
from tests.chaos.account.recoveries import KEPT, Recovery
from tests.chaos.account.sessions import Identity
from tests.chaos.account.updates import SessionUpdates
from tests.chaos.deadlines import Stuck, ended
from tests.chaos.load.connection import Connection, Over
from tests.chaos.load.crowd import ROOTS, Crowd
from tests.chaos.load.habits import ABSENT, BACKLOG, LEAVER, Habits
from tests.chaos.load.wire import Packet, Wire, supports
from tests.support.numbering import SESSION_PACKETS

ACKNOWLEDGE: Final = 0.4
"""Seconds between two acknowledgements (5.3.2 asks for one within 1 s)."""
ACKNOWLEDGE_PACKETS: Final = 64
"""Packets after which one is sent at once."""
LATER: Final = 2.0
"""Seconds to wait after a close that asks for it and names no time."""
RETRYABLE: Final = frozenset({"grid_unavailable", "draining", "rate_limited", "try_later"})
"""Errors of replies after which a request is asked again as a new one (7)."""
GONE: Final = frozenset({"session_closed", "session_unknown", "session_expired", "token_invalid", "token_superseded"})
"""Errors by which a session that has ended is refused."""


class Witness:
    """One raw client.

    Args:
        crowd: what it shares with the others.
        name: for violations, also its principal.
        habits: what it does besides; see ``habits``.
        replays: whether it tells its node how far it has come.

    Attributes:
        wire: the session it has; None between two.
        connected: whether that has a connection.
    """

    def __init__(self, crowd: Crowd, name: str, *, habits: frozenset[str], replays: bool = False) -> None:
        self.crowd = crowd
        self.name = name
        self.wire: Wire | None = None
        self.connected = False
        self._random: Random = crowd.random(name)
        self._habits = Habits(habits, self._random)
        self._connection = Connection()
        self._updates: SessionUpdates | None = None
        self._retry: list[tuple[float, Packet]] = []
        self._heard = 0.0
        self._leaving = False
        self._last = False
        self._said_bye = False
        self._last_error: Packet | None = None
        self._away = 0.0
        self._replays = replays
        self._served_by = ""

    # --- For the run ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Have sessions until it is closed."""
        async with aiohttp.ClientSession() as http:
            while not self._last or self.wire is not None:
                delay = self._random.uniform(0.0, 0.3)
                try:
                    await self._converse(http)
                except Over as over:
                    delay = await self._ended(http, over)
                finally:
                    self.connected = False
                    self._connection.drop()
                await asyncio.sleep(delay)

    def close(self) -> None:
        """Have bye said to its session; ``run`` does so, and then returns."""
        self._leaving = self._last = True

    # --- A connection ---------------------------------------------------------------------------------------------

    async def _converse(self, http: aiohttp.ClientSession) -> None:
        """Connect, and go on until the connection is over.

        Raises:
            Over: always, in the end.
        """
        hint = f"?node={self.wire.node}" if self.wire is not None and self.wire.node else ""
        try:
            await self._connection.open(http, self.crowd.url + hint)
        except Over:
            if self.wire is not None:
                self.wire.node = ""
            raise
        await self._connection.send(self._hello() if self.wire is None else self.wire.resume())
        welcome, *early = await self._connection.welcome()
        if welcome["type"] != "welcome":
            self._violated("P2", f"the first packet is no welcome: {welcome}")
        self._welcomed(welcome)
        self.connected = True
        self._heard = self.crowd.now()
        # The proof that it holds the token (4.3), and then what the other side misses (5.4.3).
        await self._connection.send({"type": "ack", "received": self._session.received})
        for packet in self._session.unacknowledged():
            await self._connection.send(packet)
        for packet in early:
            await self._take(packet)
        work = asyncio.create_task(self._work(), name=f"chaos-{self.name}-work")
        try:
            await self._read_on()
        finally:
            (end,) = await ended(work)
            if isinstance(end, Stuck) or (isinstance(end, Exception) and not isinstance(end, ConnectionError | Over)):
                self.crowd.violated("bug", self.name, f"the witness failed: {end!r}")

    def _hello(self) -> Packet:
        properties = {"of": self.name}
        window = self.crowd.window
        return {
            "type": "hello",
            "principal": self.name,
            "properties": properties,
            "window": window,
            "supports": supports(replays=self._replays),
        }

    def _welcomed(self, welcome: Packet) -> None:
        now = self.crowd.now()
        account = self.crowd.account
        self._habits.connected(now)
        if welcome["outcome"] == "created":
            self.wire = Wire(welcome, self.name, {"of": self.name}, self._violated, replays=self._replays)
            self._updates = account.opened(now, self.wire.id, self.name, window=self.wire.window)
            self._served_by = welcome["node"]
            self._habits.opened(now)
            self._leaving = self._last
            self._retry = []
            for root in ROOTS if BACKLOG in self._habits.names else self._random.sample(ROOTS, 2):
                self._ask({"type": "subscribe", "selector": f"{root}/**"})
            return
        wire = self._session
        kept = welcome["outcome"] in KEPT
        through = wire.received + welcome["resent"] if kept else 0
        named, replayed = wire.is_replayed(welcome)
        former, self._served_by = self._served_by, welcome["node"]
        only = wire.resumed(welcome)
        told = Welcome(now, kept=kept, conflated=welcome["conflated"], through=through, only=only)
        recovery = Recovery(
            at=now,
            heard=self._heard,
            away=now - self._heard,
            session=wire.id,
            who=self.name,
            outcome=welcome["outcome"],
            reason=welcome.get("reason") or "",
            former=former,
            node=welcome["node"],
            named=named,
            replayed=replayed,
        )
        account.recovered(recovery, told)
        self._compare(now, welcome)

    def _compare(self, now: float, welcome: Packet) -> None:
        """Compare the session with what it was promised to be (P1)."""
        wire = self._session
        allowed = wire.may_be()
        told = {name: value for name, value in welcome["properties"].items() if not name.startswith("$")}
        is_now = Identity(welcome["session"], welcome["principal"], told, tuple(welcome["selections"]))
        # What the grid has lost, it has declared, and the client may ask for it again (5.5).
        # The welcome may come before the first update of the new generation, by which everybody else knows of it.
        lost_writes = self.crowd.replaced() or len({number for _, number in self.crowd.account.generations}) > 1
        if is_now in allowed or not (lost_writes and welcome["outcome"] == "failed_over"):
            self.crowd.account.sessions.compare(now, self.name, allowed, is_now)
            return
        for selection in wire.selections:
            if selection not in is_now.selections:  # type: ignore[operator]
                self._ask({"type": "subscribe", "selector": selection[1:]})
        self._ask({"type": "properties", "set": dict(wire.properties)})

    # --- Reading --------------------------------------------------------------------------------------------------

    async def _read_on(self) -> None:
        while True:
            deaf = self._habits.deaf_until - self.crowd.now()
            if deaf > 0:
                await asyncio.sleep(deaf)
            packets = await self._connection.receive(self._session.silence)
            first = next((packet for packet in packets if packet["type"] in SESSION_PACKETS), None)
            if first is not None and "id" not in first:
                self._violated("P2", f"the first session packet of a message has no number: {str(first)[:200]}")
            for packet in packets:
                await self._take(packet)
            self._heard = self.crowd.now()

    async def _take(self, packet: Packet) -> None:
        kind = packet["type"]
        wire = self._session
        if kind in SESSION_PACKETS:
            wire.take_number(packet)
            await self._take_session_packet(packet)
        elif kind == "ping":
            wire.token = packet.get("token") or wire.token
            if not self._is_mute():
                wire.acknowledged = wire.received
            await self._connection.send({"type": "pong", "received": wire.acknowledged})
        elif kind == "ack":
            wire.take_acknowledgement(packet["received"])
        elif kind == "pong":
            wire.take_acknowledgement(packet.get("received") or 0)
        elif kind == "go-away":
            wire.node = packet.get("node") or ""
            await self._connection.send(wire.acknowledgement())
            await self._connection.close(4000)
            raise Over(4000)
        elif kind == "error":
            self._last_error = packet
        elif kind != "bye":
            self._violated("P2", f"a packet of an unknown type came: {packet}")

    async def _take_session_packet(self, packet: Packet) -> None:
        now = self.crowd.now()
        wire = self._session
        match packet["type"]:
            case "update":
                self._take_update(now, packet)
            case "notice":
                if wire.places is not None:
                    wire.places.notice(packet)
                self.crowd.account.notice(now, wire.id, packet["code"])
            case "reply":
                self._take_reply(now, packet)
        unacknowledged = wire.received - wire.acknowledged
        if unacknowledged >= wire.bound:
            self._habits.is_full(now)
        if unacknowledged >= ACKNOWLEDGE_PACKETS and not self._is_mute():
            await self._connection.send(wire.acknowledgement())

    def _take_update(self, now: float, packet: Packet) -> None:
        assert self._updates is not None, "there is a session"
        if self._session.places is not None:
            self._session.places.update(packet)
        topic, value = packet["topic"], packet["value"]
        if type(value) is not int:
            self._violated("P2", f"{topic} has the value {value!r}, which nobody published")
            return
        if not self._session.is_asked_for(topic):
            self._violated("P2", f"{topic} was not selected, but {self._session.selections}")
        folded = packet.get("folded", 0)
        if type(folded) is not int or folded < ("folded" in packet):
            self._violated("P2", f"{topic} says folded {folded!r}, which is no count from 1")
            folded = 0
        self._updates.update(
            now,
            topic,
            value,
            packet["version"],
            snapshot=bool(packet.get("snapshot")),
            event=packet["event"],
            folded=folded,
            number=self._session.received,
        )

    def _take_reply(self, now: float, packet: Packet) -> None:
        wire = self._session
        body = wire.take_reply(packet)
        if body is None:
            return
        error = packet.get("error")
        if error is not None:
            if error["code"] in RETRYABLE:
                self._retry.append((now + float(error.get("retry_after") or 0.5), body))
            else:
                self._violated("P4", f"{body} was refused: {error}")
            return
        account = self.crowd.account
        match body["type"]:
            case "subscribe":
                if f"+{body['selector']}" not in wire.selections:
                    wire.selections.append(f"+{body['selector']}")
                    account.selected(now, wire.id, body["selector"])
            case "publish":
                account.publishes.acknowledge(
                    now, body["topic"], body["value"], packet.get("version") or 0, packet.get("event") or ""
                )

    # --- Writing --------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Publish, acknowledge, and misbehave as this one does."""
        wire = self._session
        publish_at = self.crowd.now() + self._random.uniform(0.2, 1.0)
        while True:
            now = self.crowd.now()
            if self._leaving and not wire.requests and not self._said_bye:
                self._said_bye = True
                await self._connection.send({"type": "bye"})
            while self._retry and self._retry[0][0] <= now:
                # In their order, as it may matter.
                await self._connection.send(wire.request(self._retry.pop(0)[1]))
            if now >= publish_at and self.crowd.publishing.is_set() and not self._busy():
                publish_at = now + self._random.uniform(0.2, 0.8)
                await self._connection.send(wire.request(self._something()))
            if wire.received != wire.acknowledged and not self._is_mute():
                await self._connection.send(wire.acknowledgement())
            habit = "" if self.crowd.ending.is_set() else self._habits.due(now, may_leave=not self._busy())
            if habit == LEAVER:
                self._leaving = True
            elif habit == ABSENT:
                # What the transport has, it loses.
                self._away = self._habits.away(wire.window)
                self._connection.cut()
            await asyncio.sleep(ACKNOWLEDGE / 2)

    def _busy(self) -> bool:
        return bool(self._session.requests or self._retry or self._leaving)

    def _is_mute(self) -> bool:
        return self._habits.is_mute(self.crowd.now()) and not self.crowd.ending.is_set()

    def _something(self) -> Packet:
        wire = self._session
        if self._random.random() < 0.1:
            return {"type": "properties", "set": {"count": str(wire.next_request)}}
        number = int(self.name.rpartition("-")[2])
        topic = f"{ROOTS[number % len(ROOTS)]}/{self.name}/{wire.id[:8]}"
        value = self.crowd.account.publishes.ask(self.crowd.now(), topic, wire.id)
        return {"type": "publish", "topic": topic, "value": value}

    def _ask(self, body: Packet) -> None:
        """Have a request sent as soon as there is a connection; numbers are given then."""
        self._retry.append((0.0, body))

    # --- Ends -----------------------------------------------------------------------------------------------------

    async def _ended(self, http: aiohttp.ClientSession, over: Over) -> float:
        """A connection is over; returns after how many seconds to connect again."""
        wire = self.wire
        away, self._away = self._away, 0.0
        self._said_bye = False
        error, self._last_error = over.error or self._last_error, None
        code = over.code
        is_for_later = code is not None and 4100 <= code < 4200
        if wire is None:
            if code is not None and code >= 4200:
                self.crowd.violated("P7", self.name, f"a hello was refused: {code} {error}")
            return LATER if is_for_later else self._random.uniform(0.05, 0.5)
        now = self.crowd.now()
        if code == 1000 and self._leaving:
            self.crowd.account.sessions.left(now, wire.id, confirmed=True)
            await self._look_after(http, wire)
            self.wire = None
        elif code is not None and (4200 <= code < 4300 or code in {1000, 1002, 1003, 1007, 1008, 1009}):
            self._session_over(now, wire, code, error)
            self.wire = None
        elif is_for_later:
            return float((error or {}).get("retry_after") or LATER)
        elif away:
            return away
        return self._random.uniform(0.0, 0.5)

    def _session_over(self, now: float, wire: Wire, code: int, error: Packet | None) -> None:
        """The session has ended by something else than a bye that was answered by 1000."""
        sessions = self.crowd.account.sessions
        name = (error or {}).get("code", "")
        if self._leaving and code == 4202 and name in GONE:
            # The bye had been executed, and its answer was lost.
            sessions.left(now, wire.id, confirmed=False)
            return
        if self._leaving and code != 4202:
            sessions.wrong_close(now, wire.id, code)
            sessions.left(now, wire.id, confirmed=False)
            return
        expired = name == "session_expired" or code == 4204
        excused = self.crowd.excused(sessions.lives[wire.id].opened)
        sessions.died(now, wire.id, f"close {code}, {error}", heard=self._heard, expired=expired, excused=excused)

    async def _look_after(self, http: aiohttp.ClientSession, wire: Wire) -> None:
        """Try to resume a session whose end was confirmed; it must be refused (P7)."""
        for _ in range(3):
            await asyncio.sleep(self._random.uniform(0.0, 1.5))
            try:
                await self._connection.open(http, self.crowd.url)
                await self._connection.send(wire.resume())
                await self._connection.welcome()
            except Over as over:
                if over.error is not None and over.error["code"] in GONE:
                    return
                continue  # it cannot be told now
            finally:
                self._connection.drop()
            self.crowd.account.sessions.resumed_after_end(self.crowd.now(), wire.id)
            return

    @property
    def _session(self) -> Wire:
        assert self.wire is not None, "there is a session"
        return self.wire

    def _violated(self, promise: str, what: str) -> None:
        self.crowd.violated(promise, self.name, what)
