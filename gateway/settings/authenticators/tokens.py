"""What a file says that ``auth`` names as ``jwt:FILE``: whose tokens are accepted, and what is read from them."""

# ruff: noqa: RUF009 - the calls in the defaults make dataclass fields

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.settings.authenticators.files import (
    Address,
    Algorithm,
    Names,
    Text,
    TokenAlgorithm,
    check_address,
    read_file,
)
from gateway.settings.declaration import optional, setting
from gateway.settings.errors import ConfigurationError, Problem
from gateway.settings.kinds import Several, Switch
from gateway.settings.places import File
from gateway.settings.quantities import Seconds

_DAY: Final = 86400.0


@dataclass(frozen=True, kw_only=True)
class JwtSettings:
    """`auth = "jwt:FILE"` accepts clients that show a JSON Web Token, signed for this gateway by a known issuer."""

    issuer: str | None = optional(
        Text("the issuer as its tokens write it, character by character"),
        "What `iss` of a token must be.",
        absent="refuse to start",
        reason="A token of another issuer may be signed well and say anything.",
    )
    audience: tuple[str, ...] = setting(
        Several(Text("an audience as tokens write it"), "audiences"),
        (),
        "`aud` of a token must hold one of them.",
        reason="A token that was made for another service must not open this one.",
        absent="refuse to start",
    )
    algorithms: tuple[TokenAlgorithm, ...] = setting(
        Several(Algorithm(), "algorithms"),
        (),
        "What the issuer signs with. Nothing else is accepted, whatever a token says of itself.",
        reason="There is no safe default.",
        absent="refuse to start",
    )
    jwks_url: str | None = optional(
        Address(),
        "Where the issuer publishes its keys (a JWK set); fetched in the background, and never while a client waits, "
        "unless a token names a key that is not known yet.",
        absent="keys come from a file",
        reason="Name one of jwks_url, jwks_file, key_file and secret_file.",
    )
    jwks_file: Path | None = optional(
        File(), "File with a JWK set, read again at SIGHUP.", absent="none", reason="As for jwks_url."
    )
    key_file: Path | None = optional(
        File(),
        "File with one public key or certificate in PEM, read again at SIGHUP.",
        absent="none",
        reason="As for jwks_url.",
    )
    secret_file: Path | None = optional(
        File(),
        "File with the secret of HS256, at least 32 bytes, read again at SIGHUP. Everybody who can read it can make "
        "tokens.",
        absent="none",
        reason="As for jwks_url; prefer any of the others.",
    )
    jwks_refresh: float = setting(
        Seconds(10, _DAY),
        600.0,
        "How often the JWK set is fetched again. An unknown key id fetches it at once, every 10 s at most. If that "
        "fails, the keys before stay in force.",
        reason="A key that was withdrawn opens nothing ten minutes later, and the provider hardly notices.",
    )
    jwks_timeout: float = setting(
        Seconds(0.1, 30),
        3.0,
        "How long fetching the JWK set may take.",
        reason="Clients that show an unknown key id wait for it.",
    )
    ca_file: Path | None = optional(
        File(),
        "File with certificates in PEM that sign the certificate of jwks_url's host.",
        absent="the system's trust store",
        reason="Needed only for a private certificate authority.",
    )
    leeway: float = setting(
        Seconds(0, 300),
        30.0,
        "How far apart the clocks of the issuer and the node may be.",
        reason="More than clocks that are kept by NTP are apart, and little against the life of a token.",
    )
    expiry_required: bool = setting(
        Switch(),
        True,
        "Refuse tokens without `exp`.",
        reason="A token without an end that leaks opens the gateway for ever.",
    )
    token_type: str | None = optional(
        Text("a type such as at+jwt"),
        "What `typ` in the header of a token must be; `application/` before it and case do not count.",
        absent="any",
        reason="Few providers set it; where yours does, it keeps tokens apart that are made for other ends.",
    )
    principal_claim: str = setting(
        Text("the path of a claim"),
        "sub",
        "Claim that holds the principal. Segments of a path are separated by dots.",
        reason="The claim that the issuer never reuses for another principal.",
    )
    roles_claim: str | None = optional(
        Text("the path of a claim, such as realm_access.roles"),
        "Claim that holds the roles: an array of texts, or a text with blanks between them.",
        absent="no roles",
        reason="Every provider puts them elsewhere.",
    )
    properties: tuple[tuple[str, str], ...] = setting(
        Names(),
        (),
        "Properties of the principal by name, and the claims that hold them; seen by clients as `$principal.<name>`.",
        reason="What is not asked for is not stored.",
        absent="none",
    )
    credential_claim: str = setting(
        Text("the path of a claim"),
        "jti",
        "Claim that holds the token's id, by which it can be revoked.",
        reason="The standard's (RFC 7519, 4.1.7).",
    )


def read_jwt_settings(file: Path, *, dev: bool = False) -> JwtSettings:
    """Read a file that ``auth`` names as ``jwt:FILE``.

    Args:
        file: to read.
        dev: allow http to any host.

    Raises:
        ConfigurationError: with everything that is wrong.
    """
    found = read_file(file, JwtSettings)
    problems = [*_check_jwt(file, found), *check_address(file, "jwks_url", found.jwks_url, dev=dev)]
    if problems:
        raise ConfigurationError(problems)
    return found


def _check_jwt(file: Path, found: JwtSettings) -> Iterator[Problem]:
    for name, remedy in (
        ("issuer", 'give the issuer of the tokens, such as issuer = "https://id.example.com/realms/main"'),
        ("audience", 'give what the tokens are made for, such as audience = ["gateway"]'),
        ("algorithms", 'give what the issuer signs with, such as algorithms = ["RS256"]'),
    ):
        if not getattr(found, name):
            yield Problem(f"{file}: {name}", f"there is no {name}", remedy)
    sources = ("jwks_url", "jwks_file", "key_file", "secret_file")
    given = [name for name in sources if getattr(found, name) is not None]
    if len(given) != 1:
        complaint = f"{' and '.join(given)} are given" if given else "no source of keys is given"
        yield Problem(str(file), complaint, f"give one of {', '.join(sources)}")
        return
    symmetric = TokenAlgorithm.HS256 in found.algorithms
    if symmetric and len(found.algorithms) > 1:
        yield Problem(
            f"{file}: algorithms",
            "HS256 stands beside others",
            "use a file of its own for each: a public key must never be taken for a secret",
        )
    elif found.algorithms and symmetric is not (given == ["secret_file"]):
        yield Problem(
            f"{file}: {given[0]}",
            f"{given[0]} does not go with {', '.join(each.value for each in found.algorithms)}",
            "HS256 takes secret_file, and only HS256 does",
        )
