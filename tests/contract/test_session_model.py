"""Model-based tests of ``SessionStore``: memory against the model, and Redis against memory."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.adapters.memory import MemoryGrid, MemoryGridServer
from gateway.core.wire.codes import ErrorCode
from gateway.ports import Claimed, ClaimRefused, Restored, SessionStore
from tests.contract.examples import ids_in_one_partition, new_id
from tests.contract.harness import LONG, RedisHarness, node
from tests.contract.session_model import (
    Choose,
    Create,
    Disconnect,
    End,
    Expire,
    Model,
    Orphan,
    Outcome,
    Restore,
    Step,
    Steps,
    perform,
)
from tests.support.clock import VirtualClock
from tests.support.redis_server import RedisServer
from tests.support.seeds import seeds

SESSIONS = [*ids_in_one_partition(2), new_id(), new_id()]
"""Of the in-memory grid, which is another one for each example."""

WINDOWS = (10.0, 30.0)
"""Windows in seconds of the virtual clock."""


class MemoryAgainstModel(RuleBasedStateMachine):
    """Whatever is done to both: the same answers, and the same sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock(0.0)
        self.server = MemoryGridServer(now=self.clock)
        self.grid = MemoryGrid(self.server, node=node("n1"))
        self.model = Model()
        self.steps = Steps(self.model, WINDOWS)
        # The same in each run of an example: which partitions they have decides what a step comes to.
        self.steps.sessions = list(SESSIONS)
        self.runner = asyncio.Runner()
        self.runner.run(self.grid.start())

    def teardown(self) -> None:
        """Close, and see that nothing is left once all windows are over."""
        for expired in self.steps.nodes:
            for session in self.steps.sessions:
                self._compare(self.steps.orphan(_picks(expired, session)))
        self.advance(max(WINDOWS))
        for session in self.steps.sessions:
            self._compare(self.steps.expire(_picks(session)))
        self.advance(max(WINDOWS))
        for session in self.steps.sessions:
            self._compare(self.steps.expire(_picks(session)))
        assert self.server.inventory() == set()
        self.runner.run(self.grid.close())
        self.runner.close()

    def _compare(self, step: Step) -> None:
        expected = self.model.perform(step)
        assert self.runner.run(perform(self.grid.sessions, step)) == expected, step

    @invariant()
    def same_sessions(self) -> None:
        """Compare everything that can be read."""
        for session in self.steps.sessions:
            found = self.runner.run(self.grid.sessions.find(session))
            assert found == self.model.sessions.get(session)

    @rule(seconds=st.sampled_from((1.0, 9.0, 10.0, 11.0, 30.0)))
    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)
        self.model.now = self.clock.now

    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        """Create."""
        self._compare(self.steps.create(_draws(data)))

    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        """Claim."""
        self._compare(self.steps.claim(_draws(data)))

    @rule(data=st.data())
    def claim_again(self, data: st.DataObject) -> None:
        """Claim twice."""
        step = self.steps.claim(_draws(data))
        self._compare(step)
        self._compare(step)

    @rule(data=st.data())
    def reclaim(self, data: st.DataObject) -> None:
        """Claim by the node that has it."""
        self._compare(self.steps.reclaim(_draws(data)))

    @rule(data=st.data())
    def reclaim_again(self, data: st.DataObject) -> None:
        """Claim by the node that has it, twice."""
        step = self.steps.reclaim(_draws(data))
        self._compare(step)
        self._compare(step)

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        """Change."""
        self._compare(self.steps.change(_draws(data)))

    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        """Disconnect."""
        self._compare(self.steps.disconnect(_draws(data)))

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """End."""
        self._compare(self.steps.end(_draws(data)))

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """Restore."""
        self._compare(self.steps.restore(_draws(data)))

    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        """Expire."""
        self._compare(self.steps.expire(_draws(data)))

    @rule(data=st.data())
    def orphan(self, data: st.DataObject) -> None:
        """Orphan."""
        self._compare(self.steps.orphan(_draws(data)))


def _draws(data: st.DataObject) -> Choose[object]:
    return lambda options: data.draw(st.sampled_from(options))


def _picks(*wanted: object) -> Choose[object]:
    """Choose what is wanted where it can be chosen."""
    return lambda options: next(each for each in options if each in wanted)


TestMemoryAgainstModel = MemoryAgainstModel.TestCase
TestMemoryAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# --- seeded walks -----------------------------------------------------------------------------------------------------

RETIRES = (Expire, End)
"""Steps after which Redis may remember longer than one window: their sessions are not used again in a walk."""

STARTS_A_WINDOW = (Disconnect, Orphan, Create, Restore)
"""Steps after which time passes, so that short windows are over and long ones are not, on any clock."""

SHORT = 0.01
"""A window in seconds that is over after the next pause on Redis."""


class Walk:
    """Performs random steps and counts what they come to.

    Args:
        seed: of the steps.
    """

    def __init__(self, seed: int) -> None:
        self.model = Model()
        self.steps = Steps(self.model, (SHORT, LONG))
        self.reached: Counter[str] = Counter()
        self._choose = random.Random(seed).choice

    def next_step(self) -> Step:
        """Make the next step."""
        return self.steps.make(self._choose)

    def note(self, step: Step, outcome: Outcome) -> None:
        """Count an outcome, and replace sessions that ended."""
        match outcome:
            case Claimed():
                kind = "claimed"
            case ClaimRefused(reason):
                kind = f"refused: {reason.value}"
            case [Restored() as restored]:
                kind = restored.value
            case ("gone", ErrorCode() as reason):
                kind = f"gone: {reason.value}"
            case frozenset():
                kind = "ended" if outcome else "nothing due"
            case _:
                kind = str(outcome)
        self.reached[f"{type(step).__name__} {kind}"] += 1
        if isinstance(step, RETIRES):
            for index, session in enumerate(self.steps.sessions):
                if session not in self.model.sessions and session in self.model.remembered:
                    self.steps.sessions[index] = new_id()


EXPECTED = {
    *("Create None", "Create fenced", "Claim claimed", "Change None", "Change fenced", "Disconnect None"),
    *("Disconnect fenced", "End None", "End fenced", "Expire ended", "Expire nothing due", "Orphan None"),
    *("Restore written", "Restore fenced", "Restore gone"),
    *(f"Claim refused: {reason}" for reason in ("session_unknown", "session_expired", "stale_attempt")),
    *("Claim refused: token_superseded", "Change gone: session_unknown", "Disconnect gone: session_unknown"),
}
"""What a walk must reach to be worth anything."""


async def walk(seed: int, count: int, advance: Callable[[float], Awaitable[None]], *stores: SessionStore) -> Walk:
    """Walk on implementations beside the model, and compare."""
    walked = Walk(seed)
    for number in range(count):
        step = walked.next_step()
        expected = walked.model.perform(step)
        for store in stores:
            assert await perform(store, step) == expected, (seed, number, step)
        walked.note(step, expected)
        if isinstance(step, STARTS_A_WINDOW):
            await advance(2 * SHORT)
            walked.model.now += 2 * SHORT
        for session in walked.steps.sessions:
            for store in stores:
                assert await store.find(session) == walked.model.sessions.get(session), (seed, number, step)
    return walked


@pytest.mark.parametrize("seed", seeds(5))
async def test_memory_goes_the_way_of_the_model(seed: int) -> None:
    """The walk of the differential test on memory alone, longer; it also shows that a walk gets everywhere."""
    clock = VirtualClock(0.0)
    grid = MemoryGrid(MemoryGridServer(now=clock), node=node("n1"))
    await grid.start()

    async def advance(seconds: float) -> None:
        clock.advance(seconds)

    walked = await walk(seed, 3000, advance, grid.sessions)
    assert walked.reached.keys() >= EXPECTED, EXPECTED - walked.reached.keys()
    await grid.close()


@pytest.fixture
async def on_redis(shared_redis: RedisServer) -> AsyncIterator[RedisHarness]:
    """A grid on Redis, closed also when a walk fails."""
    harness = RedisHarness(shared_redis)
    yield harness
    await harness.close()


@pytest.mark.redis
@pytest.mark.parametrize("seed", seeds(3))
async def test_redis_goes_the_way_of_memory(seed: int, on_redis: RedisHarness) -> None:
    """The same steps on memory and on Redis have equal results."""
    redis = await on_redis.grid("n1")
    clock = VirtualClock(0.0)
    memory = MemoryGrid(MemoryGridServer(now=clock), node=node("n1"))
    await memory.start()

    async def advance(seconds: float) -> None:
        clock.advance(seconds)
        await on_redis.advance(seconds)

    count = 250
    walked = await walk(seed, count, advance, memory.sessions, redis.sessions)
    assert walked.reached.total() == count
    await memory.close()
