"""A node without memory: it names that, sheds load, blames nobody, and keeps its sessions (P20)."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from gateway.app.admission.memory import Memory
from gateway.catalogue import log_events as events
from gateway.core.wire import codec
from tests.support.nodes import TestNode, eventually, rejected, running_node
from tests.support.raw_client import RawClient
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P20")


def memory_of(node: TestNode) -> Memory:
    return node.gateway.node._context.memory


def blamed(node: TestNode) -> list[Any]:
    kinds = (events.PROTOCOL_VIOLATED, events.CONNECTION_FAILED, events.REQUEST_FAILED, events.BACKGROUND_TASK_FAILED)
    return [told for kind in kinds for told in node.log.of(kind)]


async def test_what_cannot_be_taken_in_is_nobodys_fault_and_the_session_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_node() as node, RawClient(node.url) as one, RawClient(node.url) as witness:
        welcome = await one.hello()
        await witness.hello("witness")
        decode = codec.decode_from_client

        def fails(message: bytes) -> Any:
            if b"large" in message:
                raise MemoryError
            return decode(message)

        monkeypatch.setattr(codec, "decode_from_client", fails)
        await one.send({"id": 1, "type": "publish", "request": 1, "topic": "a", "value": "large"})
        error = await one.expect("error")
        assert error["code"] == "try_later"
        assert error["retry_after"] > 0
        assert "short of memory" in error["message"]
        assert await one.closed() == 4101
        assert blamed(node) == []
        (told,) = node.log.of(events.MEMORY_RAN_SHORT)
        assert told["why"] == "an allocation failed: to take in what a client said"
        status, retry_after, why = await rejected(node)
        assert (status, int(retry_after) > 0) == (503, True)
        assert "memory_limit: this node is short of memory" in why
        assert node.gateway.node.readiness.warnings() == ["memory is short"]
        await witness.send({"id": 1, "type": "subscribe", "request": 1, "selector": "a"})
        assert "error" not in await witness.expect("reply"), "who is there is served"
        monkeypatch.setattr(codec, "decode_from_client", decode)
        node.gateway.node._context.limits.memory_short = False
        async with RawClient(node.url) as back:
            again = await back.resume(welcome["token"], attempt=1)
            assert (again["outcome"], again["reason"]) == ("failed_over", "gap")
            await back.send({"id": 1, "type": "publish", "request": 1, "topic": "a", "value": 1, "resubmitted": True})
            assert "error" not in await back.expect("reply")


async def test_a_request_without_memory_is_executed_once_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node() as node, RawClient(node.url) as one:
        await one.hello()
        store = node.gateway.node._context.grid.topics
        execute = store.publish
        left = [MemoryError(), MemoryError()]

        async def publish(commands: Any) -> Any:
            if left:
                raise left.pop()
            return await execute(commands)

        monkeypatch.setattr(store, "publish", publish)
        await one.send({"id": 1, "type": "publish", "request": 1, "topic": "a", "value": 1})
        reply = await one.expect("reply")
        assert reply["version"] == 1
        assert blamed(node) == []
        assert node.log.of(events.MEMORY_RAN_SHORT)


async def test_a_session_that_cannot_be_written_to_goes_on_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node() as node, RawClient(node.url) as one:
        welcome = await one.hello()
        session = node.gateway.node.sessions.get(welcome["session"])
        assert session is not None
        node.gateway.node.sessions.fail(session, MemoryError())
        assert await one.closed() == 4101
        assert blamed(node) == []
        node.gateway.node._context.limits.memory_short = False
        async with RawClient(node.url) as back:
            assert (await back.resume(welcome["token"], attempt=1))["outcome"] == "failed_over"


async def test_what_is_kept_for_those_who_are_away_is_given_up_first() -> None:
    async with running_node() as node, RawClient(node.url) as witness:
        await witness.hello("witness")
        async with RawClient(node.url) as one:
            welcome = await one.hello()
        session = node.gateway.node.sessions.get(welcome["session"])
        assert session is not None
        await eventually(lambda: session.on_clock)
        memory_of(node).exhausted("to try it")
        (told,) = node.log.of(events.MEMORY_RAN_SHORT)
        assert told["copies"] == 1
        assert len(node.gateway.node.sessions) == 1, "the witness"
        node.gateway.node._context.limits.memory_short = False
        async with RawClient(node.url) as back:
            assert (await back.resume(welcome["token"], attempt=1))["outcome"] == "failed_over"


CHILD = """
import asyncio, os, resource, sys
from gateway.app.admission.memory import SHED_AT
from gateway.catalogue import log_events as events
from tests.support.nodes import eventually, running_node, rejected
from tests.support.raw_client import RawClient

def size():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()

async def main():
    async with running_node(uvloop=False) as node, RawClient(node.url) as witness:
        await witness.hello("witness")
        async with RawClient(node.url) as one:
            welcome = await one.hello("away")
        session = node.gateway.node.sessions.get(welcome["session"])
        await eventually(lambda: session.on_clock)
        assert not node.gateway.node._context.limits.memory_short
        resource.setrlimit(resource.RLIMIT_AS, (round(size() / (SHED_AT + 0.05)), -1))
        await eventually(lambda: bool(node.log.of(events.MEMORY_RAN_SHORT)))
        (told,) = node.log.of(events.MEMORY_RAN_SHORT)[:1]
        assert "bytes are used" in told["why"], told
        assert told["copies"] == 1, told
        status, _, why = await rejected(node)
        assert status == 503 and "memory_limit" in why, why
        await witness.send({"id": 1, "type": "subscribe", "request": 1, "selector": "a"})
        assert "error" not in await witness.expect("reply")
        assert not node.log.of(events.PROTOCOL_VIOLATED)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, -1))
        await eventually(lambda: bool(node.log.of(events.MEMORY_SUFFICIENT)))
        async with RawClient(node.url) as back:
            assert (await back.resume(welcome["token"], attempt=1))["outcome"] == "failed_over"

asyncio.run(main())
"""


def test_a_process_whose_memory_is_bounded_sheds_load_before_it_fails() -> None:
    subprocess.run([sys.executable, "-c", CHILD], check=True, timeout=scaled(60))


NO_ROOM = """
import resource
from gateway.core.wire import codec
from gateway.core.wire.errors import RemoteProtocolError
message = b'["' + b"x" * (8 << 20) + b'"]'
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
# Room for the message once more, which the error tells, and not for what is made of it.
resource.setrlimit(resource.RLIMIT_AS, (size + (20 << 20), -1))
for decode in (codec.decode_from_client, codec.decode_from_server):
    try:
        decode(message)
    except MemoryError as error:
        assert "memory" in str(error)
    else:
        raise AssertionError("there was room for it")
"""


def test_a_message_for_which_there_is_no_room_is_no_violation_of_the_protocol() -> None:
    """The parser says of both that it is no JSON; an upgrade that words it otherwise fails here."""
    subprocess.run([sys.executable, "-c", NO_ROOM], check=True, timeout=scaled(60))
