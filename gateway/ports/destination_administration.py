"""Destinations as administrators see and change them; see ``administration`` for the rules that hold for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from gateway.core.destinations.destination import Origin
from gateway.ports.administration_basics import Page


class DestinationView(NamedTuple):
    """What somebody says of paths.

    Attributes:
        selector: which paths.
        kind: what they are: the value of a ``Kind``.
        limits: by name; seconds and bytes as numbers.
        origin: who says so.
        made: when, in seconds since 1970.
        in_force: whether it counts for its selector; what administrators say replaces what the file says.
    """

    selector: str
    kind: str
    limits: Mapping[str, object]
    origin: Origin
    made: float
    in_force: bool


class TreeView(NamedTuple):
    """A tree of topics with presence.

    Attributes:
        tree: its path.
        members: how many there are.
    """

    tree: str
    members: int


class DestinationAdministration(Protocol):
    """What paths are: values, topics with history."""

    async def list(self, *, cursor: str | None, limit: int) -> Page[DestinationView]:
        """List what everybody says, by selector, as this node knows it.

        Raises:
            BadParameter: the cursor cannot be read.
        """

    async def find(self, selector: str) -> DestinationView:
        """Return what counts for a path; or for a selector with wildcards, what is said of that very selector.

        Raises:
            BadParameter: it is no selector.
            NotThere: nobody says anything, so that a path is a plain value.
        """

    async def trees(self, selector: str, *, cursor: str | None, limit: int) -> Page[TreeView]:
        """List the trees that a destination with presence marks, and that have members now. Nobody is told of anything.

        Raises:
            BadParameter: it is no selector, or the cursor cannot be read.
            NotThere: nobody says anything of this very selector, or it has no presence.
            GridUnavailable: to be tried again.
        """

    async def set(self, selector: str, kind: str, limits: Mapping[str, object]) -> DestinationView:
        """Say as an administrator what the paths of a selector are, in the place of what was said before.

        Raises:
            BadParameter: it cannot be so.
            Conflict: there are too many.
            GridUnavailable: to be tried again.
        """

    async def remove(self, selector: str) -> None:
        """Take back what administrators say of a selector; what the file says of it counts again.

        Raises:
            BadParameter: it is no selector.
            NotThere: they say nothing.
            Conflict: only the file says something.
            GridUnavailable: to be tried again.
        """
