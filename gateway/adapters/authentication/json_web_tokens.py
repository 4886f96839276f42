"""Clients that show a JSON Web Token of an identity provider (RFC 7519, RFC 8725)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Final

from jwt.algorithms import get_default_algorithms

from gateway.adapters.authentication.claims import ClaimRules, read_claims
from gateway.adapters.authentication.key_sets import LONGEST_KEY_ID, Algorithm, VerificationKey
from gateway.adapters.authentication.key_sources import KeySource
from gateway.adapters.authentication.strict_json import read_object
from gateway.ports import Credentials, CredentialsRefused, Identity

LONGEST_JWT: Final = 16 * 1024
"""Characters of a token: those with hundreds of groups have 8 KiB, and usual proxies take no longer headers."""

LONGEST_HEADER: Final = 2048
"""Characters of its first part; usual ones have 100."""

MOST_TRIALS: Final = 4
"""Keys that are tried for a token that names none, so that no token costs more than some verifications."""

_PARTS: Final = 3

_VERIFIERS: Final = {each: get_default_algorithms()[each.value] for each in Algorithm}


class JwtAuthenticator:
    """Believes tokens that a known issuer signed for this gateway; implements ``gateway.ports.Authenticator``.

    The token is the secret of the hello. A principal need not be named; if one is, it must be the token's. Which
    algorithms are taken is configured, and which key goes with which algorithm is told by the key: nothing that decides
    how a token is verified is taken from the token but the name of one of our keys.

    Verifying happens on the event loop: it takes 30 to 150 µs, and a thread would cost some 30 of them (ADR 0023).

    Args:
        keys: of the issuer.
        algorithms: that it signs with.
        rules: what its tokens must say.
        now: seconds since 1970.
        token_type: what ``typ`` in the header must be; None for anything.
    """

    def __init__(
        self,
        keys: KeySource,
        *,
        algorithms: frozenset[Algorithm],
        rules: ClaimRules,
        now: Callable[[], float],
        token_type: str | None = None,
    ) -> None:
        self.keys = keys
        self._algorithms = algorithms
        self._rules = rules
        self._now = now
        self._type = None if token_type is None else _type_of(token_type)

    @property
    def issuer(self) -> str:
        """Whose tokens are believed."""
        return self._rules.issuer

    @property
    def algorithms(self) -> frozenset[Algorithm]:
        """What they are signed with."""
        return self._algorithms

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        """Tell who the token's bearer is.

        Returns:
            Who it is; None if the secret does not look like a token.

        Raises:
            CredentialsRefused: the token is not good.
            AuthenticationUnavailable: the issuer's keys cannot be had now.
        """
        token = credentials.secret
        if token is None or len(token) > LONGEST_JWT:
            return None
        parts = token.split(".")
        if len(parts) != _PARTS or not token.isascii() or (header := _header(parts[0])) is None:
            return None
        algorithm = self._algorithm(header)
        key_id = header.get("kid")
        if key_id is not None and not (isinstance(key_id, str) and len(key_id) <= LONGEST_KEY_ID):
            raise CredentialsRefused("the token's kid is not a short text")
        claims = _claims(parts[1])
        # Before the signature only to save the work of looking for keys that verify tokens of others.
        if claims.get("iss") != self._rules.issuer:
            raise CredentialsRefused("the token is of another issuer", final=False)
        keys = await self.keys.find(algorithm, key_id)
        if not keys:
            raise CredentialsRefused("the token was signed with a key that the issuer does not have")
        if not _is_signed(token, parts[2], keys[:MOST_TRIALS]):
            raise CredentialsRefused("the token's signature is wrong")
        # From here on the claims are the issuer's word.
        identity = read_claims(claims, self._rules, now=self._now())
        if credentials.principal not in {"", identity.principal}:
            raise CredentialsRefused("the client names another principal than its token")
        return identity

    def _algorithm(self, header: dict[str, object]) -> Algorithm:
        name = header.get("alg")
        algorithm = next((each for each in self._algorithms if each.value == name), None)
        if algorithm is None:
            raise CredentialsRefused("the token is signed by an algorithm that is not accepted", final=False)
        if "crit" in header:
            raise CredentialsRefused("the token has extensions that must be understood and are not")
        if self._type is not None and _type_of(header.get("typ")) != self._type:
            raise CredentialsRefused("the token is of another type", final=False)
        return algorithm


def _is_signed(token: str, signature: str, keys: Sequence[VerificationKey]) -> bool:
    """Tell whether one of *keys* made the signature; each by its own algorithm, whatever the token says.

    PyJWT's algorithms are used directly: its way over the whole token reads header and payload again, character by
    character, which takes longer than the arithmetic.
    """
    try:
        decoded = _decode(signature)
    except ValueError:
        return False
    signed = token[: token.rindex(".")].encode("ascii")
    return any(_VERIFIERS[each.algorithm].verify(signed, each.key, decoded) for each in keys)


def _header(part: str) -> dict[str, object] | None:
    """Read the first part; None if this is no token at all."""
    if len(part) > LONGEST_HEADER:
        return None
    try:
        header = read_object(_decode(part))
    except ValueError:
        return None
    return header if "alg" in header else None


def _claims(part: str) -> dict[str, object]:
    try:
        return read_object(_decode(part))
    except ValueError:
        raise CredentialsRefused("the token's payload is malformed") from None


def _decode(part: str) -> bytes:
    """Decode base64 without padding, strictly.

    Raises:
        ValueError: it is none.
    """
    if "=" in part or "+" in part or "/" in part:
        raise ValueError("not base64url")
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise ValueError("not base64url") from None


def _type_of(name: object) -> str | None:
    """Bring a ``typ`` into one form (RFC 7515, 4.1.9): case does not count, nor does ``application/``."""
    return name.lower().removeprefix("application/") if isinstance(name, str) else None
