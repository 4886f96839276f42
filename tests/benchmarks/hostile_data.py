"""Made-up measurements of attacks, so that each kind of harm can be tried."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from benchmarks.hostile.attack import Effort
from benchmarks.hostile.verdict import Measurement, Seen
from benchmarks.hostile.watch import Counts

CALM: Final = Seen(
    latencies=[0.002] * 99 + [0.01],
    logins=[0.01],
    resumes=[0.02],
    failed_logins=0,
    refused=0,
    lost=0,
    cuts=0,
    cpu=0.05,
    resident=90 * 1024**2,
    unanswered=0,
    unready=0,
    slowest_check=0.004,
    falls=0,
    failed_checks=0,
    down=False,
    leases_lost=0,
    lease_left=4.0,
    returns=[0.02],
)
NOTHING: Final = Counts(cpu=0.0, waited=0.0, falls=0, failed_checks=0, leases_lost=0)


def measured(**attacked: Any) -> Measurement:
    """Make a measurement in which nothing happened but what is given of the attacked phase."""
    return Measurement(
        quiet=CALM,
        attacked=dataclasses.replace(CALM, **attacked),
        effort=Effort(connections=1, sent=6_000_000, received=1, done=600, refused={}),
        attacker_cpu=0.1,
        attack_seconds=6.0,
        resident_before=90 * 1024**2,
        resident_after=95 * 1024**2,
    )
