"""Files for TLS: what is accepted, what is refused with a sentence, and what a reload changes."""

from __future__ import annotations

import ssl
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509

from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.tls import CertificateError, ServerTls, TlsPorts
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from tests.support.certificates import Authority


def shake(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Let two ends shake hands in memory; raises what either of them raises."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname="localhost"),
        server.wrap_bio(up, down, server_side=True),
    ]
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    ends[0].do_handshake()
    ends[1].do_handshake()
    return ends[0], ends[1]


def serial(end: ssl.SSLObject) -> int:
    der = end.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


@pytest.mark.parametrize("key_type", list(trustme.KeyType))
def test_a_good_pair_speaks_modern_tls(authority: Authority, key_type: trustme.KeyType) -> None:
    tls = ServerTls(authority.issue("good", key_type=key_type))
    client, server = shake(tls.context(), authority.trust())

    assert client.version() == "TLSv1.3"
    assert client.compression() is None
    assert not server.session_reused


def test_tls_1_2_is_spoken_with_forward_secrecy_and_authentication_only(authority: Authority) -> None:
    tls = ServerTls(authority.issue("good"))
    offered = {each["name"] for each in tls.context().get_ciphers() if each["protocol"] == "TLSv1.2"}
    assert offered
    assert all(name.startswith("ECDHE-") and ("GCM" in name or "POLY1305" in name) for name in offered)
    old = authority.trust()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    client, _ = shake(tls.context(), old)
    assert client.version() == "TLSv1.2"

    old.set_ciphers("ECDHE-ECDSA-AES128-SHA")
    with pytest.raises(ssl.SSLError):
        shake(tls.context(), old)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_older_versions_are_refused(authority: Authority, version: ssl.TLSVersion) -> None:
    old = authority.trust()
    old.minimum_version = old.maximum_version = version
    old.set_ciphers("ALL:@SECLEVEL=0")

    with pytest.raises(ssl.SSLError):
        shake(ServerTls(authority.issue("good")).context(), old)


def test_who_offers_only_other_protocols_is_not_misunderstood(authority: Authority) -> None:
    trust = authority.trust()
    trust.set_alpn_protocols(["h2", "http/1.1"])
    client, _ = shake(ServerTls(authority.issue("good")).context(), trust)

    assert client.selected_alpn_protocol() == "http/1.1"


def test_a_key_may_have_a_file_of_its_own(authority: Authority, tmp_path: Path) -> None:
    both = authority.issue("both").read_text()
    at = both.index("-----BEGIN CERTIFICATE-----")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    key.write_text(both[:at])
    certificate.write_text(both[at:])

    shake(ServerTls(certificate, key=key).context(), authority.trust())
    with pytest.raises(CertificateError, match=r"certificate\.pem: is no key in PEM"):
        ServerTls(certificate)


def test_the_expiry_is_that_of_the_certificate(authority: Authority) -> None:
    soon = ServerTls(authority.issue("soon", life=timedelta(hours=2)))
    later = ServerTls(authority.issue("later", life=timedelta(hours=26)))

    assert later.expires - soon.expires == pytest.approx(24 * 3600, abs=60)


def bad_files(authority: Authority, folder: Path) -> dict[str, tuple[Path, Path | None, Path | None, str]]:
    """What is given, and what is complained about."""
    good, other = authority.issue("good"), authority.issue("other")
    empty, binary, secret = folder / "empty", folder / "binary", folder / "secret.pem"
    empty.write_text("")
    binary.write_bytes(bytes(range(256)))
    subprocess.run(
        ["openssl", "ec", "-in", good, "-aes256", "-passout", "pass:swordfish", "-out", secret],
        check=True,
        capture_output=True,
    )
    folder.joinpath("folder").mkdir()
    return {
        "missing": (folder / "none", None, None, "cannot be read"),
        "a folder": (folder / "folder", None, None, "cannot be read"),
        "empty": (empty, None, None, "holds no certificate"),
        "binary": (binary, None, None, "holds no certificate"),
        "expired": (authority.issue("expired", life=timedelta(days=-1)), None, None, "expired on"),
        "key missing": (good, folder / "none", None, "the key cannot be read"),
        "key empty": (good, empty, None, "is no key in PEM"),
        "key of another": (good, other, None, "is the key of another certificate"),
        "key with a passphrase": (good, secret, None, "has a passphrase"),
        "authority missing": (good, None, folder / "none", "holds no certificates of authorities"),
        "authority empty": (good, None, empty, "holds no certificates of authorities"),
    }


@pytest.mark.parametrize(
    "what",
    [
        "missing",
        "a folder",
        "empty",
        "binary",
        "expired",
        "key missing",
        "key empty",
        "key of another",
        "key with a passphrase",
        "authority missing",
        "authority empty",
    ],
)
def test_bad_files_are_refused_with_their_name(authority: Authority, tmp_path: Path, what: str) -> None:
    certificate, key, client_ca, complaint = bad_files(authority, tmp_path)[what]

    with pytest.raises(CertificateError, match=complaint) as caught:
        ServerTls(certificate, key=key, client_ca=client_ca)

    assert str(client_ca or key or certificate) in str(caught.value)
    assert "-----BEGIN" not in str(caught.value)


def test_clients_must_show_a_certificate_where_an_authority_is_named(authority: Authority, tmp_path: Path) -> None:
    tls = ServerTls(authority.issue("good"), client_ca=authority.file)
    stranger = Authority(tmp_path)

    _, server = shake(tls.context(), authority.trust(authority.issue("client", "operator")))
    assert server.getpeercert()
    for certificate in (None, stranger.issue("client", "operator")):
        with pytest.raises(ssl.SSLError):
            shake(tls.context(), authority.trust(certificate))


def test_a_reload_serves_who_comes_from_then_on(authority: Authority) -> None:
    tls = ServerTls(authority.issue("rotating"))
    before, _ = shake(tls.context(), authority.trust())
    authority.issue("rotating", key_type=trustme.KeyType.RSA, life=timedelta(days=2))
    expired_before = tls.expires

    assert serial(shake(tls.context(), authority.trust())[0]) == serial(before), (
        "nothing is read without being asked to"
    )
    tls.reload()

    assert serial(shake(tls.context(), authority.trust())[0]) != serial(before)
    assert tls.expires > expired_before


def test_a_bad_pair_keeps_the_old_one_and_is_told(authority: Authority) -> None:
    path = authority.issue("rotating")
    tls = ServerTls(path)
    metrics, log = MemoryMetrics(), MemoryEventLog()
    ports = TlsPorts({"clients": tls}, metrics=metrics, log=log)
    before = serial(shake(tls.context(), authority.trust())[0])
    expires = metrics.gauge(catalogue.CERTIFICATE_EXPIRY, label="clients")

    path.write_text(path.read_text()[:200])
    ports.reload()
    (kept,) = log.of(events.CERTIFICATE_KEPT)
    assert kept["port"] == "clients"
    assert str(path) in str(kept["error"])
    assert serial(shake(tls.context(), authority.trust())[0]) == before
    assert metrics.gauge(catalogue.CERTIFICATE_EXPIRY, label="clients") == expires

    authority.issue("rotating", life=timedelta(days=3))
    ports.reload()
    (reloaded,) = log.of(events.CERTIFICATE_RELOADED)
    assert reloaded["port"] == "clients"
    assert metrics.gauge(catalogue.CERTIFICATE_EXPIRY, label="clients") > expires
    assert not log.undeclared
