"""Links to the other nodes: where a node listens for them, and by which certificates they know each other."""

# ruff: noqa: RUF009 - the calls in the defaults make dataclass fields

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from gateway.core.loopback import is_loopback
from gateway.core.wire.codes import MirrorMode
from gateway.settings.declaration import optional, setting
from gateway.settings.errors import Problem
from gateway.settings.kinds import OneOf, Word
from gateway.settings.places import Advertised, File, Listen
from gateway.settings.quantities import Seconds, Whole
from gateway.settings.values import HostPort

_FILES: Final = ("link_tls_certificate", "link_tls_key", "link_tls_ca")


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """Links to the other nodes; files are read again on SIGHUP. See [Link the nodes](../how-to/link-the-nodes.md)."""

    link: HostPort | None = optional(
        Listen(),
        "Where the other nodes connect to this one. Open it to them, and to nobody else. Without certificates it must "
        "be on loopback, with dev.",
        absent="no links",
        reason="Nodes work without links. With them, a node that is drained hands its sessions over to the others, and "
        "their clients miss nothing.",
    )
    link_advertise: HostPort | None = optional(
        Advertised(),
        "Where the other nodes find this one; they read it in the grid.",
        absent="the address of link; the machine's name if that listens on all addresses",
        reason="Needed only where other nodes cannot use that address.",
    )
    link_tls_certificate: Path | None = optional(
        File(),
        "Certificate of the node in PEM, followed by those between it and its authority; it is shown to nodes that "
        "connect and to nodes that are dialled. A DNS name in it, or a URI urn:gateway:node:NAME, must name this node. "
        "`gateway keys link` makes one.",
        absent="no TLS, which only dev allows, on loopback",
        reason="Only you can say which nodes belong together.",
    )
    link_tls_key: Path | None = optional(
        File(),
        "Key of that certificate in PEM, without a passphrase.",
        absent="in the file of the certificate",
        reason="Some tools write one file, others two.",
    )
    link_tls_ca: Path | None = optional(
        File(),
        "Authorities in PEM by which this node checks the certificates of other nodes. Use one that vouches for "
        "nothing else: every certificate of it that names a node is believed.",
        absent="none; it is required with link_tls_certificate",
        reason="An authority of the system would vouch for strangers.",
    )
    heartbeat: float = setting(
        Seconds(0.05, 10),
        0.5,
        "How long a link is silent before the node sends a heartbeat. After ten of them without a sign of life from "
        "the other node the link is broken and dialled again. The same on all nodes.",
        reason="A hung node is noticed within a second or two, and a link costs some 100 bytes a second. Nodes never "
        "take over from each other because of it: leases decide.",
    )
    suspect_after: int = setting(
        Whole("heartbeats", 2, 100),
        3,
        "Heartbeats without a sign of life after which another node is suspected: it is shown so, and its lease is "
        "looked at until it is renewed or has ended. The same on all nodes.",
        reason="Fewer notice a failure sooner, and suspect nodes that only paused. A false suspicion costs some "
        "commands to the grid and changes nothing; see [Failure detection](../explanation/failure-detection.md).",
    )
    confirm: float = setting(
        Seconds(0.05, 60),
        0.5,
        "How often a node looks at the lease of a suspect. It looks besides when that lease ends.",
        reason="Seldom enough that a hundred nodes that miss one cost the grid 200 commands a second, for the seconds "
        "until its lease has ended.",
    )
    backup: str = setting(
        Word(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", "auto, off, or the name of a node"),
        "off",
        "Which node keeps a copy of each session of this one, so that clients lose nothing if this node dies: auto for "
        "one that the nodes agree on, in another failure_domain if there is one; or the name of a node. It needs link. "
        "See [Keep a backup of a node](../how-to/keep-a-backup.md).",
        reason="Copies cost processor time and memory of the backup; without them, clients are sent what they missed "
        "from the streams of the grid.",
    )
    mirror: MirrorMode = setting(
        OneOf(MirrorMode),
        MirrorMode.ASYNC,
        "What a client waits for, if this node has a backup: async for nothing; sync until the backup has what its "
        "packets follow from, so that nothing that it has seen is lost; strict likewise, even if the backup is gone. A "
        "role of the policy may ask for more.",
        reason="async costs no time, and what it may lose is declared. sync adds a round trip between two nodes.",
    )
    mirror_patience: float = setting(
        Seconds(0.01, 60),
        0.5,
        "How long packets wait for a backup that is silent, with mirror sync. Then they leave without it, and the "
        "client is told (unmirrored), until it has caught up.",
        reason="Longer than a backup ever pauses, and shorter than people wait.",
    )
    failure_domain: str = setting(
        Word(r"[A-Za-z0-9_.-]{0,63}", "up to 63 letters, digits, dots, dashes and underscores"),
        "",
        "What this node fails together with, such as its rack, machine or zone. A backup is chosen in another one.",
        reason="Only you can say what fails together. Nodes that say nothing count as apart from all others.",
    )


class _NodeWithLinks(Protocol):
    """What the checks below look at, of all settings."""

    @property
    def dev(self) -> bool: ...
    @property
    def link(self) -> HostPort | None: ...
    @property
    def node(self) -> str: ...
    @property
    def backup(self) -> str: ...
    @property
    def link_tls_certificate(self) -> Path | None: ...
    @property
    def link_tls_ca(self) -> Path | None: ...


def check_links(settings: _NodeWithLinks, place: Callable[[str], str]) -> Iterator[Problem]:
    """Yield what does not fit together.

    Args:
        settings: to check.
        place: tells where a setting was given.
    """
    if settings.link is None:
        for name in ("link_advertise", *_FILES):
            if getattr(settings, name) is not None:
                yield Problem(
                    place(name),
                    f"{name} is given without link",
                    f"give link, such as 0.0.0.0:8301, or leave {name} out",
                )
        if settings.backup != "off":
            yield Problem(
                place("backup"),
                "backup is given without link",
                "give link, such as 0.0.0.0:8301: copies go over links",
            )
        return
    if settings.backup == settings.node:
        yield Problem(
            place("backup"), "backup is this node itself", "give auto, or the name of another node: it has to survive"
        )
    if settings.link_tls_certificate is not None and settings.link_tls_ca is None:
        yield Problem(
            place("link_tls_certificate"),
            "link_tls_certificate is given without link_tls_ca",
            "give link_tls_ca, the authority of the other nodes' certificates: without it anybody could be a node",
        )
    if settings.link_tls_certificate is None:
        for name in ("link_tls_key", "link_tls_ca"):
            if getattr(settings, name) is not None:
                yield Problem(
                    place(name),
                    f"{name} is given without link_tls_certificate",
                    f"give link_tls_certificate, or leave {name} out",
                )
        yield from _clear_text(settings, settings.link, place)


def _clear_text(settings: _NodeWithLinks, link: HostPort, place: Callable[[str], str]) -> Iterator[Problem]:
    if settings.dev and is_loopback(link.host):
        return
    wrong = (
        f"link is {link}, without certificates, and not on loopback"
        if settings.dev
        else f"link is {link}, without certificates"
    )
    yield Problem(
        place("link"),
        wrong,
        "give link_tls_certificate, link_tls_key and link_tls_ca (`gateway keys link` makes them); on a developer's "
        "machine give --dev and a link such as 127.0.0.1:8301",
    )
