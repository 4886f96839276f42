"""Requests on real nodes, Redis and HAProxy while handlers' nodes die and are restarted: each has one end (P1, P5)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from gateway.client import (
    AnswerLost,
    GatewayError,
    HandlerLost,
    HandlersBusy,
    NoHandler,
    Recovery,
    Request,
    RequestTimedOut,
    Session,
    connect,
)
from gateway.core.wire.codes import Outcome
from gateway.local.stack import Stack
from tests.cluster.crowds import Figures
from tests.support.faults import eventually
from tests.support.stack import cluster
from tests.support.times import scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P1", "P5")]

PATHS: Final = "quotes/**"
ASKED: Final = "quotes/ACME"
AT_ONCE: Final = 8
"""Requests under way at a time."""

PAUSE: Final = 0.01
"""Seconds between the end of a request and the next one of the same place: a node that is busy is no fault."""

LIMIT: Final = 20.0
"""Seconds for an answer: longer than anything that happens here."""

SOME: Final = 20
"""Answers after which a handler is known to be at work."""

LINKED: Final[dict[str, Any]] = {"lease": scaled(2.0), "lease_renew": scaled(0.5)}
"""Leases of nodes that are missed soon, also where the machine is busy."""


class Worker:
    """A session that handles requests, registered once and never again.

    Attributes:
        name: of its principal.
        session: its session.
        recoveries: of its session.
    """

    def __init__(self, name: str, session: Session, calls: Counter[int]) -> None:
        self.name = name
        self.session = session
        self.recoveries: list[Recovery] = []
        self._calls = calls
        self._hearing = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        async for each in self.session.recoveries():
            self.recoveries.append(each)

    async def answer(self, request: Request) -> object:
        """Answer, and count."""
        self._calls[request.value] += 1
        await asyncio.sleep(0)
        return {"number": request.value, "by": self.name}


class Asking:
    """Somebody who asks all the time, and keeps account of each request.

    Attributes:
        calls: how often each request was handled.
        answers: by whom each was answered.
        failures: how each of the others ended.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.calls: Counter[int] = Counter()
        self.answers: dict[int, str] = {}
        self.failures: dict[int, GatewayError] = {}
        self.asked = 0
        self._stopping = False
        self._tasks = [asyncio.create_task(self._ask()) for _ in range(AT_ONCE)]

    async def _ask(self) -> None:
        while not self._stopping:
            self.asked += 1
            number = self.asked
            try:
                answer = await self.session.request(ASKED, number, timeout=scaled(LIMIT))
            except GatewayError as error:
                assert number not in self.failures
                self.failures[number] = error
            else:
                assert number not in self.answers
                assert answer["number"] == number, "an answer to another request"
                self.answers[number] = answer["by"]
            await asyncio.sleep(PAUSE)

    def by(self, worker: Worker) -> int:
        """Count what a worker has answered."""
        return sum(each == worker.name for each in self.answers.values())

    async def answered_by(self, *workers: Worker) -> None:
        """Wait until each of some workers has answered some more."""
        wanted = {each.name: self.by(each) + SOME for each in workers}
        await eventually(
            lambda: all(self.by(each) >= wanted[each.name] for each in workers),
            f"{', '.join(wanted)} answer; {Counter(map(repr, self.failures.values()))}",
        )

    async def stop(self) -> None:
        """Ask nothing more, wait for what is under way, and judge all of it."""
        self._stopping = True
        await asyncio.gather(*self._tasks)
        assert len(self.answers) + len(self.failures) == self.asked, "each request has one end"
        assert not self.answers.keys() & self.failures.keys()
        for number in self.answers:
            assert self.calls[number] == 1, f"{number} was answered, and executed {self.calls[number]} times"
        for number, error in self.failures.items():
            assert self.calls[number] <= 1, f"{number} was executed {self.calls[number]} times"
            match error:
                case NoHandler() | HandlersBusy():
                    certain = True
                case HandlerLost() | AnswerLost():
                    certain = not error.may_have_been_executed
                case RequestTimedOut():
                    raise AssertionError(f"{number} has hung: {error!r}")
                case _:
                    raise AssertionError(f"{number} ended by {error!r}")
            assert not (certain and self.calls[number]), f"{number} was executed, and {error!r} says that it was not"

    @property
    def summary(self) -> str:
        """Tell what happened."""
        failed = Counter(type(each).__name__ for each in self.failures.values())
        return f"{self.asked} asked, {len(self.answers)} answered, {dict(failed)}"


@asynccontextmanager
async def scene(stack: Stack) -> AsyncIterator[tuple[Asking, list[Worker]]]:
    """Have somebody ask, and two handlers who compete on two nodes."""
    async with (
        connect(stack.url, "asker") as asker,
        connect(stack.url, "one") as first,
        connect(stack.url, "other") as second,
    ):
        asking = Asking(asker)
        workers = [Worker(each.principal, each, asking.calls) for each in (first, second)]
        for worker in workers:
            await worker.session.handle(PATHS, worker.answer)
        await asking.answered_by(*workers)
        yield asking, workers


async def test_handlers_answer_on_after_a_stop_and_the_death_of_their_nodes(tmp_path: Path, figures: Figures) -> None:
    async with cluster(tmp_path, drain_jitter=0.05, **LINKED) as stack, scene(stack) as (asking, workers):
        first, second = workers
        assert await stack.drain_node(_node(first)) == 0
        await asking.answered_by(*workers)
        assert first.recoveries
        outcomes = {each.outcome for worker in workers for each in worker.recoveries}
        # A handoff has a quarter of a second, which a machine that is busy with other clusters may not have.
        assert outcomes <= {Outcome.HANDED_OVER, Outcome.FAILED_OVER}
        if outcomes == {Outcome.HANDED_OVER}:
            failures = {type(each) for each in asking.failures.values()}
            assert failures <= {NoHandler, HandlersBusy}, "a stop is not noticed"

        died, recovered = _node(first), len(first.recoveries)
        await stack.kill_node(died)
        await eventually(lambda: len(first.recoveries) > recovered, "the session of the handler recovers")
        await asking.answered_by(*workers)
        assert first.session.node != died
        assert first.recoveries[recovered].outcome in {Outcome.FAILED_OVER, Outcome.MIRRORED}

        # Of two that compete one goes; the other one has it all.
        await second.session.close()
        before = asking.by(second)
        await asking.answered_by(first)
        assert asking.by(second) <= before + AT_ONCE
        await asking.stop()
        figures(asking.summary)


@pytest.mark.thorough
async def test_a_rolling_restart_is_not_noticed(tmp_path: Path, figures: Figures) -> None:
    async with cluster(tmp_path) as stack, scene(stack) as (asking, workers):
        for node in stack.node_names:
            await _restart(stack, node)
            await asking.answered_by(*workers)
        await asking.stop()
        assert {each.outcome for worker in workers for each in worker.recoveries} == {Outcome.HANDED_OVER}
        figures(asking.summary)


@pytest.mark.thorough
async def test_each_request_has_one_end_while_nodes_are_killed(tmp_path: Path, figures: Figures) -> None:
    """Of whoever asks and whoever handles, by chance, ten times."""
    random = Random(29)
    async with cluster(tmp_path, **LINKED) as stack, scene(stack) as (asking, workers):
        for _ in range(10):
            died = random.choice(stack.node_names)
            await stack.kill_node(died)
            await asking.answered_by(*workers)
            await stack.start_node(died)
            await stack.balanced()
        await asking.stop()
        figures(asking.summary)


async def _restart(stack: Stack, node: str) -> None:
    assert await stack.drain_node(node) == 0
    await stack.start_node(node)
    await stack.balanced()


def _node(worker: Worker) -> str:
    node = worker.session.node
    assert node is not None
    return node
