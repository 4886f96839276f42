"""Who is told of which places of a cluster: nobody of one less safe than the connection by which he asks (P19)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2s
from typing import Final
from urllib.parse import urlsplit

from gateway.core.types import NodeId
from gateway.core.wire.topology_packets import Cluster, ListedNode

SECURE_SCHEMES: Final = frozenset({"wss", "https"})
"""Of URLs that ask for TLS."""

REVISION_BYTES: Final = 6
"""Of the name of a list: two lists that follow each other share one by chance in none of 2^48 changes."""


def is_secure(url: str) -> bool:
    """Tell whether a URL asks for TLS; what is none does not."""
    try:
        return urlsplit(url).scheme in SECURE_SCHEMES
    except ValueError:
        return False


def list_of(nodes: Mapping[NodeId, Sequence[str]], *, secure: bool) -> Cluster:
    """Make the list for clients that have come by one kind of connection.

    Args:
        nodes: the URLs of each node that advertises any, in its order.
        secure: whether the clients have come by TLS.

    Returns:
        The list without places that are less safe than that, and without nodes of which none is left.
    """
    listed = []
    for node in sorted(nodes):
        urls = tuple(url for url in nodes[node] if is_secure(url) or not secure)
        if urls:
            listed.append(ListedNode(node, urls))
    named = "\n".join(" ".join((each.node, *each.urls)) for each in listed)
    return Cluster(blake2s(named.encode(), digest_size=REVISION_BYTES).hexdigest(), tuple(listed))
