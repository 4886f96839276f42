"""Links to other clusters: where a node takes them, and by which certificates clusters know each other."""

# ruff: noqa: RUF009 - the calls in the defaults make dataclass fields

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from gateway.core.zones.protocol import MOST_SHARES
from gateway.settings.declaration import optional, setting
from gateway.settings.errors import Problem
from gateway.settings.places import Advertised, File, Listen
from gateway.settings.quantities import Bytes, Rate, Whole
from gateway.settings.values import HostPort

_FILES: Final = ("zone_tls_certificate", "zone_tls_key", "zone_tls_ca")


@dataclass(frozen=True, kw_only=True)
class ZoneLinkSettings:
    """Links to other clusters; files are read again on SIGHUP. See [Zone links](zone-links.md).

    Which zone a cluster is in, and what it is joined to, is no setting: administrators say it, and the grid holds it.
    """

    zone_listen: HostPort | None = optional(
        Listen(),
        "Where other clusters connect to this node. Open it to them, and to nobody else. It speaks TLS alone, with dev "
        "as well. Without it, with zone_tls_certificate, the node opens links to others and takes none.",
        absent="no links from other clusters",
        reason="Only you can say whether there are other clusters.",
    )
    zone_advertise: HostPort | None = optional(
        Advertised(),
        "Where other clusters find this node, or a TCP load balancer in front of all nodes.",
        absent="the address of zone_listen; the machine's name if that listens on all addresses",
        reason="Needed only where other clusters cannot use that address.",
    )
    zone_tls_certificate: Path | None = optional(
        File(),
        "Certificate of the node for links to other clusters, in PEM. Others know it by its fingerprint. The nodes of "
        "a cluster may share one. `gateway keys zone` makes one.",
        absent="no links to other clusters",
        reason="There is no clear text between clusters.",
    )
    zone_tls_key: Path | None = optional(
        File(),
        "Key of that certificate in PEM, without a passphrase.",
        absent="in the file of the certificate",
        reason="Some tools write one file, others two.",
    )
    zone_tls_ca: Path | None = optional(
        File(),
        "Authorities in PEM that vouch for the certificates of other clusters, or those certificates themselves. "
        "Whoever is vouched for may connect; what it may do then depends on its fingerprint and on the zone's secret.",
        absent="none; it is required with zone_tls_certificate",
        reason="An authority of the system would vouch for strangers.",
    )
    zone_shares: int = setting(
        Whole("links", 1, MOST_SHARES),
        1,
        "Links over which this cluster sends to each other one. Each carries its share of the topic partitions, and "
        "they are spread over the nodes. The same on all nodes.",
        reason="One link carries what one core can send; more are needed where that is not enough.",
    )
    zone_byte_rate: int = setting(
        Bytes(1024),
        48 * 1024 * 1024,
        "Bytes per second that one link of another cluster may bring. What comes faster waits at the sender.",
        reason="Half of a network of 1 Gbit/s, and more than a core can take in.",
    )
    zone_message_rate: float = setting(
        Rate("messages", 1),
        5_000.0,
        "Messages per second that one link of another cluster may bring, each with up to 500 events.",
        reason="A quarter of a core, however small they are.",
    )


class _NodeWithZoneLinks(Protocol):
    """What the checks below look at, of all settings."""

    @property
    def zone_listen(self) -> HostPort | None: ...
    @property
    def zone_advertise(self) -> HostPort | None: ...
    @property
    def zone_tls_certificate(self) -> Path | None: ...
    @property
    def zone_tls_ca(self) -> Path | None: ...


def check_zone_links(settings: _NodeWithZoneLinks, place: Callable[[str], str]) -> Iterator[Problem]:
    """Yield what does not fit together.

    Args:
        settings: to check.
        place: tells where a setting was given.
    """
    if settings.zone_listen is None and settings.zone_advertise is not None:
        yield Problem(
            place("zone_advertise"),
            "zone_advertise is given without zone_listen",
            "give zone_listen, such as 0.0.0.0:8401, or leave zone_advertise out",
        )
    if settings.zone_tls_certificate is None:
        for name in ("zone_listen", *_FILES[1:]):
            if getattr(settings, name) is not None:
                yield Problem(
                    place(name),
                    f"{name} is given without zone_tls_certificate",
                    "give zone_tls_certificate and zone_tls_ca (`gateway keys zone` makes them): links between "
                    f"clusters are never in clear text; or leave {name} out",
                )
    elif settings.zone_tls_ca is None:
        yield Problem(
            place("zone_tls_certificate"),
            "zone_tls_certificate is given without zone_tls_ca",
            "give zone_tls_ca, the authority of the other clusters' certificates, or those certificates in one file",
        )
