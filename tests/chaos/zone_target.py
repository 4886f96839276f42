"""Three linked clusters that are struck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.local.proxy import FaultProxy
from tests.cluster.zone_stacks import ZoneStack

CLUSTERS: Final = ("A", "B", "C")
"""Their names."""


class ZoneTarget:
    """Running clusters.

    Args:
        stacks: of each.

    Attributes:
        clusters: by name.
    """

    def __init__(self, stacks: Sequence[ZoneStack]) -> None:
        self.clusters = {each.name: each for each in stacks}

    def links_to(self, cluster: str) -> list[FaultProxy]:
        """Return the proxies of all links that others have to a cluster."""
        return [*self.clusters[cluster].proxies.values()]
