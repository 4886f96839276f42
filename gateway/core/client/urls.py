"""The URLs that a client connects to: what a user may give, and what is made of it (protocol sections 1 and 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from gateway.core.loopback import is_loopback

CONNECT_PATH: Final = "/v1/connect"
"""The path of a URL that names none (protocol section 1)."""

HINT_PARAMETER: Final = "node"
"""The query parameter that carries the route hint; it is not secret (protocol 4.3)."""

BACKUP_PARAMETER: Final = "backup"
"""That which carries the second one: where to go if the first node is dead."""

_SECURE_SCHEMES: Final = frozenset({"wss", "https"})
_SCHEMES: Final = _SECURE_SCHEMES | {"ws", "http"}


def check_urls(urls: str | Sequence[str]) -> tuple[str, ...]:
    """Check the URLs a user gave, and complete those without a path.

    Raises:
        ValueError: there is none, one is not a WebSocket URL, or some use TLS and some do not.
    """
    given = (urls,) if isinstance(urls, str) else tuple(urls)
    if not given:
        raise ValueError("connect needs at least one URL, such as ws://127.0.0.1:8100")
    if len({urlsplit(url).scheme in _SECURE_SCHEMES for url in given}) > 1:
        # Who can disturb connections over TLS would decide that the secret travels without.
        raise ValueError("either all URLs use TLS (wss, https) or none does; a failure must not weaken a connection")
    return tuple(map(_check_url, given))


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise ValueError(f"{describe_url(url)!r} is not a URL such as ws://127.0.0.1:8100 or wss://gateway.example/")
    return urlunsplit(parts._replace(path=parts.path if parts.path not in {"", "/"} else CONNECT_PATH, fragment=""))


def is_secure(url: str) -> bool:
    """Tell whether a URL asks for TLS."""
    return urlsplit(url).scheme in _SECURE_SCHEMES


def in_clear_text(urls: Sequence[str]) -> str:
    """Say to which other hosts some URLs lead without TLS: secrets and tokens can be read on the way there.

    Args:
        urls: as ``check_urls`` returned them.

    Returns:
        A sentence for a warning; empty if there is nothing to warn of.
    """
    clear = [urlsplit(url).hostname or "" for url in urls if not is_secure(url)]
    hosts = [host for host in dict.fromkeys(clear) if not _is_this_machine(host)]
    if not hosts:
        return ""
    return f"secrets and tokens go to {', '.join(hosts)} in clear text; use wss, unless nobody else is in that network"


def _is_this_machine(host: str) -> bool:
    """Tell whether a host is this machine, without looking it up; all of ``.localhost`` is (RFC 6761)."""
    return is_loopback(host) or host.endswith(".localhost")


def describe_url(url: str) -> str:
    """Return a URL as it may appear in messages: without user, password and query, which may be secret."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def with_hints(url: str, node: str | None, backup: str | None) -> str:
    """Put the route hints into a URL's query, in the place of any others; one that there is not is left out."""
    parts = urlsplit(url)
    hints = {HINT_PARAMETER: node, BACKUP_PARAMETER: backup}
    query = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in hints]
    query += [(name, hint) for name, hint in hints.items() if hint is not None]
    return urlunsplit(parts._replace(query=urlencode(query)))
