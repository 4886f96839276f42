"""What all administration has in common: pages of lists, and how it is refused; see ``administration``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.core.types import NodeRef
from gateway.core.wire.errors import GatewayError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list.

    Attributes:
        items: those of this page; may be few or none though more follow, because a page also ends after so much work.
        cursor: where the next page begins, opaque; None if this was the last.
    """

    items: Sequence[T]
    cursor: str | None


class Refused(GatewayError):
    """An administrator asked for something that cannot be done; the text says why and what to do."""


class NotThere(Refused):
    """What was named does not exist.

    Attributes:
        kind: what it would be: ``node``, ``session``, ``topic``, ``destination`` or ``revocation``.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class BadParameter(Refused):
    """A parameter cannot be understood.

    Attributes:
        name: which parameter.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class Conflict(Refused):
    """It cannot be done as things stand: for example, there is no other node to move a session to."""


class Forbidden(Refused):
    """Nobody may do this by the admin API, whatever their roles."""


class HeldElsewhere(GatewayError):
    """Another node has to be asked: it holds the session, or it is the node that was named.

    Attributes:
        owner: that node.
        admin: where its admin port is, as a URL without a path; None if it has no lease or told none.
    """

    def __init__(self, owner: NodeRef, admin: str | None) -> None:
        super().__init__(f"{owner} has to be asked")
        self.owner = owner
        self.admin = admin
