"""What of a configuration others can read: on the network, because it is clear text, or in the list of processes.

None of it keeps a node from running: behind a proxy, or inside a network that nobody else is in, it may be meant so.
Each sentence says what is exposed, to where, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from gateway.core.loopback import is_loopback
from gateway.settings.errors import Unfit
from gateway.settings.grid_url import GridKind, read_grid_url
from gateway.settings.interfaces import NodeWithInterfaces, client_interfaces
from gateway.settings.places import Network
from gateway.settings.values import HostPort


class _Node(NodeWithInterfaces, Protocol):
    """What is looked at, of all settings."""

    @property
    def trusted_proxies(self) -> tuple[Network, ...]: ...
    @property
    def admin(self) -> HostPort: ...
    @property
    def admin_tls_certificate(self) -> Path | None: ...
    @property
    def admin_tokens_file(self) -> Path | None: ...
    @property
    def grid(self) -> str | None: ...


def in_clear_text(settings: _Node) -> Iterator[str]:
    """Tell what goes to other hosts unencrypted.

    Args:
        settings: of a node.
    """
    # Behind a proxy it is the proxy that speaks with clients; the network between the two is somebody's decision.
    clear = [each for each in client_interfaces(settings) if not each.speaks_tls(settings.tls_certificate)]
    exposed = [str(each.listen) for each in clear if not is_loopback(each.listen.host)]
    if exposed and not settings.trusted_proxies:
        yield (
            f"clients of other hosts send secrets and tokens to {', '.join(exposed)} in clear text (give "
            "--tls-certificate, or name the proxy before this node that speaks TLS by --trusted-proxies)"
        )
    if (
        settings.admin_tokens_file is not None
        and settings.admin_tls_certificate is None
        and not is_loopback(settings.admin.host)
    ):
        yield (
            f"administrators of other hosts send their tokens to {settings.admin} in clear text (give "
            "--admin-tls-certificate, or keep the admin port in a network that you trust)"
        )
    if settings.grid is not None and (hosts := _grid_in_clear_text(settings.grid)):
        yield (
            f"sessions, values and the password of Redis go to {', '.join(hosts)} in clear text (give a grid URL that "
            "begins with rediss, or keep Redis in a network that you trust)"
        )


def on_command_lines(grid: str | None, place: Callable[[str], str]) -> Iterator[str]:
    """Tell what is secret and was given by a flag, where every user of the machine can read it.

    Args:
        grid: the URL of the grid, if there is one.
        place: tells where a setting was given.
    """
    if grid is not None and place("grid") == "--grid" and has_password(grid):
        yield (
            "--grid has a password in it, which every user of this machine can read in the list of processes (put the "
            "URL into a file for --config, or into the environment)"
        )


def has_password(grid: str) -> bool:
    """Tell whether a grid URL has a password in it, that of Redis or that of Sentinels."""
    scheme, _, rest = grid.partition("://")
    authority, _, query = rest.partition("?")
    login, at, _ = authority.rpartition("@")
    named = {name for name, value in parse_qsl(query) if value}
    return bool(scheme and at and login.partition(":")[2]) or not named.isdisjoint({"password", "sentinel_password"})


def _grid_in_clear_text(grid: str) -> list[str]:
    """List the hosts of a grid that are reached in clear text and are not this machine."""
    try:
        place = read_grid_url(grid)
    except Unfit:
        return []
    if place.kind is GridKind.SINGLE:
        host = urlsplit(place.url).hostname or ""
        clear = [host] if not place.tls and place.url.startswith("redis://") else []
    else:
        clear = (
            []
            if place.tls and (place.sentinel_tls or place.kind is GridKind.CLUSTER)
            else [each.host for each in place.hosts]
        )
    return [host for host in dict.fromkeys(clear) if host and not is_loopback(host)]
