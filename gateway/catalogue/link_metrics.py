"""Metrics of the links between nodes; part of ``metrics``."""

from __future__ import annotations

from gateway.catalogue.metric import Kind, Metric
from gateway.catalogue.refusals import LinkRefusal

LINKS = Metric(
    "gateway_links",
    Kind.GAUGE,
    "Links to other nodes of the cluster, by state: up, or down to a node that lives and advertises a link.",
    "state",
    ("up", "down"),
)
LINK_SILENCE_SECONDS = Metric(
    "gateway_link_silence_seconds",
    Kind.GAUGE,
    "Time since this node heard of another one over their link. Not shown while the link is down.",
    "peer",
    open=True,
)
LINK_FRAMES = Metric(
    "gateway_link_frames_total", Kind.COUNTER, "Frames of node links, heartbeats included.", "direction", ("in", "out")
)
LINK_BYTES = Metric(
    "gateway_link_bytes_total", Kind.COUNTER, "Bytes of node links, without those of TLS.", "direction", ("in", "out")
)
LINK_QUEUED_BYTES = Metric(
    "gateway_link_queued_bytes", Kind.GAUGE, "Bytes that wait until the other nodes read their links."
)
LINKS_REFUSED = Metric(
    "gateway_links_refused_total",
    Kind.COUNTER,
    "Connections of other nodes, or of strangers, to the port of links that did not become a link, by reason.",
    "reason",
    tuple(each.value for each in LinkRefusal),
)
LINKS_LOST = Metric(
    "gateway_links_lost_total",
    Kind.COUNTER,
    "Links that broke; those that a node hung up on purpose are not counted.",
)
