"""Calls by HTTP behind HAProxy while nodes are killed: each key is executed once."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from gateway.client import connect
from gateway.local.stack import Stack
from tests.cluster.crowds import Figures
from tests.cluster.patient_calls import repeat
from tests.support.faults import eventually
from tests.support.stack import cluster
from tests.support.times import PATIENCE, time_limit

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy]

CALLS: Final = 200
KILLS: Final = {50: "n1", 120: "n2"}
"""After which call which node is killed."""

TOPIC: Final = "calls/numbers"
QUEUE: Final = "calls/work"
QUEUES: Final = f'[[destination]]\npath = "{QUEUE}"\nkind = "queue"\n'
HISTORY: Final = f'[[destination]]\nselector = "{TOPIC}"\nkind = "history"\ncount = {10 * CALLS}\n'
HEADERS: Final = {"Authorization": "Basic " + base64.b64encode(b"service:").decode()}


async def call(http: aiohttp.ClientSession, url: str, number: int, body: object) -> tuple[dict[str, Any], int]:
    """Make a call with a key of its own; returns the answer, and how often it was made."""
    headers = {**HEADERS, "Idempotency-Key": f"number-{number}"}
    return await repeat(http, "POST", url, json=body, headers=headers)


@pytest.mark.promise("P5")
async def test_each_key_is_executed_once_while_nodes_are_killed(tmp_path: Path, figures: Figures) -> None:
    destinations = tmp_path / "destinations.toml"
    destinations.write_text(HISTORY)
    async with cluster(tmp_path / "run", destinations=destinations) as stack:
        seen: list[object] = []
        async with await connect(stack.url, principal="reader") as session:
            stream = await session.subscribe(TOPIC)
            reading = asyncio.create_task(_read(stream, seen))
            answers = await _call(stack, "/v1/publish", lambda number: {"topic": TOPIC, "value": number})
            await eventually(lambda: len(seen) >= CALLS, "every number has come")
            reading.cancel()
        assert seen == list(range(CALLS)), "once each, and in order"
        assert await _history(stack) == seen
        versions = [answer["version"] for answer, _ in answers]
        assert versions == sorted(set(versions))
        asked = sum(tries for _, tries in answers)
        repeated = sum("repeated" in answer for answer, _ in answers)
        figures(f"{CALLS} calls asked {asked} times over {len(KILLS)} kills, {repeated} told of an execution before")


@pytest.mark.thorough
@pytest.mark.promise("P5", "P15")
async def test_each_message_is_sent_once_for_its_key_while_nodes_are_killed(tmp_path: Path, figures: Figures) -> None:
    destinations = tmp_path / "destinations.toml"
    destinations.write_text(QUEUES)
    async with cluster(tmp_path / "run", destinations=destinations) as stack:
        answers = await _call(stack, "/v1/send", lambda number: {"queue": QUEUE, "value": number})
        ids = [answer["message"] for answer, _ in answers]
        assert ids == sorted(set(ids))
        async with await connect(stack.url, principal="worker") as session:
            consumer = await session.consume(QUEUE)
            async with time_limit(PATIENCE):
                messages = [await anext(consumer) for _ in range(CALLS)]
            end = await repeat_at(stack, "/v1/send", CALLS, {"queue": QUEUE, "value": "end"})
            async with time_limit(PATIENCE):
                assert (await anext(consumer)).id == end["message"], "there is nothing besides"
        assert [(each.id, each.value) for each in messages] == list(zip(ids, range(CALLS), strict=True))
        asked = sum(tries for _, tries in answers)
        repeated = sum("repeated" in answer for answer, _ in answers)
        figures(f"{CALLS} sends asked {asked} times over {len(KILLS)} kills, {repeated} told of an execution before")


async def repeat_at(stack: Stack, path: str, number: int, body: object) -> dict[str, Any]:
    """Make one call until it is answered."""
    async with aiohttp.ClientSession() as http:
        return (await call(http, _url(stack, path), number, body))[0]


def _url(stack: Stack, path: str) -> str:
    return f"{stack.url.replace('ws', 'http', 1).removesuffix('/v1/connect')}{path}"


async def _call(stack: Stack, path: str, body: Callable[[int], object]) -> list[tuple[dict[str, Any], int]]:
    url = _url(stack, path)
    answers = []
    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as kills:
        for number in range(CALLS):
            if (killed := KILLS.get(number)) is not None:
                kills.create_task(stack.kill_node(killed))
            answers.append(await call(http, url, number, body(number)))
    return answers


async def _history(stack: Stack) -> list[object]:
    """Read all of the topic's history, through HAProxy."""
    url = _url(stack, f"/v1/history/{TOPIC}")
    found: list[object] = []
    part: dict[str, Any] = {"after": "", "complete": False}
    async with aiohttp.ClientSession() as http:
        while not part["complete"]:
            async with http.get(url, params={"limit": 60, "after": part["after"]}, headers=HEADERS) as answer:
                assert answer.status == 200, await answer.text()
                part = await answer.json()
            found += [each["value"] for each in part["events"]]
    return found


async def _read(stream: Any, seen: list[object]) -> None:
    async for update in stream:
        seen.append(update.value)  # noqa: PERF401 - what has come so far is looked at meanwhile
