"""Keys that verify JSON Web Tokens: which algorithm a key is for is told by the key and never by a token (RFC 8725).

A key is made from a secret file (HS256), a PEM file (RS256, ES256, EdDSA) or a JWK set (the same three). Symmetric keys
in a JWK set are ignored: what can be read by everybody is no secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from gateway.adapters.authentication.strict_json import read_object
from gateway.core.wire.errors import GatewayError

LEAST_SECRET_BYTES: Final = 32
"""Of an HS256 secret: as long as the hash (RFC 7518, 3.2)."""

LEAST_RSA_BITS: Final = 2048
"""Of an RSA key (RFC 7518, 3.3)."""

MOST_RSA_BITS: Final = 8192
"""Of an RSA key: verifying grows with the square of it, and stays below a millisecond here."""

LARGEST_FILE: Final = 512 * 1024
"""Bytes of a file or an answer with keys: some hundreds of keys with their certificates."""

MOST_KEYS: Final = 128
"""Keys of a set: identity providers publish two to ten."""

LONGEST_KEY_ID: Final = 256
"""Characters of a key id; a digest has 64."""


class Algorithm(StrEnum):
    """What signs tokens (RFC 7518, RFC 8037)."""

    HS256 = "HS256"
    """HMAC with SHA-256: whoever can verify tokens can make them, too."""
    RS256 = "RS256"
    """RSA with SHA-256."""
    ES256 = "ES256"
    """ECDSA on P-256 with SHA-256."""
    EDDSA = "EdDSA"
    """Ed25519."""


PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey
"""A key of the three algorithms with two keys."""


class KeysError(GatewayError):
    """Keys cannot be used; the message says where they come from and what is wrong, and repeats nothing of a key."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """One key.

    Attributes:
        algorithm: the only one it is used with.
        id: as tokens name it; None if it has no name.
        key: the key itself.
    """

    algorithm: Algorithm
    id: str | None
    key: PublicKey | bytes = field(repr=False)


class KeySet:
    """The keys of one issuer.

    Args:
        keys: of it.
    """

    def __init__(self, keys: Iterable[VerificationKey]) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[VerificationKey]:
        return iter(self._keys)

    def candidates(self, algorithm: Algorithm, key_id: str | None) -> Sequence[VerificationKey]:
        """List the keys that may have signed a token.

        Args:
            algorithm: of the token.
            key_id: as the token names it. A key without a name may have signed any token, and a token that names none
                may be signed by any key: some issuers have but one and name it nowhere.
        """
        fitting = [each for each in self._keys if each.algorithm is algorithm]
        if key_id is None:
            return fitting
        named = [each for each in fitting if each.id == key_id]
        return named or [each for each in fitting if each.id is None]


def read_secret_file(file: Path) -> KeySet:
    """Read the secret of HS256; one line break at the end does not count. Blocks while it reads.

    Raises:
        KeysError: it cannot be read, is too short, or is no secret at all but a key that others may know.
    """
    data = _read(file)
    secret = data.removesuffix(b"\n").removesuffix(b"\r")
    if b"-----BEGIN" in secret or secret.startswith((b"ssh-", b"ecdsa-")):
        raise KeysError(f"{file}: this is a key with a public part, and no secret; name it as key_file")
    if len(secret) < LEAST_SECRET_BYTES:
        raise KeysError(
            f"{file}: the secret is shorter than {LEAST_SECRET_BYTES} bytes; `openssl rand -hex 32` makes a good one"
        )
    return KeySet([VerificationKey(Algorithm.HS256, None, secret)])


def read_pem_file(file: Path) -> KeySet:
    """Read a public key or a certificate in PEM. Blocks while it reads.

    Raises:
        KeysError: it cannot be read, is no public key, or is one that no algorithm here uses.
    """
    data = _read(file)
    if b"PRIVATE KEY" in data:
        raise KeysError(
            f"{file}: this is a private key, which does not belong here; `openssl pkey -pubout` makes the public one"
        )
    try:
        if b"-----BEGIN CERTIFICATE" in data:
            key: object = load_pem_x509_certificate(data).public_key()
        else:
            key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise KeysError(f"{file}: this is no public key in PEM (-----BEGIN PUBLIC KEY-----)") from None
    try:
        algorithm, usable = _usable(key)
    except ValueError as error:
        raise KeysError(f"{file}: {error}") from None
    return KeySet([VerificationKey(algorithm, None, usable)])


def read_jwks_file(file: Path) -> KeySet:
    """Read a JWK set. Blocks while it reads.

    Raises:
        KeysError: it cannot be read or holds no usable key.
    """
    try:
        return read_jwks(_read(file))
    except ValueError as error:
        raise KeysError(f"{file}: {error}") from None


def read_jwks(data: bytes) -> KeySet:
    """Read the text of a JWK set (RFC 7517). Keys that are not for verifying by one of our algorithms are left out.

    Raises:
        ValueError: it is no JWK set, or holds no usable key.
    """
    keys = read_object(data).get("keys")
    if not isinstance(keys, list):
        raise ValueError("it is no JWK set: there is no array called keys")  # noqa: TRY004 - the text is wrong
    if len(keys) > MOST_KEYS:
        raise ValueError(f"it holds more than {MOST_KEYS} keys")
    found = [usable for each in keys if isinstance(each, dict) and (usable := _read_jwk(each)) is not None]
    if not found:
        raise ValueError("it holds no key for RS256, ES256 or EdDSA")
    return KeySet(found)


def _read_jwk(jwk: dict[str, Any]) -> VerificationKey | None:
    """Read one key; None if it is not for us: providers publish keys for encryption and for others in the same set."""
    key_id, operations = jwk.get("kid"), jwk.get("key_ops")
    # Compared with tuples, as what strangers write need not be hashable.
    if jwk.get("kty") not in tuple(_ALGORITHM_OF_TYPE) or jwk.get("use") not in (None, "sig"):
        return None
    if isinstance(operations, list) and "verify" not in operations:
        return None
    if key_id is not None and not (isinstance(key_id, str) and len(key_id) <= LONGEST_KEY_ID):
        return None
    try:
        # Only the public part is handed on, whatever was published by mistake.
        public: dict[str, Any] = {name: jwk[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in jwk}
        algorithm, key = _usable(PyJWK(public, algorithm=_ALGORITHM_OF_TYPE[jwk["kty"]]).key)
    except (PyJWTError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if jwk.get("alg") not in (None, algorithm.value):
        return None
    return VerificationKey(algorithm, key_id, key)


_ALGORITHM_OF_TYPE: Final = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}


def _usable(key: object) -> tuple[Algorithm, PublicKey]:
    """Tell which algorithm a key is for.

    Raises:
        ValueError: for none of ours, or it is too weak.
    """
    match key:
        case RSAPublicKey():
            if not LEAST_RSA_BITS <= key.key_size <= MOST_RSA_BITS:
                raise ValueError(f"an RSA key has {LEAST_RSA_BITS} to {MOST_RSA_BITS} bits")
            return Algorithm.RS256, key
        case EllipticCurvePublicKey() if isinstance(key.curve, SECP256R1):
            return Algorithm.ES256, key
        case Ed25519PublicKey():
            return Algorithm.EDDSA, key
        case _:
            raise ValueError("it is no key for RS256 (RSA), ES256 (P-256) or EdDSA (Ed25519)")


def _read(file: Path) -> bytes:
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise KeysError(f"{file}: the file is larger than {LARGEST_FILE // 1024} KiB")
        return file.read_bytes()
    except OSError as error:
        raise KeysError(
            f"{file}: the file cannot be read ({error.strerror or error}); name a file that this user may read"
        ) from None
