"""Secrets as scrypt hashes: made slow on purpose, so that a stolen file does not give the secrets away.

What a process remembers of credentials is a digest of them under a key of its own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from dataclasses import dataclass, field
from typing import Final

SALT_BYTES: Final = 16
HASH_BYTES: Final = 32

LARGEST_MEMORY: Final = 256 * 1024**2
"""Bytes that one verification may take: a mistyped or malicious line must not exhaust the node."""

MOST_WORK: Final = 2**24
"""Largest ``n * r * p``: about 5 s of one core; typical lines take a fiftieth of that."""

LONGEST_SECRET: Final = 1024
"""Characters of a secret; longer ones are refused before any work is done for them."""

NUL: Final = "\0"
"""In no secret, see ``SecretHash.matches``."""

_FORM: Final = re.compile(
    r"scrypt\$n=([0-9]{1,9}),r=([0-9]{1,4}),p=([0-9]{1,4})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class HashParameters:
    """The cost of one scrypt hash (RFC 7914): memory is ``128 * n * r`` bytes, work grows with ``n * r * p``.

    Attributes:
        n: cost, a power of two.
        r: size of a block.
        p: parallel lanes, which are worked off one after the other here.
    """

    n: int = 2**14
    r: int = 8
    p: int = 5
    """The defaults need 16 MiB and about 0.2 s of one core, the least that OWASP recommends for scrypt. Little memory
    is chosen over little work, because several verifications run at the same time in one node."""

    @property
    def memory(self) -> int:
        """Bytes that one hash needs."""
        return 128 * self.r * (self.n + self.p)

    def complaint(self) -> str | None:
        """Say what is wrong with the parameters, or None."""
        if self.n < 2 or self.n & (self.n - 1) or not self.r or not self.p:  # noqa: PLR2004 - the least power of two
            return "n is not a power of two, or r or p is 0"
        if self.memory > LARGEST_MEMORY or self.n * self.r * self.p > MOST_WORK:
            return "the parameters ask for more memory or work than a node can afford"
        return None


@dataclass(frozen=True, slots=True)
class SecretHash:
    """A hashed secret.

    Attributes:
        parameters: its cost.
        salt: random; different in each hash.
        digest: the hash.
    """

    parameters: HashParameters
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    def __str__(self) -> str:
        cost = f"n={self.parameters.n},r={self.parameters.r},p={self.parameters.p}"
        return f"scrypt${cost}${_encode(self.salt)}${_encode(self.digest)}"

    @classmethod
    def parse(cls, text: str) -> SecretHash:
        """Read what ``str()`` wrote.

        Raises:
            ValueError: it is none; the message says why and does not repeat it.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError("the hash has not the form scrypt$n=…,r=…,p=…$salt$hash")
        parameters = HashParameters(*(int(number) for number in match.groups()[:3]))
        if complaint := parameters.complaint():
            raise ValueError(complaint)
        try:
            salt, digest = (_decode(part) for part in match.groups()[3:])
        except binascii.Error:
            raise ValueError("salt or hash is not base64; a part of the line is missing") from None
        if len(digest) != HASH_BYTES or len(salt) < SALT_BYTES:
            raise ValueError("salt or hash is too short; a part of the line is missing")
        return cls(parameters, salt, digest)

    def matches(self, secret: str) -> bool:
        """Tell whether *secret* is the one, in a time that does not depend on how wrong it is. Slow: never on the loop.

        Args:
            secret: any text. One with a NUL is nobody's: scrypt fills short keys with NULs (RFC 2104), so that it would
                take ``secret`` with a NUL behind it for ``secret``.
        """
        same = hmac.compare_digest(_scrypt(secret, self.salt, self.parameters), self.digest)
        return same and NUL not in secret


def hash_secret(secret: str, parameters: HashParameters | None = None) -> SecretHash:
    """Hash *secret* with a new random salt. Slow: never on the loop.

    Raises:
        ValueError: the parameters cannot be used, or there is a NUL in *secret*, which would match others then.
    """
    if NUL in secret:
        raise ValueError("a secret must not contain the character NUL")
    parameters = parameters or HashParameters()
    if complaint := parameters.complaint():
        raise ValueError(complaint)
    salt = os.urandom(SALT_BYTES)
    return SecretHash(parameters, salt, _scrypt(secret, salt, parameters))


def _scrypt(secret: str, salt: bytes, parameters: HashParameters) -> bytes:
    return hashlib.scrypt(
        # A lone surrogate in a secret is nobody's secret, but must not raise either.
        secret.encode("utf-8", "surrogatepass"),
        salt=salt,
        n=parameters.n,
        r=parameters.r,
        p=parameters.p,
        # Twice the need: OpenSSL counts some working memory of its own.
        maxmem=2 * parameters.memory,
        dklen=HASH_BYTES,
    )


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii").rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


DIGEST_BYTES: Final = 32
"""So that no two credentials are ever mistaken for one another."""


class CredentialDigests:
    """Makes digests under a random key that never leaves the process: nobody can try out secrets on them."""

    def __init__(self) -> None:
        self._key = os.urandom(hashlib.blake2b.MAX_KEY_SIZE)

    def of(self, *parts: str | bytes) -> bytes:
        """Digest credentials, part by part: where one ends and the next begins counts, too."""
        state = hashlib.blake2b(key=self._key, digest_size=DIGEST_BYTES)
        for part in parts:
            # A lone surrogate is in nobody's secret, but must not raise either.
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            state.update(len(data).to_bytes(4) + data)
        return state.digest()
