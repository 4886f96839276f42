"""Values of settings that are more than a number or a text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias


class LogFormat(StrEnum):
    """How log events are written."""

    AUTO = "auto"
    """Console on a terminal, else JSON."""
    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severe log events that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


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


AuthChoice: TypeAlias = AnonymousUsers | StaticUsers
"""How clients prove who they are."""


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
