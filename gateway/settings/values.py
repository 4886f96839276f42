"""Values of settings that are more than a number or a text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final, TypeAlias


class LogFormat(StrEnum):
    """How log events are written."""

    AUTO = "auto"
    """Console on a terminal, else JSON."""
    CONSOLE = "console"
    JSON = "json"


class PrincipalNames(StrEnum):
    """How the journal names principals."""

    PLAIN = "plain"
    HASHED = "hashed"


class LogLevel(StrEnum):
    """The least severe log events that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


MOST_LABEL_CHARACTERS: Final = 63
"""Of a label of a name, which is what stands between two dots of it; longer ones cannot be looked up."""


def is_host(text: str) -> bool:
    """Tell whether a text can be looked up: an address, or a name without a label that is empty or too long."""
    labels = text.removesuffix(".").split(".")
    return ":" in text or all(0 < len(each) <= MOST_LABEL_CHARACTERS for each in labels)


@dataclass(frozen=True, slots=True)
class HostPort:
    """Where to listen.

    Attributes:
        host: name or address, without brackets.
        port: 0 lets the operating system choose a free one.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_everywhere(self) -> bool:
        """Whether the host stands for all addresses of a machine, and is none itself."""
        address = _address(self.host)
        return address is not None and address.is_unspecified

    def overlaps(self, other: HostPort) -> bool:
        """Tell whether not both can be listened on; of names that would have to be looked up, only what is certain."""
        if self.port == 0 or self.port != other.port:
            return False
        if self.host == other.host:
            return True
        one, another = _address(self.host), _address(other.host)
        if one is not None and another is not None:
            # Sockets for IPv6 do not take IPv4.
            return one.version == another.version and (one == another or self.is_everywhere or other.is_everywhere)
        # A name has an address of IPv4 nearly always.
        return any(each is not None and each.version == _IPV4 and each.is_unspecified for each in (one, another))


_IPV4: Final = 4


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """Read a host; None if it is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class AnonymousUsers:
    """Every client is believed to be who it says it is; for development only."""

    def __str__(self) -> str:
        return "anonymous"


@dataclass(frozen=True, slots=True)
class StaticUsers:
    """Principals and hashed secrets stand in a file.

    Attributes:
        file: lines that ``gateway hash-secret`` makes.
    """

    file: Path

    def __str__(self) -> str:
        return f"static:{self.file}"


@dataclass(frozen=True, slots=True)
class JwtUsers:
    """Clients show tokens of an identity provider.

    Attributes:
        file: whose tokens, and how they are read; see ``JwtSettings``.
    """

    file: Path

    def __str__(self) -> str:
        return f"jwt:{self.file}"


@dataclass(frozen=True, slots=True)
class CallbackUsers:
    """A service that the operator runs is asked.

    Attributes:
        file: which one, and how; see ``CallbackSettings``.
    """

    file: Path

    def __str__(self) -> str:
        return f"http:{self.file}"


FileUsers: TypeAlias = StaticUsers | JwtUsers | CallbackUsers
"""One way of authentication that a file describes."""


@dataclass(frozen=True, slots=True)
class ChainedUsers:
    """Several ways of authentication.

    Attributes:
        ways: in the order in which they are asked; at least two.
    """

    ways: tuple[FileUsers, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.ways))


AuthChoice: TypeAlias = AnonymousUsers | FileUsers | ChainedUsers
"""How clients prove who they are."""


def ways_of(choice: AuthChoice | None) -> tuple[AnonymousUsers | FileUsers, ...]:
    """List the ways of authentication, in the order in which they are asked."""
    match choice:
        case None:
            return ()
        case ChainedUsers(ways):
            return ways
        case _:
            return (choice,)


class Secret:
    """A text that shows itself to nobody who does not ask for it by name (P8)."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)
