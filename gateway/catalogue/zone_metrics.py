"""Metrics of zones; see ``metrics``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.metric import Kind, Metric

ZONE_MEMBERS = Metric(
    "gateway_zone_members",
    Kind.GAUGE,
    "Clusters in the zone of this cluster, itself included; 0 if it is in none. All nodes know the same.",
)
ZONE_JOINS = Metric(
    "gateway_zone_joins",
    Kind.GAUGE,
    "Static joins of this cluster, in both directions. All nodes know the same.",
)
ZONE_INTEREST_SELECTORS = Metric(
    "gateway_zone_interest_selectors",
    Kind.GAUGE,
    "Selectors by which this node tells what its sessions select, after compaction; 0 while the cluster has no links.",
)
