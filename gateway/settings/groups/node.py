"""What a node is called, and where it listens."""

# ruff: noqa: RUF009 - the calls in the defaults make dataclass fields

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.settings.declaration import computed, optional, setting
from gateway.settings.kinds import Several, Switch, Word
from gateway.settings.places import File, Listen
from gateway.settings.values import HostPort

_NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"


def _host_name() -> str:
    """The machine's short name, made fit to be a node's."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname().partition(".")[0]).strip("-_")[:63]
    return name or "node"


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """What the node is called and where it listens."""

    node: str = computed(
        Word(_NAME_PATTERN, "up to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit"),
        _host_name,
        "Name of the node, unique in the cluster; clients send it back as their route hint, and HAProxy knows the "
        "server by it.",
        default_text="the machine's short host name",
        reason="Unique where every node has its own machine or container; several nodes on one machine must be named.",
    )
    listen: HostPort = setting(
        Listen(),
        HostPort("127.0.0.1", 8101),
        "Where clients connect.",
        reason="Loopback: nothing can be reached from outside before somebody decides so.",
    )
    admin: HostPort = setting(
        Listen(),
        HostPort("127.0.0.1", 9101),
        "Where /healthz, /readyz, /metrics and the admin API are served. Keep it away from clients: the first three "
        "have no authentication.",
        reason="Loopback, as for listen.",
    )
    admin_advertise: HostPort | None = optional(
        Listen(),
        "Where the other nodes reach the admin port, to ask for what only this node knows.",
        absent="the address of admin; the machine's name if that listens on all addresses",
        reason="Needed only where that address means nothing to other nodes.",
    )
    admin_hosts: tuple[str, ...] = setting(
        Several(
            Word(r"\*|[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})", "names of hosts"),
            "names",
        ),
        (),
        "Names by which the admin API may be asked for, besides addresses, localhost and the name of this machine; * "
        "is any.",
        reason="A page that has its own name resolve to this node must not get an answer (DNS rebinding).",
        absent="no others",
    )
    admin_tokens_file: Path | None = optional(
        File(),
        "File of administrators, one name:roles:hash a line, as gateway admin token create makes them. The same on all "
        "nodes.",
        absent="the admin API is off",
        reason="There is no safe default.",
    )
    agent: HostPort | None = optional(
        Listen(),
        "Where HAProxy's agent check is answered.",
        absent="no agent check",
        reason="Only HAProxy asks for it.",
    )
    dev: bool = setting(
        Switch(),
        False,
        "Development mode: where no token keys or no authentication are configured, a random key and anonymous "
        "principals take their place, loudly.",
        reason="Insecure shortcuts must be asked for.",
    )
    uvloop: bool = setting(
        Switch(),
        True,
        "Run on uvloop where it is installed.",
        reason="It writes to sockets with less work per message than the event loop of the standard library.",
    )
