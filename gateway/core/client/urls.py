"""The URLs that a client connects to: what a user may give, and what is made of it (protocol sections 1 and 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from gateway.core.loopback import is_loopback
from gateway.core.topology import SECURE_SCHEMES, is_secure
from gateway.core.wire.topology_packets import Cluster

CONNECT_PATH: Final = "/v1/connect"
"""The path of a URL that names none (protocol section 1)."""

HINT_PARAMETER: Final = "node"
"""The query parameter that carries the route hint; it is not secret (protocol 4.3)."""

BACKUP_PARAMETER: Final = "backup"
"""That which carries the second one: where to go if the first node is dead."""

_WEBSOCKET_SCHEMES: Final = frozenset({"ws", "wss"})
_SCHEMES: Final = SECURE_SCHEMES | {"ws", "http"}


def check_urls(urls: str | Sequence[str]) -> tuple[str, ...]:
    """Check the URLs a user gave, and complete those without a path.

    Raises:
        ValueError: there is none, one is not a WebSocket URL, or some use TLS and some do not.
    """
    given = (urls,) if isinstance(urls, str) else tuple(urls)
    if not given:
        raise ValueError("connect needs at least one URL, such as ws://127.0.0.1:8100")
    if len({is_secure(url) for url in given}) > 1:
        # Who can disturb connections over TLS would decide that the secret travels without.
        raise ValueError("either all URLs use TLS (wss, https) or none does; a failure must not weaken a connection")
    return tuple(map(_check_url, given))


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise ValueError(f"{describe_url(url)!r} is not a URL such as ws://127.0.0.1:8100 or wss://gateway.example/")
    return urlunsplit(parts._replace(path=parts.path if parts.path not in {"", "/"} else CONNECT_PATH, fragment=""))


def discovered_urls(cluster: Cluster, configured: Sequence[str]) -> dict[str, str]:
    """Choose of a list of the cluster what a client may connect to (protocol 15.3).

    Args:
        cluster: as a node has told it.
        configured: as ``check_urls`` returned them. What is safer than they are is left out, too: from there the next
            attempt at one of them would lead back to clear text.

    Returns:
        The nodes by the URLs that are safe in the same way, completed, in order.
    """
    found: dict[str, str] = {}
    for listed in cluster.nodes:
        for url in listed.urls:
            try:
                complete = _check_url(url)
                parts = urlsplit(complete)
                usable = parts.scheme in _WEBSOCKET_SCHEMES and parts.username is None and parts.port != 0
            except ValueError:
                continue  # of a node that is configured wrongly, or of a later release
            if usable and is_secure(complete) == is_secure(configured[0]):
                found.setdefault(complete, listed.node)
    return found


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
