"""From new events in bronze to topics, by a stream that may be repeated."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from gateway.adapters.memory import MemoryGridServer
from gateway.client import connect
from gateway.core.journal import EVENT_TYPES, JournalEvent, Stamp, record
from gateway.core.types import Incarnation, NodeId, NodeRef
from pipeline.errors import PipelineError
from pipeline.gold.job import Days, Sources
from pipeline.lake import Lake
from pipeline.publish import job
from pipeline.publish.job import PublishOptions, publish_gold
from pipeline.publish.publisher import Target
from tests.pipeline.lake import batch_of, entry, take_in
from tests.pipeline.report.tables import incident, write_gold, write_sessions
from tests.support.nodes import running_node

pytestmark = pytest.mark.spark

NOW = int(datetime.now(UTC).timestamp() * 1_000_000)
SURVIVOR = Stamp(NodeRef(NodeId("n2"), Incarnation("cd34")), "1.0")


def expired(number: int, peer: str) -> dict[str, Any]:
    told = {"peer": "n1", "peer_incarnation": peer, "since": NOW - 9_000_000, "until": NOW - 3_000_000}
    return record(JournalEvent(EVENT_TYPES["node_expired"], NOW + number, None, None, told), SURVIVOR, number)


async def topics(url: str, least: int) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    async with connect(url, "reader") as reader:
        async for update in await reader.subscribe("ops/**"):
            seen[update.topic] = (update.value, update.version)
            if len(seen) >= least:
                break
    return seen


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake whose gold is made in no time: an incident for each expired node. How it is really made others test."""

    def make(sources: Sources, folder: Path, days: Days) -> Iterator[tuple[str, int]]:
        peers = [row["peer_incarnation"] for row in sources.bronze.where("type = 'node_expired'").collect()]
        shutil.rmtree(folder, ignore_errors=True)
        today = datetime.fromtimestamp(NOW / 1e6, UTC).date()
        assert days == Days(today - timedelta(days=1), today), "who comes back after midnight changes the day before"
        rows = [incident(incident=f"death-{peer}", incarnation=peer, date=today) for peer in peers]
        write_gold(folder, "incidents", rows)
        yield "incidents", len(rows)

    monkeypatch.setattr(job, "write_gold", make)
    made = Lake(tmp_path / "lake")
    write_sessions(made.sessions, [])
    return made


async def test_new_events_become_topics_and_a_repeated_batch_changes_none(spark: SparkSession, lake: Lake) -> None:
    take_in(lake.folder, [batch_of({"1-1": entry([expired(1, "ab12")])})])
    told: list[str] = []
    nobody = PublishOptions(lake, Target(["ws://127.0.0.1:1"], "pipeline", None, 0.2), every=None)
    with pytest.raises(PipelineError, match="no session after"):
        await asyncio.to_thread(publish_gold, spark, nobody, told.append)
    memory = MemoryGridServer(now=time.monotonic, stream_length=100_000, topic_depth=1)
    async with running_node("n1", memory=memory) as node:
        options = PublishOptions(lake, Target([node.url], "pipeline", None, 30), every=None)
        await asyncio.to_thread(publish_gold, spark, options, told.append)
        first = await topics(node.url, 3)
        assert first["ops/incidents/death-ab12"][0]["node"] == "n1"

        take_in(lake.folder, [batch_of({"1-2": entry([expired(2, "ef56")])})])
        await asyncio.to_thread(publish_gold, spark, options, told.append)
        second = await topics(node.url, 4)
        assert second["ops/incidents/death-ab12"] == first["ops/incidents/death-ab12"]
        assert second["ops/incidents/death-ef56"][0]["incarnation"] == "ef56"
    assert told == [
        "batch 0: 1 topics published, 0 unchanged, 0 withdrawn",
        "batch 1: 1 topics published, 1 unchanged, 0 withdrawn",
    ]
