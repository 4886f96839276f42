"""A door that is open to everybody; implements ``gateway.ports.Admission``."""

from __future__ import annotations

from gateway.ports import TurnedAway, Visitor


class OpenDoor:
    """Lets everybody in at once, and counts them.

    Attributes:
        visits: connections that have arrived and not left.
        refuse_with: what arrivals are told instead, if it is set.
        together: connections accepted in one turn of the loop at most.
        pause: seconds without new connections after some have been accepted.
        paced: whether those without a session are bounded in what they take.
    """

    def __init__(self) -> None:
        self.visits = 0
        self.refuse_with: TurnedAway | None = None
        self.together = 64
        self.pause = 0.0
        self.paced = False

    def is_paced(self) -> bool:
        """See the port."""
        return self.paced

    def acceptable(self) -> int:
        """See the port."""
        return self.together

    def accepted(self, connections: int) -> float:  # noqa: ARG002 - one is as good as many
        """See the port."""
        return self.pause

    def arrive(self, address: str) -> OpenDoor:  # noqa: ARG002 - all are welcome
        """See the port."""
        if self.refuse_with is not None:
            raise self.refuse_with
        self.visits += 1
        return self

    def leave(self) -> None:
        """See ``Visit``."""
        self.visits -= 1

    def admit(self, visitor: Visitor, *, returning: bool) -> None:  # noqa: ARG002 - all are alike
        """See the port."""
        visitor.let_in()

    def withdraw(self, visitor: Visitor) -> None:
        """See the port; nobody ever waits."""
