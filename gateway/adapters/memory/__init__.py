"""Every port in memory: the grid of ``gateway serve --dev`` and of fast tests. One contract suite proves it and Redis.

``MemoryGridServer`` stands for the Redis server and ``MemoryGrid`` for one node's connection to it, so that two nodes
in one process are two grids over one server.
"""

from gateway.adapters.memory.grid import MemoryGrid
from gateway.adapters.memory.loopback import LoopbackConnection
from gateway.adapters.memory.peers import MemoryPeerLinks, MemoryPeerNetwork
from gateway.adapters.memory.server import MemoryGridServer
from gateway.adapters.memory.stand_ins import MadeUpMemory, MemoryEventLog, MemoryMetrics, OpenAdmission
from gateway.adapters.memory.zone_links import MemoryZoneLinks, MemoryZoneNetwork

__all__ = [
    "LoopbackConnection",
    "MadeUpMemory",
    "MemoryEventLog",
    "MemoryGrid",
    "MemoryGridServer",
    "MemoryMetrics",
    "MemoryPeerLinks",
    "MemoryPeerNetwork",
    "MemoryZoneLinks",
    "MemoryZoneNetwork",
    "OpenAdmission",
]
