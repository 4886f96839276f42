"""What administrators see and do, as use cases; how they are asked for over HTTP is ``gateway.adapters.admin``'s."""

from gateway.app.administration.destinations import ClusterDestinations
from gateway.app.administration.durables import ClusterDurables
from gateway.app.administration.hooks import ClusterHooks
from gateway.app.administration.nodes import ClusterNodes
from gateway.app.administration.queues import ClusterQueues
from gateway.app.administration.revocations import ClusterRevocations
from gateway.app.administration.sessions import ClusterSessions
from gateway.app.administration.topics import ClusterTopics
from gateway.app.administration.zones import ClusterZones

__all__ = [
    "ClusterDestinations",
    "ClusterDurables",
    "ClusterHooks",
    "ClusterNodes",
    "ClusterQueues",
    "ClusterRevocations",
    "ClusterSessions",
    "ClusterTopics",
    "ClusterZones",
]
