"""What is wrong with a configuration: where it stands, which value, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.core.visible import visible
from gateway.core.wire.errors import GatewayError


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        place: where it stands, such as ``/etc/gateway.toml: window_default`` or ``GATEWAY_WINDOW_DEFAULT``.
        complaint: what is wrong, with the value (never a secret's).
        remedy: what to do.
    """

    place: str
    complaint: str
    remedy: str

    def __str__(self) -> str:
        return visible(f"{self.place}: {self.complaint}; {self.remedy}")


class ConfigurationError(GatewayError):
    """The configuration cannot be used. All that is wrong is told at once, so that it can be corrected in one go.

    Attributes:
        problems: at least one.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Unfit(ValueError):
    """A value does not fit its kind; the message is the complaint, without the value."""
