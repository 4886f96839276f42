"""Good packets of a client, as fuzzers start from."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

from tests.fuzz.mutation import deep, mutate_bytes, mutate_value, text

TOPICS: Final = ("a", "a/b", "a/b/c", "b/x", "b/é", "c/💥", "c/\x1b[31m", "c/\u2028", "c/" + "d" * 200, "c/%00")
"""Few, so that what is retained stays small."""

SELECTORS: Final = (*TOPICS[:4], "**", "a/**", "*/b", "a/*/c", "**/c", "*")

NEXT: Final = "next"
"""Stands for the number that the packet has to have when it is sent."""


def hello(random: Random) -> dict[str, Any]:
    """Open a session."""
    packet: dict[str, Any] = {"type": "hello", "principal": random.choice(("alice", "bob", text(random)))}
    if random.random() < 0.5:
        packet |= {"secret": "s3cret", "client": "fuzz/1", "window": 1.0, "properties": {"team": "fx"}}
    return packet


def resume(random: Random, token: str) -> dict[str, Any]:
    """Come back to one."""
    return {"type": "resume", "token": token, "attempt": random.choice((1, 2, 10)), "received": 0, "oldest": 1}


def request(random: Random) -> dict[str, Any]:
    """Ask for something in a session."""
    head: dict[str, Any] = {"id": NEXT, "request": NEXT}
    return head | random.choice(
        (
            {"type": "subscribe", "selector": random.choice(SELECTORS)},
            {"type": "unsubscribe", "selector": random.choice(SELECTORS)},
            {
                "type": "publish",
                "topic": random.choice(TOPICS),
                "value": random.choice((1, None, "x" * 3000, {"a": [1]})),
            },
            {"type": "properties", "properties": {random.choice(("team", "desk")): random.choice(("fx", None, "\0"))}},
        )
    )


def link(random: Random) -> dict[str, Any]:
    """Speak about the connection."""
    return random.choice(
        (
            {"type": "ack", "received": random.randrange(4)},
            {"type": "ping"},
            {"type": "pong"},
            {"type": "bye"},
            {"type": "error", "code": "internal", "message": "no"},
            {"type": "go-away"},
            {"type": "welcome"},
        )
    )


def written(random: Random, packet: Any) -> str:
    """Write a packet as a message, strangely now and then; as Latin-1 text of its bytes."""
    if random.random() < 0.5:
        packet = mutate_value(random, packet)
    if random.random() < 0.1:
        packet = [packet, mutate_value(random, packet)] * random.choice((1, 20))
    data = json.dumps(packet, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    if random.random() < 0.2:
        data = mutate_bytes(random, data)
    if random.random() < 0.02:
        data = deep(random)
    return data.decode("latin-1")
