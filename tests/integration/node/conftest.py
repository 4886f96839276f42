"""Nodes that share a memory grid, for tests that need no other settings than the usual ones."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.adapters.memory import MemoryGridServer
from tests.support.linked_nodes import LinkedNodes
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


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> LinkedNodes:
    return LinkedNodes(monkeypatch)


@pytest.fixture
async def two(linked: LinkedNodes) -> AsyncIterator[tuple[TestNode, TestNode]]:
    async with linked.run("n1", "n2") as (n1, n2):
        yield n1, n2


@pytest.fixture
async def three(linked: LinkedNodes) -> AsyncIterator[tuple[TestNode, TestNode, TestNode]]:
    async with linked.run("n1", "n2", "n3") as (n1, n2, n3):
        yield n1, n2, n3
