"""What has ended is gone at once: nothing of it waits for the collector of cycles, which comes round very seldom.

``gateway.garbage`` has it come seldom because a node makes no cycles. Whatever lives for long and ends in one stays for
hours, with its buffers, and a client that makes the node leave cycles can fill its memory.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient

Ending = Callable[[RawClient], Awaitable[None]]

PACKETS = (
    {"id": 1, "type": "subscribe", "request": 1, "selector": "a/**"},
    {"id": 2, "type": "publish", "request": 2, "topic": "a/b", "value": "x" * 1000},
    {"id": 3, "type": "properties", "request": 3, "properties": {"team": "fx"}},
)


async def says_goodbye(client: RawClient) -> None:
    await client.send(*PACKETS, {"type": "bye"})
    await client.closed()


async def is_cut(client: RawClient) -> None:
    await client.send(*PACKETS)
    await client.expect("update")
    await client.cut()


async def comes_back(client: RawClient) -> None:
    welcome = client.seen[0]
    await is_cut(client)
    async with RawClient(client._url) as again:
        await again.resume(welcome["token"], attempt=1)
        await says_goodbye(again)


async def asks_for_what_is_refused(client: RawClient) -> None:
    for number, selector in enumerate(("", "a//b", "**/x/**/y\0"), 1):
        await client.send({"id": number, "type": "subscribe", "request": number, "selector": selector})
        await client.expect("reply")
    for number, topic in enumerate(("", "a/*", "$gateway/x"), 4):
        await client.send({"id": number, "type": "publish", "request": number, "topic": topic, "value": 1})
        await client.expect("reply")
    await client.send({"type": "bye"})
    await client.closed()


def writes(data: bytes, kind: aiohttp.WSMsgType = aiohttp.WSMsgType.TEXT) -> Ending:
    async def write(client: RawClient) -> None:
        await client.ws._writer.send_frame(data, kind)
        await client.closed()

    return write


ENDINGS: dict[str, Ending] = {
    "goodbye": says_goodbye,
    "cut": is_cut,
    "resumed": comes_back,
    "refusals": asks_for_what_is_refused,
    "no JSON": writes(b"{"),
    "no JSON that is UTF-8": writes(b'"\\ud800"'),
    "no packet": writes(b'{"type": "nonsense"}'),
    "a bad field": writes(b'{"type": "publish", "id": 1, "request": "x"}'),
    "a number skipped": writes(b'{"id": 7, "type": "subscribe", "request": 1, "selector": "a/**"}'),
    "acknowledged what was never sent": writes(b'{"type": "ack", "received": 99}'),
    "the same in another form": writes(b'{"received": 99, "type": "ack"}'),
    "no text": writes(b"\xed\xa0\x80" * 1000),
    "binary": writes(b"x", aiohttp.WSMsgType.BINARY),
    "a close that is no text": writes(b"\x03\xe8\xff", aiohttp.WSMsgType.CLOSE),
    "a close that nobody may send": writes(b"\x03\xed", aiohttp.WSMsgType.CLOSE),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_what_has_ended_is_gone_without_the_collector(ending: str) -> None:
    async with running_node(window_default=0.05, reap_interval=0.05) as node:
        await one_session(node, ENDINGS[ending])
        gc.collect()
        gc.disable()
        try:
            await one_session(node, ENDINGS[ending])
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = Counter(
                type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith("gateway.")
            )
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert not left


async def one_session(node: TestNode, ending: Ending) -> None:
    async with RawClient(node.url) as client:
        await client.hello()
        await ending(client)
    await eventually(lambda: not node.gateway.node.sessions and not node.gateway.node.connections)
