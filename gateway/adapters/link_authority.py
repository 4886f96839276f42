"""A small authority for the certificates of links, in a folder: for ``gateway keys link`` and ``gateway keys zone``.

```text
link-ca.pem   link_tls_ca of all nodes                     link-ca.key   signs; no node needs it
n1.pem        link_tls_certificate of n1                   n1.key        link_tls_key of n1
zone-ca.pem   zone_tls_ca of all clusters                  zone-ca.key   signs; no node needs it
london.pem    zone_tls_certificate of cluster london       london.key    zone_tls_key of it
```

Nothing is ever overwritten, and what is private is readable by its owner alone from its first moment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gateway.core.wire.errors import GatewayError
from gateway.ports.peers import NODE_URI

CA_DAYS: Final = 3650
"""Life of the authority: to change it, all nodes have to learn of the new one first, which is nobody's yearly joy."""

NODE_DAYS: Final = 365
"""Life of a node's certificate, unless asked otherwise; an alert tells two weeks before its end."""

EARLY: Final = timedelta(hours=1)
"""For which certificates are valid before they were made: clocks of machines differ."""

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644
"""Modes of files."""

_NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""Names of nodes, as the setting ``node`` allows them."""


CLUSTER_URI: Final = "urn:gateway:cluster:"
"""Begins the URI in a certificate of a cluster; only people read it, as others know it by its fingerprint."""


@dataclass(frozen=True, slots=True)
class AuthorityKind:
    """What certificates are for.

    Attributes:
        file: of the authority's certificate.
        key_file: of its key.
        subject: of the authority.
        uri: begins the URI that names whom a certificate is for.
    """

    file: str
    key_file: str
    subject: str
    uri: str


LINKS: Final = AuthorityKind("link-ca.pem", "link-ca.key", "gateway node links", NODE_URI)
"""Links between the nodes of a cluster."""

ZONES: Final = AuthorityKind("zone-ca.pem", "zone-ca.key", "gateway zone links", CLUSTER_URI)
"""Links between clusters."""


class LinkAuthorityError(GatewayError):
    """Certificates could not be made; the message tells why and what to do. Nothing was written."""


@dataclass(frozen=True, slots=True)
class MadeCertificates:
    """What was made.

    Attributes:
        ca: the authority's certificate.
        ca_key: its key.
        is_ca_new: whether it was made now.
        nodes: of each node its name, its certificate and its key.
        expires: when the nodes' certificates do.
    """

    ca: Path
    ca_key: Path
    is_ca_new: bool
    nodes: Sequence[tuple[str, Path, Path]]
    expires: datetime


def make_certificates(
    folder: Path, nodes: Iterable[str], *, now: float, days: int = NODE_DAYS, kind: AuthorityKind = LINKS
) -> MadeCertificates:
    """Make a certificate for each node, and the authority that signs it, unless the folder has one.

    Args:
        folder: where files are written; made if it does not exist.
        nodes: names; of clusters, if these are certificates of zones.
        now: seconds since 1970.
        days: life of the certificates; they end with the authority at the latest.
        kind: what they are for.

    Raises:
        LinkAuthorityError: nothing was written.
        OSError: a file cannot be written; those that were made are whole.
    """
    names = list(dict.fromkeys(nodes))
    for name in names:
        if _NODE.fullmatch(name) is None or f"{name}.pem" == kind.file:
            raise LinkAuthorityError(f"{name!r} cannot be the name of a node here; give names as in the setting node")
    ca_file, ca_key_file = folder / kind.file, folder / kind.key_file
    files = [(name, folder / f"{name}.pem", folder / f"{name}.key") for name in names]
    for name, *both in files:
        for file in both:
            if file.exists():
                raise LinkAuthorityError(
                    f"{file} exists and is not overwritten; to renew the certificate of {name}, move {name}.pem and "
                    f"{name}.key away first"
                )
    moment = datetime.fromtimestamp(now, UTC).replace(microsecond=0)
    is_new = not ca_file.exists() and not ca_key_file.exists()
    ca, key = _new_ca(moment, kind) if is_new else _read_ca(ca_file, ca_key_file)
    if ca.not_valid_after_utc <= moment:
        raise LinkAuthorityError(
            f"{ca_file}: the authority expired on {ca.not_valid_after_utc:%Y-%m-%d}; make another one in another folder"
        )
    expires = min(moment + timedelta(days=days), ca.not_valid_after_utc)
    made = [(*each, *_node_certificate(kind.uri + each[0], ca, key, moment, expires)) for each in files]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_new:
        _write(ca_key_file, _pem(key), PRIVATE)
        _write(ca_file, ca.public_bytes(serialization.Encoding.PEM), PUBLIC)
    for _, file, key_file, certificate, node_key in made:
        _write(key_file, _pem(node_key), PRIVATE)
        _write(file, certificate.public_bytes(serialization.Encoding.PEM), PUBLIC)
    return MadeCertificates(ca_file, ca_key_file, is_new, files, expires)


def _new_ca(now: datetime, kind: AuthorityKind) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, kind.subject)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLY)
        .not_valid_after(now + timedelta(days=CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _read_ca(file: Path, key_file: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    for each, other in ((file, key_file), (key_file, file)):
        if not each.exists():
            raise LinkAuthorityError(
                f"{each} is missing beside {other}; bring it here, or give an empty folder for a new authority"
            )
    try:
        certificate = x509.load_pem_x509_certificates(file.read_bytes())[0]
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
    except OSError as error:
        raise LinkAuthorityError(f"{error.filename}: {error.strerror}; give a folder that you may read") from None
    except (ValueError, TypeError):
        raise LinkAuthorityError(f"{file} or {key_file} is no PEM of an authority; give another folder") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise LinkAuthorityError(f"{key_file} is not the key of {file}; give another folder")
    return certificate, key


def _node_certificate(
    uri: str, ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey, now: datetime, expires: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, uri.rpartition(":")[2])]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLY)
        .not_valid_after(expires)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        # A node dials and is dialled.
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return certificate, key


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(file: Path, content: bytes, mode: int) -> None:
    """Make a file; one that is there already, or was made in this moment, stays."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
