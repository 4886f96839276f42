"""Hooks: who delivers for each, up to where each has come, and how receivers are reached. See ``gateway.ports``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from gateway.core.hooks.cursor import Cursor, Page
from gateway.core.hooks.hook import MOST_HOOKS, Hook, HookName
from gateway.core.types import NodeRef
from gateway.core.wire.errors import GatewayError


class HookTaken(GatewayError):
    """A node of a later term delivers for the hook, or nobody does any more; nothing was changed."""


class NoPostAnswer(GatewayError):
    """A receiver gave no answer; the message says why, without what may be secret in the URL."""


class PostAnswer(NamedTuple):
    """What a receiver answered.

    Attributes:
        status: the status code.
        retry_after: the header of that name; None if there was none.
    """

    status: int
    retry_after: str | None


MOST_HELD: Final = 4 * MOST_HOOKS
"""Hooks that somebody may have: more than there are at a time, as those that were renamed are forgotten later."""


@dataclass(frozen=True, slots=True)
class HookHolder:
    """Who delivers for a hook.

    Attributes:
        node: which run of which node.
        term: grows with each node that takes the hook; of two that both believe to have it, the one of the larger
            term does.
        left: seconds until somebody else may take it, by the clock of the grid.
    """

    node: NodeRef
    term: int
    left: float


class HookStore(Protocol):
    """What the grid holds of hooks: a lease and a term for each, a cursor for each in every stream of the journal.

    A cursor keeps what is behind it from being trimmed by the reader of the journal, but not from being cut by the cap.
    All of it works also when the grid's memory is full.
    """

    async def hold(self, node: NodeRef, names: Collection[HookName], *, lease: float) -> Mapping[HookName, HookHolder]:
        """Take hooks that nobody has, and keep those that the node has, for *lease* seconds from now, in one step.

        Returns:
            Who has each of *names* now.

        Raises:
            GridUnavailable: see the module.
        """

    async def release(self, node: NodeRef, names: Collection[HookName]) -> None:
        """Give hooks back that the node has, so that somebody else can take them at once.

        Raises:
            GridUnavailable: see the module.
        """

    async def holders(self) -> Mapping[HookName, HookHolder]:
        """Tell who has which hook.

        Raises:
            GridUnavailable: see the module.
        """

    async def read(self, name: HookName, term: int, *, known: bool, entries: int) -> Sequence[Page]:
        """Read in all streams what is behind the cursors of a hook, which deliverers of earlier terms cannot move then.

        A stream in which the hook has no cursor yet gives it one: behind all that is there, or, if it is *known*,
        before all that is there, as its cursor was lost.

        Args:
            name: of the hook.
            term: under which the node has it.
            known: whether it had cursors before.
            entries: that are read of each stream at most.

        Returns:
            What is there, stream by stream.

        Raises:
            HookTaken: see there.
            GridUnavailable: see the module.
        """

    async def advance(self, name: HookName, term: int, cursors: Mapping[int, Cursor]) -> None:
        """Move cursors of a hook, each in one step.

        Args:
            name: of the hook.
            term: under which the node has it.
            cursors: by stream.

        Raises:
            HookTaken: see there; some of them may have been moved.
            GridUnavailable: see the module.
        """

    async def tell(self, name: HookName, status: bytes) -> None:
        """Keep what is said of a hook, in the place of what was said before; from then on it is known.

        Raises:
            GridUnavailable: see the module.
        """

    async def told(self) -> Mapping[HookName, bytes]:
        """Tell what was said of each hook that is known.

        Raises:
            GridUnavailable: see the module.
        """

    async def behind(self, name: HookName) -> int | None:
        """Count the events that a hook has yet to pass; None if it has no cursors.

        Raises:
            GridUnavailable: see the module.
        """

    async def ask_again(self, name: HookName) -> bool:
        """Ask the node that delivers for a hook to try at once; it finds that when it renews its lease.

        Returns:
            False if no such hook is known.

        Raises:
            GridUnavailable: see the module.
        """

    async def asked(self) -> Collection[HookName]:
        """Tell which hooks are to be tried at once.

        Raises:
            GridUnavailable: see the module.
        """

    async def answered(self, name: HookName) -> None:
        """A hook is being tried: nobody waits for that any more.

        Raises:
            GridUnavailable: see the module.
        """

    async def forget(self, name: HookName) -> bool:
        """Forget a hook, and free its cursors, unless somebody has it.

        Returns:
            False if somebody has it; then nothing was changed.

        Raises:
            GridUnavailable: see the module.
        """


class HookSender(Protocol):
    """Posts to receivers. Never raises anything but what is said, never follows a redirect."""

    async def post(self, hook: Hook, body: bytes, headers: Mapping[str, str]) -> PostAnswer:
        """Post once.

        Raises:
            NoPostAnswer: none came in time.
        """

    async def forget(self, hook: Hook) -> None:
        """Close the connections to a receiver."""

    async def close(self) -> None:
        """Close all connections."""
