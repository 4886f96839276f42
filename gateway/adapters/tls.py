"""Makes a port speak TLS: certificate, key and the authority of its clients come from files, and again on SIGHUP.

Nothing of a new set of files is in force before all of it was found good. Connections keep what they began with.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from ssl import (
    CERT_REQUIRED,
    OP_NO_COMPRESSION,
    OP_NO_RENEGOTIATION,
    OP_NO_TICKET,
    PROTOCOL_TLS_SERVER,
    SSLContext,
    SSLError,
    TLSVersion,
)
from typing import Final

from cryptography import x509

from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.wire.errors import GatewayError
from gateway.ports import EventLog, Metrics

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


class CertificateError(GatewayError):
    """Files for TLS cannot be used; the message names the file, and never repeats what is in it."""


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
            raise CertificateError(f"{self._key}: the key has a passphrase; give it without one, mode 600") from None
        if self._client_ca is not None:
            try:
                context.load_verify_locations(self._client_ca)
            except OSError as error:
                raise CertificateError(
                    f"{self._client_ca}: holds no certificates of authorities ({_reason(error)})"
                ) from None
            context.verify_mode = CERT_REQUIRED
        return context, expires

    def _complaint(self, error: OSError) -> CertificateError:
        if not isinstance(error, SSLError):
            return CertificateError(
                f"{self._key}: the key cannot be read ({_reason(error)}); name a file that this user may read"
            )
        if error.reason == "KEY_VALUES_MISMATCH":
            return CertificateError(f"{self._key}: is the key of another certificate than {self._certificate}")
        return CertificateError(f"{self._key}: is no key in PEM for {self._certificate} ({_reason(error)})")


def _expiry(file: Path) -> float:
    """Read when a certificate expires; it must not have done so."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise CertificateError(
            f"{file}: the certificate cannot be read ({_reason(error)}); name a file that this user may read"
        ) from None
    try:
        certificate = x509.load_pem_x509_certificates(content)[0]
        expires = certificate.not_valid_after_utc
    except ValueError:
        raise CertificateError(f"{file}: holds no certificate in PEM") from None
    if expires <= datetime.fromtimestamp(time.time(), UTC):
        raise CertificateError(f"{file}: the certificate expired on {expires:%Y-%m-%d}; renew it")
    return expires.timestamp()


def _refuse_to_ask() -> str:
    raise _Encrypted


def _reason(error: OSError) -> str:
    return (error.reason if isinstance(error, SSLError) else error.strerror) or type(error).__name__


class TlsPorts:
    """The ports that speak TLS.

    Args:
        ports: by name; the names are those of the metric's label.
        metrics: where it can be read when their certificates expire.
        log: where it is told what a reload has done.
    """

    def __init__(self, ports: Mapping[str, ServerTls], *, metrics: Metrics, log: EventLog) -> None:
        self._ports = dict(ports)
        self._log = log
        for name, tls in self._ports.items():
            metrics.watch(catalogue.CERTIFICATE_EXPIRY, lambda tls=tls: tls.expires, label=name)  # type: ignore[misc]

    def get(self, name: str) -> ServerTls | None:
        """Return what a port needs to speak TLS; None if it speaks none."""
        return self._ports.get(name)

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
