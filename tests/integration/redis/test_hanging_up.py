"""Connections are closed whenever who opens them is interrupted, from the first step of a dial to an adopted grid.

Each test interrupts again and again, one turn of the loop later each time, until there is nothing left to interrupt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
import uvloop
from redis.asyncio.connection import Connection

from gateway.adapters.redis import adoption, dialer, grid_connection
from gateway.adapters.redis.topology import SentinelFinder, Topology
from gateway.local.ports import free_port
from gateway.ports import GridState, GridUnavailable
from gateway.settings.grid_url import read_grid_url
from gateway.settings.values import HostPort
from tests.integration.redis.support import Bench
from tests.support.redis_sentinel import MASTER, SentinelServer
from tests.support.redis_server import HOST, RedisServer
from tests.support.times import scaled


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Connection]]:
    """All connections, in the order in which they were made; none of them is open in the end."""
    connections: list[Connection] = []

    class Recorded(Connection):
        def __init__(self, **arguments: Any) -> None:
            super().__init__(**arguments)
            connections.append(self)

    monkeypatch.setattr(dialer, "Connection", Recorded)
    yield connections
    assert left_open(connections) == 0


def left_open(made: list[Connection]) -> int:
    return sum(each.is_connected for each in made)


async def turns(amount: int, *, over: Callable[[], bool]) -> None:
    """Let everything else go on for so many turns of the loop in which there is anything to do, or until it is over.

    Turns in which all wait for Redis are no new state, and how many they are depends on the machine.
    """
    ready: Any = getattr(asyncio.get_running_loop(), "_ready")  # noqa: B009 - private
    for _ in range(amount):
        await asyncio.sleep(0)
        while not ready and not over():  # noqa: ASYNC110 - the loop has to turn, for which there is no event
            await asyncio.sleep(0)


@pytest.fixture(params=[True, False], ids=["adopted", "refused"])
def fits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the grid will do."""
    if not request.param:
        monkeypatch.setattr(adoption, "OLDEST_REDIS", (99, 0))
    return bool(request.param)


@pytest.mark.usefixtures("fits")
@pytest.mark.parametrize("times", [1, 2])
async def test_a_start_that_is_cancelled_leaves_no_connection(bench: Bench, made: list[Connection], times: int) -> None:
    for amount in count():
        grid = bench.unstarted()
        start = asyncio.create_task(grid.start())
        await turns(amount, over=start.done)
        over = start.done()
        for _ in range(times):
            start.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(start, return_exceptions=True)
        await grid.close()
        assert left_open(made) == 0, f"interrupted in turn {amount}"
        if over:
            break
    assert len(made) > amount / 2, "most interruptions met a dial or what follows it"


async def test_a_close_while_the_link_comes_back_leaves_no_connection(
    bench: Bench, made: list[Connection], monkeypatch: pytest.MonkeyPatch, *, fits: bool
) -> None:
    monkeypatch.setattr(grid_connection, "SHORTEST_BACKOFF", 0.0)
    for amount in count():
        grid = bench.unstarted()
        if fits:
            await grid.start()
            grid._connection.suspect("to have it come back")
        else:
            with pytest.raises(GridUnavailable):
                await grid.start()
        before = len(made)

        def over(before: int = before, state: Callable[[], GridState] = lambda grid=grid: grid.state) -> bool:  # type: ignore[misc]
            """Back, or refused once more and about to try again."""
            return state() is GridState.UP or len(made) > before + 1 + fits

        await turns(amount, over=over)
        enough = over()
        await grid.close()
        assert left_open(made) == 0, f"interrupted in turn {amount}"
        if enough:
            break


@pytest.mark.parametrize("there", [True, False], ids=["all there", "one not there"])
async def test_all_masters_are_connected_to_or_none(bench: Bench, made: list[Connection], *, there: bool) -> None:
    other = bench.server.port if there else free_port()
    masters = Topology((HostPort(HOST, bench.server.port), HostPort(HOST, other)), {})
    grid = bench.unstarted()
    result: Any = None
    for amount in count():
        dialling = asyncio.create_task(grid._connection._dial(masters))
        await turns(amount, over=dialling.done)
        over = dialling.done()
        for _ in range(2):
            dialling.cancel()
            await asyncio.sleep(0)
        (result,) = await asyncio.gather(dialling, return_exceptions=True)
        await grid.close()
        if over:
            break
        assert left_open(made) == 0, f"interrupted in turn {amount}"
    if there:
        assert isinstance(result, list)
        assert [each.is_connected for each in result] == [True, True]
        for each in result:
            await dialer.discard(each)
    else:
        assert isinstance(result, GridUnavailable)


@pytest.mark.parametrize("known", [True, False], ids=["a master", "no master"])
async def test_sentinels_that_were_asked_are_hung_up_on(bench: Bench, made: list[Connection], *, known: bool) -> None:
    with SentinelServer(bench.server, quorum=1) as sentinel:
        address = f"{HOST}:{sentinel.port}"
        place = read_grid_url(f"redis+sentinel://{address},{address}/{MASTER if known else 'nobody'}")
        finder = SentinelFinder(place, dialer=dialer.Dialer.to_sentinels(place, timeout=scaled(3.0)))
        result: Any = None
        for amount in count():
            looking = asyncio.create_task(finder.find())
            await turns(amount, over=looking.done)
            over = looking.done()
            for _ in range(2):
                looking.cancel()
                await asyncio.sleep(0)
            (result,) = await asyncio.gather(looking, return_exceptions=True)
            assert left_open(made) == 0, f"interrupted in turn {amount}"
            if over:
                break
        assert len(made) > amount, "most interruptions met a dial or what follows it"
        if known:
            assert result == Topology((HostPort(HOST, bench.server.port),), {})
        else:
            assert isinstance(result, GridUnavailable)
            assert "No such master" in str(result)


@pytest.mark.parametrize("turns_since", range(3))
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_command_for_a_redis_that_has_just_hung_up_is_an_error_of_the_connection(
    loop: Callable[[], asyncio.AbstractEventLoop], turns_since: int
) -> None:
    """Nodes run on uvloop, which raises RuntimeError where asyncio says nothing."""

    async def sent() -> None:
        async with RedisServer() as server:
            connection = await dialer.Dialer(read_grid_url(server.url), name=None, timeout=scaled(5.0)).dial()
            dialer.abort(connection)
            for _ in range(turns_since):
                await asyncio.sleep(0)
            with pytest.raises(OSError, match="closed"):
                await dialer.converse(connection, [("PING",)])
            await dialer.discard(connection)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(sent())
