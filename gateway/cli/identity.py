"""``gateway token inspect`` and ``gateway hash-secret``. Neither takes a secret from the command line (P8)."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import orjson

from gateway.adapters.authentication import LONGEST_SECRET, hash_secret, users_line
from gateway.adapters.logging import redact
from gateway.adapters.tokens import (
    LONGEST_TOKEN,
    ItsdangerousTokenSigner,
    KeyState,
    ReadToken,
    key_id,
    read_unverified,
)
from gateway.cli.options import config_option
from gateway.ports import TokenRefused
from gateway.settings import Settings, peek, reread_keys

SHORT_SECRET: Final = 12
"""Characters below which a secret that people made up is soon guessed from its hash."""

_UNCHECKED: Final = "not checked: no token keys are configured here (GATEWAY_TOKEN_KEYS or --config)"

_VERDICTS: Final = {
    KeyState.VERIFIED: "verified",
    KeyState.WRONG: "WRONG: the key that it names is configured, but did not make it",
    KeyState.RETIRED: "not verified: the key that it names is not configured (retired, or of another cluster)",
}


@click.group()
def token() -> None:
    """Look at session tokens."""


@token.command()
@click.argument("source", metavar="[FILE]", default="-")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print it for programs.")
def inspect(source: str, file: Path | None, *, as_json: bool) -> int:
    """Print what a session token says, and whether the configured keys verify it.

    Reads the token from FILE or standard input, never from the command line, where others could see it, and prints
    nothing of it that could be used. Exit code 1 if a node with these keys would refuse the token; only the grid
    knows whether its session still exists.
    """
    text = _read_token(source)
    try:
        read = read_unverified(text)
    except TokenRefused:
        raise click.ClickException("this is no session token of the gateway") from None
    found = _Found.of(text, read, _load_keys(file), now=time.time())
    if as_json:
        click.echo(orjson.dumps(found.fields(), option=orjson.OPT_INDENT_2))
    else:
        for name, value in found.fields().items():
            click.echo(f"{name:<12}{value}")
    return 0 if found.accepted else 1


@dataclass(frozen=True, slots=True)
class _Found:
    """What there is to say of a token.

    Attributes:
        read: what it says itself.
        state: what the keys say of its signature; None without keys.
        signing: id of the key that signs here; None without keys.
        left: seconds until it expires; negative once it has.
        leeway: seconds for which a node takes it after that.
    """

    read: ReadToken
    state: KeyState | None
    signing: str | None
    left: float
    leeway: float

    @classmethod
    def of(cls, text: str, read: ReadToken, settings: Settings, *, now: float) -> _Found:
        state, signing = None, None
        if settings.token_keys:
            keys, verify_only = (
                [key.reveal().encode() for key in each] for each in (settings.token_keys, settings.token_verify_keys)
            )
            signer = ItsdangerousTokenSigner(keys, verify_only, life=settings.token_life, leeway=settings.token_leeway)
            state, signing = signer.judge(text, read), key_id(keys[-1])
        return cls(read, state, signing, read.claims.expires - now, settings.token_leeway)

    @property
    def accepted(self) -> bool:
        """Whether a node would take it, as far as can be told here."""
        return self.state in {None, KeyState.VERIFIED} and self.left >= -self.leeway

    def fields(self) -> dict[str, str | int]:
        """All of it, for people and programs."""
        claims = self.read.claims
        expires = datetime.fromtimestamp(claims.expires, UTC)
        key = f"{self.read.key} (signs here)" if self.read.key == self.signing else self.read.key
        # Redacted, because anybody can write a token that says anything.
        return {
            "session": repr(redact(claims.session))[1:-1],
            "generation": claims.token_generation,
            "grid": "unknown" if claims.grid_generation is None else claims.grid_generation,
            "grid seen": "unknown" if claims.seen_generation is None else claims.seen_generation,
            "expires": f"{expires:%Y-%m-%dT%H:%M:%SZ} ({_distance(self.left)})",
            "key id": repr(redact(key))[1:-1],
            "signature": _UNCHECKED if self.state is None else _VERDICTS[self.state],
        }


def _distance(seconds: float) -> str:
    minutes = int(abs(seconds)) // 60
    text = f"{minutes // 60} h {minutes % 60:02} min" if minutes else f"{int(abs(seconds))} s"
    return f"in {text}" if seconds >= 0 else f"EXPIRED {text} ago"


def _load_keys(file: Path | None) -> Settings:
    # Nothing else that a node needs has to be there: much of it may be in variables of the node.
    settings = peek(file=file).settings
    signing, verifying = reread_keys(settings)
    return replace(settings, token_keys=signing, token_verify_keys=verifying)


def _read_token(source: str) -> str:
    # Longer than any token, so that too long a text is noticed.
    size = 2 * LONGEST_TOKEN
    if source == "-":
        if sys.stdin.isatty():
            return str(click.prompt("Token", hide_input=True, err=True)).strip()
        return sys.stdin.read(size).strip()
    if redact(source) != source:
        raise click.UsageError(
            "a token does not belong on the command line, where others can see it; give it on standard input"
        )
    try:
        with Path(source).open(encoding="utf-8", errors="replace") as stream:
            return stream.read(size).strip()
    except OSError as error:
        raise click.UsageError(f"the file {source} cannot be read ({error.strerror or error})") from None


@click.command("hash-secret")
@click.argument("principal")
@click.option("--role", "roles", multiple=True, metavar="NAME", help="A role of the principal; may be repeated.")
@click.option(
    "--property", "given", multiple=True, metavar="NAME=VALUE", help="A property of the principal; may be repeated."
)
def hash_secret_command(principal: str, roles: tuple[str, ...], given: tuple[str, ...]) -> None:
    """Make the line of PRINCIPAL for the file of static users.

    Reads the secret from the terminal, unseen, or from the first line of standard input. To add a user:
    gateway hash-secret alice --role trader >> users
    """
    properties: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or name in properties:
            raise click.UsageError(f"--property takes NAME=VALUE, each name once; not {each!r}")
        properties[name] = value
    if sys.stdin.isatty():
        secret = str(click.prompt("Secret", hide_input=True, confirmation_prompt="Again", err=True))
    else:
        secret = sys.stdin.readline().rstrip("\r\n")
    if not 0 < len(secret) <= LONGEST_SECRET:
        raise click.UsageError(f"a secret has 1 to {LONGEST_SECRET} characters")
    if len(secret) < SHORT_SECRET:
        click.echo(
            f"gateway: warning: a secret below {SHORT_SECRET} characters is soon guessed from its hash", err=True
        )
    try:
        line = users_line(principal, hash_secret(secret), roles, properties)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    click.echo(line)
