"""Metrics of who has subscribed to trees of topics; see ``metrics``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.metric import Kind, Metric

PRESENCE_CHANGES = Metric(
    "gateway_presence_changes_total",
    Kind.COUNTER,
    "Sessions of this node that became members of a tree of topics with presence (joined, or unlisted for those who "
    "are counted only, as they are beyond the bound or nobody watches) or are it no more (left; whose sessions ended "
    "are not counted here).",
    label="change",
    values=("joined", "unlisted", "left"),
)
PRESENCE_MEMBERS = Metric(
    "gateway_presence_members",
    Kind.GAUGE,
    "Members of trees of topics with presence that are sessions of this node, each once in each tree.",
)
