"""Makes a port speak TLS: certificate, key and the authority of its clients come from files, and again on SIGHUP.

Nothing of a new set of files is in force before all of it was found good. Connections keep what they began with.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from ssl import (
    CERT_REQUIRED,
    OP_NO_COMPRESSION,
    OP_NO_RENEGOTIATION,
    OP_NO_TICKET,
    PROTOCOL_TLS_CLIENT,
    PROTOCOL_TLS_SERVER,
    SSLContext,
    SSLError,
    TLSVersion,
)
from typing import Final, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.wire.errors import GatewayError
from gateway.ports import EventLog, Metrics
from gateway.ports.peers import NODE_URI

CIPHERS: Final = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
)
"""Of TLS 1.2: those with forward secrecy and authenticated encryption. All of TLS 1.3 have both."""

ALPN: Final = ("http/1.1",)
"""A WebSocket here begins with HTTP/1.1; who offers only others is told so in the handshake."""

LINK_ALPN: Final = ("gateway-link",)
"""Of links between nodes."""

ZONE_ALPN: Final = ("gateway-zone",)
"""Of links between clusters."""


class CertificateError(GatewayError):
    """Files for TLS cannot be used; the message names the file, and never repeats what is in it.

    Args:
        file: which of them.
        complaint: what is wrong with it.
        remedy: what to do.

    Attributes:
        file: as given.
        complaint: as given.
        remedy: as given.
    """

    def __init__(self, file: Path, complaint: str, remedy: str) -> None:
        self.file = file
        self.complaint = complaint
        self.remedy = remedy
        super().__init__(f"{file}: {complaint}; {remedy}")


_READABLE: Final = "name a file that this user may read"
_CERTIFICATES: Final = "name a file with the certificate in PEM, followed by those between it and its authority"


class _Encrypted(Exception):
    """OpenSSL asks for a passphrase, and nobody is there to type one."""


class ServerTls:
    """What one port needs to speak TLS.

    Args:
        certificate: PEM: the certificate, then those between it and its authority.
        key: PEM, without a passphrase; None if it stands in the file of the certificate.
        client_ca: PEM of the authorities that vouch for clients; without it nobody is asked for a certificate.

    Raises:
        CertificateError: they cannot be used.
    """

    def __init__(self, certificate: Path, *, key: Path | None = None, client_ca: Path | None = None) -> None:
        self._certificate = certificate
        self._key = key or certificate
        self._client_ca = client_ca
        self._context, self._expires = self._load()

    @property
    def expires(self) -> float:
        """When the certificate expires, in seconds since 1970."""
        return self._expires

    def context(self) -> SSLContext:
        """Tell how to speak TLS with a connection that begins now."""
        return self._context

    def reload(self) -> None:
        """Read the files again; connections that begin from now on get what they say.

        Raises:
            CertificateError: they cannot be used; what was in force stays so.
        """
        self._context, self._expires = self._load()

    def _load(self) -> tuple[SSLContext, float]:
        expires = _expiry(self._certificate)
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.minimum_version = TLSVersion.TLSv1_2
        context.set_ciphers(":".join(CIPHERS))
        context.set_alpn_protocols(list(ALPN))
        # Sessions are not resumed: keys of tickets would live as long as the process, and who gets them could read what
        # was recorded. What a full handshake costs with an elliptic key is little beside the rest of a reconnect.
        context.options |= OP_NO_COMPRESSION | OP_NO_RENEGOTIATION | OP_NO_TICKET
        context.num_tickets = 0
        try:
            context.load_cert_chain(self._certificate, self._key, password=_refuse_to_ask)
        except OSError as error:
            raise self._complaint(error) from None
        except _Encrypted:
            raise CertificateError(self._key, "the key has a passphrase", "give it without one, mode 600") from None
        if self._client_ca is not None:
            try:
                context.load_verify_locations(self._client_ca)
            except OSError as error:
                raise no_authorities(self._client_ca, error) from None
            context.verify_mode = CERT_REQUIRED
        return context, expires

    def _complaint(self, error: OSError) -> CertificateError:
        if not isinstance(error, SSLError):
            return CertificateError(self._key, f"the key cannot be read ({_reason(error)})", _READABLE)
        if error.reason == "KEY_VALUES_MISMATCH":
            return CertificateError(
                self._key,
                f"is the key of another certificate than {self._certificate}",
                "name the two that belong together",
            )
        return CertificateError(
            self._key, f"is no key in PEM for {self._certificate} ({_reason(error)})", "name a file with the key in PEM"
        )


class MutualTls:
    """What a port needs to speak TLS in both roles with others of this project: each side shows a certificate.

    Only TLS 1.3: both ends are of this project. Names are not compared with addresses; whoever makes a link finds out
    by itself who is at the other end.

    Args:
        certificate: PEM, as for ``ServerTls``.
        key: PEM, without a passphrase; None if it stands in the file of the certificate.
        ca: PEM of the authorities that vouch for the others.
        alpn: protocols that are spoken.

    Raises:
        CertificateError: they cannot be used.
    """

    def __init__(self, certificate: Path, *, key: Path | None, ca: Path, alpn: Sequence[str]) -> None:
        self._certificate = certificate
        self._key = key or certificate
        self._ca = ca
        self._alpn = list(alpn)
        self._files, self._dialing, self._fingerprint = self._load()

    @property
    def expires(self) -> float:
        """When the certificate expires, in seconds since 1970."""
        return self._files.expires

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, in lower-case hexadecimal."""
        return self._fingerprint

    def accepting(self) -> SSLContext:
        """Tell how to speak TLS with somebody who connects now."""
        return self._files.context()

    def dialing(self) -> SSLContext:
        """Tell how to speak TLS with somebody who is dialled now."""
        return self._dialing

    def reload(self) -> None:
        """Read the files again; links that begin from now on get what they say.

        Raises:
            CertificateError: they cannot be used; what was in force stays so.
        """
        self._files, self._dialing, self._fingerprint = self._load()

    def _load(self) -> tuple[ServerTls, SSLContext, str]:
        files = ServerTls(self._certificate, key=self._key, client_ca=self._ca)
        dialing = SSLContext(PROTOCOL_TLS_CLIENT)
        dialing.check_hostname = False
        dialing.load_cert_chain(self._certificate, self._key, password=_refuse_to_ask)
        dialing.load_verify_locations(self._ca)
        for context in (files.context(), dialing):
            context.minimum_version = TLSVersion.TLSv1_3
            context.set_alpn_protocols(self._alpn)
        shown = x509.load_pem_x509_certificates(self._certificate.read_bytes())[0]
        return files, dialing, shown.fingerprint(hashes.SHA256()).hex()


class LinkTls(MutualTls):
    """What a node needs to speak TLS with other nodes of its cluster.

    Who makes a link compares the names in the certificate with the name of the node.

    Args:
        node: name of this node, for which the certificate must be.
        certificate: as for ``MutualTls``.
        key: likewise.
        ca: likewise.

    Raises:
        CertificateError: they cannot be used.
    """

    def __init__(self, node: str, certificate: Path, *, key: Path | None, ca: Path) -> None:
        self._node = node
        super().__init__(certificate, key=key, ca=ca, alpn=LINK_ALPN)

    def _load(self) -> tuple[ServerTls, SSLContext, str]:
        loaded = super()._load()
        names = node_names(self._certificate)
        if self._node not in names:
            raise CertificateError(
                self._certificate,
                f"the certificate is for {', '.join(sorted(names)) or 'no node'}, and this node is {self._node}",
                f"make one with gateway keys link {self._node}",
            )
        return loaded


class ZoneTls(MutualTls):
    """What a node needs to speak TLS with other clusters, which know its certificate by its fingerprint.

    Args:
        certificate: as for ``MutualTls``.
        key: likewise.
        ca: likewise.

    Raises:
        CertificateError: they cannot be used.
    """

    def __init__(self, certificate: Path, *, key: Path | None, ca: Path) -> None:
        super().__init__(certificate, key=key, ca=ca, alpn=ZONE_ALPN)


def no_authorities(file: Path, error: OSError) -> CertificateError:
    """Say that a file has no certificates of authorities, or cannot be read."""
    return CertificateError(
        file, f"holds no certificates of authorities ({_reason(error)})", "name a file with their certificates in PEM"
    )


def node_names(certificate: Path) -> frozenset[str]:
    """List the nodes that a certificate is for: its DNS names, and what its URIs name.

    Raises:
        CertificateError: it cannot be read.
    """
    try:
        first = x509.load_pem_x509_certificates(certificate.read_bytes())[0]
        names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    except OSError as error:
        raise CertificateError(certificate, f"the certificate cannot be read ({_reason(error)})", _READABLE) from None
    except ValueError:
        raise CertificateError(certificate, "holds no certificate in PEM", _CERTIFICATES) from None
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return frozenset(
        (
            *names.get_values_for_type(x509.DNSName),
            *(uri.removeprefix(NODE_URI) for uri in uris if uri.startswith(NODE_URI)),
        )
    )


def _expiry(file: Path) -> float:
    """Read when a certificate expires; it must not have done so."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise CertificateError(file, f"the certificate cannot be read ({_reason(error)})", _READABLE) from None
    try:
        certificate = x509.load_pem_x509_certificates(content)[0]
        expires = certificate.not_valid_after_utc
    except ValueError:
        raise CertificateError(file, "holds no certificate in PEM", _CERTIFICATES) from None
    if expires <= datetime.fromtimestamp(time.time(), UTC):
        raise CertificateError(file, f"the certificate expired on {expires:%Y-%m-%d}", "renew it")
    return expires.timestamp()


def _refuse_to_ask() -> str:
    raise _Encrypted


def _reason(error: OSError) -> str:
    return (error.reason if isinstance(error, SSLError) else error.strerror) or type(error).__name__


class PortTls(Protocol):
    """The files of one port."""

    @property
    def expires(self) -> float:
        """When the certificate expires, in seconds since 1970."""

    def reload(self) -> None:
        """Read them again.

        Raises:
            CertificateError: they cannot be used; what was in force stays so.
        """


class TlsPorts:
    """The ports that speak TLS.

    Args:
        ports: by name; the names are those of the metric's label.
        links: of links to other nodes, if they speak TLS.
        zones: of links to other clusters, if there are any.
        metrics: where it can be read when their certificates expire.
        log: where it is told what a reload has done.

    Attributes:
        links: as given.
        zones: as given.
    """

    def __init__(
        self,
        ports: Mapping[str, ServerTls],
        *,
        links: LinkTls | None = None,
        zones: ZoneTls | None = None,
        metrics: Metrics,
        log: EventLog,
    ) -> None:
        self._servers = dict(ports)
        self.links = links
        self.zones = zones
        mutual = {"links": links, "zones": zones}
        self._ports: dict[str, PortTls] = {**ports, **{name: tls for name, tls in mutual.items() if tls is not None}}
        self._log = log
        for name, tls in self._ports.items():
            metrics.watch(catalogue.CERTIFICATE_EXPIRY, lambda tls=tls: tls.expires, label=name)  # type: ignore[misc]

    def get(self, name: str) -> ServerTls | None:
        """Return what a port needs to speak TLS; None if it speaks none."""
        return self._servers.get(name)

    def reload(self) -> None:
        """Read all files again. Bad ones are told of in the log, and their port keeps what it had."""
        for name, tls in self._ports.items():
            try:
                tls.reload()
            except CertificateError as error:
                self._log.emit(events.CERTIFICATE_KEPT, port=name, error=str(error))
            else:
                expires = datetime.fromtimestamp(tls.expires, UTC).isoformat()
                self._log.emit(events.CERTIFICATE_RELOADED, port=name, expires=expires)
