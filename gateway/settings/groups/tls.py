"""Settings about TLS: which of the node's ports speak it, and with which files."""

# ruff: noqa: RUF009 - the calls in the defaults make dataclass fields

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gateway.settings.declaration import optional
from gateway.settings.errors import Problem
from gateway.settings.places import File


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
        "Authorities in PEM; whoever connects to the client port must show a certificate of one of them. For load "
        "balancers that connect to nodes.",
        absent="nobody is asked for a certificate",
        reason="Clients prove who they are in their first packet.",
    )
    admin_tls_certificate: Path | None = optional(
        File(),
        "Certificate of the admin port in PEM; with it the port must be asked over TLS, also by HAProxy's checks and "
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
        "Authorities in PEM; whoever asks the admin port, also for /healthz, must show a certificate of one of them.",
        absent="nobody is asked for a certificate",
        reason="Mutual TLS needs a certificate for each operator, HAProxy and Prometheus.",
    )
    admin_tls_ca: Path | None = optional(
        File(),
        "Authorities in PEM by which this node checks the certificates of other nodes' admin ports, when it asks them "
        "for an administrator. It shows its own certificate of that port.",
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
