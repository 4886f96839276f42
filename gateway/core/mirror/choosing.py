"""Which node is the backup of another one: the same for all who ask, and spread over all nodes."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from gateway.core.types import NodeRef


class Chosen(NamedTuple):
    """A backup.

    Attributes:
        node: which.
        is_apart: whether it is in another failure domain, so that what takes the one does not take the other.
    """

    node: NodeRef
    is_apart: bool


def choose(me: NodeRef, domain: str, candidates: Mapping[NodeRef, str]) -> Chosen | None:
    """Choose the backup of a node, by rendezvous hashing: it changes only if it goes, or if a better one comes.

    Args:
        me: the node.
        domain: its failure domain; empty if it does not say, and then any other node is in another one.
        candidates: the nodes that could be its backup, with their failure domains.

    Returns:
        One of another failure domain if there is any, else one of the same; None if there are none at all.
    """
    apart = [node for node, other in candidates.items() if not domain or other != domain]
    among = apart or list(candidates)
    if not among:
        return None
    return Chosen(max(among, key=lambda node: (_weight(me, node), node)), bool(apart))


def _weight(me: NodeRef, other: NodeRef) -> bytes:
    # By name, not by run: who restarts has the same backup as before.
    return blake2b(f"{me.node}\0{other.node}".encode(), digest_size=8).digest()
