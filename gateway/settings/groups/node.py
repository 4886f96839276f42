"""What a node is called, where it listens, and which of its ports speak TLS, with which files."""

# ruff: noqa: RUF009 - the calls in the defaults make dataclass fields

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.core.wire.codes import ClusterMode
from gateway.settings.declaration import computed, optional, setting
from gateway.settings.errors import Problem
from gateway.settings.interfaces import Interface, Interfaces
from gateway.settings.kinds import OneOf, Several, Switch, Word
from gateway.settings.places import Advertised, File, Listen
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
        reason="Loopback: nothing can be reached from outside unless you choose so.",
    )
    interface: tuple[Interface, ...] = setting(
        Interfaces(),
        (),
        "Where the node listens, if listen does not say enough: several places for clients, with TLS or without, and "
        "one for the other nodes (links), in the place of link. See "
        "[Separate client and cluster traffic](../how-to/separate-client-and-cluster-traffic.md).",
        reason="One place is enough for most.",
        absent="one for clients, at listen",
    )
    admin: HostPort = setting(
        Listen(),
        HostPort("127.0.0.1", 9101),
        "Where /healthz, /readyz, /metrics and the admin API are served. Do not expose it to clients: the first three "
        "have no authentication.",
        reason="Loopback, as for listen.",
    )
    admin_advertise: HostPort | None = optional(
        Advertised(),
        "Where other nodes reach the admin port, for requests that only this node can answer.",
        absent="the address of admin; the machine's name if that listens on all addresses",
        reason="Needed only where other nodes cannot use that address.",
    )
    admin_hosts: tuple[str, ...] = setting(
        Several(
            Word(r"\*|[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})", "names of hosts"),
            "names",
        ),
        (),
        "Host names that requests to the admin API may use, besides addresses, localhost and the name of this machine; "
        "* is any.",
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
    cluster: str | None = optional(
        Word(_NAME_PATTERN, "up to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit"),
        "Name of the cluster, for people: other clusters of its zone show it. The same on all nodes. See "
        "[Connect clusters](../how-to/connect-clusters.md).",
        absent="no name; other clusters show its id",
        reason="A cluster has a random id that tells it from all others.",
    )
    cluster_mode: ClusterMode = setting(
        OneOf(ClusterMode),
        ClusterMode.ACTIVE,
        "Which nodes serve clients: active for all, replication for the master alone, while the others stand by. The "
        "same on all nodes. Administrators are served everywhere. See "
        "[Follow the master](../how-to/follow-the-master.md).",
        reason="With replication a cluster has the capacity of one node.",
    )
    dev: bool = setting(
        Switch(),
        False,
        "Development mode: where no token keys or no authentication are configured, a random key and anonymous "
        "principals take their place, with a warning.",
        reason="Insecure shortcuts must be asked for.",
    )
    uvloop: bool = setting(
        Switch(),
        True,
        "Run on uvloop where it is installed.",
        reason="It writes to sockets with less work per message than the event loop of the standard library.",
    )


@dataclass(frozen=True, kw_only=True)
class TlsSettings:
    """TLS of the node's own ports, renewed on SIGHUP. See [Serve over TLS](../how-to/serve-over-tls.md)."""

    tls_certificate: Path | None = optional(
        File(),
        "Certificate of the client port in PEM, followed by those between it and its authority. With it clients must "
        "use TLS.",
        absent="no TLS: it ends at the load balancer",
        reason="Where HAProxy and the nodes share a trusted network, encrypting once is enough.",
    )
    tls_key: Path | None = optional(
        File(),
        "Key of that certificate in PEM, without a passphrase.",
        absent="in the file of the certificate",
        reason="Some tools write one file, others two.",
    )
    tls_client_ca: Path | None = optional(
        File(),
        "Authorities in PEM; clients of the client port must show a certificate of one of them. For load "
        "balancers that connect to nodes.",
        absent="no certificate is required",
        reason="Clients authenticate in their first packet.",
    )
    admin_tls_certificate: Path | None = optional(
        File(),
        "Certificate of the admin port in PEM; with it the port speaks TLS only, also with HAProxy's checks and "
        "Prometheus.",
        absent="no TLS",
        reason="The port belongs on an inner network.",
    )
    admin_tls_key: Path | None = optional(
        File(),
        "Key of that certificate in PEM, without a passphrase.",
        absent="in the file of the certificate",
        reason="Some tools write one file, others two.",
    )
    admin_tls_client_ca: Path | None = optional(
        File(),
        "Authorities in PEM; clients of the admin port, also of /healthz, must show a certificate of one of them.",
        absent="no certificate is required",
        reason="Mutual TLS needs a certificate for each operator, HAProxy and Prometheus.",
    )
    admin_tls_ca: Path | None = optional(
        File(),
        "Authorities in PEM by which this node checks the certificates of other nodes' admin ports, when it forwards "
        "the request of an administrator. It shows the certificate of its own admin port.",
        absent="those of the system",
        reason="Needed where the certificates come from an authority of your own.",
    )


def check_tls(settings: TlsSettings, place: Callable[[str], str]) -> Iterator[Problem]:
    """Yield what does not fit together.

    Args:
        settings: to check.
        place: tells where a setting was given.
    """
    for port in ("", "admin_"):
        certificate = f"{port}tls_certificate"
        for name in (f"{port}tls_key", f"{port}tls_client_ca"):
            if getattr(settings, name) is not None and getattr(settings, certificate) is None:
                yield Problem(
                    place(name), f"{name} is given without {certificate}", f"give {certificate}, or leave {name} out"
                )
