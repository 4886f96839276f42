"""The streams of events that a node serves, for those who look after all that its clients hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gateway.app.session.stream_session import StreamSession


class Readers:
    """Registry of the sessions by which streams of events are read.

    Attributes:
        look_again: has all of them judged again, soon: the policy has changed, or who is revoked. Set by whoever serves
            them.
    """

    def __init__(self) -> None:
        self._held: dict[StreamSession, None] = {}
        self.look_again: Callable[[], None] = _nothing

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[StreamSession]:
        return iter(list(self._held))

    def add(self, session: StreamSession) -> None:
        """Take one in."""
        self._held[session] = None

    def discard(self, session: StreamSession) -> None:
        """Let one go; no effect if it is not there."""
        self._held.pop(session, None)


def _nothing() -> None:
    """Nobody serves streams."""
