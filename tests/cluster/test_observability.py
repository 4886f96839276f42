"""Prometheus watches a real cluster with what ``deploy`` ships: panels have data, a dead node's alert fires."""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.client import Session, connect
from gateway.local.observatory import Observation
from gateway.local.stack import Stack
from scripts.dashboards.__main__ import DASHBOARDS
from scripts.dashboards.draw import ask, filled_in
from tests.deploy.promtool import RUNBOOKS
from tests.support.faults import eventually
from tests.support.stack import cluster
from tests.support.times import scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy]

SESSIONS: Final = 24
PACE: Final = 0.05
"""Seconds between two publishes."""
VICTIM: Final = "n2"
WINDOW: Final = 40.0
"""Seconds of history that the panels are asked for: since the nodes were started."""
ALERT: Final = f'ALERTS{{alertname="GatewayNodeDown", node="{VICTIM}", alertstate="firing"}}'


class Prometheus:
    """What the test asks it."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def get(self, path: str, **query: str) -> Any:
        """Ask its API.

        Raises:
            OSError: it cannot be reached, or does not accept the question.
        """

        def ask_now() -> Any:
            with urllib.request.urlopen(
                f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=scaled(10)
            ) as answer:
                return json.load(answer)["data"]

        return await asyncio.to_thread(ask_now)

    async def query(self, expression: str) -> list[Any]:
        """Evaluate an expression now."""
        result: list[Any] = (await self.get("query", query=expression))["result"]
        return result

    async def series(self, expression: str) -> list[Any]:
        """Evaluate an expression over the last seconds, as a panel does."""
        return await asyncio.to_thread(ask, self.url, filled_in(expression), over=WINDOW, end=time.time())


@asynccontextmanager
async def traffic(stack: Stack) -> AsyncIterator[list[Session]]:
    """Sessions that follow what one of them publishes."""

    async def publish(session: Session) -> None:
        number = 0
        while True:
            number += 1
            await session.publish(f"prices/item-{number % 5}", number)
            await asyncio.sleep(PACE)

    async def follow(session: Session) -> None:
        async for _ in await session.subscribe("prices/**"):
            pass

    async with AsyncExitStack() as opened:
        sessions = [
            await opened.enter_async_context(connect(stack.url, principal=f"user-{number}"))
            for number in range(SESSIONS)
        ]
        tasks = [asyncio.create_task(follow(session)) for session in sessions]
        # From every node something is published, so that each sees its own publishes come back.
        publishers = {session.node: session for session in sessions}
        tasks += [asyncio.create_task(publish(session)) for session in publishers.values()]
        try:
            yield sessions
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_prometheus_watches_a_cluster_and_sees_a_node_die_and_return(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    observation = Observation(interval=1, patience=1)
    async with cluster(
        tmp_path, nodes=3, observation=observation, lease=scaled(2.0), lease_renew=scaled(0.5), metrics_topics="prices"
    ) as stack:
        assert stack.observatory is not None
        prometheus = Prometheus(stack.observatory.url)

        async def all_up() -> bool:
            return len(await prometheus.query("up == 1")) == len(stack.node_names) + 1

        async def fires() -> bool:
            return bool(await prometheus.query(ALERT))

        async def is_over() -> bool:
            return not await fires()

        await eventually(all_up, "Prometheus scrapes three nodes and HAProxy")
        alerts = await stack.observatory.alerts_url()
        assert "Prometheus" in await asyncio.to_thread(page_of, alerts), f"no alerts on {alerts}"
        async with traffic(stack) as sessions:
            there = {session.node for session in sessions}
            assert there == set(stack.node_names)

            await stack.kill_node(VICTIM)
            await eventually(fires, "the alert of the killed node fires")
            await eventually(
                lambda: all(session.node != VICTIM for session in sessions), "everybody has gone on elsewhere"
            )
            await stack.start_node(VICTIM)
            await eventually(is_over, "the alert is over once the node is back")

            async def taken_over() -> bool:
                return bool(await prometheus.query("sum(increase(gateway_takeovers_total[1m])) > 0"))

            await eventually(taken_over, "Prometheus has seen that the dead node's sessions were put on the clock")
            # Panels ask for rates, which need two scrapes of the new node.
            await eventually(
                lambda: has(prometheus, f'rate(process_cpu_seconds_total{{node="{VICTIM}"}}[30s])'),
                "rates of the new node",
            )
            asked = await _panels_have_data(prometheus)
            await _rules_are_evaluated(prometheus)
            tried = await _runbooks_can_be_followed(prometheus)
        figures(f"{asked} questions of panels answered, {tried} of runbooks")


def page_of(url: str) -> str:
    with urllib.request.urlopen(url, timeout=scaled(10)) as answer:
        return str(answer.read().decode())


async def has(prometheus: Prometheus, expression: str) -> bool:
    return bool(await prometheus.query(expression))


async def _panels_have_data(prometheus: Prometheus) -> int:
    """Every question of every panel is accepted, and answered, unless the panel says why it may not be."""
    asked, without = 0, []
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels():
            for query in panel.queries:
                asked += 1
                if not await prometheus.series(query.expression) and not panel.empty and "> 0" not in query.expression:
                    without.append(f"{dashboard.name}: {panel.title}: {query.expression}")
    assert without == []
    return asked


async def _rules_are_evaluated(prometheus: Prometheus) -> None:
    rules = [rule for group in (await prometheus.get("rules"))["groups"] for rule in group["rules"]]
    assert len(rules) > 20
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
    for rule in rules:
        if rule["type"] == "recording" and "memory:ratio" not in rule["name"]:  # this Redis has no limit
            assert await prometheus.series(rule["name"]), f"{rule['name']} was never recorded"


async def _runbooks_can_be_followed(prometheus: Prometheus) -> int:
    """Every question that a runbook tells people to ask is accepted."""
    tried = 0
    for page in RUNBOOKS.glob("*.md"):
        for block in re.findall(r"```promql\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            for line in block.strip().splitlines():
                tried += 1
                await prometheus.query(line)
    assert tried > len(list(RUNBOOKS.glob("*.md")))
    return tried
