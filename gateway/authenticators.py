"""Puts authenticators together as the settings say; used by ``gateway.bootstrap`` and by ``gateway check-config``."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gateway.adapters.authentication import (
    PLACES,
    Algorithm,
    AnonymousAuthenticator,
    CallbackAuthenticator,
    ChainAuthenticator,
    ClaimRules,
    FileKeys,
    JwtAuthenticator,
    KeysError,
    KeySource,
    StaticAuthenticator,
    UrlKeys,
    UsersFileError,
    read_jwks_file,
    read_pem_file,
    read_secret_file,
)
from gateway.app.security.verifications import Verifications
from gateway.catalogue import log_events as events
from gateway.ports import Authenticator, Directory, EventLog
from gateway.settings import (
    AnonymousUsers,
    AuthChoice,
    CallbackSettings,
    CallbackUsers,
    ConfigurationError,
    JwtSettings,
    JwtUsers,
    Problem,
    StaticUsers,
    read_callback_settings,
    read_jwt_settings,
    ways_of,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What authenticators need of the node.

    Attributes:
        dev: whether development mode allows shortcuts.
        log: where events go.
        clock: seconds of a monotonic clock.
        now: seconds since 1970.
        place: where the choice was given, for messages.
    """

    dev: bool
    log: EventLog
    verifications: Verifications
    place: str = "auth"
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time


class Authentication:
    """The authenticators of one node, and their lives.

    Args:
        choice: as configured.
        surroundings: what they need of the node.

    Attributes:
        authenticator: to ask; all of them in one.
        directory: of all principals; None if there is a way in for principals that no file of this node knows.

    Raises:
        ConfigurationError: a file cannot be used.
    """

    def __init__(self, choice: AuthChoice, surroundings: Surroundings) -> None:
        self._log = surroundings.log
        self._verifications = surroundings.verifications
        self._parts = [_make(way, surroundings) for way in ways_of(choice)]
        self.authenticator: Authenticator = self._parts[0] if len(self._parts) == 1 else ChainAuthenticator(self._parts)

        alone = self._parts[0] if len(self._parts) == 1 else None
        self.directory: Directory | None = alone if isinstance(alone, StaticAuthenticator) else None

    async def start(self) -> None:
        """Begin to fetch keys, and make ready to ask callbacks; does not wait for either.

        Raises:
            OSError: certificates cannot be read.
        """
        for part in self._parts:
            if isinstance(part, JwtAuthenticator):
                await part.keys.start()
            elif isinstance(part, CallbackAuthenticator):
                await part.start()

    def reload(self) -> None:
        """Read users and keys again, and forget what callbacks said; a bad file changes nothing."""
        for part in self._parts:
            match part:
                case StaticAuthenticator():
                    try:
                        self._log.emit(events.USERS_RELOADED, users=part.reload())
                    except UsersFileError as error:
                        self._log.emit(events.USERS_KEPT, error=str(error))
                case JwtAuthenticator():
                    try:
                        part.keys.reload()
                    except KeysError as error:
                        self._log.emit(events.ISSUER_FILE_KEPT, error=str(error))
                case CallbackAuthenticator():
                    part.forget()

    async def close(self) -> None:
        """Stop what ``start`` began."""
        await self._verifications.close()
        for part in self._parts:
            match part:
                case StaticAuthenticator():
                    part.close()
                case JwtAuthenticator():
                    await part.keys.close()
                case CallbackAuthenticator():
                    await part.close()


def describe(choice: AuthChoice | None, surroundings: Surroundings) -> Sequence[str]:
    """Tell what the authenticators are, for ``gateway check-config``; reads every file they name.

    Raises:
        ConfigurationError: a file cannot be used.
    """
    lines = []
    for way in ways_of(choice):
        match part := _make(way, surroundings):
            case StaticAuthenticator():
                lines.append(f"users: {len(part)}")
                part.close()
            case JwtAuthenticator():
                lines.append(f"tokens of {part.issuer}, signed by {', '.join(sorted(part.algorithms))}")
            case CallbackAuthenticator():
                lines.append(f"callback: {part.place}")
    return lines


def secret_files(choice: AuthChoice | None) -> Sequence[Path]:
    """List the files of authenticators that hold secrets or their hashes; the settings have been read before."""
    found: list[Path | None] = []
    for way in ways_of(choice):
        match way:
            case StaticUsers(file):
                found.append(file)
            case JwtUsers(file):
                found.append(read_jwt_settings(file, dev=True).secret_file)
            case CallbackUsers(file):
                found.append(read_callback_settings(file, dev=True).bearer_file)
    return [file for file in found if file is not None]


_Part = AnonymousAuthenticator | StaticAuthenticator | JwtAuthenticator | CallbackAuthenticator


def _make(way: AuthChoice, surroundings: Surroundings) -> _Part:
    try:
        match way:
            case StaticUsers(file):
                return StaticAuthenticator(file, surroundings.verifications.pool(PLACES, hides_principals=True))
            case JwtUsers(file):
                return _jwt(file, read_jwt_settings(file, dev=surroundings.dev), surroundings)
            case CallbackUsers(file):
                return _callback(file, read_callback_settings(file, dev=surroundings.dev), surroundings)
            case AnonymousUsers():
                return AnonymousAuthenticator()
            case _:
                raise AssertionError("a chain is made of its parts")
    except (UsersFileError, KeysError) as error:
        place, _, complaint = str(error).partition(": ")
        complaint, _, remedy = complaint.rpartition("; ")
        raise ConfigurationError([Problem(f"{surroundings.place}: {place}", complaint, remedy)]) from None


def _jwt(file: Path, settings: JwtSettings, surroundings: Surroundings) -> JwtAuthenticator:
    return JwtAuthenticator(
        _keys(file, settings, surroundings),
        algorithms=frozenset(Algorithm(each.value) for each in settings.algorithms),
        rules=ClaimRules(
            issuer=_given(settings.issuer),
            audiences=frozenset(settings.audience),
            leeway=settings.leeway,
            expiry_required=settings.expiry_required,
            principal=settings.principal_claim,
            roles=settings.roles_claim,
            properties=dict(settings.properties),
            credential=settings.credential_claim,
        ),
        now=surroundings.now,
        token_type=settings.token_type,
    )


def _keys(file: Path, settings: JwtSettings, surroundings: Surroundings) -> KeySource:
    if settings.jwks_url is not None:
        _check_certificates(file, settings.ca_file)
        return UrlKeys(
            settings.jwks_url,
            refresh=settings.jwks_refresh,
            timeout=settings.jwks_timeout,
            log=surroundings.log,
            clock=surroundings.clock,
            ca_file=settings.ca_file,
        )
    if settings.jwks_file is not None:
        return FileKeys(settings.jwks_file, read_jwks_file)
    if settings.key_file is not None:
        return FileKeys(settings.key_file, read_pem_file)
    return FileKeys(_given(settings.secret_file), read_secret_file)


def _callback(file: Path, settings: CallbackSettings, surroundings: Surroundings) -> CallbackAuthenticator:
    _check_certificates(file, settings.ca_file)
    return CallbackAuthenticator(
        _given(settings.url),
        # With the time for the question itself, less than clients wait for a welcome.
        surroundings.verifications.pool(settings.concurrency, patience=settings.timeout / 2),
        timeout=settings.timeout,
        remember=settings.remember,
        entries=settings.entries,
        clock=surroundings.clock,
        now=surroundings.now,
        bearer=None if settings.bearer_file is None else _bearer(settings.bearer_file),
        send_address=settings.send_address,
        ca_file=settings.ca_file,
    )


def _given(value: T | None) -> T:
    if value is None:
        raise AssertionError("what the file must give was checked when it was read")
    return value


def _bearer(file: Path) -> str:
    try:
        text = file.read_text("ascii").strip()
    except OSError as error:
        raise KeysError(
            f"{file}: the file cannot be read ({error.strerror or error}); name a file that this user may read"
        ) from None
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable() or " " in text:
        raise KeysError(f"{file}: the file does not hold one line of printable ASCII; write the secret into it")
    return text


def _check_certificates(file: Path, ca_file: Path | None) -> None:
    if ca_file is None:
        return
    try:
        ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigurationError(
            [
                Problem(
                    f"{file}: ca_file",
                    f"{ca_file} cannot be used ({error.strerror or error})",
                    "name a file with certificates in PEM",
                )
            ]
        ) from None
