"""Keys from files and JWK sets: what is taken, what is left out, and what is told to be wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.adapters.authentication import (
    Algorithm,
    KeysError,
    KeySet,
    read_jwks,
    read_jwks_file,
    read_pem_file,
    read_secret_file,
)
from tests.support.issuers import SECRET, jwk, jwks, private_key, private_pem, public_pem


def pem_of(key: Any) -> bytes:
    made: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return made


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_key_says_what_it_is_for(tmp_path: Path, algorithm: str) -> None:
    (tmp_path / "key").write_bytes(public_pem(algorithm))

    (from_pem,) = read_pem_file(tmp_path / "key")
    (from_set,) = read_jwks(jwks(jwk(algorithm, alg=None, use=None)))

    assert from_pem.algorithm == from_set.algorithm == Algorithm(algorithm)
    assert (from_pem.id, from_set.id) == (None, f"{algorithm}-1")


@pytest.mark.parametrize(
    "odd",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "x"},
        jwk("RS256", use="enc"),
        jwk("RS256", key_ops=["encrypt"]),
        jwk("RS256", alg="RS512"),
        jwk("RS256", alg="HS256"),
        jwk("RS256", kid=7),
        jwk("RS256", kid="x" * 300),
        jwk("RS256", n="AQAB"),
        jwk("RS256", n=7),
        jwk("ES256", x="AAAA"),
        jwk("EdDSA", crv="X25519"),
        json.loads(jwt.algorithms.ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP384R1()).public_key())),
        json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key())),
        {"kty": ["RSA"]},
        {},
        7,
    ],
    ids=range(16),
)
def test_what_is_not_for_verifying_by_our_algorithms_is_left_out(odd: Any) -> None:
    """Symmetric keys above all: what everybody can read is no secret."""
    assert [each.id for each in read_jwks(jwks(odd, jwk("ES256", 2)))] == ["ES256-2"]
    with pytest.raises(ValueError, match="no key for"):
        read_jwks(jwks(odd))


def test_a_private_key_that_was_published_by_mistake_verifies_and_is_not_kept() -> None:
    key_pair = private_key("ES256")
    assert isinstance(key_pair, ec.EllipticCurvePrivateKey)
    private = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key_pair)) | {"kid": "k"}

    (key,) = read_jwks(jwks(private))

    assert isinstance(key.key, ec.EllipticCurvePublicKey)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "no array called keys"),
        (b'{"keys":{}}', "no array called keys"),
        (b'{"keys":[]}', "no key for"),
        (b'{"keys":[],"keys":[]}', "a name twice"),
        (jwks(*[jwk("ES256")] * 129), "more than 128 keys"),
    ],
)
def test_what_is_no_set_is_told(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_jwks(data)


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_secret_file, b"short\n", "shorter than 32 bytes"),
        (read_secret_file, public_pem("RS256"), "no secret; name it as key_file"),
        (read_secret_file, b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ", "no secret"),
        (read_pem_file, private_pem("ES256"), "a private key, which does not belong here"),
        (read_pem_file, b"nonsense", "no public key in PEM"),
        (read_pem_file, SECRET.encode(), "no public key in PEM"),
        (read_pem_file, pem_of(ec.generate_private_key(ec.SECP384R1())), "it is no key for RS256"),
        (read_pem_file, pem_of(ed448.Ed448PrivateKey.generate()), "it is no key for RS256"),
        (read_pem_file, pem_of(rsa.generate_private_key(65537, 1024)), "2048 to 8192 bits"),
        (read_jwks_file, b"nonsense", "not JSON"),
        (read_jwks_file, b" " * 600_000, "larger than 512 KiB"),
    ],
    ids=range(11),
)
def test_a_bad_file_is_told(tmp_path: Path, read: Callable[[Path], KeySet], content: bytes, message: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)

    with pytest.raises(KeysError, match=message) as caught:
        read(file)

    assert str(caught.value).startswith(f"{file}: ")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("read", [read_secret_file, read_pem_file, read_jwks_file])
def test_a_file_that_is_not_there_is_told(tmp_path: Path, read: Callable[[Path], KeySet]) -> None:
    with pytest.raises(KeysError, match=r"cannot be read \(No such file or directory\)"):
        read(tmp_path / "absent")


def test_a_certificate_is_as_good_as_its_key(tmp_path: Path) -> None:
    import trustme  # noqa: PLC0415 - makes certificates, and is needed here alone

    certificate = trustme.CA().issue_cert("id.example.com", key_type=trustme.KeyType.RSA)
    (tmp_path / "certificate").write_bytes(certificate.cert_chain_pems[0].bytes())

    (key,) = read_pem_file(tmp_path / "certificate")

    assert key.algorithm is Algorithm.RS256


def test_candidates_by_name_first() -> None:
    named, other = jwk("ES256"), jwk("ES256", 2)
    nameless = jwk("ES256", 3)
    del nameless["kid"]
    keys = read_jwks(jwks(named, other, nameless, jwk("RS256", kid="ES256-1")))

    def ids(key_id: str | None) -> list[str | None]:
        return [each.id for each in keys.candidates(Algorithm.ES256, key_id)]

    assert ids("ES256-2") == ["ES256-2"]
    assert ids("unknown") == [None]
    assert ids(None) == ["ES256-1", "ES256-2", None]
    assert keys.candidates(Algorithm.HS256, "ES256-1") == []
