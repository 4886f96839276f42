"""Schemathesis asks a real node on a real Redis whatever the OpenAPI document allows, and much that it does not.

This is the short run of CI. ``docs/reference/admin-api.md`` tells of the long one.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CHECKS

from gateway.adapters.admin import OPERATIONS
from gateway.adapters.admin.openapi import document
from gateway.catalogue import log_events as events
from gateway.client import connect
from gateway.core.pacing import failures
from tests.integration.admin.support import Admins
from tests.support.nodes import running_node
from tests.support.redis_server import RedisServer, unique_prefix
from tests.support.times import PATIENCE, scaled

SCHEMA = schemathesis.pytest.from_fixture("schema")
"""All that is asked is made when the test runs: it takes seconds, in which each process of a run would collect it."""

EXCLUDED = "positive_data_acceptance"
"""A check that is left out: that a filter can be read, or that a moment is still to come, JSON Schema cannot say."""


class Fuzzed:
    """A node with a bystander, in a thread of its own, as the requests of schemathesis block.

    Attributes:
        admin: where its admin port is.
        token: of an administrator.
    """

    def __init__(self, redis: str, folder: Path) -> None:
        self._redis = redis
        self._admins = Admins.make(folder)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.token = self._admins.tokens["administrator"]
        self.admin = ""
        self.failed: list[object] = []
        self.recoveries: list[object] = []
        self.published = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(scaled(PATIENCE))
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        settings_ = {"grid": self._redis, "grid_prefix": unique_prefix(), "admin_tokens_file": self._admins.file}
        async with running_node("bystanders-node", memory=None, **settings_) as node:
            async with await connect(node.url, principal="bystander") as session:
                self.admin = node.admin
                watching = asyncio.create_task(self._watch(session))
                self._ready.set()
                await self._stop.wait()
                await session.publish("bystander/alive", 1)
                self.published = 1
                watching.cancel()
            self.failed = [
                fields for event, fields in node.log.events if event in {events.ADMIN_FAILED, events.LIBRARY_FAILED}
            ]

    async def _watch(self, session: Any) -> None:
        async for recovery in session.recoveries():
            self.recoveries.append(recovery)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    with pytest.MonkeyPatch.context() as patch, RedisServer() as redis:
        # That unauthenticated clients are told to wait after so many requests is tested elsewhere.
        patch.setattr(failures, "FORGIVEN", 1_000_000)
        with Fuzzed(redis.url, tmp_path_factory.mktemp("fuzz")) as running:
            yield running
        assert running.failed == []
        assert running.recoveries == []
        assert running.published == 1


@pytest.fixture(autouse=True)
def named(request: pytest.FixtureRequest) -> None:
    """Name the test as schemathesis expects: it reads an attribute that pytest 9.2 does not have any more."""
    request.node._nodeid = request.node.nodeid


@pytest.fixture(scope="module")
def schema() -> Any:
    return schemathesis.openapi.from_dict(document(OPERATIONS, version="1"))


@pytest.mark.redis
@pytest.mark.timeout(400)  # all operations, which are subtests of this one
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")  # schemathesis does
@SCHEMA.parametrize()
@settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "10")),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
def test_whatever_is_asked_gets_an_answer_of_the_document(case: schemathesis.Case[Any], fuzzed: Fuzzed) -> None:
    # All checks are known only after the schema has been read.
    excluded: list[Any] = [check for check in CHECKS.get_all() if check.__name__ == EXCLUDED]
    assert excluded
    case.call_and_validate(
        base_url=fuzzed.admin,
        headers={"Authorization": f"Bearer {fuzzed.token}"},
        excluded_checks=excluded,
    )
