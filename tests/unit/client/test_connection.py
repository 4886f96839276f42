"""One connection, and the handshake before it, over a transport made of queues."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.client.connection import Connection
from gateway.client.handshake import shake_hands
from gateway.client.transport import AttemptFailed
from gateway.core.client.endings import Ending
from gateway.core.stream.frozen import SessionPolicy
from gateway.core.stream.machine import Received, SessionMachine
from gateway.core.stream.runs import Outgoing
from gateway.core.stream.transitions import Role
from gateway.core.wire.codes import PING_TIMEOUT, ErrorCode
from gateway.core.wire.packets import Bye, Hello

POLICY = SessionPolicy(
    resend_packets=100,
    resend_bytes=100_000,
    message_bytes=10_000,
    ack_packets=10,
    ack_delay=10.0,
    ping_interval=10.0,
    ping_timeout=20.0,
)
BODY = Outgoing(None, b'"type":"publish","request":1,"topic":"a","value":1}')


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

    async def close(self, code: int, reason: str, farewell: list[bytes]) -> None:
        self.closed = (code, reason, farewell)
        self.incoming.put_nowait(Ending(message="closed"))


class Bench:
    """A connection at work."""

    def __init__(self, policy: SessionPolicy = POLICY) -> None:
        self.transport = QueueTransport()
        self.machine = SessionMachine(Role.CLIENT, policy)
        self.clock = asyncio.get_running_loop().time
        self.machine.open(self.clock())
        self.handled: list[Received] = []
        self.connection = Connection(self.transport, self.machine, self.handled.append, self.clock, [])
        self.serving = asyncio.create_task(self.connection.serve())

    async def turn(self, times: int = 3) -> None:
        for _ in range(times):
            await asyncio.sleep(0)

    def submit(self) -> None:
        self.machine.submit(BODY)
        self.connection.wake()


async def test_what_is_submitted_in_one_turn_is_one_message() -> None:
    bench = Bench()
    await bench.turn()
    bench.submit()
    bench.submit()
    await bench.turn()
    bench.connection.end(Ending(message="done"))
    await bench.serving

    assert len(bench.transport.sent) == 1
    assert bench.transport.sent[0].startswith(b'[{"id":1,')


async def test_the_other_sides_ending_is_how_it_ended() -> None:
    bench = Bench()
    bench.transport.incoming.put_nowait(Ending(message="the node closed", code=4001))

    assert (await bench.serving).code == 4001
    await bench.connection.close(Ending(message="the node closed", code=4001))
    assert bench.transport.closed == (4001, "the node closed", [])


async def test_the_first_ending_of_this_side_counts_and_what_was_queued_is_its_farewell() -> None:
    bench = Bench()
    await bench.turn()
    bench.machine.send_link(Bye("over"))
    bench.connection.end(Ending(message="first"))
    bench.connection.end(Ending(message="second"))
    bench.transport.incoming.put_nowait('{"type":"notice","id":1,"code":"late","message":""}')

    assert (await bench.serving).message == "first"
    await bench.connection.close(Ending(message="first"))
    assert bench.transport.closed == (4000, "first", [b'{"type":"bye","reason":"over"}'])
    assert bench.handled == [], "what came after the end will be sent again"


async def test_a_farewell_never_overtakes_what_is_being_written() -> None:
    bench = Bench()
    await bench.turn()
    bench.transport.room.clear()
    bench.submit()
    await bench.turn()
    bench.machine.send_link(Bye("over"))
    bench.connection.end(Ending(message="over"))
    await bench.serving
    await bench.connection.close(Ending(message="over"))

    assert bench.transport.closed == (4000, "over", [])


async def test_after_a_failed_write_the_reader_may_still_tell_why() -> None:
    bench = Bench()
    await bench.turn()
    bench.transport.broken = True
    bench.submit()
    await bench.turn()
    bench.transport.incoming.put_nowait(Ending(message="too slow", code=4001))

    assert (await bench.serving).code == 4001


async def test_after_a_failed_write_the_connection_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.client.connection.READ_GRACE", 0.01)
    bench = Bench()
    await bench.turn()
    bench.transport.broken = True
    bench.submit()

    assert (await bench.serving).message == "the connection was lost: broken pipe"


async def test_silence_ends_the_connection() -> None:
    bench = Bench(replace(POLICY, ping_timeout=0.02))
    ending = await bench.serving

    assert (ending.code, ending.hung) == (PING_TIMEOUT.code, True)


async def test_whatever_runs_for_a_connection_ends_with_it() -> None:
    bench = Bench()
    forever = asyncio.Event()
    bench.connection.spawn(forever.wait(), name="forever")  # type: ignore[arg-type]
    await bench.turn()
    bench.connection.end(Ending(message="done"))
    await bench.serving
    await bench.connection.close(Ending(message="done"))

    assert not [task for task in asyncio.all_tasks() if task.get_name() in {"forever", "gateway-client-read"}]


@pytest.mark.parametrize("where", ["task", "handler", "timer"])
async def test_a_bug_ends_the_connection_wherever_it_happens(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    await bench.turn()

    def broken(*_: object) -> None:
        raise ZeroDivisionError(where)

    async def fail() -> None:
        broken()

    if where == "task":
        bench.connection.spawn(fail(), name="fail")
    elif where == "handler":
        bench.connection._handle = broken
        bench.transport.incoming.put_nowait('{"type":"notice","id":1,"code":"","message":""}')
    else:
        monkeypatch.setattr(bench.connection, "_watch", broken)
        bench.connection._timer_fired()

    with pytest.raises(ZeroDivisionError, match=where):
        await bench.serving
    bench.connection._fail(ValueError("too late to matter"))


# --- The handshake ----------------------------------------------------------------------------------------------------


async def test_a_refusal_without_its_close_is_told_when_the_time_is_over() -> None:
    transport = QueueTransport()
    transport.incoming.put_nowait('{"type":"error","code":"try_later","message":"not yet","retry_after":2}')

    with pytest.raises(AttemptFailed) as caught:
        await shake_hands(transport, Hello(principal="alice"), seconds=0.01)
    ending = caught.value.ending
    assert (ending.error, ending.retry_after, ending.code) == (ErrorCode.TRY_LATER, 2.0, None)
    assert not ending.hung


async def test_a_connection_lost_in_the_handshake_is_a_failed_attempt() -> None:
    transport = QueueTransport()
    transport.broken = True

    with pytest.raises(AttemptFailed, match="lost during the handshake"):
        await shake_hands(transport, Hello(principal="alice"), seconds=1.0)
