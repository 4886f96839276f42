"""The faults: each module declares some of them in the catalogue."""

from __future__ import annotations

from tests.chaos.faults import balancer, clock, forgotten, link, node, replicated, single, zone
from tests.chaos.faults.fault import CATALOGUE, Fault

__all__ = ["CATALOGUE", "Fault", "balancer", "clock", "forgotten", "link", "node", "replicated", "single", "zone"]
