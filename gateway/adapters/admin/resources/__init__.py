"""The operations of the admin API, one module for each kind of thing."""

from gateway.adapters.admin.operations import Operation
from gateway.adapters.admin.resources import (
    destinations,
    durables,
    hooks,
    nodes,
    queues,
    revocations,
    sessions,
    this_node,
    topics,
    zones,
)

OPERATIONS: tuple[Operation, ...] = (
    *nodes.OPERATIONS,
    *sessions.OPERATIONS,
    *topics.OPERATIONS,
    *destinations.OPERATIONS,
    *durables.OPERATIONS,
    *hooks.OPERATIONS,
    *queues.OPERATIONS,
    *zones.OPERATIONS,
    *revocations.OPERATIONS,
    *this_node.OPERATIONS,
)
"""All of them, in the order of the document."""

__all__ = ["OPERATIONS"]
