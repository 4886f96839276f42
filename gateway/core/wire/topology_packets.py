"""The list of the cluster as packets carry it (protocol section 15); see ``packets`` for all others."""

from __future__ import annotations

from typing import Final

from gateway.core.immutable import immutable
from gateway.core.types import NodeId

TOPOLOGY: Final = "topology"
"""The word with which a client says that it wants the list of the cluster, and its changes (protocol 15.2)."""


FOLLOW: Final = "follow"
"""Among the words of a client that follows the master; it says so by the field of this name (protocol 15.4)."""

MOST_REDIRECTS: Final = 3
"""Times in a row that a client is sent to the master; then it is served where it comes."""


@immutable
class ListedNode:
    """A node and where clients reach it.

    Attributes:
        node: its name.
        urls: its places, in the order in which they are to be tried; at least one.
    """

    node: NodeId
    urls: tuple[str, ...]


@immutable
class Cluster:
    """The nodes that clients may connect to by themselves.

    Attributes:
        revision: names this list: two of one revision are the same. Nothing else follows from it.
        nodes: in the order of their names.
    """

    revision: str
    nodes: tuple[ListedNode, ...]


@immutable
class Topology:
    """Server: the list of the cluster has changed.

    Attributes:
        cluster: as it is now; without nodes if none is advertised any more.
    """

    cluster: Cluster
