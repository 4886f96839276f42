"""Metrics of destinations; see ``metrics``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.metric import Kind, Metric
from gateway.core.destinations.limits import Kind as DestinationKind

DESTINATIONS = Metric(
    "gateway_destinations",
    Kind.GAUGE,
    "Destinations that this node knows, by kind: what administrators and the file say of paths. All nodes know the "
    "same.",
    "kind",
    tuple(kind.value for kind in DestinationKind),
)
