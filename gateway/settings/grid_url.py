"""Where the grid is: the URL of one Redis, of a master that Sentinels know, or of a Redis Cluster.

```text
redis://[user:password@]host[:6379][/database]                                        one Redis; rediss:// for TLS
unix:///path/to/socket                                                                one Redis
redis+sentinel://[user:password@]host[:26379],…/master name[/database]                the master that Sentinels name
redis+cluster://[user:password@]host[:6379],…                                         a Redis Cluster
```

User and password are those of Redis. Sentinels have their own, as ``?sentinel_username=…&sentinel_password=…``.
``rediss+sentinel://`` and ``rediss+cluster://`` mean TLS throughout, and ``?sentinel_tls=no`` leaves the Sentinels out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from gateway.settings.errors import Unfit
from gateway.settings.values import HostPort, is_host

HIGHEST_PORT: Final = 65535
"""Ports are 16 bits wide."""


class GridKind(StrEnum):
    """What answers behind the URL."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


SCHEMES: Final = {
    "redis": (GridKind.SINGLE, False),
    "rediss": (GridKind.SINGLE, True),
    "unix": (GridKind.SINGLE, False),
    "redis+sentinel": (GridKind.SENTINEL, False),
    "rediss+sentinel": (GridKind.SENTINEL, True),
    "redis+cluster": (GridKind.CLUSTER, False),
    "rediss+cluster": (GridKind.CLUSTER, True),
}
"""What each scheme means: which kind of grid, and whether by TLS."""

_DEFAULT_PORTS: Final = {GridKind.SENTINEL: 26379, GridKind.CLUSTER: 6379}

SENTINEL_OPTIONS: Final = ("sentinel_username", "sentinel_password", "sentinel_tls")
"""What may follow a ``?`` beside the options that redis-py knows."""

_YES_OR_NO: Final = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}

_HOST: Final = r"[0-9A-Za-z_.:%-]+"


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPlace:
    """A grid URL, read. Its parts may hold passwords, so none of them is shown by ``repr`` but the hosts.

    Attributes:
        kind: what answers there.
        tls: whether Redis is reached by TLS.
        hosts: Sentinels, or some nodes of the cluster; none for one Redis, whose ``url`` says it all.
        master: the name by which Sentinels know the master.
        sentinel_username: for the Sentinels.
        sentinel_password: for the Sentinels.
        sentinel_tls: whether Sentinels are reached by TLS.
        url: as it was given, for one Redis.
        login: user and password of Redis as in the URL.
        tail: database and further options of the connections to Redis, as in a URL.
    """

    kind: GridKind
    tls: bool
    hosts: tuple[HostPort, ...] = ()
    master: str = ""
    sentinel_username: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    sentinel_tls: bool = False
    url: str = field(default="", repr=False)
    login: str = field(default="", repr=False)
    tail: str = field(default="", repr=False)

    def redis_url(self, at: HostPort | None = None) -> str:
        """Make the URL of one Redis of this grid, as redis-py reads it; holds the password.

        Args:
            at: which; leave it out for a grid of one Redis.
        """
        if at is None:
            return self.url
        return f"{'rediss' if self.tls else 'redis'}://{self.login}{at}{self.tail}"


def read_grid_url(text: str) -> GridPlace:
    """Read a grid URL.

    Args:
        text: the URL.

    Returns:
        What it says.

    Raises:
        Unfit: it says nothing that could be used; the sentence tells why and shows none of it.
    """
    scheme, separator, _ = text.partition("://")
    if not separator or scheme not in SCHEMES:
        *some, last = (f"{each}://" for each in SCHEMES)
        raise Unfit(f"does not begin with {', '.join(some)} or {last}")
    kind, tls = SCHEMES[scheme]
    if "#" in text:
        # What follows would be no part of the password any more, and what precedes it would be a host and a port.
        raise Unfit("has a #, which must be written %23 in a password")
    rest, _, query = text.removeprefix(f"{scheme}://").partition("?")
    if query and not all(re.match("[^=]+=", option) for option in query.split("&")):
        raise Unfit("has a ? that no options name=value follow; in a password it must be written %3F")
    if kind is GridKind.SINGLE:
        return _single(text, tls=tls)
    authority, _, path = rest.partition("/")
    login, at, listed = authority.rpartition("@")
    hosts = tuple(_host(each, _DEFAULT_PORTS[kind]) for each in listed.split(","))
    if kind is GridKind.CLUSTER:
        return _cluster(hosts, login + at, path, query, tls=tls)
    return _sentinel(hosts, login + at, path, query, tls=tls)


def _single(text: str, *, tls: bool) -> GridPlace:
    if tls or text.startswith("redis://"):
        authority = re.split(r"[/?]", text.partition("://")[2], maxsplit=1)[0]
        if "," in authority.rpartition("@")[2]:
            raise Unfit("names several hosts, which redis+sentinel:// or redis+cluster:// could")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise Unfit("is not a URL") from None
    if parts.scheme == "unix" and not parts.path:
        raise Unfit("names no socket")
    if parts.scheme != "unix" and not parts.hostname:
        raise Unfit("names no host")
    if parts.hostname and not is_host(parts.hostname):
        raise Unfit("has a host that is neither a name nor an address")
    if port == 0:
        raise Unfit("has port 0, where nothing can be reached")
    if parts.scheme != "unix" and re.fullmatch(r"/?[0-9]*", parts.path) is None:
        raise Unfit("has a path that is not the number of a database")
    return GridPlace(kind=GridKind.SINGLE, tls=tls, url=text)


def _sentinel(hosts: tuple[HostPort, ...], login: str, path: str, query: str, *, tls: bool) -> GridPlace:
    master, _, database = path.partition("/")
    if not master:
        raise Unfit("names no master: Sentinels need /<name of the master> after the hosts")
    if re.fullmatch(r"[0-9]*", database) is None:
        raise Unfit("has something after the name of the master that is not the number of a database")
    # A later one of the same name wins, as in redis-py's own URLs the first does; nobody should write two.
    options = dict(parse_qsl(query, keep_blank_values=True))
    own = {name: options.pop(name, None) for name in SENTINEL_OPTIONS}
    if unknown := sorted(name for name in options if name.startswith("sentinel_")):
        raise Unfit(f"has the unknown option {unknown[0]}; there are {', '.join(SENTINEL_OPTIONS)}")
    wanted = own["sentinel_tls"]
    if wanted is not None and wanted.lower() not in _YES_OR_NO:
        raise Unfit("has a sentinel_tls that is neither yes nor no")
    return GridPlace(
        kind=GridKind.SENTINEL,
        tls=tls,
        hosts=hosts,
        master=unquote(master),
        sentinel_username=own["sentinel_username"],
        sentinel_password=own["sentinel_password"],
        sentinel_tls=tls if wanted is None else _YES_OR_NO[wanted.lower()],
        login=login,
        tail=f"/{database or '0'}" + (f"?{urlencode(options)}" if options else ""),
    )


def _cluster(hosts: tuple[HostPort, ...], login: str, path: str, query: str, *, tls: bool) -> GridPlace:
    if path not in {"", "0"}:
        raise Unfit("has a path: a Redis Cluster has only database 0, and no name")
    tail = "/0" + (f"?{query}" if query else "")
    return GridPlace(kind=GridKind.CLUSTER, tls=tls, hosts=hosts, login=login, tail=tail)


def _host(text: str, default_port: int) -> HostPort:
    if not text:
        raise Unfit("has an empty place in its list of hosts, or no host")
    # Without a port: a name, an IPv4 address, or an IPv6 address in brackets.
    bare = re.fullmatch(r"\[[0-9A-Fa-f:.%]+\]|[^:\[\]]+", text) is not None
    host, _, port = (text, ":", str(default_port)) if bare else text.rpartition(":")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise Unfit("is ambiguous, because an IPv6 address needs square brackets")
    if re.fullmatch(r"[0-9]{1,5}", port) is None or int(port) > HIGHEST_PORT:
        raise Unfit(f"has a port that is not a number up to {HIGHEST_PORT}")
    if int(port) == 0:
        raise Unfit("has port 0, where nothing can be reached")
    host = host.removeprefix("[").removesuffix("]")
    if re.fullmatch(_HOST, host) is None or not is_host(host):
        raise Unfit("has a host that is neither a name nor an address")
    return HostPort(host, int(port))
