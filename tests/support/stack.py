"""A cluster for tests: real nodes, Redis and HAProxy on free ports of the loopback, gone at the end of the block.

```python
async with cluster(tmp_path, nodes=3, window_default=5) as stack:
    session = await connect(stack.url)
    await stack.kill_node(session.node)
```

``gateway.local.stack.Stack`` says what can be done to it; ``tests.support.faults`` has faults of the network.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.local.observatory import Observation
from gateway.local.ports import PortPlan, PortsTaken
from gateway.local.processes import ProgramMissing
from gateway.local.recipes import StackOptions
from gateway.local.stack import Stack

_TRIES = 3
"""Blocks of ports to try, when another test takes the chosen one between looking and binding."""


@asynccontextmanager
async def cluster(
    folder: Path,
    *,
    nodes: int = 3,
    balancer: bool = True,
    grid_proxy: bool = False,
    link_proxies: bool = False,
    grid_url: str = "",
    grid_environment: Mapping[str, str] | None = None,
    node_environment: Mapping[str, Mapping[str, str]] | None = None,
    observation: Observation | None = None,
    demo_page: bool = False,
    **settings: object,
) -> AsyncIterator[Stack]:
    """Start a cluster and stop it at the end, also after a failure.

    Skips the test where redis-server or haproxy is missing, but fails it under CI.

    Args:
        folder: for data and logs; a test's ``tmp_path``.
        nodes: how many, named n1, n2, …
        balancer: False to go without HAProxy.
        grid_proxy: True to have ``stack.grid_proxy`` between the nodes and Redis.
        link_proxies: True to have ``stack.links``, a proxy on every link.
        grid_url: of a grid that the test has started itself, in place of a Redis of the stack's own.
        grid_environment: more variables of the stack's own Redis.
        node_environment: more variables of nodes, by node.
        observation: how closely a Prometheus watches; without it there is none.
        demo_page: True to have ``stack.demo_page``, a page with live values.
        settings: of every node, by name (``lease=2`` is GATEWAY_LEASE=2). The journal is off, as it is by default: it
            outlives sessions, and most tests count what is left of them.
    """
    settings = {"journal": "false", **settings}
    parts: dict[str, Any] = {"balancer": balancer, "grid_proxy": grid_proxy, "link_proxies": link_proxies}
    parts |= {"grid_url": grid_url, "grid_environment": grid_environment or {}, "observation": observation}
    parts["demo_page"] = demo_page
    parts["node_environment"] = node_environment or {}
    stack = await _start(folder, nodes, parts, settings)
    try:
        yield stack
    finally:
        await stack.stop()


async def _start(folder: Path, nodes: int, parts: dict[str, Any], settings: dict[str, object]) -> Stack:
    for _ in range(_TRIES):
        options = StackOptions(ports=PortPlan.free(nodes), folder=folder, node_settings=settings, **parts)
        try:
            stack = Stack(options)
            await stack.start()
        except PortsTaken:
            continue
        except ProgramMissing as missing:
            if os.environ.get("CI", "").lower() == "true":
                pytest.fail(f"{missing}; CI must not skip tests", pytrace=False)
            pytest.skip(str(missing))
        return stack
    raise PortsTaken(f"no block of ports could be had in {_TRIES} tries")
