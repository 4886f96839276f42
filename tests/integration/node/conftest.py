"""Nodes that share a memory grid, for tests that need no other settings than the usual ones."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.adapters.memory import MemoryGridServer
from tests.support.nodes import TestNode, running_node


@pytest.fixture
def memory() -> MemoryGridServer:
    return MemoryGridServer()


@pytest.fixture
async def n1(memory: MemoryGridServer) -> AsyncIterator[TestNode]:
    async with running_node("n1", memory=memory) as node:
        yield node


@pytest.fixture
async def n2(memory: MemoryGridServer) -> AsyncIterator[TestNode]:
    async with running_node("n2", memory=memory) as node:
        yield node
