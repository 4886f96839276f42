"""A client written from protocol.md alone. It checks on the wire what libraries look after: numbers, versions, replies.

It knows nothing of the gateway's code. It stays away for part of its window, stops reading, stops acknowledging, loses
its transport, says bye; and each time it knows what must come of that.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import aiohttp
import orjson

from tests.chaos.account.folds import Welcome
from tests.chaos.account.sessions import Identity
from tests.chaos.account.updates import SessionUpdates
from tests.chaos.load.crowd import ROOTS, Crowd
from tests.support.numbering import SESSION_PACKETS
from tests.support.times import time_limit

SUBPROTOCOL: Final = "gateway.v1.json"
CONNECT: Final = 5.0
"""Seconds for one attempt to connect, and for the welcome."""
ACKNOWLEDGE: Final = 0.4
"""Seconds between two acknowledgements (5.3.2 asks for one within 1 s)."""
ACKNOWLEDGE_PACKETS: Final = 64
"""Packets after which one is sent at once."""
LATER: Final = 2.0
"""Seconds to wait after a close that asks for it and names no time."""
GOODBYE: Final = 10.0
"""Seconds to wait for the close after a bye."""
RETRYABLE: Final = frozenset({"grid_unavailable", "draining", "rate_limited", "try_later"})
"""Errors of replies after which a request is asked again as a new one (7)."""
GONE: Final = frozenset({"session_closed", "session_unknown", "session_expired", "token_invalid", "token_superseded"})
"""Errors by which a session that has ended is refused."""

FILLING: Final = 15.0
"""Seconds in which the buffer of a node is to fill up: 256 packets, of some eighty a second."""
OVERFULL: Final = (1.0, 3.0)
"""Seconds for which it is left full, from and to."""
SOON: Final = 1.0
"""Seconds after a connection was made in which one begins whose habit takes its time."""

Packet = dict[str, Any]


class Over(Exception):
    """The connection is over.

    Attributes:
        code: of the close; None for a lost transport.
        error: the error packet before it.
    """

    def __init__(self, code: int | None, error: Packet | None = None) -> None:
        super().__init__(f"close {code}, {error}")
        self.code = code
        self.error = error


@dataclass
class Wire:
    """The state of one session as protocol.md asks of a client.

    Attributes:
        id: of the session.
        token: to resume with.
        node: the route hint.
        attempt: of the last resume.
        received: id of the last packet received in order.
        acknowledged: what was last told of that.
        sent: packets that are not acknowledged, with their ids.
        next_id: of the next packet.
        next_request: its number.
        requests: without a reply, by number.
        properties: user-defined ones that were promised.
        selections: that were promised.
        window: granted, in seconds.
        silence: seconds after which the node is given up (``ping_timeout``).
        bound: packets that may be unacknowledged.
        lost: when a connection was last lost; None while there is one.
        answered: the attempt of the last resume that was answered by a welcome.
    """

    id: str
    token: str
    node: str
    window: float
    attempt: int = 0
    received: int = 0
    acknowledged: int = 0
    sent: list[tuple[int, Packet]] = field(default_factory=list)
    next_id: int = 1
    next_request: int = 1
    requests: OrderedDict[int, Packet] = field(default_factory=OrderedDict)
    properties: dict[str, str] = field(default_factory=dict)
    selections: list[str] = field(default_factory=list)
    silence: float = 45.0
    bound: int = 1024
    lost: float | None = None
    answered: int = 0


class Witness:
    """One raw client.

    Args:
        crowd: what it shares with the others.
        name: for violations, also its principal.

    Attributes:
        habits: what it does besides: ``absent``, ``deaf`` (stops reading), ``mute`` (stops acknowledging), ``backlog``
            (stops acknowledging until its node may number nothing more, and for longer), ``leaver``.
    """

    def __init__(self, crowd: Crowd, name: str, *, habits: frozenset[str]) -> None:
        self.crowd = crowd
        self.name = name
        self.habits = habits
        self.wire: Wire | None = None
        self.connected = False
        self._updates: SessionUpdates | None = None
        self._random: Random = crowd.random(name)
        self._ws: aiohttp.ClientWebSocketResponse | None = None
        self._leave_at = 0.0
        self._leaving = False
        self._mute_until = 0.0
        self._fill_until = 0.0
        self._deaf_until = 0.0
        self._retry: list[tuple[float, Packet]] = []
        self._heard = 0.0
        self._last = False
        self._said_bye = False
        self._last_error: Packet | None = None
        self._away = 0.0

    # --- For the run ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Have sessions until it is closed."""
        async with aiohttp.ClientSession() as http:
            while not self._last or self.wire is not None:
                delay = self._random.uniform(0.0, 0.3)
                try:
                    await self._connection(http)
                except Over as over:
                    delay = await self._ended(http, over)
                finally:
                    self.connected = False
                    await self._drop()
                await asyncio.sleep(delay)

    def close(self) -> None:
        """Have bye said to its session; ``run`` does so, and then returns."""
        self._leaving = self._last = True

    # --- A connection ---------------------------------------------------------------------------------------------

    async def _connection(self, http: aiohttp.ClientSession) -> None:
        """Connect, and go on until the connection is over.

        Raises:
            Over: always, in the end.
        """
        hint = f"?node={self.wire.node}" if self.wire is not None and self.wire.node else ""
        try:
            async with time_limit(CONNECT):
                self._ws = await http.ws_connect(
                    self.crowd.url + hint, protocols=(SUBPROTOCOL,), max_msg_size=0, autoping=True
                )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if self.wire is not None:
                self.wire.node = ""
            raise Over(None) from error
        await self._send(self._first_packet())
        welcome, early = await self._welcome()
        resend = self._welcomed(welcome)
        self.connected = True
        self._heard = self.crowd.now()
        # The proof that it holds the token (4.3), and then what the other side misses (5.4.3).
        await self._send({"type": "ack", "received": self._session.received})
        for number, packet in resend:
            await self._send({"id": number, **packet})
        for packet in early:
            await self._take(packet)
        work = asyncio.create_task(self._work(), name=f"chaos-{self.name}-work")
        try:
            await self._read_on()
        finally:
            work.cancel()
            failures = await asyncio.gather(work, return_exceptions=True)
            if isinstance(failures[0], Exception) and not isinstance(failures[0], ConnectionError | Over):
                self.crowd.violated("bug", self.name, f"the witness failed: {failures[0]!r}")

    def _first_packet(self) -> Packet:
        wire = self.wire
        if wire is None:
            hello = {"type": "hello", "principal": self.name, "properties": {"of": self.name}}
            return {**hello, "window": self.crowd.window}
        wire.attempt += 1
        oldest = wire.sent[0][0] if wire.sent else wire.next_id
        return {
            "type": "resume",
            "token": wire.token,
            "attempt": wire.attempt,
            "received": wire.received,
            "oldest": oldest,
        }

    async def _welcome(self) -> tuple[Packet, list[Packet]]:
        packets = await self._receive(CONNECT)
        if packets[0]["type"] == "error":
            code = None
            try:
                await self._receive(CONNECT)
            except Over as over:
                code = over.code
            raise Over(code, packets[0])
        if packets[0]["type"] != "welcome":
            self._violated("P2", f"the first packet is no welcome: {packets[0]}")
        return packets[0], packets[1:]

    def _welcomed(self, welcome: Packet) -> list[tuple[int, Packet]]:
        """Take a welcome in; returns what is to be sent again."""
        now = self.crowd.now()
        account = self.crowd.account
        if welcome["outcome"] == "created":
            self.wire = Wire(welcome["session"], welcome["token"], welcome["node"], welcome["window"])
            self.wire.properties = {"of": self.name}
            self._updates = account.opened(now, self.wire.id, self.name, window=self.wire.window)
            self._leave_at = now + self._random.uniform(6.0, 20.0)
            self._leaving = False
            self._retry = []
            roots = ROOTS if "backlog" in self.habits else self._random.sample(ROOTS, 2)
            for root in roots:
                self._ask({"type": "subscribe", "selector": f"{root}/**"})
            self._limits(welcome)
            return []
        wire = self._session
        kept = welcome["outcome"] == "reattached"
        folds = Welcome(
            now,
            kept=kept,
            conflated=welcome["conflated"],
            through=wire.received + welcome["resent"] if kept else 0,
            only=wire.attempt == wire.answered + 1,
        )
        account.recovered(wire.id, welcome["outcome"], folds)
        wire.answered = wire.attempt
        wire.token, wire.node, wire.lost = welcome["token"], welcome["node"], None
        self._limits(welcome)
        self._compare(now, welcome)
        if welcome["outcome"] == "reattached":
            return self._reattached(welcome["received"])
        if welcome["received"] != 0:
            self._violated("P2", f"failed_over with received {welcome['received']}")
        wire.received = wire.acknowledged = 0
        wire.sent.clear()
        wire.next_id = 1
        for number, body in wire.requests.items():
            self._number({**body, "request": number, "resubmitted": True})
        return list(wire.sent)

    def _limits(self, welcome: Packet) -> None:
        self._session.silence = welcome["ping_timeout"]
        self._session.bound = welcome["limits"]["resend_packets"]

    def _reattached(self, received: int) -> list[tuple[int, Packet]]:
        wire = self._session
        oldest = wire.sent[0][0] if wire.sent else wire.next_id
        if not oldest - 1 <= received < wire.next_id:
            self._violated("P2", f"reattached with received {received}, of {oldest} to {wire.next_id - 1}")
        wire.sent = [(number, packet) for number, packet in wire.sent if number > received]
        wire.acknowledged = wire.received
        return list(wire.sent)

    def _compare(self, now: float, welcome: Packet) -> None:
        """Compare the session with what it was promised to be (P1)."""
        wire = self._session
        properties, selections = dict(wire.properties), list(wire.selections)
        allowed = [Identity(wire.id, self.name, dict(properties), tuple(selections))]
        for body in wire.requests.values():
            # Without an answer, each may have been executed, in their order.
            if body["type"] == "subscribe":
                selections.append(f"+{body['selector']}")
            elif body["type"] == "properties":
                properties |= body["set"]
            allowed.append(Identity(wire.id, self.name, dict(properties), tuple(selections)))
        told = {name: value for name, value in welcome["properties"].items() if not name.startswith("$")}
        is_now = Identity(welcome["session"], welcome["principal"], told, tuple(welcome["selections"]))
        # What the grid has lost, it has declared, and the client may ask for it again (5.5).
        lost_writes = len({generation for _, generation in self.crowd.account.generations}) > 1
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
            if self._deaf_until > self.crowd.now():
                await asyncio.sleep(self._deaf_until - self.crowd.now())
            packets = await self._receive(self._session.silence)
            first = next((packet for packet in packets if packet["type"] in SESSION_PACKETS), None)
            if first is not None and "id" not in first:
                self._violated("P2", f"the first session packet of a message has no number: {str(first)[:200]}")
            for packet in packets:
                await self._take(packet)
            self._heard = self.crowd.now()

    async def _receive(self, within: float) -> list[Packet]:
        ws = self._ws
        assert ws is not None, "connected first"
        try:
            message = await ws.receive(timeout=within)
        except TimeoutError:
            await self._abort(4002)
            raise Over(None) from None
        except ConnectionError:
            raise Over(None) from None
        if message.type is aiohttp.WSMsgType.CLOSE:
            raise Over(message.data)
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise Over(None)
        content = orjson.loads(message.data)
        return content if isinstance(content, list) else [content]

    async def _take(self, packet: Packet) -> None:
        kind = packet["type"]
        if kind in SESSION_PACKETS:
            self._number_of(packet)
            await self._take_session_packet(packet)
        elif kind == "ping":
            self._session.token = packet.get("token") or self._session.token
            if not self._is_mute(self.crowd.now()):
                self._session.acknowledged = self._session.received
            await self._send({"type": "pong", "received": self._session.acknowledged})
        elif kind == "ack":
            self._acknowledged(packet["received"])
        elif kind == "pong":
            self._acknowledged(packet.get("received") or 0)
        elif kind == "go-away":
            self._session.node = packet.get("node") or ""
            await self._send({"type": "ack", "received": self._session.received})
            await self._abort(4000)
            raise Over(4000)
        elif kind == "error":
            self._last_error = packet
        elif kind != "bye":
            self._violated("P2", f"a packet of an unknown type came: {packet}")

    def _number_of(self, packet: Packet) -> None:
        """See that numbers follow (5.1, 5.7); without one, a packet has the number above that before it."""
        wire = self._session
        number = packet.get("id", wire.received + 1)
        if number != wire.received + 1:
            self._violated("P2", f"packet {number} came after packet {wire.received}: {str(packet)[:200]}")
        wire.received = number
        if packet.get("received") is not None:
            self._acknowledged(packet["received"])

    def _acknowledged(self, received: int) -> None:
        wire = self._session
        if received >= wire.next_id:
            self._violated("P2", f"packet {received} is acknowledged, {wire.next_id - 1} was the last that was sent")
        wire.sent = [(number, packet) for number, packet in wire.sent if number > received]

    async def _take_session_packet(self, packet: Packet) -> None:
        now = self.crowd.now()
        wire = self._session
        match packet["type"]:
            case "update":
                self._take_update(now, packet)
            case "notice":
                self.crowd.account.notice(now, wire.id, packet["code"])
            case "reply":
                self._take_reply(now, packet)
        unacknowledged = wire.received - wire.acknowledged
        if self._fill_until > now and unacknowledged >= wire.bound:
            # From here on its node folds what it owes (5.3.4, 5.7.3).
            self._fill_until = 0.0
            self._mute_until = now + self._random.uniform(*OVERFULL)
        if not self._is_mute(now) and unacknowledged >= ACKNOWLEDGE_PACKETS:
            await self._acknowledge()

    def _take_update(self, now: float, packet: Packet) -> None:
        assert self._updates is not None, "there is a session"
        topic, value = packet["topic"], packet["value"]
        if type(value) is not int:
            self._violated("P2", f"{topic} has the value {value!r}, which nobody published")
            return
        if not any(topic.startswith(f"{selection[1:-3]}/") for selection in self._asked_for()):
            self._violated("P2", f"{topic} was not selected, but {self._session.selections}")
        snapshot = bool(packet.get("snapshot"))
        folded = packet.get("folded", 0)
        if type(folded) is not int or folded < ("folded" in packet):
            self._violated("P2", f"{topic} says folded {folded!r}, which is no count from 1")
            folded = 0
        self._updates.update(
            now,
            topic,
            value,
            packet["version"],
            snapshot=snapshot,
            event=packet["event"],
            folded=folded,
            number=self._session.received,
        )

    def _asked_for(self) -> list[str]:
        asked = [f"+{body['selector']}" for body in self._session.requests.values() if body["type"] == "subscribe"]
        return [*self._session.selections, *asked]

    def _take_reply(self, now: float, packet: Packet) -> None:
        wire = self._session
        body = wire.requests.pop(packet["request"], None)
        if body is None:
            self._violated("P5", f"a reply came to request {packet['request']}, which has none open: {packet}")
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
            case "properties":
                wire.properties |= body["set"]
            case "publish":
                account.publishes.acknowledge(
                    now, body["topic"], body["value"], packet.get("version") or 0, packet.get("event") or ""
                )

    # --- Writing --------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Publish, acknowledge, and misbehave as this one does."""
        loop = asyncio.get_running_loop()
        publish_at = loop.time() + self._random.uniform(0.2, 1.0)
        habit_at = loop.time() + (SOON if "backlog" in self.habits else self._random.uniform(2.0, 9.0))
        while True:
            now = self.crowd.now()
            await self._flush()
            while self._retry and self._retry[0][0] <= now:
                # In their order, as it may matter.
                await self._send_request(self._retry.pop(0)[1])
            if loop.time() >= publish_at and self.crowd.publishing.is_set() and not self._busy():
                publish_at = loop.time() + self._random.uniform(0.2, 0.8)
                await self._send_request(self._something())
            if not self._is_mute(now) and self._session.received != self._session.acknowledged:
                await self._acknowledge()
            if loop.time() >= habit_at and not self.crowd.ending.is_set():
                habit_at = loop.time() + self._random.uniform(4.0, 12.0)
                await self._misbehave(now)
            await asyncio.sleep(ACKNOWLEDGE / 2)

    def _busy(self) -> bool:
        return bool(self._session.requests or self._retry or self._leaving)

    def _something(self) -> Packet:
        wire = self._session
        if self._random.random() < 0.1:
            return {"type": "properties", "set": {"count": str(wire.next_request)}}
        number = int(self.name.rpartition("-")[2])
        topic = f"{ROOTS[number % len(ROOTS)]}/{self.name}/{wire.id[:8]}"
        return {
            "type": "publish",
            "topic": topic,
            "value": self.crowd.account.publishes.ask(self.crowd.now(), topic, wire.id),
        }

    async def _misbehave(self, now: float) -> None:
        if "leaver" in self.habits and now >= self._leave_at and not self._busy():
            self._leaving = True
            return
        habits = sorted(self.habits - {"leaver"})
        match self._random.choice(habits) if habits else "none":
            case "absent":
                # What the transport has, it loses; the rest of the window belongs to the node.
                self._away = self._random.uniform(0.1, 0.5) * self._session.window
                await self._abort(None)
            case "deaf":
                self._deaf_until = now + self._random.uniform(1.0, 8.0)
            case "mute":
                self._mute_until = now + self._random.uniform(1.0, 4.0)
            case "backlog":
                self._fill_until = now + FILLING

    def _is_mute(self, now: float) -> bool:
        """Tell whether it acknowledges nothing now."""
        return max(self._mute_until, self._fill_until) > now and not self.crowd.ending.is_set()

    def _ask(self, body: Packet) -> None:
        """Have a request sent as soon as there is a connection; numbers are given then."""
        self._retry.append((0.0, body))

    async def _send_request(self, body: Packet) -> None:
        wire = self._session
        number = wire.next_request
        wire.next_request += 1
        wire.requests[number] = body
        entry = self._number({**body, "request": number})
        await self._send({"id": entry[0], **entry[1]})

    def _number(self, packet: Packet) -> tuple[int, Packet]:
        wire = self._session
        entry = (wire.next_id, packet)
        wire.next_id += 1
        wire.sent.append(entry)
        return entry

    async def _flush(self) -> None:
        if self._leaving and not self._session.requests and not self._said_bye:
            self._said_bye = True
            await self._send({"type": "bye"})

    async def _acknowledge(self) -> None:
        wire = self._session
        wire.acknowledged = wire.received
        await self._send({"type": "ack", "received": wire.received})

    async def _send(self, packet: Packet) -> None:
        ws = self._ws
        if ws is None or ws.closed:
            return
        # The reader learns of it.
        with suppress(ConnectionError, RuntimeError):
            await ws.send_str(orjson.dumps(packet).decode())

    # --- Ends -----------------------------------------------------------------------------------------------------

    async def _ended(self, http: aiohttp.ClientSession, over: Over) -> float:
        """A connection is over; returns after how many seconds to connect again."""
        wire = self.wire
        away, self._away = self._away, 0.0
        self._said_bye = False
        error, self._last_error = over.error or self._last_error, None
        if wire is None:
            if over.code is not None and over.code >= 4200:
                self.crowd.violated("P7", self.name, f"a hello was refused: {over.code} {error}")
            return LATER if over.code is not None and 4100 <= over.code < 4200 else self._random.uniform(0.05, 0.5)
        now = self.crowd.now()
        if wire.lost is None:
            wire.lost = now
        code = over.code
        if code == 1000 and self._leaving:
            self.crowd.account.sessions.left(now, wire.id, confirmed=True)
            await self._look_after(http, wire)
            self.wire = None
        elif code is not None and (4200 <= code < 4300 or code in {1000, 1002, 1003, 1007, 1008, 1009}):
            self._over(now, wire, code, error)
            self.wire = None
        elif code is not None and 4100 <= code < 4200:
            return float((error or {}).get("retry_after") or LATER)
        elif away:
            return away
        return self._random.uniform(0.0, 0.5)

    def _over(self, now: float, wire: Wire, code: int, error: Packet | None) -> None:
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
                async with time_limit(CONNECT):
                    self._ws = await http.ws_connect(self.crowd.url, protocols=(SUBPROTOCOL,), max_msg_size=0)
                await self._send(self._first_packet())
                await self._welcome()
            except Over as over:
                await self._drop()
                if over.error is not None and over.error["code"] in GONE:
                    return
                continue  # it cannot be told now
            except (aiohttp.ClientError, OSError, TimeoutError):
                continue
            self.crowd.account.sessions.resumed_after_end(self.crowd.now(), wire.id)
            await self._drop()
            return

    async def _abort(self, code: int | None) -> None:
        """Close with a code, or lose the transport without one."""
        ws = self._ws
        if ws is None:
            return
        if code is not None:
            try:
                async with time_limit(1.0):
                    await ws.close(code=code)
            except (TimeoutError, ConnectionError, RuntimeError):
                pass
            return
        connection = ws._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()

    async def _drop(self) -> None:
        ws, self._ws = self._ws, None
        if ws is not None:
            connection = ws._response.connection
            if connection is not None and connection.transport is not None:
                connection.transport.abort()
            # aiohttp warns of a connection that is never given back, at whatever moment the collector finds it.
            ws._response.close()

    @property
    def _session(self) -> Wire:
        assert self.wire is not None, "there is a session"
        return self.wire

    def _violated(self, promise: str, what: str) -> None:
        self.crowd.violated(promise, self.name, what)
