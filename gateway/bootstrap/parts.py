"""Single parts of a node, made of settings."""

from __future__ import annotations

import socket
import time

from gateway.adapters.logging import StructuredEventLog
from gateway.adapters.memory import MemoryGrid, MemoryGridServer
from gateway.adapters.peers import LinkPlace, StreamPeerLinks
from gateway.adapters.redis import RedisGrid
from gateway.adapters.tls import LinkTls, ZoneTls
from gateway.adapters.zone_links import StreamZoneLinks
from gateway.bootstrap.parameters import zone_limits
from gateway.catalogue.log_event import Level
from gateway.core.mirror.frames import FEATURE
from gateway.core.types import NodeRef
from gateway.ports import EventLog, Grid, Metrics
from gateway.ports.administration import SettingView
from gateway.settings import SETTINGS, HostPort, Settings


def event_log(settings: Settings) -> StructuredEventLog:
    """Make the log that the settings ask for; it writes to standard output."""
    return StructuredEventLog(
        node=settings.node, format=settings.log_format.value, level=Level[settings.log_level.name]
    )


def zone_links_of(settings: Settings, tls: ZoneTls | None, *, metrics: Metrics) -> StreamZoneLinks | None:
    """Make the port for links to other clusters; None if there are none."""
    if tls is None:
        return None
    listen = settings.zone_listen
    host, port = ("", 0) if listen is None else (listen.host, listen.port)
    advertised = settings.zone_advertise or _reached(listen)
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
    advertised = settings.link_advertise or _reached(settings.link)
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
    """Where other nodes reach the admin port.

    Args:
        settings: of this node.
        port: on which it listens.
    """
    given = settings.admin_advertise or _reached(settings.admin)
    scheme = "http" if settings.admin_tls_certificate is None else "https"
    return f"{scheme}://{HostPort(given.host, given.port or port)}"


def _reached(listen: HostPort | None) -> HostPort:
    """Where others reach what this node listens on, unless somebody says; port 0 stands for the one it is then."""
    if listen is None:
        return HostPort("", 0)
    return HostPort(socket.gethostname() if listen.is_everywhere else listen.host, 0)
