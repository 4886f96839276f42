"""A cluster as HAProxy has to know it: read from a TOML file, built from flags, or the default of three local nodes."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Self, get_args

from pydantic import BaseModel, Field, StrictBool, ValidationError, model_validator
from pydantic_core import ErrorDetails

from lb.errors import InvalidTopology, Problem
from lb.names import SameSite, Stickiness
from lb.settings import (
    Checks,
    Endpoint,
    Frontend,
    Node,
    NodesTls,
    Process,
    Seconds,
    Section,
    SocketPath,
    Statistics,
    Timeouts,
    Trouble,
    Word,
)

COMMAND_LINE: Final = "command line"
"""The source that is named when a flag is wrong."""

TUNNEL_PINGS_MIN: Final = 3
"""The tunnel timeout must outlast this many ping intervals, so that one lost or late ping never cuts a client."""

_CLIENT_PORTS_FROM, _ADMIN_PORTS_FROM, _AGENT_PORTS_FROM = 8101, 9101, 9201
_DEFAULT_NODES: Final = 3


class Topology(Section):
    """Everything ``lb.render`` needs to know. Immutable; built by ``load``, ``build`` or ``default_topology``."""

    stickiness: Stickiness = Field(
        default=Stickiness.HINT, description="How a returning client finds its node: `hint`, `cookie` or `off`."
    )
    runtime_socket: SocketPath = Field(
        default=".local/run/haproxy.sock",
        description="Unix socket for `lb show`, `lb drain` and the like; its directory must exist when HAProxy starts. "
        "A relative path is relative to where HAProxy is started.",
    )
    log: Word = Field(
        default="stdout",
        description="Where HAProxy logs to: `stdout`, `stderr`, a syslog socket such as `/dev/log`, or HOST:PORT.",
    )
    resolve: StrictBool = Field(
        default=False,
        description="Resolve the names of nodes again and again, by the name servers of `/etc/resolv.conf`: for "
        "containers, which have another address after a restart. Without it names are resolved once, at start, and "
        "one that cannot be resolved keeps HAProxy from starting.",
    )
    ping_interval: Seconds = Field(
        default=20,
        description="Seconds between two pings of a node to a client; `timeouts.tunnel` must outlast three of them.",
    )
    frontend: Frontend = Frontend()
    nodes_tls: NodesTls = NodesTls()
    timeouts: Timeouts = Timeouts()
    checks: Checks = Checks()
    statistics: Statistics = Statistics()
    process: Process = Process()
    nodes: tuple[Node, ...] = Field(description="The gateway nodes, each a section `[[nodes]]`.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = tuple(_inconsistencies(self))
        if problems:
            raise Trouble(*problems)
        return self


def _inconsistencies(topology: Topology) -> Iterator[Problem]:
    """Find what is wrong with settings that are right one by one."""
    if not topology.nodes:
        yield Problem(
            "nodes", "[]", "lists no node", "add a section [[nodes]] for each, or leave it out for three local ones"
        )
    if not topology.frontend.bind:
        yield Problem("frontend.bind", "[]", "lists no address", "add where clients connect to, e.g. 127.0.0.1:8080")
    names = Counter(node.name for node in topology.nodes)
    for name, count in names.items():
        if count > 1:
            yield Problem("nodes", f'"{name}"', "is the name of more than one node", "give each node its own")
    yield from _shared_addresses(topology)
    shortest = TUNNEL_PINGS_MIN * topology.ping_interval
    if topology.timeouts.tunnel < shortest:
        yield Problem(
            "timeouts.tunnel",
            f"{topology.timeouts.tunnel:g}",
            f"would cut healthy clients, which are silent for up to {topology.ping_interval:g} s between two pings",
            f"make it at least {shortest:g}, or have the nodes ping more often and say so in ping_interval",
        )
    if topology.timeouts.server_fin > topology.timeouts.server:
        yield Problem(
            "timeouts.server_fin",
            f"{topology.timeouts.server_fin:g}",
            "makes the second and later tries of an upgrade wait longer than the first",
            f"make it at most {topology.timeouts.server:g}, the value of timeouts.server",
        )
    yield from _incomplete_tls(topology)
    if topology.frontend.same_site is SameSite.NONE and topology.frontend.certificate is None:
        yield Problem(
            "frontend.same_site",
            '"None"',
            "is ignored by browsers unless the cookie is sent over TLS",
            'set frontend.certificate, or use "Strict" or "Lax"',
        )


def _incomplete_tls(topology: Topology) -> Iterator[Problem]:
    """Find settings about TLS that mean nothing, or cannot mean what is hoped for."""
    if topology.frontend.hsts is not None and topology.frontend.certificate is None:
        yield Problem(
            "frontend.hsts",
            f"{topology.frontend.hsts}",
            "is ignored by browsers unless it comes over TLS",
            "set frontend.certificate, or leave it out",
        )
    given = {"certificate": topology.nodes_tls.certificate, "admin": topology.nodes_tls.admin or None}
    if topology.nodes_tls.ca is None:
        for name, value in given.items():
            if value is not None:
                yield Problem(
                    f"nodes_tls.{name}", _shown(value), "has no effect without nodes_tls.ca", "set nodes_tls.ca as well"
                )
        return
    for index, node in enumerate(topology.nodes, 1):
        if node.tls_name is None and _is_address(node.host):
            yield Problem(
                f"nodes.{index}.host",
                _shown(node.host),
                "is an address, and HAProxy looks only for names in certificates",
                "say in tls_name what name the node's certificate is for",
            )


def _is_address(host: str) -> bool:
    with suppress(ValueError):
        ip_address(host)
        return True
    return False


def _shared_addresses(topology: Topology) -> Iterator[Problem]:
    """Find two settings that claim the same address."""
    claims: list[tuple[str, str]] = [
        (bind, f"frontend.bind.{index}") for index, bind in enumerate(topology.frontend.bind, 1)
    ]
    if topology.statistics.bind is not None:
        claims.append((topology.statistics.bind, "statistics.bind"))
    for index, node in enumerate(topology.nodes, 1):
        claims += [
            (f"{node.host}:{getattr(node, port)}", f"nodes.{index}.{port}")
            for port in ("client_port", "admin_port", "agent_port")
        ]
    first: dict[str, str] = {}
    for address, key in claims:
        holder = first.setdefault(address, key)
        if holder != key:
            yield Problem(key, address, f"is taken by {holder}", "give it a port of its own")


def default_topology() -> Topology:
    """Three nodes on this machine: n1 to n3 with client ports 8101 to 8103, admin 9101 to 9103, agents 9201 to 9203."""
    return Topology(
        nodes=tuple(
            Node(
                name=f"n{index + 1}",
                client_port=_CLIENT_PORTS_FROM + index,
                admin_port=_ADMIN_PORTS_FROM + index,
                agent_port=_AGENT_PORTS_FROM + index,
            )
            for index in range(_DEFAULT_NODES)
        )
    )


def load(path: Path) -> dict[str, Any]:
    """Read a TOML file into settings for ``build``.

    Raises:
        InvalidTopology: it cannot be read or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problem = Problem("", "", f"cannot be read ({error.strerror})", "check the path and the permissions")
    except UnicodeDecodeError:
        problem = Problem("", "", "is not text in UTF-8", "save it as UTF-8")
    except tomllib.TOMLDecodeError as error:
        problem = Problem("", "", f"is not TOML ({error})", "mend that line; strings need quotes")
    raise InvalidTopology(str(path), (problem,))


def build(settings: Mapping[str, Any], *, source: str = COMMAND_LINE) -> Topology:
    """Make a topology of settings, as ``load`` reads them; without ``nodes`` the three default ones are meant.

    Args:
        settings: by name, sections as nested mappings.
        source: named in errors.

    Raises:
        InvalidTopology: with everything that is wrong.
    """
    complete = dict(settings)
    complete.setdefault("nodes", default_topology().nodes)
    try:
        return Topology.model_validate(complete)
    except ValidationError as error:
        raise InvalidTopology(source, tuple(p for details in error.errors() for p in _problems(details))) from None


def parse_node(text: str) -> dict[str, Any]:
    """Read a node as flags write it, ``NAME=HOST:CLIENT,ADMIN,AGENT``, into settings for ``build``.

    Raises:
        InvalidTopology: it is not of that form; whether the parts make sense is for ``build`` to say.
    """
    name, equals, rest = text.partition("=")
    host, colon, ports = rest.rpartition(":")
    numbers = ports.split(",")
    if not equals or not colon or len(numbers) != 3 or not all(n.isascii() and n.isdecimal() for n in numbers):  # noqa: PLR2004
        problem = Problem(
            "--node", text, "is not a node", "give it as NAME=HOST:CLIENT,ADMIN,AGENT, e.g. n1=127.0.0.1:8101,9101,9201"
        )
        raise InvalidTopology(COMMAND_LINE, (problem,))
    client, admin, agent = (int(number) for number in numbers)
    host = host.removeprefix("[").removesuffix("]")
    return {"name": name, "host": host, "client_port": client, "admin_port": admin, "agent_port": agent}


def _problems(details: ErrorDetails) -> Iterator[Problem]:
    """Turn what pydantic found into key, value, complaint and remedy."""
    # People count nodes from one.
    key = ".".join(str(part + 1) if isinstance(part, int) else part for part in details["loc"])
    trouble = details.get("ctx", {}).get("error")
    if isinstance(trouble, Trouble):
        for found in trouble.problems:
            yield replace(found, key=found.key or key, value=found.value or _shown(details["input"]))
        return
    match details["type"]:
        case "extra_forbidden":
            yield _unknown_key(details, key)
        case "missing":
            yield Problem(key, "", "is missing", f"add it: {_meaning(details['loc'])}")
        case "model_type":
            yield Problem(
                key, _shown(details["input"]), "is not a section", f"write it as [{key}] with its settings below"
            )
        case "tuple_type":
            yield Problem(key, _shown(details["input"]), "is not a list", f"it means: {_meaning(details['loc'])}")
        case _:
            complaint = details["msg"][0].lower() + details["msg"][1:]
            yield Problem(key, _shown(details["input"]), complaint, f"it means: {_meaning(details['loc'])}")


def _unknown_key(details: ErrorDetails, key: str) -> Problem:
    section = _section(details["loc"][:-1])
    known = sorted(section.model_fields) if section else []
    close = difflib.get_close_matches(str(details["loc"][-1]), known, n=1)
    remedy = f"did you mean {close[0]}?" if close else f"remove it; known here are: {', '.join(known)}"
    return Problem(key, _shown(details["input"]), "is not a setting", remedy)


def _section(location: tuple[int | str, ...]) -> type[BaseModel] | None:
    """Find the model that describes a place in the file."""
    model: type[BaseModel] = Topology
    for part in location:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        inner = next((t for t in (annotation, *get_args(annotation)) if _is_model(t)), None)
        if inner is None:
            return None
        model = inner
    return model


def _is_model(candidate: object) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)


def _meaning(location: tuple[int | str, ...]) -> str:
    names = tuple(part for part in location if isinstance(part, str))
    section = _section(names[:-1])
    field = section.model_fields.get(names[-1]) if section else None
    return (field.description if field else None) or "see docs/reference/lb.md"


def _shown(value: object) -> str:
    """Write a value as it would stand in the file, shortened."""
    # JSON and TOML agree on strings, numbers, booleans and lists.
    text = json.dumps(value, ensure_ascii=False, default=str)
    limit = 60
    return text if len(text) <= limit else text[: limit - 1] + "…"


__all__ = [
    "COMMAND_LINE",
    "Checks",
    "Endpoint",
    "Frontend",
    "Node",
    "NodesTls",
    "Process",
    "SameSite",
    "Statistics",
    "Stickiness",
    "Timeouts",
    "Topology",
    "build",
    "default_topology",
    "load",
    "parse_node",
]
