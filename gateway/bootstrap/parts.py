"""Single parts of a node, made of settings."""

from __future__ import annotations

import socket
import time
from ssl import SSLContext, create_default_context
from typing import Final

from gateway import __version__
from gateway.adapters.logging import StructuredEventLog
from gateway.adapters.memory import MemoryGrid, MemoryGridServer
from gateway.adapters.peers import LinkPlace, StreamPeerLinks
from gateway.adapters.redis import RedisGrid
from gateway.adapters.tls import LinkTls, ServerTls, ZoneTls
from gateway.adapters.zone_links import StreamZoneLinks
from gateway.app.journal import JournalOptions
from gateway.app.journal.principals import hashed_with
from gateway.bootstrap.parameters import zone_limits
from gateway.catalogue.log_event import Level
from gateway.core.mirror.frames import FEATURE
from gateway.core.types import NodeRef
from gateway.ports import EventLog, Grid, Metrics
from gateway.ports.administration import SettingView
from gateway.settings import SETTINGS, ConfigurationError, HostPort, Settings
from gateway.settings.errors import Problem
from gateway.settings.places import read_keys

_EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - it is asked for, not bound
"""Hosts that stand for all addresses of a machine, and are none themselves."""


def event_log(settings: Settings) -> StructuredEventLog:
    """Make the log that the settings ask for; it writes to standard output."""
    return StructuredEventLog(
        node=settings.node, format=settings.log_format.value, level=Level[settings.log_level.name]
    )


def server_tls(settings: Settings) -> dict[str, ServerTls]:
    """Read the certificates of the ports that have any, by ``clients`` and ``admin``.

    Raises:
        CertificateError: one cannot be used.
    """
    files = {
        "clients": (settings.tls_certificate, settings.tls_key, settings.tls_client_ca),
        "admin": (settings.admin_tls_certificate, settings.admin_tls_key, settings.admin_tls_client_ca),
    }
    return {
        port: ServerTls(certificate, key=key, client_ca=authority)
        for port, (certificate, key, authority) in files.items()
        if certificate is not None
    }


def link_tls(settings: Settings) -> LinkTls | None:
    """Read the certificates of links; None if there are none, or no links.

    Raises:
        CertificateError: they cannot be used.
    """
    if settings.link is None or settings.link_tls_certificate is None or settings.link_tls_ca is None:
        return None
    return LinkTls(settings.node, settings.link_tls_certificate, key=settings.link_tls_key, ca=settings.link_tls_ca)


def zone_tls(settings: Settings) -> ZoneTls | None:
    """Read the certificate of links to other clusters; None if there are none.

    Raises:
        CertificateError: they cannot be used.
    """
    if settings.zone_tls_certificate is None or settings.zone_tls_ca is None:
        return None
    return ZoneTls(settings.zone_tls_certificate, key=settings.zone_tls_key, ca=settings.zone_tls_ca)


def zone_links_of(settings: Settings, tls: ZoneTls | None, *, metrics: Metrics) -> StreamZoneLinks | None:
    """Make the port for links to other clusters; None if there are none."""
    if tls is None:
        return None
    listen = settings.zone_listen
    host, port = ("", 0) if listen is None else (listen.host, listen.port)
    advertised = settings.zone_advertise or HostPort(socket.gethostname() if host in _EVERYWHERE else host, 0)
    return StreamZoneLinks(
        None if listen is None else host,
        port,
        advertised=(advertised.host, advertised.port),
        tls=tls,
        metrics=metrics,
        limits=zone_limits(settings),
    )


def links_of(
    settings: Settings, me: NodeRef, tls: LinkTls | None, *, started: float, metrics: Metrics, log: EventLog
) -> StreamPeerLinks | None:
    """Make the links to other nodes; None if none are configured."""
    if settings.link is None:
        return None
    listens_everywhere = settings.link.host in _EVERYWHERE
    advertised = settings.link_advertise or HostPort(
        socket.gethostname() if listens_everywhere else settings.link.host, 0
    )
    return StreamPeerLinks(
        me,
        started=started,
        place=LinkPlace(settings.link.host, settings.link.port, (advertised.host, advertised.port)),
        tls=tls,
        metrics=metrics,
        log=log,
        heartbeat=settings.heartbeat,
        features=(FEATURE,),
    )


def grid_of(settings: Settings, me: NodeRef, metrics: Metrics, log: EventLog, memory: MemoryGridServer | None) -> Grid:
    """Make the node's way to the grid: Redis, or if none is configured *memory* or a memory of its own."""
    if settings.grid is None:
        server = memory or MemoryGridServer(
            now=time.monotonic,
            stream_length=settings.stream_length,
            stream_bytes=settings.stream_bytes,
            history_bytes=settings.history_bytes,
            journal_length=settings.journal_length,
            topic_depth=settings.topic_depth,
        )
        return MemoryGrid(server, node=me)
    return RedisGrid(
        settings.grid,
        prefix=settings.grid_prefix,
        node=me,
        metrics=metrics,
        log=log,
        stream_length=settings.stream_length,
        stream_bytes=settings.stream_bytes,
        history_bytes=settings.history_bytes,
        journal_length=settings.journal_length,
        timeout=settings.grid_timeout,
        topic_depth=settings.topic_depth,
    )


def journal_of(settings: Settings) -> JournalOptions | None:
    """Say how the session journal is written; None if none is.

    Raises:
        ConfigurationError: the key for hashed principals cannot be used; the message does not repeat it.
    """
    if not settings.journal:
        return None
    file = settings.journal_principals_key_file
    if file is None:
        return JournalOptions(release=__version__)
    keys, problems = read_keys(file, "journal_principals_key_file")
    if len(keys) > 1:
        problems.append(
            Problem(
                "journal_principals_key_file", f"{file} holds {len(keys)} keys", "leave one: hashes must not change"
            )
        )
    if problems:
        raise ConfigurationError(problems)
    return JournalOptions(release=__version__, principals=hashed_with(keys[0].reveal().encode()))


def effective_configuration(settings: Settings) -> tuple[SettingView, ...]:
    """What the node runs with, for administrators; secrets are masked."""
    views = []
    for each in SETTINGS.values():
        value = getattr(settings, each.name)
        views.append(
            SettingView(
                name=each.name,
                group=each.group,
                value=each.show(value),
                changed=value != each.default,
                meaning=each.declared.meaning,
            )
        )
    return tuple(views)


def admin_names(settings: Settings) -> tuple[str, ...]:
    """Names by which the admin port may be asked for."""
    given = () if settings.admin_advertise is None else (settings.admin_advertise.host,)
    return (*settings.admin_hosts, settings.admin.host, *given, socket.gethostname())


def advertised_admin(settings: Settings, port: int) -> str:
    """Where other nodes reach the admin port."""
    everywhere = settings.admin.host in _EVERYWHERE
    listening = HostPort(socket.gethostname() if everywhere else settings.admin.host, port)
    scheme = "http" if settings.admin_tls_certificate is None else "https"
    return f"{scheme}://{settings.admin_advertise or listening}"


def tls_to_nodes(settings: Settings) -> SSLContext:
    """How to speak TLS with other nodes' admin ports; read anew each time, as certificates are renewed."""
    context = create_default_context(cafile=settings.admin_tls_ca)
    if settings.admin_tls_certificate is not None:
        context.load_cert_chain(settings.admin_tls_certificate, settings.admin_tls_key)
    return context
