"""What a client asks for when streams begin and end: one table for both clients.

**The rule.** A selection lasts as long as one stream that asked for it. What a session selects follows from its living
streams and its deselections, in the order in which they were made; a stream that has ended counts as if it had never
been.

* ``subscribe`` always asks, because the new stream wants the current values.
* The end of a stream asks for no more than it takes, and for nothing if other streams want all that it wanted.
* ``unsubscribe`` of a selector that streams have ends these streams, and takes nothing from others. Of any other
  selector it is a deselection: a hole in everything selected before it, for as long as there is something to cut from.
* What is asked for together goes in one message, in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Step: TypeAlias = tuple[str, str, list[str]]
"""What the application does: ``+name`` subscribes a stream of that name to a selector, ``-name`` closes that stream,
and ``unsubscribe`` does so; then the selector; then what the client asks for, ``+selector`` or ``-selector``."""


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


CASES: tuple[Case, ...] = (
    Case("one stream", (("+one", "a", ["+a"]), ("-one", "a", ["-a"]))),
    Case(
        "the last of two streams",
        (("+one", "a", ["+a"]), ("+two", "a", ["+a"]), ("-one", "a", []), ("-two", "a", ["-a"])),
    ),
    Case(
        "equal selectors, written otherwise",
        (("+one", "**/*", ["+**"]), ("+two", "**", ["+**"]), ("-one", "", [])),
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
            ("-wide", "", ["-p/**", "+p/A"]),
            ("-narrow", "", ["-p/A"]),
        ),
    ),
    Case(
        "a wide one ends around a narrow one that was there before",
        (
            ("+narrow", "p/A", ["+p/A"]),
            ("+wide", "p/**", ["+p/**"]),
            ("-wide", "", ["-p/**", "+p/A"]),
            ("-narrow", "", ["-p/A"]),
        ),
    ),
    Case(
        "only what was within is asked for again",
        (
            ("+first", "b", ["+b"]),
            ("+narrow", "p/A", ["+p/A"]),
            ("+wide", "p/**", ["+p/**"]),
            ("+last", "c/*", ["+c/*"]),
            ("-wide", "", ["-p/**", "+p/A"]),
        ),
        frozenset({"first", "narrow", "last"}),
    ),
    Case(
        "one of two that cross ends",
        (("+one", "*/b", ["+*/b"]), ("+two", "a/*", ["+a/*"]), ("-two", "", ["-a/*", "+*/b"])),
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
    Case("unsubscribing what nobody has is a deselection", (("unsubscribe", "a", ["-a"]),)),
    Case(
        "a hole ends with what it is in",
        (
            ("+one", "p/**", ["+p/**"]),
            ("unsubscribe", "p/s/**", ["-p/s/**"]),
            ("-one", "", ["-p/**"]),
            ("+two", "p/**", ["+p/**"]),
        ),
        frozenset({"two"}),
    ),
    Case(
        "what was selected again in a hole is cut out again",
        (
            ("+wide", "p/**", ["+p/**"]),
            ("unsubscribe", "p/s/**", ["-p/s/**"]),
            ("+narrow", "p/s/x", ["+p/s/x"]),
            ("-narrow", "", ["-p/s/x"]),
        ),
        frozenset({"wide"}),
    ),
    Case(
        "a hole that a later stream had covered comes back",
        (
            ("+one", "p/**", ["+p/**"]),
            ("unsubscribe", "p/s/**", ["-p/s/**"]),
            ("+two", "p/**", ["+p/**"]),
            ("-two", "", ["-p/s/**"]),
        ),
        frozenset({"one"}),
    ),
    Case(
        "a hole cuts out of nothing that was selected after it",
        (
            ("+one", "p/**", ["+p/**"]),
            ("unsubscribe", "p/s/**", ["-p/s/**"]),
            ("+two", "p/**", ["+p/**"]),
            ("-one", "", []),
        ),
        frozenset({"two"}),
    ),
    Case(
        "of two in a hole one ends",
        (
            ("+wide", "p/**", ["+p/**"]),
            ("unsubscribe", "p/s/**", ["-p/s/**"]),
            ("+one", "p/s/x", ["+p/s/x"]),
            ("+two", "p/s/*", ["+p/s/*"]),
            ("-two", "", ["-p/s/*", "+p/s/x"]),
        ),
        frozenset({"wide", "one"}),
    ),
)
