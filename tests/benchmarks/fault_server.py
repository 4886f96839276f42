"""A server that speaks the generator's protocols in the least possible way, and can be told to do it wrongly.

```python
async with FaultServer(WireProtocol.PLAIN, Drop(every=1000)) as server:
    report = await server.drive(Load(subscribers=10, updates=310))
assert report.failures == {"lost": server.fault.count}
```

It is built on an independent WebSocket implementation, so that it also says whether the generator keeps to RFC 6455.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from benchmarks.generator.driver import Load, Report, drive
from benchmarks.progress import Silent
from benchmarks.systems.base import TOPIC_MARK, Endpoint, WireProtocol

HOST: Final = "127.0.0.1"

TOPIC: Final = "tests"

CLOSE_TIMEOUT: Final = 0.2
"""Seconds for a closing handshake, which a generator that has ended does not answer."""


class Fault:
    """Decides what a subscriber gets in place of an update; this one is honest.

    Args:
        every: how many deliveries of the server it takes until one is done wrongly.

    Attributes:
        count: deliveries done wrongly.
    """

    def __init__(self, every: int = 0) -> None:
        self._every = every
        self._seen = 0
        self.count = 0

    def deliver(self, value: str, subscriber: Subscriber) -> list[str]:
        """Return what *subscriber* is sent instead of *value*."""
        self._seen += 1
        if self._every and self._seen % self._every == 0:
            self.count += 1
            return self.harm(value, subscriber)
        if subscriber.held is not None:
            held, subscriber.held = subscriber.held, None
            return [value, held]
        return [value]

    def harm(self, value: str, subscriber: Subscriber) -> list[str]:
        """Do one delivery wrongly."""
        raise NotImplementedError


class Drop(Fault):
    """Leaves updates out."""

    def harm(self, value: str, subscriber: Subscriber) -> list[str]:
        return []


class Swap(Fault):
    """Sends an update after the one that follows it."""

    def harm(self, value: str, subscriber: Subscriber) -> list[str]:
        subscriber.held = value
        return []


class Duplicate(Fault):
    """Sends an update twice."""

    def harm(self, value: str, subscriber: Subscriber) -> list[str]:
        return [value, value]


class CorruptFiller(Fault):
    """Changes one letter, the last."""

    def harm(self, value: str, subscriber: Subscriber) -> list[str]:
        return [value[:-1] + ("b" if value[-1] == "a" else "a")]


class CorruptNumber(Fault):
    """Makes an update pretend to be one that nobody published."""

    def harm(self, value: str, subscriber: Subscriber) -> list[str]:
        return ["9" + value[1:]]


class CorruptClock(Fault):
    """Pretends that an update was published at another time, which would make latencies shorter."""

    def harm(self, value: str, subscriber: Subscriber) -> list[str]:
        number, clock, filler = value.split(" ")
        return [f"{number} {int(clock) + 1:019d} {filler}"]


class Truncate(Fault):
    """Leaves out the end of a value."""

    def harm(self, value: str, subscriber: Subscriber) -> list[str]:
        return [value[:-10]]


@dataclass
class Subscriber:
    """One connection that receives.

    Attributes:
        held: an update that waits until the next was sent.
        sent: id of the last packet (gateway.v1.json).
        acknowledged: the last id it acknowledged.
        largest_step: packets that one acknowledgement freed at most.
        pongs: how many it sent.
    """

    connection: ServerConnection
    held: str | None = None
    sent: int = 0
    acknowledged: int = 0
    largest_step: int = 0
    pongs: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)


Packet = dict[str, Any]


class FaultServer:
    """Passes every published value on to all subscribers, through a fault.

    Args:
        protocol: what it speaks.
        fault: what it does wrongly.
        resend_packets: the limit that its welcome announces and that it keeps to: it stops sending to whoever does not
            acknowledge (gateway.v1.json).
        edit: changes update packets (gateway.v1.json) just before they are sent.
        subprotocol: the one it selects, if not the protocol's own.
        ping: whether it pings every subscriber once it is ready, in the protocol's own way.
    """

    def __init__(
        self,
        protocol: WireProtocol,
        fault: Fault | None = None,
        *,
        resend_packets: int = 1024,
        edit: Callable[[Packet], Packet] = lambda packet: packet,
        subprotocol: str | None = "gateway.v1.json",
        ping: bool = False,
        answer: bool = True,
    ) -> None:
        self.fault = fault or Fault()
        self.subscribers: list[Subscriber] = []
        self._protocol = protocol
        self._resend_packets = resend_packets
        self._edit = edit
        own = {WireProtocol.GATEWAY: subprotocol, WireProtocol.MQTT: "mqtt"}.get(protocol)
        self._subprotocols = [Subprotocol(own)] if own else None
        self._ping = ping
        self._answer = answer
        self._version = 0
        self._server: Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await serve(
            self._serve, HOST, 0, compression=None, subprotocols=self._subprotocols, close_timeout=CLOSE_TIMEOUT
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def endpoint(self) -> Endpoint:
        """Where the generator finds it."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return Endpoint(self._protocol, HOST, port, f"/sub?id={TOPIC_MARK}", f"/pub?id={TOPIC_MARK}")

    async def drive(self, program: Path, load: Load) -> Report:
        """Run the generator against it."""
        return await asyncio.to_thread(
            drive, program, self.endpoint, load, topic=TOPIC, core=None, progress=Silent(), pids={}
        )

    async def _serve(self, connection: ServerConnection) -> None:
        speak = {
            WireProtocol.PLAIN: self._serve_plain,
            WireProtocol.SOCKET_IO: self._serve_socketio,
            WireProtocol.GATEWAY: self._serve_gateway,
            WireProtocol.NATS: self._serve_nats,
            WireProtocol.MQTT: self._serve_mqtt,
        }[self._protocol]
        with contextlib.suppress(ConnectionClosed):
            await speak(connection)

    async def _publish(self, value: str, send: Callable[[Subscriber, str], Any]) -> None:
        for subscriber in self.subscribers:
            for each in self.fault.deliver(value, subscriber):
                await send(subscriber, each)

    # --- Plain text frames --------------------------------------------------------------------------------------------

    async def _serve_plain(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        publisher = connection.request.path == f"/pub?id={TOPIC}"
        if not publisher:
            assert connection.request.path == f"/sub?id={TOPIC}"
            await self._subscribe(Subscriber(connection))
        async for value in connection:
            assert publisher, "a plain subscriber sends nothing"
            await self._publish(str(value), lambda subscriber, each: subscriber.connection.send(each))
            if self._answer:
                await connection.send("published")

    async def _subscribe(self, subscriber: Subscriber) -> None:
        self.subscribers.append(subscriber)
        if self._ping and self._protocol is WireProtocol.PLAIN:
            await (await subscriber.connection.ping())
            subscriber.pongs += 1

    # --- Socket.IO ----------------------------------------------------------------------------------------------------

    async def _serve_socketio(self, connection: ServerConnection) -> None:
        await connection.send('0{"sid":"e","upgrades":[],"pingInterval":25000,"pingTimeout":20000}')
        assert await connection.recv() == "40"
        await connection.send('40{"sid":"s"}')
        subscriber = Subscriber(connection)
        async for message in connection:
            text = str(message)
            if text == "3":
                subscriber.pongs += 1
                continue
            digits, _, rest = text.removeprefix("42").partition("[")
            event = json.loads(f"[{rest}")
            if event[0] == "subscribe":
                assert event == ["subscribe", TOPIC]
                self.subscribers.append(subscriber)
                await connection.send(f"43{digits}[]")
                if self._ping:
                    await connection.send("2")
            else:
                assert event[:2] == ["publish", TOPIC]
                await self._publish(event[2], self._send_socketio)
                if self._answer:
                    await connection.send(f"43{digits}[]")

    async def _send_socketio(self, subscriber: Subscriber, value: str) -> None:
        # Every other update with the offset that connection state recovery adds.
        subscriber.sent += 1
        offset = [f"17-{subscriber.sent}"] if subscriber.sent % 2 else []
        await subscriber.connection.send("42" + json.dumps(["update", value, *offset], separators=(",", ":")))

    # --- NATS ---------------------------------------------------------------------------------------------------------

    async def _serve_nats(self, connection: ServerConnection) -> None:
        await connection.send(b'INFO {"server_id":"test","max_payload":1048576}\r\n')
        subscriber = Subscriber(connection)
        unanswered = False
        async for message in connection:
            assert isinstance(message, bytes), "NATS's frames are binary"
            assert message.endswith(b"\r\n")
            lines = iter(message.decode().removesuffix("\r\n").split("\r\n"))
            for line in lines:
                verb, _, rest = line.partition(" ")
                if verb == "CONNECT":
                    assert json.loads(rest)["verbose"] is False
                elif verb == "SUB":
                    assert rest == f"{TOPIC} 1"
                    self.subscribers.append(subscriber)
                elif verb == "PUB":
                    value = next(lines)
                    assert rest == f"{TOPIC} {len(value)}"
                    unanswered = not self._answer
                    await self._publish(value, self._send_nats)
                elif verb == "PONG":
                    subscriber.pongs += 1
                else:
                    assert verb == "PING"
                    if not unanswered:
                        await connection.send(b"PONG\r\n")
                    if self._ping and subscriber in self.subscribers:
                        await connection.send(b"PING\r\n")

    async def _send_nats(self, subscriber: Subscriber, value: str) -> None:
        subscriber.sent += 1
        message = f"MSG {TOPIC} 1 {len(value)}\r\n{value}\r\n".encode()
        # Its frames are no messages: they are cut here and there, also within the line before a value.
        cut = subscriber.sent % len(message)
        for part in (message[:cut], message[cut:]):
            if part:
                await subscriber.connection.send(part)

    # --- MQTT ---------------------------------------------------------------------------------------------------------

    async def _serve_mqtt(self, connection: ServerConnection) -> None:
        subscriber = Subscriber(connection)
        async for message in connection:
            assert isinstance(message, bytes), "MQTT's frames are binary"
            for kind, rest in _mqtt_packets(message):
                if kind == 0x10:
                    assert rest.startswith(b"\x00\x04MQTT\x04\x00"), "3.1.1, and the session is kept"
                    await connection.send(b"\x20\x02\x00\x00")
                elif kind == 0x82:
                    assert rest[2:] == _mqtt_text(TOPIC) + b"\x01"
                    self.subscribers.append(subscriber)
                    await connection.send(b"\x90\x03" + rest[:2] + b"\x01")
                    if self._ping:
                        await (await connection.ping())
                        subscriber.pongs += 1
                elif kind == 0x32:
                    topic = _mqtt_text(TOPIC)
                    assert rest.startswith(topic)
                    identifier, value = rest[len(topic) :][:2], rest[len(topic) + 2 :]
                    await self._publish(value.decode(), self._send_mqtt)
                    if self._answer:
                        await connection.send(b"\x40\x02" + identifier)
                else:
                    assert kind == 0x40
                    subscriber.acknowledged += 1
                    assert int.from_bytes(rest) == subscriber.acknowledged, "each is confirmed once and in order"

    async def _send_mqtt(self, subscriber: Subscriber, value: str) -> None:
        subscriber.sent += 1
        rest = _mqtt_text(TOPIC) + subscriber.sent.to_bytes(2) + value.encode()
        message = b"\x32" + _mqtt_length(len(rest)) + rest
        # Its frames are no packets: they are cut here and there, also within a packet's length.
        cut = subscriber.sent % len(message)
        for part in (message[:cut], message[cut:]):
            if part:
                await subscriber.connection.send(part)

    # --- gateway.v1.json ----------------------------------------------------------------------------------------------

    async def _serve_gateway(self, connection: ServerConnection) -> None:
        hello = json.loads(await connection.recv())
        assert hello["type"] == "hello"
        limits = {"requests": 256, "resend_packets": self._resend_packets}
        await connection.send(json.dumps({"type": "welcome", "session": "s", "lost": None, "limits": limits}))
        subscriber = Subscriber(connection)
        expected = 1
        async for message in connection:
            content = json.loads(message)
            for packet in content if isinstance(content, list) else [content]:
                self._note_acknowledgement(subscriber, packet)
                if "id" in packet:
                    assert packet["id"] == expected
                    expected += 1
                await self._gateway_packet(subscriber, packet)

    def _note_acknowledgement(self, subscriber: Subscriber, packet: Packet) -> None:
        received = packet.get("received", 0)
        assert received <= subscriber.sent, "it acknowledges what was never sent"
        subscriber.largest_step = max(subscriber.largest_step, received - subscriber.acknowledged)
        subscriber.acknowledged = max(subscriber.acknowledged, received)
        subscriber.changed.set()

    async def _gateway_packet(self, subscriber: Subscriber, packet: Packet) -> None:
        match packet["type"]:
            case "subscribe":
                assert packet["selector"] == TOPIC
                self.subscribers.append(subscriber)
                await self._reply(subscriber, packet)
                if self._ping:
                    await subscriber.connection.send('{"type": "ping"}')
            case "publish":
                assert packet["topic"] == TOPIC
                self._version += 1
                await self._publish(packet["value"], self._send_gateway)
                if self._answer:
                    await self._reply(subscriber, packet)
            case "pong":
                subscriber.pongs += 1
            case other:
                assert other == "ack"

    async def _reply(self, subscriber: Subscriber, packet: Packet) -> None:
        subscriber.sent += 1
        reply = {"id": subscriber.sent, "received": packet["id"], "type": "reply", "request": packet["request"]}
        await subscriber.connection.send(json.dumps(reply))

    async def _send_gateway(self, subscriber: Subscriber, value: str) -> None:
        while subscriber.sent - subscriber.acknowledged >= self._resend_packets:
            subscriber.changed.clear()
            await subscriber.changed.wait()
        subscriber.sent += 1
        # A version per delivery: faults of order are not also faults of versions.
        packet = {
            "id": subscriber.sent, "type": "update", "topic": TOPIC, "version": subscriber.sent, "event": "1-1",
            "value": value,
        }  # fmt: skip
        await subscriber.connection.send(json.dumps(self._edit(packet)))


def _mqtt_text(text: str) -> bytes:
    return len(text).to_bytes(2) + text.encode()


def _mqtt_length(length: int) -> bytes:
    """Seven bits at a time (MQTT 3.1.1, section 2.2.3)."""
    found = bytearray()
    while True:
        length, bits = divmod(length, 128)
        found.append(bits | (0x80 if length else 0))
        if not length:
            return bytes(found)


def _mqtt_packets(message: bytes) -> list[tuple[int, bytes]]:
    found = []
    while message:
        length, at = 0, 1
        while True:
            length |= (message[at] & 0x7F) << 7 * (at - 1)
            at += 1
            if not message[at - 1] & 0x80:
                break
        found.append((message[0], message[at : at + length]))
        assert len(message) >= at + length, "whole packets in a frame"
        message = message[at + length :]
    return found
