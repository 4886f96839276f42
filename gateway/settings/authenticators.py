"""What the files say that ``auth`` names as ``jwt:FILE`` and ``http:FILE``: one TOML file for each authenticator.

They are files of their own because there may be several of a kind, and because who lets people in is often another
team's matter than where a node listens. Keys are declared like settings, and their mistakes are told like those.
"""

# ruff: noqa: RUF009 - the calls in the defaults make dataclass fields

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import urlsplit

from gateway.settings.declaration import Setting, declared_in, optional, setting
from gateway.settings.errors import ConfigurationError, Problem, Unfit
from gateway.settings.hosts import is_loopback
from gateway.settings.kinds import Kind, Several, Switch, text_of
from gateway.settings.places import File
from gateway.settings.quantities import Seconds, Whole

T = TypeVar("T")

_DAY: Final = 86400.0
_PROPERTY_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,47}"
_LONGEST_TEXT: Final = 512
"""Characters of an issuer, an audience, or the path of a claim; URLs mostly."""


class TokenAlgorithm(StrEnum):
    """What may sign the tokens of an identity provider."""

    HS256 = "HS256"
    RS256 = "RS256"
    ES256 = "ES256"
    EDDSA = "EdDSA"


@dataclass(frozen=True, slots=True)
class _Text(Kind[str]):
    """A text without characters that cannot be seen.

    Attributes:
        meant: what it is, after "give".
    """

    meant: str

    @property
    def accepts(self) -> str:
        return self.meant

    def read(self, raw: object) -> str:
        text = text_of(raw)
        if not 0 < len(text) <= _LONGEST_TEXT or not text.isprintable():
            raise Unfit("is empty, too long or not printable")
        return text


@dataclass(frozen=True, slots=True)
class _Algorithm(Kind[TokenAlgorithm]):
    """One of the algorithms, written as in a token."""

    @property
    def accepts(self) -> str:
        return "HS256, RS256, ES256 or EdDSA"

    def read(self, raw: object) -> TokenAlgorithm:
        try:
            return TokenAlgorithm(text_of(raw))
        except ValueError:
            raise Unfit("is no algorithm that is accepted") from None


@dataclass(frozen=True, slots=True)
class _Address(Kind[str]):
    """A URL that the node asks; without user and password, which logs would show."""

    @property
    def accepts(self) -> str:
        return "a URL such as https://id.example.com/keys (http only for a loopback address, or in development mode)"

    def read(self, raw: object) -> str:
        text = text_of(raw)
        try:
            parts = urlsplit(text)
            port_is_good = parts.port is None or parts.port > 0
        except ValueError:
            raise Unfit("is no URL") from None
        if parts.scheme not in {"https", "http"} or not parts.hostname or not port_is_good or not text.isprintable():
            raise Unfit("is no URL that begins with https:// or http://")
        if "@" in parts.netloc or parts.fragment:
            raise Unfit("has a user, a password or a fragment in it")
        return text


@dataclass(frozen=True, slots=True)
class _Names(Kind[tuple[tuple[str, str], ...]]):
    """A table of texts."""

    metavar: ClassVar[str] = "TABLE"

    @property
    def accepts(self) -> str:
        return 'a table of texts, such as { team = "team", desk = "org.desk" }'

    def read(self, raw: object) -> tuple[tuple[str, str], ...]:
        if not isinstance(raw, dict) or not all(isinstance(each, str) and each for each in raw.values()):
            raise Unfit("is not a table of texts")
        for name in raw:
            if re.fullmatch(_PROPERTY_NAME, name) is None:
                raise Unfit("has a name with other characters than 48 letters, digits and any of _ . -")
        return tuple(raw.items())


@dataclass(frozen=True, kw_only=True)
class JwtSettings:
    """`auth = "jwt:FILE"` lets in whoever shows a JSON Web Token that a known issuer signed for this gateway."""

    issuer: str | None = optional(
        _Text("the issuer as its tokens write it, character by character"),
        "What `iss` of a token must be.",
        absent="refuse to start",
        reason="A token of another issuer may be signed well and say anything.",
    )
    audience: tuple[str, ...] = setting(
        Several(_Text("an audience as tokens write it"), "audiences"),
        (),
        "`aud` of a token must hold one of them.",
        reason="A token that was made for another service must not open this one.",
        absent="refuse to start",
    )
    algorithms: tuple[TokenAlgorithm, ...] = setting(
        Several(_Algorithm(), "algorithms"),
        (),
        "What the issuer signs with. Nothing else is accepted, whatever a token says of itself.",
        reason="There is no safe default.",
        absent="refuse to start",
    )
    jwks_url: str | None = optional(
        _Address(),
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
        "File with the secret of HS256, at least 32 bytes, read again at SIGHUP. Whoever can read it can make tokens.",
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
        _Text("a type such as at+jwt"),
        "What `typ` in the header of a token must be; `application/` before it and case do not count.",
        absent="any",
        reason="Few providers set it; where yours does, it keeps tokens apart that are made for other ends.",
    )
    principal_claim: str = setting(
        _Text("the path of a claim"),
        "sub",
        "Claim that holds the principal. Segments of a path are separated by dots.",
        reason="The one that the issuer never gives to somebody else.",
    )
    roles_claim: str | None = optional(
        _Text("the path of a claim, such as realm_access.roles"),
        "Claim that holds the roles: an array of texts, or a text with blanks between them.",
        absent="no roles",
        reason="Every provider puts them elsewhere.",
    )
    properties: tuple[tuple[str, str], ...] = setting(
        _Names(),
        (),
        "Properties of the principal by name, and the claims that hold them; seen by clients as `$principal.<name>`.",
        reason="What is not asked for is not stored.",
        absent="none",
    )
    credential_claim: str = setting(
        _Text("the path of a claim"),
        "jti",
        "Claim that holds the token's id, by which it can be revoked.",
        reason="The standard's (RFC 7519, 4.1.7).",
    )


@dataclass(frozen=True, kw_only=True)
class CallbackSettings:
    """`auth = "http:FILE"` asks a service that you run who a client is."""

    url: str | None = optional(
        _Address(),
        "Where each question is posted.",
        absent="refuse to start",
        reason="There is no default.",
    )
    timeout: float = setting(
        Seconds(0.05, 30),
        3.0,
        "How long a client waits for the answer, a free slot included; then it is asked to come again.",
        reason="Shorter than the 5 s that clients wait for a welcome.",
    )
    concurrency: int = setting(
        Whole("questions", 1, 1000),
        32,
        "Questions that are asked at the same time.",
        reason="At 10 ms a question, 3,200 clients a second; and no more than small services can take.",
    )
    remember: float = setting(
        Seconds(0, _DAY),
        60.0,
        "How long a yes is remembered, so that a client that comes again with the same credentials costs no question; "
        "0 for not at all. The callback may say less.",
        reason="A storm of reconnects is over by then, and a withdrawn account is out a minute later.",
    )
    entries: int = setting(
        Whole("answers", 1, 1_000_000),
        100_000,
        "Answers that are remembered; the oldest are forgotten first.",
        reason="Some 50 MB at most, for more clients than a node has.",
    )
    bearer_file: Path | None = optional(
        File(),
        "File with a secret that is sent along as `Authorization: Bearer …`, so that the callback knows who asks.",
        absent="nothing is sent",
        reason="Not needed where nobody else can reach the callback.",
    )
    send_address: bool = setting(
        Switch(),
        False,
        "Tell the callback the client's address, too. Answers are then remembered for that address alone.",
        reason="Addresses are personal data, and most callbacks do not need them.",
    )
    ca_file: Path | None = optional(
        File(),
        "File with certificates in PEM that sign the certificate of url's host.",
        absent="the system's trust store",
        reason="Needed only for a private certificate authority.",
    )


AUTHENTICATOR_FILES: Final[tuple[tuple[str, type, tuple[Setting, ...]], ...]] = (
    ("jwt:FILE", JwtSettings, declared_in(JwtSettings, "jwt:FILE")),
    ("http:FILE", CallbackSettings, declared_in(CallbackSettings, "http:FILE")),
)
"""For each kind of file how ``auth`` names it, its class and its keys."""


def read_jwt_settings(file: Path, *, dev: bool = False) -> JwtSettings:
    """Read a file that ``auth`` names as ``jwt:FILE``.

    Args:
        file: to read.
        dev: allow http to any host.

    Raises:
        ConfigurationError: with everything that is wrong.
    """
    found = _read(file, JwtSettings)
    problems = [*_check_jwt(file, found), *_check_address(file, "jwks_url", found.jwks_url, dev=dev)]
    if problems:
        raise ConfigurationError(problems)
    return found


def read_callback_settings(file: Path, *, dev: bool = False) -> CallbackSettings:
    """Read a file that ``auth`` names as ``http:FILE``; see ``read_jwt_settings``.

    Raises:
        ConfigurationError: with everything that is wrong.
    """
    found = _read(file, CallbackSettings)
    problems = [*_check_address(file, "url", found.url, dev=dev)]
    if found.url is None:
        problems.append(Problem(f"{file}: url", "there is no url", f"give {_Address().accepts}"))
    if problems:
        raise ConfigurationError(problems)
    return found


def _read(file: Path, group: type[T]) -> T:
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            [
                Problem(
                    f"auth: {file}",
                    f"the file cannot be read ({error.strerror or error})",
                    "name a TOML file that this user may read",
                )
            ]
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            [Problem(str(file), f"the file is not TOML: {error}", "correct it at the place named")]
        ) from None
    known = {each.name: each for each in declared_in(group, "")}
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, raw in content.items():
        if key not in known:
            problems.append(
                Problem(
                    f"{file}: {key}", "there is no such key", f"the keys of this file are {', '.join(sorted(known))}"
                )
            )
            continue
        kind = known[key].declared.kind
        try:
            values[key] = kind.anchor(kind.read(raw), file.parent)
        except Unfit as unfit:
            problems.append(Problem(f"{file}: {key}", f"its value {unfit}", f"give {kind.accepts}"))
    if problems:
        raise ConfigurationError(problems)
    return group(**values)


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
        complaint = f"{' and '.join(given)} are given" if given else "it is not told where the keys are"
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


def _check_address(file: Path, key: str, url: str | None, *, dev: bool) -> Iterator[Problem]:
    if url is None or dev:
        return
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        yield Problem(
            f"{file}: {key}", "it is http, which everybody on the way can read and change", "give an https URL"
        )
