"""The tree of errors of the load-balancer tools.

```text
LoadBalancerError
├── InvalidTopology        the description of the cluster is wrong; names file, key, value and remedy
└── RuntimeSocketError     HAProxy could not be asked, or said no
    ├── SocketUnreachable  nobody answers at the runtime socket
    └── CommandRefused     HAProxy answered that it will not do it
        └── NodeUnknown    HAProxy's configuration has no such node
```
"""

from __future__ import annotations

from dataclasses import dataclass


class LoadBalancerError(Exception):
    """Base of every error that ``lb`` raises on purpose; its text is fit to be shown to an operator."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a topology.

    Attributes:
        key: dotted path of the setting, for example ``nodes.2.client_port``; empty for the whole file.
        value: what was given, as it would be written in the file; empty if nothing was given.
        complaint: what is wrong with it.
        remedy: what to do.
    """

    key: str
    value: str
    complaint: str
    remedy: str

    def __str__(self) -> str:
        place = f"{self.key} = {self.value}" if self.key and self.value else self.key or self.value
        text = f"{place}: {self.complaint}; {self.remedy}" if place else f"{self.complaint}; {self.remedy}"
        # Names and values of the file may hold anything; no terminal shall obey them.
        return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


class InvalidTopology(LoadBalancerError):
    """The description of the cluster is wrong.

    Attributes:
        source: where it came from: a file name, or "command line".
        problems: everything that is wrong, so that one look mends all.
    """

    def __init__(self, source: str, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(f"{source}: {problem}" for problem in problems))
        self.source = source
        self.problems = problems


class RuntimeSocketError(LoadBalancerError):
    """HAProxy could not be asked, or said no."""


class SocketUnreachable(RuntimeSocketError):
    """Nobody answers at the runtime socket, or not in time. Whether a command was executed is then unknown."""


class CommandRefused(RuntimeSocketError):
    """HAProxy answered that it will not do it; nothing was changed."""


class NodeUnknown(CommandRefused):
    """HAProxy's configuration has no node of that name."""
