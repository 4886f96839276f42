"""Durable subscriptions as administrators see and remove them; see ``administration`` for rules that hold for all."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from gateway.ports.administration_basics import Page


class DurableView(NamedTuple):
    """A durable subscription.

    Attributes:
        principal: whose it is.
        name: what the principal calls it.
        selector: which topics.
        shared: whether several sessions use it together.
        session: that uses it; None for none, and of a shared one.
        position: up to where everything has been acknowledged; empty for nothing yet. Of a shared one: where it began.
        made: when, in seconds since 1970.
        until: when it is removed unless it is used before, likewise; None while a session uses it.
    """

    principal: str
    name: str
    selector: str
    shared: bool
    session: str | None
    position: str
    made: float
    until: float | None


class DurableAdministration(Protocol):
    """Places in topics with history that outlive sessions."""

    async def list(self, *, cursor: str | None, limit: int) -> Page[DurableView]:
        """List them, those of a principal together.

        Raises:
            BadParameter: the cursor cannot be read.
            GridUnavailable: nobody knows.
        """

    async def remove(self, principal: str, name: str) -> None:
        """Remove one, also if somebody uses it: what that one acknowledges is refused from then on.

        Raises:
            NotThere: there is none.
            GridUnavailable: it may have been done; asking again does no harm.
        """
