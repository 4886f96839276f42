"""Strange bytes, texts and JSON values, drawn from a seeded generator so that each case can be drawn again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

INTERESTING_BYTES: Final = (
    b"",
    b"\0",
    b"\xff",
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b"\x1b[31m",
    b":",
    b",",
    b";",
    b"%00",
    b"%2e%2e/",
    b"\x80",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"A" * 300,
    b"A" * 9000,
    b"0x10",
    b"-1",
    b"1e999",
)
"""Pieces that parsers stumble over: line ends, NUL, bad UTF-8, percent signs, length."""

INTERESTING_TEXTS: Final = (
    "",
    " ",
    "\0",
    "\n",
    "\x1b[2J",
    "\u2028",
    "\u202e",
    "\ud7ff",
    "💥",
    "é",
    "é",
    "a" * 70,
    "a" * 5000,
    "null",
    "true",
    "-1",
    "$session",
    "$gateway/nodes/n1",
    "**",
    "*",
    "a/**",
    "**/**/**",
    "a//b",
    "/a",
    "a/",
    "?",
    "../../etc/passwd",
    "'; DROP TABLE",
    "{{7*7}}",
    "%s%n",
    "a\tb",
)
"""Texts where a name, a topic or a selector is expected."""

INTERESTING_NUMBERS: Final = (
    0,
    1,
    -1,
    2,
    255,
    65_536,
    2**31 - 1,
    2**31,
    2**53 - 1,
    2**53,
    2**63,
    2**64,
    -(2**63),
    0.5,
    -0.0,
    1e308,
    1e-320,
)
"""Where a number is expected: the ends of all common widths."""

MOST_DEPTH: Final = 4
"""How deeply drawn values nest by themselves; ``deep`` nests further."""


def cut(random: Random, data: bytes) -> list[bytes]:
    """Cut bytes into pieces as a network might: mostly none, now and then many."""
    if random.random() < 0.6 or len(data) < 2:
        return [data]
    places = sorted({random.randrange(1, len(data)) for _ in range(random.choice((1, 2, 5, 20)))})
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def mutate_bytes(random: Random, data: bytes) -> bytes:
    """Change bytes a little: flip, insert, remove, double, overwrite."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(len(data) + 1)
        end = min(len(data), at + random.choice((1, 1, 2, 8, 64)))
        piece = random.choice(INTERESTING_BYTES)
        match random.randrange(6):
            case 0 if at < len(data):
                data = data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]
            case 1:
                data = data[:at] + piece + data[at:]
            case 2:
                data = data[:at] + data[end:]
            case 3:
                data = data[:end] + data[at:end] * random.choice((1, 2, 50)) + data[end:]
            case 4:
                data = data[:at] + piece + data[end:]
            case _:
                data = data[:at] + random.randbytes(random.randrange(1, 9)) + data[at:]
    return data


def text(random: Random) -> str:
    """Draw a text that is strange more often than not."""
    if random.random() < 0.7:
        return random.choice(INTERESTING_TEXTS)
    return "".join(
        chr(random.choice((random.randrange(128), random.randrange(0x20, 0xD800)))) for _ in range(random.randrange(12))
    )


def value(random: Random, depth: int = 0) -> Any:
    """Draw any JSON value."""
    kind = random.randrange(5 if depth >= MOST_DEPTH else 7)
    match kind:
        case 0:
            return random.choice((None, True, False))
        case 1:
            return random.choice(INTERESTING_NUMBERS)
        case 2:
            return random.randrange(100)
        case 3 | 4:
            return text(random)
        case 5:
            return [value(random, depth + 1) for _ in range(random.randrange(4))]
        case _:
            return {text(random): value(random, depth + 1) for _ in range(random.randrange(4))}


def deep(random: Random) -> bytes:
    """Write JSON that nests without end."""
    return random.choice((b"[", b'{"a":', b'[{"a":')) * random.choice((20, 500, 2000, 8000))


def mutate_value(random: Random, given: Any) -> Any:
    """Change one place of a JSON value."""
    if isinstance(given, dict) and given and random.random() < 0.85:
        name = random.choice(list(given))
        changes: list[Callable[[], dict[str, Any]]] = [
            lambda: {key: each for key, each in given.items() if key != name},
            lambda: given | {name: value(random)},
            lambda: given | {name: mutate_value(random, given[name])},
            lambda: given | {text(random): value(random)},
        ]
        return random.choice(changes)()
    if isinstance(given, list) and given and random.random() < 0.8:
        at = random.randrange(len(given))
        return random.choice(
            (given[:at] + given[at + 1 :], [*given[:at], mutate_value(random, given[at]), *given[at + 1 :]], given * 3)
        )
    return value(random)
