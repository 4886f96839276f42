"""The operations of the admin API, one module for each kind of thing."""

from gateway.adapters.admin.operations import Operation
from gateway.adapters.admin.resources import access, configuration, nodes, revocations, sessions, topics

OPERATIONS: tuple[Operation, ...] = (
    *nodes.OPERATIONS,
    *sessions.OPERATIONS,
    *topics.OPERATIONS,
    *revocations.OPERATIONS,
    *configuration.OPERATIONS,
    *access.OPERATIONS,
)
"""All of them, in the order of the document."""

__all__ = ["OPERATIONS"]
