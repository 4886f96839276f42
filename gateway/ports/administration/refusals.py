"""Why an administrator's wish is not fulfilled; each sentence is meant for the administrator."""

from __future__ import annotations

from gateway.core.types import NodeRef
from gateway.core.wire.errors import GatewayError


class Refused(GatewayError):
    """An administrator asked for something that cannot be done; the text says why and what to do."""


class NotThere(Refused):
    """What was named does not exist.

    Attributes:
        kind: what it would be: ``node``, ``session``, ``topic`` or ``revocation``.
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
