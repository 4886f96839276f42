"""A client of HAProxy's runtime socket: what state the nodes are in, and what operators want of them.

HAProxy knows three things of each node, from three sources (see ``lb.agent``), and ``NodeStatus`` keeps them apart:
whether it is alive (health check), whether it is ready (its agent), and what the operator wants.
"""

from __future__ import annotations

import contextlib
import csv
import io
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from lb.errors import CommandRefused, NodeUnknown, RuntimeSocketError, SocketUnreachable
from lb.names import BACKEND, NAME_PATTERN, WORD_PATTERN

DEFAULT_TIMEOUT: Final = 3.0
"""Seconds for a whole exchange. HAProxy answers in milliseconds; only a machine in trouble takes longer."""

_RECEIVE_BYTES: Final = 65_536
_SERVER_ROW: Final = 4
"""``show stat`` marks rows of servers with this type."""

_ANY_MAINTENANCE: Final = 0x01 | 0x02 | 0x04 | 0x20 | 0x40
_ANY_DRAIN: Final = 0x08 | 0x10
"""Bits of ``srv_admin_state`` (management guide, ``show servers state``): forced, inherited, from the configuration
and, for maintenance, from name resolution."""


class Wanted(StrEnum):
    """What the operator wants of a node; the values are HAProxy's words."""

    READY = "ready"
    """Serve."""
    DRAIN = "drain"
    """No new sessions; keep the connected ones and those who come back by hint or cookie."""
    MAINT = "maint"
    """Nothing at all; its connections are cut, and it is not checked."""


class Takes(StrEnum):
    """Which upgrades HAProxy sends to a node, all things considered."""

    ALL = "all"
    RETURNING = "returning"
    """Only those that name the node by hint or cookie."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a health check or an agent check found last.

    Attributes:
        status: HAProxy's short code, such as ``L7OK``; empty before the first check and in maintenance.
        text: what was answered, or what failed.
    """

    status: str
    text: str


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node, as one HAProxy process sees it.

    Attributes:
        node: its name.
        address: HOST:PORT for clients.
        alive: by its health check; False in maintenance too, because then it is not checked.
        ready: by its agent: it wants new sessions. True until the agent says otherwise.
        wanted: by the operator.
        sessions: connections now.
        sessions_total: connections since HAProxy started.
        status: as HAProxy words it.
        status_seconds: how long ``status`` has lasted, in seconds.
        check: the last health check.
        agent: the last agent check.
    """

    node: str
    address: str
    alive: bool
    ready: bool
    wanted: Wanted
    sessions: int
    sessions_total: int
    status: str
    status_seconds: int
    check: CheckResult
    agent: CheckResult

    @property
    def takes(self) -> Takes:
        """Which upgrades HAProxy sends to it."""
        if not self.alive or self.wanted is Wanted.MAINT:
            return Takes.NONE
        return Takes.ALL if self.ready and self.wanted is Wanted.READY else Takes.RETURNING


class RuntimeSocket:
    """The runtime socket of one HAProxy process. Each call opens a connection, asks, reads the answer and closes.

    Args:
        address: path of a unix socket, or HOST:PORT. Text with a slash, or without a colon, is a path.
        timeout: seconds for each call.
        backend: which backend holds the nodes.
    """

    def __init__(self, address: str, *, timeout: float = DEFAULT_TIMEOUT, backend: str = BACKEND) -> None:
        self.address = address
        self._timeout = timeout
        self._backend = backend

    def nodes(self) -> tuple[NodeStatus, ...]:
        """Look at all nodes, in the order of the configuration.

        Raises:
            SocketUnreachable: nobody answers.
            CommandRefused: this HAProxy has no such backend.
        """
        statistics = _parse_statistics(self._ask(f"show stat {self._backend} {_SERVER_ROW} -1"))
        states = _parse_states(self._ask(f"show servers state {self._backend}"))
        # A reload between the two questions may change the nodes; those which only one answer knows are left out.
        return tuple(_status(row, states[name]) for name, row in statistics.items() if name in states)

    def node(self, name: str) -> NodeStatus:
        """Look at one node.

        Raises:
            SocketUnreachable: nobody answers.
            NodeUnknown: there is no such node; the message lists those there are.
        """
        nodes = {status.node: status for status in self.nodes()}
        if name not in nodes:
            raise NodeUnknown(f"there is no node {name!r} at {self.address}; there are: {', '.join(nodes) or 'none'}")
        return nodes[name]

    def set_wanted(self, name: str, wanted: Wanted) -> None:
        """Say what is wanted of a node. Asking for what is so already has no effect.

        HAProxy forgets it when it is restarted or reloaded.

        Raises:
            SocketUnreachable: nobody answers; whether it was done is unknown.
            NodeUnknown: there is no such node.
            CommandRefused: HAProxy will not do it, for example because the socket lacks the level ``admin``.
        """
        self._tell(name, f"set server {self._backend}/{name} state {wanted.value}")

    def cut(self, name: str) -> None:
        """Cut all connections of a node at once; clients resume.

        Raises:
            SocketUnreachable, NodeUnknown, CommandRefused: as for ``set_wanted``.
        """
        self._tell(name, f"shutdown sessions server {self._backend}/{name}")

    def replace_certificate(self, name: str, pem: str) -> None:
        """Have connections that begin from now on served with another certificate; nobody is disconnected.

        HAProxy reads the file again when it is restarted or reloaded, so that should hold the same.

        Args:
            name: the file of the certificate, as the configuration names it.
            pem: certificate, those between it and its authority, and key.

        Raises:
            SocketUnreachable: nobody answers; whether it was done is unknown.
            CommandRefused: HAProxy will not do it, and keeps what it has; the message says why.
        """
        if not WORD_PATTERN.fullmatch(name):
            # Never let a name end the command and begin another one.
            raise CommandRefused(f"{name!r} cannot be the name of a certificate")
        # An empty line would end the text, and what follows would be commands.
        lines = [line for line in pem.splitlines() if line.strip()]
        answer = self._ask("\n".join([f"set ssl cert {name} <<", *lines, ""])).strip()
        if not answer.lower().startswith("transaction"):
            raise CommandRefused(f"HAProxy at {self.address} does not take the certificate: {answer}")
        answer = self._ask(f"commit ssl cert {name}").strip()
        if not answer.endswith("Success!"):
            self._ask(f"abort ssl cert {name}")
            raise CommandRefused(f"HAProxy at {self.address} does not use the certificate: {answer}")

    def process(self) -> dict[str, str]:
        """Ask for facts about the process, such as ``Version``, ``Pid``, ``Uptime_sec`` and ``CurrConns``.

        Raises:
            SocketUnreachable: nobody answers.
        """
        pairs = (line.partition(":") for line in self._ask("show info").splitlines())
        return {name: value.strip() for name, colon, value in pairs if colon}

    def _tell(self, name: str, command: str) -> None:
        if not NAME_PATTERN.fullmatch(name):
            # Never let a name end the command and begin another one.
            raise NodeUnknown(f"{name!r} cannot be the name of a node")
        answer = self._ask(command).strip()
        if answer == "No such server.":
            self.node(name)  # raises with the names there are
        if answer:
            raise CommandRefused(f"HAProxy at {self.address} will not do it: {answer}")

    def _ask(self, command: str) -> str:
        """Send one command and read the whole answer."""
        deadline = time.monotonic() + self._timeout
        try:
            with contextlib.closing(self._connect()) as connection:
                connection.sendall(command.encode() + b"\n")
                answer = b"".join(_chunks(connection, deadline))
        except TimeoutError:
            raise SocketUnreachable(
                f"HAProxy did not answer at {self.address} within {self._timeout:g} s; is it stopped or overloaded?"
            ) from None
        except OSError as error:
            raise SocketUnreachable(f"cannot reach HAProxy at {self.address}: {_explain(error)}") from error
        return answer.decode(errors="replace")

    def _connect(self) -> socket.socket:
        host, colon, port = self.address.rpartition(":")
        if colon and "/" not in self.address and port.isdecimal():
            return socket.create_connection((host.strip("[]"), int(port)), timeout=self._timeout)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(self._timeout)
            connection.connect(str(Path(self.address)))
        except BaseException:
            connection.close()
            raise
        return connection


def _chunks(connection: socket.socket, deadline: float) -> Iterator[bytes]:
    """Read until HAProxy hangs up, which is how an answer ends."""
    while True:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        connection.settimeout(remaining)
        chunk = connection.recv(_RECEIVE_BYTES)
        if not chunk:
            return
        yield chunk


def _explain(error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return "there is no such socket; is HAProxy running, and is this the path in its 'stats socket' line?"
        case PermissionError():
            return "permission denied; use the user that runs HAProxy"
        case ConnectionRefusedError():
            return "nobody listens there; HAProxy has stopped"
        case _:
            return error.strerror or str(error)


def _parse_statistics(text: str) -> dict[str, dict[str, str]]:
    """Read the CSV of ``show stat``: rows by the name of the server."""
    if not text.startswith("# pxname,"):
        raise CommandRefused(f"HAProxy did not show its statistics but said: {text.strip()}")
    return {row["svname"]: row for row in csv.DictReader(io.StringIO(text.removeprefix("# ")))}


def _parse_states(text: str) -> dict[str, dict[str, str]]:
    """Read ``show servers state``: a format version, a head line that begins with ``#``, rows separated by blanks."""
    lines = [line for line in text.splitlines() if line]
    heads = [line.removeprefix("# ").split(" ") for line in lines if line.startswith("# ")]
    if not heads:
        raise CommandRefused(f"HAProxy did not show the state of its servers but said: {text.strip()}")
    rows = (dict(zip(heads[0], line.split(" "), strict=False)) for line in lines[1:] if not line.startswith("#"))
    return {row["srv_name"]: row for row in rows}


def _check(status: str, text: str) -> CheckResult:
    """Read a check's status, which has a star while the next check is under way, and is INI before the first."""
    status = status.removeprefix("* ")
    return CheckResult("", "") if status == "INI" else CheckResult(status, text)


def _status(row: dict[str, str], state: dict[str, str]) -> NodeStatus:
    admin = int(state["srv_admin_state"])
    wanted = Wanted.MAINT if admin & _ANY_MAINTENANCE else Wanted.DRAIN if admin & _ANY_DRAIN else Wanted.READY
    try:
        return NodeStatus(
            node=row["svname"],
            address=row["addr"],
            alive=state["srv_op_state"] != "0",
            ready=state["srv_uweight"] != "0",
            wanted=wanted,
            sessions=int(row["scur"]),
            sessions_total=int(row["stot"]),
            status=row["status"],
            status_seconds=int(row["lastchg"] or 0),
            check=_check(row["check_status"], row["last_chk"]),
            agent=_check(row["agent_status"], row["last_agt"]),
        )
    except KeyError as missing:
        raise RuntimeSocketError(f"this version of HAProxy does not tell {missing}; 2.6 or newer is needed") from None
