"""One connection over a transport made of queues."""

from __future__ import annotations

import asyncio

import pytest

from gateway.client.connection import Connection
from gateway.core.client.effects import Disconnect
from gateway.core.client.endings import Ending
from tests.support.clock import eventually


class QueueTransport:
    """A transport whose other side is the test."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[str | bytes | Ending] = asyncio.Queue()
        self.sent: list[bytes] = []
        self.closed: tuple[int, str, list[bytes]] | None = None
        self.broken = False
        self.room = asyncio.Event()
        self.room.set()

    async def send(self, message: bytes) -> None:
        if self.broken:
            raise ConnectionResetError("broken pipe")
        self.sent.append(message)
        await self.room.wait()

    async def receive(self) -> str | bytes | Ending:
        return await self.incoming.get()

    async def close(self, code: int, reason: str, last_messages: list[bytes]) -> None:
        self.closed = (code, reason, last_messages)
        self.incoming.put_nowait(Ending(message="closed"))


class Bench:
    """A connection at work, and a machine that says what the test wants it to say."""

    def __init__(self) -> None:
        self.transport = QueueTransport()
        self.waiting: list[bytes] = []
        self.received: list[str | bytes] = []
        self.endings: list[Ending] = []
        self.bugs: list[BaseException] = []
        self.connection = Connection(
            self.transport,
            receive=self.receive,
            lost=self.endings.append,
            flush=self.flush,
            failed=self.bugs.append,
        )

    def flush(self) -> list[bytes]:
        written, self.waiting = self.waiting, []
        return [b",".join(written)] if written else []

    def receive(self, message: str | bytes) -> None:
        if message == "bug":
            raise ZeroDivisionError(message)
        self.received.append(message)

    async def turn(self, times: int = 3) -> None:
        for _ in range(times):
            await asyncio.sleep(0)

    def say(self, message: bytes) -> None:
        self.waiting.append(message)
        self.connection.wake()

    async def leave(self, reason: str = "done", last_messages: tuple[bytes, ...] = ()) -> None:
        self.connection.leave(Disconnect(4000, reason, last_messages))
        await self.connection.close()


async def test_what_is_submitted_in_one_turn_is_one_message() -> None:
    bench = Bench()
    await bench.turn()
    bench.say(b"1")
    bench.say(b"2")
    await bench.turn()
    await bench.leave()

    assert bench.transport.sent == [b"1,2"]


async def test_the_other_sides_ending_is_how_it_ended() -> None:
    bench = Bench()
    bench.transport.incoming.put_nowait(Ending(message="the node closed", code=4001))
    await bench.turn()

    assert [each.code for each in bench.endings] == [4001]
    await bench.leave("the node closed")
    assert bench.transport.closed == (4000, "the node closed", [])


async def test_nothing_is_handed_in_of_a_connection_that_was_left_and_its_last_messages_are_written() -> None:
    bench = Bench()
    await bench.turn()
    bench.connection.leave(Disconnect(4000, "over", (b"bye",)))
    bench.transport.incoming.put_nowait("late")
    await bench.turn()
    await bench.connection.close()

    assert bench.transport.closed == (4000, "over", [b"bye"])
    assert bench.received == [], "what came after the end will be sent again"
    assert bench.endings == []


async def test_last_messages_never_overtake_what_is_being_written() -> None:
    bench = Bench()
    await bench.turn()
    bench.transport.room.clear()
    bench.say(b"1")
    await bench.turn()
    await bench.leave("over", (b"bye",))

    assert bench.transport.closed == (4000, "over", [])


async def test_after_a_failed_write_the_reader_may_still_tell_why() -> None:
    bench = Bench()
    await bench.turn()
    bench.transport.broken = True
    bench.say(b"1")
    await bench.turn()
    bench.transport.incoming.put_nowait(Ending(message="too slow", code=4001))
    await bench.turn()

    assert [each.code for each in bench.endings] == [4001]
    await bench.leave()


async def test_after_a_failed_write_the_connection_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.client.connection.READ_GRACE", 0.01)
    bench = Bench()
    await bench.turn()
    bench.transport.broken = True
    bench.say(b"1")
    await eventually(lambda: bool(bench.endings))

    assert [each.message for each in bench.endings] == ["the connection was lost: broken pipe"]
    await bench.leave()


async def test_whatever_runs_for_a_connection_ends_with_it() -> None:
    bench = Bench()
    await bench.turn()
    await bench.leave()

    names = {"gateway-client-read", "gateway-client-write"}
    assert not [task for task in asyncio.all_tasks() if task.get_name() in names]


async def test_a_bug_where_messages_are_taken_is_told() -> None:
    bench = Bench()
    bench.transport.incoming.put_nowait("bug")
    await bench.turn()

    assert [type(each) for each in bench.bugs] == [ZeroDivisionError]
    await bench.leave()
