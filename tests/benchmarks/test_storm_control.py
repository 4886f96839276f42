"""A storm that is met by all that storm control has, small: nothing is measured here, everything is judged."""

from __future__ import annotations

import pytest

from benchmarks.storm.control import LEFT, Plan, storm
from benchmarks.storm.outcome import Variant
from gateway.app.admission.handshake_limiter import CLAIM_BURST

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.thorough]

SESSIONS = 80
CLAIMS = 180.0
"""Sessions a second that all nodes together open or take over."""
SETTINGS = {"admission-rate": "40", "admission-wait": "0.2", "claim-rate": f"{CLAIMS:g}"}
"""Each node lets 40 a second in, and eight wait: most of those who come at once are told to come again."""


@pytest.mark.promise("P20")
def test_all_come_back_at_a_bounded_rate_and_the_others_miss_nothing() -> None:
    plan = Plan(sessions=SESSIONS, established=20, topics=5, before=0.5, after=0.2, warm=False, nice=0)
    outcome = storm("nodes", Variant("small", SETTINGS), plan)

    assert outcome.failure == "", "an update that was missed, or out of order, would be one"
    assert outcome.returned == SESSIONS
    assert outcome.refusals["HTTP 503"] > 0, "they heeded Retry-After and came again"
    assert outcome.during["samples"] > 0
    together = len(LEFT) * max(1.0, CLAIMS / len(LEFT) * CLAIM_BURST)
    assert outcome.seconds >= (SESSIONS - together) / CLAIMS
