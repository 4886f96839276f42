"""What a token says of its bearer, once its signature is known to be good: checked and mapped (RFC 7519, RFC 8725).

Pure: the time comes in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from gateway.adapters.authentication.principals import check_end, check_properties, check_roles, is_valid_principal
from gateway.ports import CredentialsRefused, Identity

LONGEST_CREDENTIAL: Final = 128
"""Characters of a token's id: identifiers of usual kinds have 36; it is stored with every session."""

_ABSENT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRules:
    """What claims must say, and what they mean here. Claims are named by their path, segments separated by dots.

    Attributes:
        issuer: what ``iss`` must be, character by character.
        audiences: ``aud`` must hold one of them.
        leeway: seconds by which clocks may differ.
        expiry_required: refuse tokens without ``exp``.
        principal: claim that holds the principal.
        roles: claim that holds the roles, as an array or as a text separated by blanks; None for no roles.
        properties: names of properties, and the claims that hold them.
        credential: claim that holds the token's id.
    """

    issuer: str
    audiences: frozenset[str]
    leeway: float = 30.0
    expiry_required: bool = True
    principal: str = "sub"
    roles: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    credential: str = "jti"


def read_claims(claims: Mapping[str, Any], rules: ClaimRules, *, now: float) -> Identity:
    """Check the claims of a token whose signature is good, and tell whose they are.

    Args:
        claims: the token's payload.
        rules: what they must say.
        now: seconds since 1970.

    Raises:
        CredentialsRefused: with one sentence for the log that repeats no value of a claim.
    """
    _check_issuer_and_audience(claims, rules)
    expires = _check_times(claims, rules, now)
    principal = find_claim(claims, rules.principal)
    if not isinstance(principal, str) or not is_valid_principal(principal):
        raise CredentialsRefused(f"the token's {rules.principal} is missing or is no valid name")
    try:
        roles = check_roles(_roles(claims, rules))
        properties = check_properties(_properties(claims, rules))
    except ValueError as error:
        raise CredentialsRefused(f"the token's claims cannot be mapped: {error}") from None
    return Identity(
        principal=principal,
        roles=roles,
        properties=properties,
        expires=expires,
        credential=_credential(claims, rules),
    )


def find_claim(claims: Mapping[str, Any], path: str) -> Any:
    """Find the value at *path*; None if there is none.

    A name may itself hold dots (``https://example.com/roles``): the longest name that exists is followed.
    """
    found = _find(claims, path)
    return None if found is _ABSENT else found


def _find(claims: Mapping[str, Any], path: str) -> Any:
    if path in claims:
        return claims[path]
    name = path
    while "." in name:
        name = name.rpartition(".")[0]
        inner = claims.get(name)
        if isinstance(inner, Mapping) and (found := _find(inner, path[len(name) + 1 :])) is not _ABSENT:
            return found
    return _ABSENT


def _check_issuer_and_audience(claims: Mapping[str, Any], rules: ClaimRules) -> None:
    if claims.get("iss") != rules.issuer:
        # Another authenticator may know that issuer.
        raise CredentialsRefused("the token is of another issuer", final=False)
    audience = claims.get("aud")
    given = [audience] if isinstance(audience, str) else audience
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise CredentialsRefused("the token names no audience")
    if rules.audiences.isdisjoint(given):
        raise CredentialsRefused("the token is for another audience", final=False)


def _check_times(claims: Mapping[str, Any], rules: ClaimRules, now: float) -> float | None:
    """Check when the token may be used, and return when that ends."""
    not_before, issued, expires = (_time(claims, name) for name in ("nbf", "iat", "exp"))
    for start, name in ((not_before, "nbf"), (issued, "iat")):
        if start is not None and start > now + rules.leeway:
            raise CredentialsRefused(f"the token's {name} lies in the future")
    if expires is None:
        if rules.expiry_required:
            raise CredentialsRefused("the token has no exp, and tokens without an end are not accepted")
        return None
    if expires + rules.leeway <= now:
        raise CredentialsRefused("the token has expired")
    return expires + rules.leeway


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    try:
        return check_end(value, f"the token's {name}")
    except ValueError as error:
        raise CredentialsRefused(str(error)) from None


def _roles(claims: Mapping[str, Any], rules: ClaimRules) -> list[str]:
    given = None if rules.roles is None else find_claim(claims, rules.roles)
    if given is None:
        return []
    if isinstance(given, str):
        return given.split()
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise ValueError(f"{rules.roles} is neither an array of texts nor a text")
    return given


def _properties(claims: Mapping[str, Any], rules: ClaimRules) -> dict[str, str]:
    """Map claims to properties; what is no text becomes JSON, and what is missing no property."""
    found = {name: find_claim(claims, path) for name, path in rules.properties.items()}
    try:
        return {
            name: value if isinstance(value, str) else orjson.dumps(value).decode()
            for name, value in found.items()
            if value is not None
        }
    except TypeError:
        raise ValueError("a claim holds a number of more than 64 bits, or text that is no Unicode") from None


def _credential(claims: Mapping[str, Any], rules: ClaimRules) -> str | None:
    credential = find_claim(claims, rules.credential)
    if credential is None:
        return None
    # An id that cannot be kept could not be revoked either.
    if not isinstance(credential, str) or not 0 < len(credential) <= LONGEST_CREDENTIAL or not credential.isprintable():
        raise CredentialsRefused(
            f"the token's {rules.credential} is not a text of 1 to {LONGEST_CREDENTIAL} visible characters"
        )
    return credential
