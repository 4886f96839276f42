"""Kinds of settings that name something outside: addresses, files, origins, keys; and files of keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import ClassVar, Final, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from gateway.settings.errors import Problem, Unfit
from gateway.settings.grid_url import HIGHEST_PORT, read_grid_url
from gateway.settings.kinds import Kind, Word, text_of
from gateway.settings.values import (
    AnonymousUsers,
    AuthChoice,
    CallbackUsers,
    ChainedUsers,
    FileUsers,
    HostPort,
    JwtUsers,
    Secret,
    StaticUsers,
    is_host,
)

Network: TypeAlias = IPv4Network | IPv6Network
"""Addresses of proxies."""

GRID_PREFIX: Final = Word(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}", "up to 64 letters, digits and any of _ . : -")
"""What the names of all keys in a grid begin with."""


@dataclass(frozen=True, slots=True)
class Listen(Kind[HostPort]):
    """Where to listen."""

    metavar: ClassVar[str] = "HOST:PORT"

    @property
    def accepts(self) -> str:
        """See the base class."""
        return "host:port such as 127.0.0.1:8101 or [::1]:8101 (port 0 takes a free one)"

    def read(self, raw: object) -> HostPort:
        """See the base class."""
        host, colon, port = text_of(raw).rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if not colon or not host:
            raise Unfit("lacks a host or a port")
        if ":" in host and not bracketed:
            raise Unfit("is ambiguous, because an IPv6 address needs square brackets")
        if re.fullmatch(r"[0-9]{1,5}", port) is None or int(port) > HIGHEST_PORT:
            raise Unfit(f"has a port that is not a number up to {HIGHEST_PORT}")
        host = host[1:-1] if bracketed else host
        if re.fullmatch(r"[0-9A-Za-z_.:%-]+", host) is None or not is_host(host):
            raise Unfit("has a host that is neither a name nor an address")
        return HostPort(host, int(port))


@dataclass(frozen=True, slots=True)
class Advertised(Listen):
    """Where others reach what this node listens on."""

    @property
    def accepts(self) -> str:
        """See the base class."""
        return "host:port such as n1.example.com:8301 or [fd00::7]:8301 (port 0 stands for the one that is listened on)"

    def read(self, raw: object) -> HostPort:
        """See the base class."""
        where = Listen.read(self, raw)
        if where.is_everywhere:
            raise Unfit("is where a node listens on all its addresses, and others can reach none of them by that")
        return where


@dataclass(frozen=True, slots=True)
class GridUrl(Kind[str]):
    """Where the grid is; may hold a password."""

    metavar: ClassVar[str] = "URL"

    @property
    def accepts(self) -> str:
        """See the base class."""
        return (
            "redis://[user:password@]host:port/database, unix:///path/to/socket, "
            "redis+sentinel://[user:password@]host:port,host:port/master-name[/database][?sentinel_password=…], or "
            "redis+cluster://[user:password@]host:port,host:port; rediss://…, rediss+sentinel://… and "
            "rediss+cluster://… for TLS"
        )

    def read(self, raw: object) -> str:
        """See the base class."""
        text = text_of(raw)
        read_grid_url(text)
        return text

    def show(self, value: str) -> str:
        """See the base class; a password is masked."""
        parts = urlsplit(value)
        user, at, host = parts.netloc.rpartition("@")
        if at:
            parts = parts._replace(netloc=f"{user.partition(':')[0]}:…@{host}")
        # redis-py also takes credentials from the query; nothing there is needed to recognise the grid.
        return urlunsplit(parts._replace(query="…" if parts.query else "", fragment=""))


@dataclass(frozen=True, slots=True)
class File(Kind[Path]):
    """A file that must exist when the node starts."""

    metavar: ClassVar[str] = "FILE"

    @property
    def accepts(self) -> str:
        """See the base class."""
        return "the path of a file; a relative one starts from the folder of the configuration file that names it"

    def read(self, raw: object) -> Path:
        """See the base class."""
        text = text_of(raw)
        if not text or "\0" in text:
            raise Unfit("is not a path")
        try:
            return Path(text).expanduser()
        except RuntimeError:
            raise Unfit("begins with the home folder of a user that has none on this machine") from None

    def anchor(self, value: Path, folder: Path) -> Path:
        """See the base class."""
        return folder / value


_AUTH_FILES: Final[dict[str, type[FileUsers]]] = {"static": StaticUsers, "jwt": JwtUsers, "http": CallbackUsers}
"""Ways of authentication that a file describes, by the word before the colon."""


@dataclass(frozen=True, slots=True)
class Auth(Kind[AuthChoice]):
    """How clients prove who they are: one way, or several that are asked one after the other."""

    metavar: ClassVar[str] = "anonymous|static:FILE|jwt:FILE|http:FILE,…"

    @property
    def accepts(self) -> str:
        """See the base class."""
        return (
            "anonymous (development only), or one or several of static:FILE (`gateway hash-secret` makes the lines of "
            "FILE), jwt:FILE and http:FILE (TOML files), separated by commas (in TOML: an array)"
        )

    def read(self, raw: object) -> AuthChoice:
        """See the base class."""
        entries = raw if isinstance(raw, list) else text_of(raw).split(",")
        ways = tuple(self._read_way(text_of(each)) for each in entries)
        if len(ways) == 1:
            return ways[0]
        files = tuple(each for each in ways if not isinstance(each, AnonymousUsers))
        if len(files) != len(ways):
            # It would believe every name that the others refuse.
            raise Unfit("names anonymous beside others, which would accept every client under any name")
        if len(set(files)) != len(files):
            raise Unfit("has an entry twice")
        if not files:
            raise Unfit("is empty")
        return ChainedUsers(files)

    @staticmethod
    def _read_way(text: str) -> AnonymousUsers | FileUsers:
        if text == "anonymous":
            return AnonymousUsers()
        scheme, colon, rest = text.partition(":")
        kind = _AUTH_FILES.get(scheme)
        if scheme in {"http", "https"} and rest.startswith("//"):
            raise Unfit("is a URL; write it into a TOML file as url = …, and name that file as http:FILE")
        if kind is None:
            raise Unfit("names no known way of authentication")
        if not colon or not rest.strip():
            raise Unfit("names no file")
        return kind(File().read(rest))

    def anchor(self, value: AuthChoice, folder: Path) -> AuthChoice:
        """See the base class."""
        match value:
            case AnonymousUsers():
                return value
            case ChainedUsers(ways):
                return ChainedUsers(tuple(type(each)(folder / each.file) for each in ways))
            case _:
                return type(value)(folder / value.file)


@dataclass(frozen=True, slots=True)
class Origin(Kind[str]):
    """A web origin as browsers write it, ``loopback``, or ``*``."""

    @property
    def accepts(self) -> str:
        """See the base class."""
        return (
            "an origin such as https://app.example.com, loopback for pages of the visitor's own machine, or * for all"
        )

    def read(self, raw: object) -> str:
        """See the base class."""
        text = text_of(raw).lower()
        if text in {"*", "loopback"}:
            return text
        if re.fullmatch(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", text) is None:
            raise Unfit("has an entry that is not scheme://host[:port] (no path, no slash at the end)")
        # Browsers leave out the port that the scheme implies, and the comparison is exact.
        for scheme, port in (("https", ":443"), ("http", ":80")):
            if text.startswith(f"{scheme}://"):
                text = text.removesuffix(port)
        return text


@dataclass(frozen=True, slots=True)
class Net(Kind[Network]):
    """A network of addresses, or one address."""

    @property
    def accepts(self) -> str:
        """See the base class."""
        return "an address or network such as 10.0.0.7 or 10.0.0.0/24"

    def read(self, raw: object) -> Network:
        """See the base class."""
        try:
            return ip_network(text_of(raw))
        except ValueError:
            raise Unfit("has an entry that is no address and no network (or a network with host bits set)") from None


LEAST_KEY_BYTES: Final = 16
"""Bytes of a token key: 128 bits cannot be guessed, provided that they are random."""


@dataclass(frozen=True, slots=True)
class Key(Kind[Secret]):
    """A key that signs tokens."""

    @property
    def accepts(self) -> str:
        """See the base class."""
        return f"a random text of at least {LEAST_KEY_BYTES} bytes, such as `openssl rand -hex 32` prints"

    def read(self, raw: object) -> Secret:
        """See the base class."""
        text = text_of(raw)
        if len(text.encode("utf-8", "surrogateescape")) < LEAST_KEY_BYTES:
            raise Unfit(f"has a key shorter than {LEAST_KEY_BYTES} bytes")
        if not text.isprintable() or not text.isascii() or " " in text or "," in text:
            raise Unfit("has a key with blanks, commas or characters outside ASCII")
        return Secret(text)

    def show(self, value: Secret) -> str:  # noqa: ARG002 - showing nothing of it is the point
        """See the base class; the key is masked."""
        return "…"


def read_keys(file: Path, place: str, *, may_be_empty: bool = False) -> tuple[tuple[Secret, ...], list[Problem]]:
    """Read the keys of *file*.

    Args:
        file: to read.
        place: where the file is named, for messages.
        may_be_empty: no key is fine, too: keys that only verify are needed only while keys are rotated.

    Returns:
        The keys, and what is wrong with the file. No message repeats a key.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except OSError as error:
        complaint = f"{file} cannot be read ({error.strerror or error})"
        return (), [Problem(place, complaint, "name a file that this user may read")]
    except UnicodeDecodeError:
        return (), [Problem(place, f"{file} is not a text file", "write one key a line, in ASCII")]
    kind, keys, problems = Key(), dict[Secret, int](), list[Problem]()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            key = kind.read(line)
        except Unfit as unfit:
            problems.append(Problem(f"{file}:{number}", f"the line {unfit}", f"write {kind.accepts}"))
            continue
        if keys.setdefault(key, number) != number:
            problems.append(Problem(f"{file}:{number}", f"the key of line {keys[key]} again", "remove one of them"))
    if not keys and not problems and not may_be_empty:
        problems.append(Problem(place, f"{file} holds no key", "write one key a line"))
    return tuple(keys), problems
