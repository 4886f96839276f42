"""The batcher against a connection that answers as it is told."""

from __future__ import annotations

import asyncio
import gc
import re
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ClusterDownError, NoScriptError, OutOfMemoryError, ReadOnlyError, ResponseError

from gateway.adapters.memory import MemoryMetrics
from gateway.adapters.redis import batcher as module
from gateway.adapters.redis.batcher import Batcher, ScriptFailed, abandon
from gateway.adapters.redis.dialer import pack
from gateway.adapters.redis.write_gate import WriteGate
from gateway.catalogue.metrics import GRID_BATCH_COMMANDS, GRID_STEP_SECONDS
from gateway.core.wire.errors import GatewayError
from gateway.garbage import uncollected
from gateway.ports import GridUnavailable
from tests.support.clock import VirtualClock, eventually
from tests.support.times import scaled, time_limit


class Connection:
    """Stands for redis-py's connection: answers each command once, in order, after it was sent."""

    def __init__(self) -> None:
        self.due = asyncio.Semaphore(0)
        self.is_connected = True
        self.sent: list[bytes] = []
        self.replies: asyncio.Queue[Any] = asyncio.Queue()

    async def send_packed_command(self, packed: bytes, *, check_health: bool) -> None:
        assert not check_health
        self.sent.append(packed)
        for _ in re.findall(rb"(?:^|\r\n)\*\d+\r\n", packed):
            self.due.release()

    async def read_response(self, **_: object) -> Any:
        await self.due.acquire()
        reply = await self.replies.get()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def answer(self, *replies: Any) -> None:
        for reply in replies:
            self.replies.put_nowait(reply)


class Bench:
    def __init__(self, timeout: float = 5.0) -> None:
        self.clock = VirtualClock()
        self.write_gate = WriteGate(self.clock)
        self.metrics = MemoryMetrics()
        self.broken: list[Exception] = []
        self.refused: list[str] = []
        self.connection = Connection()
        self.batcher = Batcher(
            timeout=timeout,
            write_gate=self.write_gate,
            metrics=self.metrics,
            broken=self._break,
            refused=self.refused.append,
        )

    def _break(self, error: Exception) -> None:
        self.broken.append(error)
        self.batcher.shut(GridUnavailable(f"away: {error}"))

    def open(self) -> Bench:
        self.batcher.open(cast("AbstractConnection", self.connection))
        return self

    async def sent(self, amount: int) -> None:
        await eventually(lambda: len(self.connection.sent) == amount, message=f"{amount} pipelines are sent")

    def close(self) -> None:
        self.batcher.shut(GridUnavailable("closed"))


async def ready(make: Callable[[], Bench] = Bench) -> Bench:
    return make().open()


async def test_commands_of_one_tick_are_one_pipeline_in_order() -> None:
    bench = await ready()
    calls = [asyncio.create_task(bench.batcher.call(("ECHO", str(number)))) for number in range(10)]
    await bench.sent(1)
    assert bench.connection.sent == [pack([("ECHO", str(number)) for number in range(10)])]
    bench.connection.answer(*range(10))
    assert await asyncio.gather(*calls) == list(range(10))
    assert bench.metrics.observations(GRID_BATCH_COMMANDS) == [10]
    assert len(bench.metrics.observations(GRID_STEP_SECONDS)) == 1
    bench.close()


async def test_what_may_wait_leaves_its_place_on_the_wire_to_what_cannot() -> None:
    bench = await ready()
    asked = []
    for number in (1, 2):
        asked.append(bench.batcher.submit([("PATIENT", number)], patient=True))
        await bench.sent(number)
    asked.append(bench.batcher.submit([("PATIENT", 3)], patient=True))
    asked.append(bench.batcher.submit([("URGENT", 1)]))
    await bench.sent(3)
    asked.append(bench.batcher.submit([("URGENT", 2)]))
    await bench.sent(4)
    asked.append(bench.batcher.submit([("URGENT", 3)]))
    await asyncio.sleep(0)
    assert bench.connection.sent[2:] == [pack([("URGENT", 1), ("PATIENT", 3)]), pack([("URGENT", 2)])]
    bench.connection.answer("a", "b")
    await asyncio.sleep(0)
    assert len(bench.connection.sent) == 4, "of those that cannot wait there are two under way still"
    bench.connection.answer("c", "d")
    await bench.sent(5)
    bench.close()
    ends = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(end, GridUnavailable) for end in ends] == [False, False, False, False, True, True], ends


async def test_errors_among_replies_lead_to_nothing_that_leads_back() -> None:
    """Else each of them would stay, with all that its caller holds, until the collector of cycles comes round."""
    bench = await ready()
    gc.collect()
    with uncollected():
        for ask in (bench.batcher.call(("A",)), bench.batcher.call_all([("A",)])):
            bench.connection.answer(ResponseError("what for"))
            held = await refusal(ask)
            assert held() is None
        waiting = asyncio.create_task(refusal(bench.batcher.call_all([("A",)])))
        await asyncio.sleep(0)
        bench.close()
        held = await waiting
        del waiting
        assert held() is None


async def refusal(ask: Awaitable[object]) -> weakref.ref[Exception]:
    """Return what is left of the error that *ask* raises."""
    try:
        await ask
    except GatewayError as error:
        return weakref.ref(error)
    raise AssertionError("it was refused")


async def test_commands_gather_while_pipelines_are_in_flight() -> None:
    bench = await ready()
    first = bench.batcher.submit([("A",)])
    await bench.sent(1)
    second = bench.batcher.submit([("B",)])
    await bench.sent(2)
    later = [bench.batcher.submit([("C", number)]) for number in range(5)]
    await asyncio.sleep(0)
    assert len(bench.connection.sent) == 2
    bench.connection.answer("a")
    assert await first == ["a"]
    await bench.sent(3)
    assert bench.connection.sent[2] == pack([("C", number) for number in range(5)])
    bench.connection.answer("b", 0, 1, 2, 3, 4)
    assert await second == ["b"]
    assert await asyncio.gather(*later) == [[number] for number in range(5)]
    bench.close()


async def test_what_may_wait_goes_last_and_only_so_much_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENT_GROUPS", 2)
    bench = Bench().open()
    claims = [bench.batcher.submit([("CLAIM", number)], patient=True) for number in range(3)]
    publishes = [bench.batcher.submit([("PUBLISH", number)]) for number in range(2)]
    await bench.sent(2)
    assert bench.connection.sent == [
        pack([("PUBLISH", 0), ("PUBLISH", 1), ("CLAIM", 0), ("CLAIM", 1)]),
        pack([("CLAIM", 2)]),
    ]
    bench.connection.answer("p0", "p1", "c0", "c1", "c2")
    assert await asyncio.gather(*publishes, *claims) == [["p0"], ["p1"], ["c0"], ["c1"], ["c2"]]
    bench.close()


async def test_what_may_wait_fails_with_everything_else() -> None:
    bench = Bench().open()
    waiting = bench.batcher.submit([("CLAIM", 1)], patient=True)
    bench.close()
    with pytest.raises(GridUnavailable):
        await waiting


async def test_call_all_splits_what_is_too_large_and_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIPELINE_COMMANDS", 3)
    monkeypatch.setattr(module, "PIPELINE_ARGUMENTS", 6)
    bench = await ready()
    task = asyncio.create_task(bench.batcher.call_all([("A", number) for number in range(8)]))
    bench.connection.answer(*range(8))
    assert await task == list(range(8))
    assert bench.metrics.observations(GRID_BATCH_COMMANDS) == [3, 3, 2]
    assert await bench.batcher.call_all([]) == []
    bench.close()


async def test_silence_breaks_the_connection_and_fails_everything_once() -> None:
    bench = await ready(lambda: Bench(timeout=0.05))
    calls = [asyncio.create_task(bench.batcher.call(("A",))) for _ in range(3)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in results] == [GridUnavailable] * 3
    assert [type(each) for each in bench.broken] == [TimeoutError]
    with pytest.raises(GridUnavailable):
        await bench.batcher.call(("A",))


async def test_a_process_that_stood_still_blames_nobody() -> None:
    bench = await ready(lambda: Bench(timeout=scaled(0.1)))
    call = asyncio.create_task(bench.batcher.call(("A",)))
    await bench.sent(1)
    time.sleep(scaled(0.5))  # noqa: ASYNC251 - the loop is to stand still
    asyncio.get_running_loop().call_later(0.02, bench.connection.answer, "late")
    assert await call == "late"
    assert bench.broken == []
    bench.close()


async def test_more_than_can_be_done_in_time_fails_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIPELINE_ARGUMENTS", 1)
    bench = await ready(lambda: Bench(timeout=scaled(0.3)))
    calls = [asyncio.create_task(bench.batcher.call(("A", number))) for number in range(40)]

    async def answer_slowly() -> None:
        for number in range(40):
            await asyncio.sleep(scaled(0.05))  # the pace of the server is what is tested
            bench.connection.answer(number)

    server = asyncio.create_task(answer_slowly())
    results = await asyncio.gather(*calls, return_exceptions=True)
    failed = [isinstance(each, GridUnavailable) for each in results]
    assert failed == sorted(failed), "a prefix is executed"
    assert any(failed)
    assert not failed[0]
    assert bench.broken == []
    server.cancel()
    bench.close()


@pytest.mark.parametrize(
    "error",
    [
        ReadOnlyError("You can't write against a read only replica."),
        NoScriptError("No matching script."),
        ClusterDownError("The cluster is down"),
        ResponseError("BUSY Redis is busy running a script."),
        ResponseError("LOADING Redis is loading the dataset in memory"),
        ConnectionResetError("reset"),
    ],
)
async def test_errors_that_say_that_this_is_not_the_grid(error: Exception) -> None:
    bench = await ready()
    calls = [asyncio.create_task(bench.batcher.call(("A",))) for _ in range(2)]
    bench.connection.answer(error, "never read")
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in results] == [GridUnavailable] * 2
    assert bench.broken == [error]


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
        ResponseError("MISCONF Redis is configured to save RDB snapshots"),
        ResponseError("NOREPLICAS Not enough good replicas to write."),
    ],
)
async def test_errors_that_refuse_one_command(error: Exception) -> None:
    bench = await ready()
    calls = [asyncio.create_task(bench.batcher.call(("A",))) for _ in range(2)]
    bench.connection.answer(error, "done")
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results[0], GridUnavailable)
    assert results[1] == "done"
    assert bench.refused == [str(error)]
    assert bench.broken == []
    bench.close()


async def test_any_other_error_is_a_bug_and_ours() -> None:
    bench = await ready()
    bench.connection.answer(ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"))
    with pytest.raises(ScriptFailed, match="WRONGTYPE"):
        await bench.batcher.call(("A",))
    bench.connection.answer(ResponseError("ERR"), 1)
    with pytest.raises(ScriptFailed):
        await bench.batcher.call_all([("A",), ("B",)])
    assert bench.broken == []
    bench.close()


async def test_a_reply_to_nothing_breaks_the_connection() -> None:
    bench = await ready()
    bench.connection.due.release()
    bench.connection.answer("what?")
    await eventually(lambda: bool(bench.broken))


async def test_a_closed_connection_is_never_opened_by_sending() -> None:
    bench = await ready()
    bench.connection.is_connected = False
    with pytest.raises(GridUnavailable):
        await bench.batcher.call(("A",))
    assert bench.connection.sent == []


async def test_the_gate_is_looked_at_when_sending() -> None:
    bench = await ready()
    bench.write_gate.hold(until=bench.write_gate.now() + 1, term=1)
    gated = bench.batcher.submit([("A",)], gated=True)
    free = bench.batcher.submit([("B",)])
    bench.clock.advance(1)  # between being asked and being sent
    bench.connection.answer("b")
    assert await free == ["b"]
    with pytest.raises(GridUnavailable, match="lease"):
        await gated
    assert bench.connection.sent == [pack([("B",)])]
    only = bench.batcher.submit([("C",)], gated=True)
    with pytest.raises(GridUnavailable, match="lease"):
        await only
    await bench.batcher.drain()
    bench.close()


async def test_drain_waits_for_everything() -> None:
    bench = await ready()
    future = bench.batcher.submit([("A",), ("B",)])
    drained = asyncio.create_task(bench.batcher.drain())
    bench.connection.answer(1)
    await bench.sent(1)
    assert not drained.done()
    bench.connection.answer(2)
    await drained
    assert future.result() == [1, 2]
    bench.close()


async def test_before_it_is_opened_it_refuses() -> None:
    with pytest.raises(GridUnavailable, match="not been reached"):
        await Bench().batcher.call(("A",))


async def test_a_cancellation_that_gets_lost_does_not_hold_up_who_abandons_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in ``asyncio.wait_for`` of Python 3.11, if what it waits for is done at the same moment."""
    monkeypatch.setattr(module, "_CANCEL_AGAIN", 0.01)
    begun = asyncio.Event()

    async def deaf_once() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    task = asyncio.create_task(deaf_once())
    await begun.wait()

    async with time_limit(20):
        await abandon([task])
    assert task.cancelled()
