"""What a node adds to a session stays behind when the session goes to another one: each attribute, and why (H1)."""

from __future__ import annotations

from typing import Final

import pytest

from gateway.app.session.session import Session
from gateway.core.session.server_session import ServerSession

OF_THE_CONNECTION: Final = {
    *("connection", "fixed", "advised_backoff", "deduplicated", "conflated", "meter", "paused", "refreshes"),
    *("outcome", "replayed", "credential_due", "renew_at", "moving", "muted"),
}
"""Made anew when a client is welcomed: it has another connection then, and what it counts begins again."""

OF_THE_GRID: Final = {
    *("owner", "epoch", "expired_leases", "restores", "on_clock", "unsaved", "written", "stored"),
    *("present", "trees", "partitions_asked"),
}
"""By which right it is written, and what of it is known to be stored: the new owner has read that with its claim."""

OF_THE_NODE: Final = {
    *("lane", "selecting", "resuming", "ending", "dropped", "given_by", "elsewhere_until", "arriving"),
    "left_at",
    *("account", "counted", "permissions", "rests_until", "retained"),
}
"""Of what this node does with it, or counts of it: tasks, locks, the accounts of its principal, partitions."""

BY_ITS_OWNERS: Final = {"consumers", "exchange"}
"""Messages held are the session's in the grid, and its client asks for its queues again (P15). So are
the questions that it asked and was given: the next node reads them there, by the partitions that are exported."""


@pytest.mark.promise("P12")
def test_each_attribute_is_exported_or_stays_behind_for_a_reason() -> None:
    """One that nobody has thought of would be lost with a handoff. Whoever adds one decides: here, or in ``export``."""
    staying = (OF_THE_CONNECTION, OF_THE_GRID, OF_THE_NODE, BY_ITS_OWNERS)

    assert set(Session.__slots__) == set().union(*staying)
    assert sum(map(len, staying)) == len(Session.__slots__), "each for one reason"
    assert not set(Session.__slots__) & set(ServerSession.__slots__)
