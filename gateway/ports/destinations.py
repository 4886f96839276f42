"""What is said of paths in the whole cluster. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from gateway.core.destinations.destination import Destination, Origin
from gateway.core.wire.errors import GatewayError


class TooManyDestinations(GatewayError):
    """The grid holds as many destinations as it may (``MAX_DESTINATIONS``); nothing was written."""


class Applied(NamedTuple):
    """What came of making destinations all that one origin says.

    Attributes:
        written: so many were new, or said something else.
        removed: so many were deleted.
    """

    written: int
    removed: int


@dataclass(frozen=True, slots=True)
class DestinationRemoved:
    """A destination is no more.

    Attributes:
        name: of the destination.
    """

    name: str


@dataclass(frozen=True, slots=True)
class AllDestinations:
    """Everything the grid holds that this release can read.

    Attributes:
        destinations: each name once, in no order.
        lost_writes: the grid may have lost writes since the item before, so that what is missing here need not have
            been removed.
    """

    destinations: tuple[Destination, ...]
    lost_writes: bool = False


@dataclass(frozen=True, slots=True)
class DestinationChanges:
    """What has changed since the item before, in the order in which it changed.

    Attributes:
        changes: at least one. What a later release wrote and this one cannot read is as good as removed.
    """

    changes: tuple[Destination | DestinationRemoved, ...]


DestinationNews: TypeAlias = AllDestinations | DestinationChanges


class DestinationStore(Protocol):
    """Destinations in the grid; one of each name at most, and ``MAX_DESTINATIONS`` of all origins together.

    What a call has written is with every follower within a second, and mostly within some milliseconds. All of it works
    also when the grid's memory is full.
    """

    async def put(self, destination: Destination) -> bool:
        """Write a destination, in the place of an earlier one of the same name.

        Returns:
            False if it said the same already; then nothing was written.

        Raises:
            TooManyDestinations: see there.
            GridUnavailable: see the module.
        """

    async def remove(self, name: str) -> bool:
        """Delete a destination.

        Returns:
            False if there was none. Of a step whose answer was lost, asking again tells False, too.

        Raises:
            GridUnavailable: see the module.
        """

    async def apply(self, origin: Origin, destinations: Sequence[Destination]) -> Applied:
        """Make *destinations* all that *origin* says, in one step: what says the same already stays as it is.

        Raises:
            TooManyDestinations: with those of other origins; see there.
            GridUnavailable: see the module.
        """

    async def restore(self, destinations: Sequence[Destination]) -> int:
        """Put back those that a grid which lost writes holds not at all, or as they were made earlier.

        Those that are more than the grid may hold are left out.

        Returns:
            How many were written.

        Raises:
            GridUnavailable: see the module.
        """

    def follow(self) -> AsyncIterator[DestinationNews]:
        """Yield everything, then every change, for ever; for one listener.

        Everything comes again whenever a change may have been missed, and after each time that the grid may have lost
        writes. While the grid is unreachable it waits.
        """
