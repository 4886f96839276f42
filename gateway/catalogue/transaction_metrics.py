"""Metrics of transactions; see ``metrics``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.metric import Kind, Metric

TRANSACTIONS = Metric(
    "gateway_transactions_total",
    Kind.COUNTER,
    "Transactions that came to an end through this node: committed now, committed before and asked for again, refused "
    "as a whole, rolled back by their client, rolled back because nobody went on with them, or finished by this node "
    "after another one had begun the commit.",
    "result",
    ("committed", "duplicate", "refused", "rolled_back", "abandoned", "finished"),
)
