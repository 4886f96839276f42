"""Whoever does something on a node in the name of a principal."""

from __future__ import annotations

from typing import Protocol

from gateway.app.session.meter import Meter
from gateway.core.pacing.accounts import Account
from gateway.core.policy.permissions import Permissions


class Subject(Protocol):
    """A session, or who calls without one: what is judged and charged is the same.

    Attributes:
        permissions: what it may do, by the policy that was last looked at.
        meter: what its packets are charged to, and the work that its requests make; None if nothing limits them.
        rests_until: when it may do again what costs more than other requests, on the monotonic clock.
    """

    permissions: Permissions
    meter: Meter | None
    rests_until: float

    @property
    def principal(self) -> str:
        """In whose name."""

    @property
    def account(self) -> Account | None:
        """What its principal uses of this node, if that is limited."""
