"""Costs and results whose right answers are known, for the tests of the model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.model.costs import Costs, Deliver, Publish, Step
from benchmarks.model.tick import Stream, simulate

COSTS = Costs(
    deliver=Deliver(wake=200.0, take=8.0, encode=15.0, write=5.0, packet=1.0, cold=2.0),
    publish=Publish(server=20.0, redis=10.0),
    follow_redis=1.0,
    connect=Step(server=400.0, redis=30.0, haproxy=150.0),
    reattach=Step(server=200.0, redis=25.0, haproxy=140.0),
    failover=Step(server=300.0, redis=20.0, haproxy=160.0),
    idle_server=2.0,
    idle_redis=1_000.0,
    forward=10.0,
    session_node=8_192.0,
    session_grid=600.0,
    selection_server=10.0,
    selection_node=300.0,
    selection_grid=20.0,
    session_haproxy=8_192.0,
    topic_node=500.0,
    topic_grid=200.0,
    path=1.0,
)

MACHINE = {"processor": "slide rule", "cores": 2, "kernel": "Linux 1.0"}


def row(
    variant: str, values: Mapping[str, float], *, case: str = "model", failures: Sequence[str] = ()
) -> dict[str, Any]:
    return {"case": case, "variant": variant, "contestant": "gateway", "values": values, "failures": list(failures)}


def delivery(subscribers: int, rate: float) -> dict[str, Any]:
    """What a node with exactly these costs is measured to need."""
    stream = Stream(rate, subscribers, publish=COSTS.publish.server, path=COSTS.path)
    turns = simulate(COSTS.deliver, stream)
    values = {
        "subscribers": float(subscribers),
        "topics": 1.0,
        "rate": rate,
        "server_cpu": turns.cpu,
        "redis_cpu": 10.0,
        "updates_per_write": turns.joined,
        "p50": turns.p50,
        "p99": turns.p99,
        "server_busy": 100 * turns.busy,
    }
    return row(f"deliver: {subscribers:,} subscribers, {rate:g} updates/s", values)


def own_topic(subscribers: int, rate: float) -> dict[str, Any]:
    """Likewise, with a topic for each session and turns so full that they count for nothing."""
    costs = COSTS.deliver
    cpu = COSTS.publish.server + costs.take + costs.encode + costs.write_at(subscribers) + costs.packet
    values = {
        "subscribers": float(subscribers),
        "topics": float(subscribers),
        "rate": rate,
        "server_cpu": cpu,
        "updates_per_write": 1.0,
        "p50": 5.0,
        "server_busy": cpu * rate / 10_000,
    }
    return row(f"own topic: {subscribers:,} subscribers, {rate:g} updates/s", values)


def storms() -> list[dict[str, Any]]:
    rows = []
    for kind in ("connect", "reattach", "failover"):
        step: Step = getattr(COSTS, kind)
        for sessions in (500, 2_000, 5_000):
            values = {
                "sessions": float(sessions),
                "server_cpu": step.server,
                "redis_cpu": step.redis,
                "haproxy_cpu": step.haproxy,
                "client_cpu": 100.0,
                "seconds": sessions * 400e-6,
                "typical": 0.1,
            }
            rows.append(row(f"{kind}: {sessions:,} sessions", values))
    return rows


def results() -> list[dict[str, Any]]:
    """All rows from which ``COSTS`` follow."""
    return [
        delivery(1, 2_000),
        delivery(100, 400),
        delivery(100, 700),
        delivery(100, 2_000),
        delivery(500, 150),
        delivery(500, 250),
        delivery(2_000, 30),
        delivery(2_000, 60),
        delivery(10_000, 5),
        own_topic(500, 20_000),
        own_topic(2_000, 20_000),
        *storms(),
        *(
            row(
                f"foreign updates: {number} nodes follow",
                {"followers": float(number), "reader_cpu": 1.0 + 8.0 * (number > 0), "redis_cpu": 11.0 + number},
            )
            for number in range(3)
        ),
        row("values: 20,000 topics", {"topics": 20_000.0, "resident": 500.0, "grid": 200.0}),
        row("forward: 2,000 connections", {"haproxy_cpu": 10.0, "haproxy_memory": 8_192.0}),
        row("selections: 3 each", {"selections": 3.0, "server_cpu": 400.0, "resident": 8_192.0, "grid": 600.0}),
        row("selections: 53 each", {"selections": 53.0, "server_cpu": 900.0, "resident": 23_192.0, "grid": 1_600.0}),
        row("32 publishers", {"server_cpu": 20.0, "redis_cpu": 10.0}, case="publish"),
        row("10,000 idle sessions", {"resident": 8.0, "grid": 600.0, "idle": 2.0}, case="memory"),
        row("hour of two nodes without sessions, extrapolated", {"redis_cpu": 7.2e6}, case="grid_cost"),
        row(
            "500 subscribers, as fast as it goes",
            {"cpu_per_delivery": 1.3, "deliveries_per_read": 50.0},
            case="fanout",
        ),
    ]


def write(file: Path, rows: Sequence[Mapping[str, Any]], *, machine: Mapping[str, Any] | None = None) -> Path:
    content = {"date": "2026-11-21T12:00:00+00:00", "commit": "abc", "machine": machine or MACHINE, "rows": rows}
    file.write_text(json.dumps(content))
    return file
