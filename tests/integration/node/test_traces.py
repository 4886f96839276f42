"""Spans of a real node, received by a collector: which there are, what is in them, and that no principal is."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.adapters.memory import MemoryGridServer
from gateway.client import connect
from tests.support.faults import eventually, faulty
from tests.support.nodes import running_node

PRINCIPAL = "alice-of-accounting"


class Collector:
    """Takes what is exported by OTLP over HTTP."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        return web.Response(content_type="application/x-protobuf")

    @property
    def spans(self) -> list[Any]:
        return [span for scope in self._scopes() for span in scope.spans]

    def resources(self) -> list[dict[str, str]]:
        return [
            {each.key: each.value.string_value for each in traced.resource.attributes}
            for body in self.bodies
            for traced in ExportTraceServiceRequest.FromString(body).resource_spans
        ]

    def _scopes(self) -> list[Any]:
        return [
            scope
            for body in self.bodies
            for traced in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in traced.scope_spans
        ]


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()


async def test_connect_resume_claim_and_publish_have_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        async with running_node(traces=True, memory=MemoryGridServer()) as node:
            async with faulty(node.url) as (url, proxy):
                session = await connect(url.replace("http", "ws"), principal=PRINCIPAL)
                await session.publish("prices/a", 1)
                recoveries = session.recoveries()
                proxy.cut()
                await anext(recoveries)
                await session.publish("prices/a", 2)
                await session.close()
            await eventually(lambda: len(node.gateway.node.connections) == 0, "the connection is over")
        # Closing the node has sent them all.
        names = Counter(span.name for span in collector.spans)
        assert names == {"gateway connect": 1, "gateway resume": 1, "gateway claim": 1, "gateway publish": 2}
        spans = {span.name: span for span in collector.spans}
        assert spans["gateway claim"].parent_span_id == spans["gateway resume"].span_id
        notes = {each.key: each.value.string_value for each in spans["gateway resume"].attributes}
        assert notes == {"gateway.session": session.id, "gateway.outcome": "reattached"}
        assert {each["service.name"] for each in collector.resources()} == {"session-gateway"}
        assert {each["service.instance.id"] for each in collector.resources()} == {"n1"}
        assert not any(PRINCIPAL.encode() in body for body in collector.bodies)
