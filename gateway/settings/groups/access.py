"""Who may connect, and how sessions are proven."""

# ruff: noqa: RUF009 - the calls in the defaults make dataclass fields

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.settings.declaration import optional, setting
from gateway.settings.kinds import Several
from gateway.settings.places import Auth, File, Key, Net, Network, Origin
from gateway.settings.quantities import Seconds, Whole
from gateway.settings.values import AuthChoice, Secret

_DAY: Final = 86400.0


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """Who may connect, and how tokens prove sessions. To change keys: [Rotate keys](../how-to/rotate-keys.md)."""

    auth: AuthChoice | None = optional(
        Auth(),
        "How clients are authenticated; several ways are tried one after the other. How to choose and set up: "
        "[Authenticate](../how-to/authenticate.md).",
        absent="refuse to start, unless dev is on",
        reason="There is no safe default.",
    )
    credential_notice: float = setting(
        Seconds(0, 3600),
        60.0,
        "How long before its credentials expire a connected client is notified, so that it can show new ones without "
        "losing its connection.",
        reason="Long enough to fetch a new token, and to try several times; tokens live for five minutes or more.",
    )
    policy: Path | None = optional(
        File(),
        "File that says who may select, publish and do what: "
        "[Restrict who may do what](../how-to/restrict-who-may-do-what.md). Read again on SIGHUP.",
        absent="every principal may do everything with every topic but the system's, with a warning",
        reason="Only you know what there is to protect, and from whom.",
    )
    token_keys: tuple[Secret, ...] = setting(
        Several(Key(), "keys"),
        (),
        "Keys of session tokens, newest last: the last one signs, all of them verify. The same on all nodes.",
        reason="There is no safe default.",
        secret=True,
        absent="refuse to start, unless dev is on",
    )
    token_keys_file: Path | None = optional(
        File(),
        "File with the keys of session tokens, one a line, newest last; empty lines and lines that begin with # are "
        "skipped. `gateway keys` makes and changes it; read again on SIGHUP.",
        absent="none",
        reason="Use it in place of token_keys where secrets are mounted as files.",
    )
    token_verify_keys: tuple[Secret, ...] = setting(
        Several(Key(), "keys"),
        (),
        "Keys that verify tokens and never sign: the next key while it is being rolled out.",
        reason="Needed only while keys are rotated.",
        secret=True,
        absent="none",
    )
    token_verify_keys_file: Path | None = optional(
        File(),
        "File with keys that verify tokens and do not sign, one a line; may be empty. A key that stands in "
        "token_keys_file too counts as one of those.",
        absent="none",
        reason="`gateway keys create` puts the next key here, so that all nodes know it before any signs with it.",
    )
    token_life: float = setting(
        Seconds(60, 30 * _DAY),
        _DAY,
        "How long a token is valid; connected clients get a new one after half of it.",
        reason="The longest time for which an old key must be kept when keys are rotated.",
    )
    token_leeway: float = setting(
        Seconds(0, 300),
        10.0,
        "How far apart the clocks of two nodes may be.",
        reason="Far more than clocks kept by NTP differ, and nothing compared with a token's life.",
    )
    limit_revocations: int = setting(
        Whole("revocations", 100, 10_000_000),
        100_000,
        "Sessions, principals and credentials that may be revoked at the same time in the whole cluster. The same on "
        "all nodes.",
        reason="Every node holds all of them in memory, some 0.5 KB each, and reads them before it serves anybody.",
    )
    origins: tuple[str, ...] = setting(
        Several(Origin(), "origins"),
        (),
        "Web origins whose pages may connect, compared exactly; loopback allows pages that the visitor's own machine "
        "serves, on whatever port, and * every page on the web, both with a warning.",
        reason="Clients that are not browsers send no origin and need no entry; a page must be allowed by its origin.",
        absent="no browser",
    )
    trusted_proxies: tuple[Network, ...] = setting(
        Several(Net(), "addresses or networks"),
        (),
        "Proxies whose X-Forwarded-For header is trusted.",
        reason="If it were trusted from everybody, clients could choose their address.",
        absent="none is trusted",
    )
