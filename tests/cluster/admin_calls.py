"""Asking a cluster of node processes by its admin API, whichever node answers."""

from __future__ import annotations

from typing import Any

from gateway.local import linked_clusters
from gateway.local.stack import Stack
from tests.support.times import PATIENCE, scaled


async def ask(stack: Stack, method: str, path: str, **body: Any) -> Any:
    """Ask the admin API of any node that answers; see ``gateway.local.linked_clusters.ask``."""
    return await linked_clusters.ask(stack, method, path, timeout=scaled(PATIENCE), **body)
