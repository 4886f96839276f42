"""Fuzzes sessions in all their states: two clients that subscribe, publish, lie about numbers, vanish and come back."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any, Final

import orjson

from tests.fuzz import templates
from tests.fuzz.engine import Case, Finding
from tests.fuzz.handshake import judge
from tests.fuzz.mutation import mutate_bytes
from tests.fuzz.node import NodeUnderWatch
from tests.fuzz.wire import CLOSE, PATIENCE, TEXT, Wire, frame

ACTORS: Final = 2

_ACTIONS: Final = (
    ("open", 3),
    ("say", 14),
    ("write", 6),
    ("lie", 3),
    ("frame", 2),
    ("hear", 6),
    ("vanish", 2),
    ("resume", 5),
    ("bye", 1),
)
"""What may happen, and how often."""

HEARING: Final = 0.02
"""Seconds for which a client listens in between; nothing depends on what has come by then."""


class Actor:
    """One client of a case: it knows what a good client would know."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.wires: list[Wire] = []
        self.token: str | None = None
        self.attempt = 0
        self.received = 0
        self.number = 1
        self.request = 1

    @property
    def wire(self) -> Wire | None:
        return self.wires[-1] if self.wires else None

    async def connect(self) -> Wire | None:
        wire = Wire(self._port)
        self.wires.append(wire)
        await wire.dial()
        return wire if await wire.upgrade() else None

    async def open(self, packet: dict[str, Any]) -> None:
        """Say the first packet on a new connection, and take the welcome on if there is one."""
        wire = await self.connect()
        if wire is None:
            raise Finding(f"a good upgrade was refused: {self.wires[-1].answer!r}")
        await self.say(packet)
        await wire.frame()
        self._learn(wire)

    def _learn(self, wire: Wire) -> None:
        for message in wire.messages:
            packets = orjson.loads(message)
            for packet in packets if isinstance(packets, list) else [packets]:
                if packet["type"] == "welcome":
                    self.token = packet["token"]
                    if packet["outcome"] != "reattached":
                        self.received, self.number = 0, 1
                if token := packet.get("token"):
                    self.token = token
                self.received = max(self.received, packet.get("id", 0))

    async def say(self, packet: Any) -> None:
        if self.wire is not None:
            await self.wire.send(frame(TEXT, orjson.dumps(self._numbered(packet))))

    def _numbered(self, packet: Any) -> Any:
        """Put in the numbers that the packet has to have."""
        if not isinstance(packet, dict):
            return packet
        if packet.get("id") == templates.NEXT:
            packet = packet | {"id": self.number}
            self.number += 1
        if packet.get("request") == templates.NEXT:
            packet = packet | {"request": self.request}
            self.request += 1
        return packet

    async def hear(self) -> None:
        if self.wire is not None:
            try:
                async with asyncio.timeout(HEARING):
                    await self.wire.to_end()
            except TimeoutError:
                pass
            self._learn(self.wire)

    async def end(self) -> None:
        """Say goodbye, and see that the connection ends."""
        wire = self.wire
        if wire is not None:
            await wire.send(frame(CLOSE, b"\x03\xe8"))
            wire.half_close()
            await wire.to_end()
        for each in self.wires:
            await each.close()
            judge(each)


class SessionFuzzer:
    """See the module."""

    name = "session"

    def __init__(self, node: NodeUnderWatch) -> None:
        self._node = node

    def draw(self, random: Random) -> Case:
        """Draw what both clients do."""
        actions = [action for action, weight in _ACTIONS for _ in range(weight)]
        steps: Case = [["open", who, templates.hello(random) | {"principal": f"p{who}"}] for who in range(ACTORS)]
        for _ in range(random.choice((3, 8, 20, 40))):
            action, who = random.choice(actions), random.randrange(ACTORS)
            packet = random.choice((templates.request(random), templates.request(random), templates.link(random)))
            match action:
                case "open":
                    steps.append(["open", who, templates.hello(random)])
                case "say":
                    steps.append(["say", who, packet])
                case "write":
                    steps.append(["write", who, templates.written(random, packet)])
                case "lie":
                    steps.append(
                        [
                            "say",
                            who,
                            packet
                            | {
                                "id": random.choice((0, 1, 2, 10**6, -1, 2**53)),
                                "received": random.choice((0, 1, 50, 2**53)),
                            },
                        ]
                    )
                case "frame":
                    payload = json.dumps(packet).encode()
                    data = mutate_bytes(random, frame(random.choice((TEXT, TEXT, random.randrange(256))), payload))
                    steps.append(["bytes", who, data.decode("latin-1")])
                case "resume":
                    steps.append(
                        ["resume", who, random.choice(("good", "good", "again", "received", "oldest", "other", "cut"))]
                    )
                case _:
                    steps.append([action, who])
        return steps

    async def run(self, case: Case) -> None:
        """Play it, then see that every connection ends."""
        actors = [Actor(self._node.port) for _ in range(ACTORS)]
        try:
            async with asyncio.timeout(PATIENCE):
                for step in case:
                    await self._do(actors, step)
                for actor in actors:
                    await actor.end()
        except TimeoutError:
            raise Finding(f"not ended within {PATIENCE:g} s") from None
        finally:
            for actor in actors:
                for wire in actor.wires:
                    await wire.close()

    async def look(self) -> None:
        """Look after the node."""
        await self._node.look()

    async def _do(self, actors: list[Actor], step: list[Any]) -> None:
        action, who, *rest = step
        actor = actors[who]
        match action:
            case "open":
                actor.attempt, actor.received, actor.number, actor.request = 0, 0, 1, 1
                await actor.open(rest[0])
            case "say":
                await actor.say(rest[0])
            case "write" if actor.wire is not None:
                await actor.wire.send(frame(TEXT, rest[0].encode("latin-1")))
            case "bytes" if actor.wire is not None:
                await actor.wire.send(rest[0].encode("latin-1"))
            case "hear":
                await actor.hear()
            case "vanish" if actor.wire is not None:
                actor.wire.reset()
            case "bye":
                await actor.say({"type": "bye"})
            case "resume":
                await self._resume(actors, who, rest[0])

    async def _resume(self, actors: list[Actor], who: int, how: str) -> None:
        actor = actors[who]
        token = actors[1 - who].token if how == "other" else actor.token
        if token is None:
            return
        if how != "again":
            actor.attempt += 1
        packet = {
            "type": "resume",
            "token": token[:-3] if how == "cut" else token,
            "attempt": max(1, actor.attempt),
            "received": actor.received + (1000 if how == "received" else 0),
            "oldest": actor.number + (7 if how == "oldest" else 0),
        }
        await actor.open(packet)
