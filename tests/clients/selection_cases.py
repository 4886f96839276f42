"""What a client asks for when streams begin and end: one table for both clients.

The rule is in the reference of the Python client, "Streams are counted": what a session selects is what its living
streams want together. A stream that begins always asks, as it wants the current values. When one ends, the client
deselects what no living stream wants any more, and names what stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Step: TypeAlias = tuple[str, str, list[str]]
"""What the application does: ``+name`` subscribes a stream of that name to a selector, ``-name`` closes that stream,
and ``unsubscribe`` does so; then the selector; then what the client asks for, as ``asked`` writes it."""


@dataclass(frozen=True)
class Case:
    """What an application does, and which requests come of it.

    Attributes:
        about: what it shows, for the name of the test.
        steps: in order.
        open: the streams that are still open at the end.
    """

    about: str
    steps: tuple[Step, ...]
    open: frozenset[str] = frozenset()


def asked(packet: dict[str, object]) -> str:
    """Write a request as the table does: ``+selector``, ``-selector`` or ``-selector keep selector selector``."""
    if packet["type"] == "subscribe":
        return f"+{packet['selector']}"
    keep = packet.get("keep")
    return f"-{packet['selector']}" + (f" keep {' '.join(sorted(keep))}" if isinstance(keep, list) and keep else "")


def without_keep(requests: list[str]) -> list[str]:
    """Tell what is asked of a server that does not know ``keep``: what stays is selected again, in the same message."""
    return [
        each
        for request in requests
        for each in [request.split(" ")[0], *(f"+{selector}" for selector in request.split(" ")[2:])]
    ]


CASES: tuple[Case, ...] = (
    Case("one stream", (("+one", "a", ["+a"]), ("-one", "", ["-a"]))),
    Case("the last of two", (("+one", "a", ["+a"]), ("+two", "a", ["+a"]), ("-one", "", []), ("-two", "", ["-a"]))),
    Case(
        "equal selectors, written otherwise",
        (("+one", "**/*", ["+**"]), ("+two", "*/**", ["+**"]), ("-one", "", [])),
        frozenset({"two"}),
    ),
    Case("strangers", (("+one", "a/*", ["+a/*"]), ("+two", "b", ["+b"]), ("-one", "", ["-a/*"])), frozenset({"two"})),
    Case(
        "a narrow one ends within a wide one",
        (("+wide", "p/**", ["+p/**"]), ("+narrow", "p/A", ["+p/A"]), ("-narrow", "", [])),
        frozenset({"wide"}),
    ),
    Case(
        "a narrow one that was there before ends within a wide one",
        (("+narrow", "p/A", ["+p/A"]), ("+wide", "p/**", ["+p/**"]), ("-narrow", "", [])),
        frozenset({"wide"}),
    ),
    Case(
        "a wide one ends around a narrow one",
        (
            ("+wide", "p/**", ["+p/**"]),
            ("+narrow", "p/A", ["+p/A"]),
            ("-wide", "", ["-p/** keep p/A"]),
            ("-narrow", "", ["-p/A"]),
        ),
    ),
    Case(
        "a wide one ends around a narrow one that was there before",
        (
            ("+narrow", "p/A", ["+p/A"]),
            ("+wide", "p/**", ["+p/**"]),
            ("-wide", "", ["-p/** keep p/A"]),
            ("-narrow", "", ["-p/A"]),
        ),
    ),
    Case(
        "only what overlaps is named, and of that the widest",
        (
            ("+other", "b/**", ["+b/**"]),
            ("+x", "p/x/**", ["+p/x/**"]),
            ("+xy", "p/x/y", ["+p/x/y"]),
            ("+z", "p/z", ["+p/z"]),
            ("+wide", "p/**", ["+p/**"]),
            ("-wide", "", ["-p/** keep p/x/** p/z"]),
        ),
        frozenset({"other", "x", "xy", "z"}),
    ),
    Case(
        "one of two that cross ends",
        (("+one", "*/b", ["+*/b"]), ("+two", "a/*", ["+a/*"]), ("-two", "", ["-a/* keep */b"])),
        frozenset({"one"}),
    ),
    Case(
        "unsubscribing one's own selector takes nothing from a wider one",
        (("+wide", "p/**", ["+p/**"]), ("+narrow", "p/A", ["+p/A"]), ("unsubscribe", "p/A", [])),
        frozenset({"wide"}),
    ),
    Case(
        "unsubscribing ends every stream of the selector",
        (("+one", "a", ["+a"]), ("+two", "a", ["+a"]), ("unsubscribe", "a", ["-a"])),
    ),
    Case("unsubscribing what nobody has asks for nothing", (("unsubscribe", "a", []),)),
    Case(
        "unsubscribing what is only overlapped, or wider, asks for nothing",
        (("+one", "a/b", ["+a/b"]), ("unsubscribe", "a/*", []), ("unsubscribe", "*/b", [])),
        frozenset({"one"}),
    ),
    Case(
        "unsubscribing a part takes it out of wider ones",
        (("+wide", "p/**", ["+p/**"]), ("unsubscribe", "p/s/**", ["-p/s/**"]), ("-wide", "", ["-p/**"])),
    ),
    Case(
        "unsubscribing a part twice asks once",
        (("+wide", "p/**", ["+p/**"]), ("unsubscribe", "p/s/**", ["-p/s/**"]), ("unsubscribe", "p/s/**", [])),
        frozenset({"wide"}),
    ),
    Case(
        "unsubscribing a part takes nothing from narrower ones",
        (
            ("+wide", "p/**", ["+p/**"]),
            ("+narrow", "p/s/x", ["+p/s/x"]),
            ("unsubscribe", "p/s/**", ["-p/s/** keep p/s/x"]),
            ("-narrow", "", ["-p/s/x"]),
        ),
        frozenset({"wide"}),
    ),
    Case(
        "unsubscribing a part takes nothing from later ones",
        (
            ("+wide", "p/**", ["+p/**"]),
            ("unsubscribe", "p/s/**", ["-p/s/**"]),
            ("+later", "p/**", ["+p/**"]),
            ("-wide", "", []),
        ),
        frozenset({"later"}),
    ),
)
