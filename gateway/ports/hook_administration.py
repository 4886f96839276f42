"""Event hooks as administrators see them; see ``administration`` for the rules that hold for all."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class HookState(StrEnum):
    """How a hook is."""

    DELIVERING = "delivering"
    """Its receiver takes what comes, or nothing has come yet."""
    FAILING = "failing"
    """Its receiver did not take what came last; it is tried again."""
    SUSPENDED = "suspended"
    """Its receiver said that it is gone; nothing is sent until its address is changed, or somebody asks for it."""
    UNHELD = "unheld"
    """No node delivers: none has it in its file any more, or it is about to be taken."""


class HookView(NamedTuple):
    """A hook that the grid knows.

    Attributes:
        name: its name.
        url: where it posts, without path and query; empty if no node has said.
        events: types of events that it gets, by name.
        state: how it is.
        node: name of the node that delivers; None if none does.
        behind: events of the journal that it has yet to pass, those that it does not want included.
        failures: attempts that have failed in a row.
        error: why the last attempt that failed did so, also if others were good since; empty if none ever failed.
        failed: when that was, in seconds since 1970; None if none ever failed.
        delivered: when events were delivered last, likewise, give or take ten seconds; None for never.
        failing: since when attempts fail, likewise; None if the last one was good.
        attempt: when the next one is due, likewise; None if none is waited for.
    """

    name: str
    url: str
    events: tuple[str, ...]
    state: HookState
    node: str | None
    behind: int
    failures: int
    error: str
    failed: float | None
    delivered: float | None
    failing: float | None
    attempt: float | None


class HookAdministration(Protocol):
    """Event hooks of the cluster."""

    async def list(self) -> Sequence[HookView]:
        """List them by name.

        Raises:
            GridUnavailable: nobody knows.
        """

    async def retry(self, name: str) -> None:
        """Have the node that delivers for one try at once, also if the receiver was gone; within a few seconds.

        Raises:
            NotThere: there is none of this name.
            GridUnavailable: it may have been done; asking again does no harm.
        """
