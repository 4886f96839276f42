"""Bad content of one request is answered by a reply; the connection, the session and other requests go on (2.6)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final

import pytest

from gateway.core.wire.codec import MAX_NESTING
from tests.support.nodes import TestNode, running_node
from tests.support.raw_client import Packet, RawClient

LONE: Final = '"\\ud83d"'


@pytest.fixture
async def client(n1: TestNode) -> AsyncIterator[RawClient]:
    async with RawClient(n1.url) as raw:
        await raw.hello()
        yield raw


def nested(levels: int, *, objects: bool = False) -> str:
    return '{"a":' * levels + "1" + "}" * levels if objects else "[" * levels + "]" * levels


def publish(number: int, value: str, topic: str = '"a"') -> str:
    return f'{{"id":{number},"type":"publish","request":{number},"topic":{topic},"value":{value}}}'


async def verdict(client: RawClient) -> str | None:
    """Return the code of the next reply; None if it is a success."""
    error = (await client.expect("reply")).get("error")
    return None if error is None else error["code"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (publish(1, LONE), "bad_value"),
        (publish(1, f'{{"deep":[{LONE}]}}'), "bad_value"),
        (publish(1, f"{{{LONE}:1}}"), "bad_value"),
        (publish(1, "1E400"), "bad_value"),
        (publish(1, f"[{'9' * 400}]"), "bad_value"),
        (publish(1, nested(MAX_NESTING + 1)), "bad_value"),
        (publish(1, nested(1024)), "bad_value"),
        (publish(1, nested(1025, objects=True)), "bad_value"),
        (publish(1, nested(30_000)), "bad_value"),
        (publish(1, "1", topic='"a/\\ud83d"'), "bad_topic"),
        (publish(1, "1", topic=f"[{LONE}]"), "bad_topic"),
        ('{"id":1,"type":"subscribe","request":1,"selector":"\\udc00/**"}', "bad_selector"),
        ('{"id":1,"type":"unsubscribe","request":1,"selector":"\\udc00/**"}', "bad_selector"),
        ('{"id":1,"type":"properties","request":1,"set":{"team":"\\ud83d"}}', "bad_properties"),
        ('{"id":1,"type":"properties","request":1,"set":{"\\ud83d":"x"}}', "bad_properties"),
        ('{"id":1,"type":"properties","request":1,"set":{"":"x"}}', "bad_properties"),
        ('{"id":1,"type":"authenticate","request":1,"secret":"\\ud83d"}', "bad_request"),
    ],
)
async def test_a_request_with_bad_content_is_refused_and_everything_goes_on(
    client: RawClient, text: str, code: str
) -> None:
    await client.send_text(text)
    assert await verdict(client) == code

    await client.send_text(publish(2, nested(MAX_NESTING)))
    assert await verdict(client) is None


async def test_what_nobody_reads_is_not_judged(client: RawClient) -> None:
    await client.send_text(f'{{"id":1,"type":"publish","request":1,"topic":"a","value":1,"x":{LONE},"y":1E999}}')
    assert await verdict(client) is None
    await client.send_text(f'{{"id":2,"type":"publish","request":2,"x":{nested(5000)},"topic":"a","value":1}}')
    assert await verdict(client) is None
    await client.send_text(f'[{{"type":"ping","x":{LONE}}}]')
    assert (await client.expect("pong"))["received"] == 2


async def test_of_a_message_only_the_bad_packets_are_refused_and_in_order(client: RawClient) -> None:
    await client.send_text(
        f"[{publish(1, '1')},{publish(2, LONE)},{publish(3, '3')},{publish(4, nested(2000))},{publish(5, '5')}]"
    )
    replies = sorted([await client.expect("reply") for _ in range(5)], key=lambda reply: reply["request"])

    assert [reply.get("version") for reply in replies] == [1, None, 2, None, 3]
    assert [reply.get("error", {}).get("code") for reply in replies] == [None, "bad_value", None, "bad_value", None]


async def test_what_comes_before_a_violation_counts(n1: TestNode, client: RawClient) -> None:
    """2.6.2: those before a protocol error have been received when the connection is closed."""
    await client.send_text(f'[{publish(1, "1")},{{"type":"teleport"}}]')
    assert await client.closed() == 4200
    (session,) = n1.gateway.node.sessions

    assert session.machine.received == 1


@pytest.mark.parametrize(
    ("text", "code", "field"),
    [
        ('{"type":"hello","principal":"alice","properties":{"team":"\\ud83d"}}', "bad_properties", "properties"),
        ('{"type":"hello","principal":"alice","properties":{"":"x"}}', "bad_properties", "1 to 64"),
        ('{"type":"hello","principal":"alice","properties":{"$node":"x"}}', "bad_properties", "$node"),
        ('{"type":"hello","principal":"alice","properties":{"team":7}}', "protocol_error", "properties"),
        ('{"type":"hello","principal":"\\ud83d"}', "protocol_error", "principal"),
        ('{"type":"hello","principal":"alice","window":1E400}', "protocol_error", "window"),
        (f'{{"type":"hello","principal":{nested(3000)}}}', "protocol_error", "principal"),
        ('{"type":"resume","token":"\\ud83d","attempt":1,"received":0,"oldest":1}', "protocol_error", "token"),
    ],
)
async def test_a_first_packet_with_bad_content_is_refused_by_the_name_of_the_field(
    n1: TestNode, text: str, code: str, field: str
) -> None:
    async with RawClient(n1.url) as raw:
        await raw.send_text(text)
        error = await raw.expect("error")
        assert error["code"] == code
        assert field in error["message"]
        assert await raw.closed() == 4200
    assert len(n1.gateway.node.sessions) == 0


# --- Which request it was -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "close", "request_named"),
    [
        (publish(7, f'"{"x" * 70_000}"'), 1009, 7),
        (f'{{"type":"publish","value":"{"x" * 70_000}","id":1,"request":7}}', 1009, None),
        (f'{{"topic":"{"x" * 60_000}","type":"publish","request":7,"value":"{"x" * 60_000}"}}', 1009, 7),
        (f'{{"value":{{"request":8}},"request":7,"topic":"a","type":"publish","x":"{"x" * 3_000_000}"}}', 1009, 7),
        (f"[{publish(7, '1')},{publish(8, json.dumps('x' * 70_000))}]", 1009, 8),
        (f"[{publish(7, json.dumps('x' * 70_000))},{publish(8, '1')}]", 1009, 7),
        (f"[{publish(7, '1')},{publish(8, json.dumps('x' * 3_000_000))},{publish(9, '1')}]", 1009, 8),
        (f'{{"type":"ack","request":7,"received":0,"x":"{"x" * 70_000}"}}', 1009, None),
        (publish(7, "tru"), 4200, 7),
        (publish(7, "NaN"), 4200, 7),
        ('{"id":1,"value":[{"request":8},NaN],"topic":"a","request":7,"type":"publish"}', 4200, 7),
        (f'{{"id":1,"type":"publish","topic":"{"x" * 1000}","request":7,"value":[1}}}}', 4200, 7),
        (f"[{publish(7, 'NaN')}]", 4200, 7),
        (f"[{publish(7, '1')},{publish(8, 'NaN')},{publish(9, '1')}]", 4200, 8),
        ('[{"type":"ping"},{"type":"subscribe","request":7,"selector":"a"}]', 4200, 7),
        ('{"type":"subscribe","request":7,"selector":"a"}', 4200, 7),
        ('{"type":"subscribe","request":0,"selector":"a"}', 4200, None),
    ],
)
async def test_a_close_because_of_a_request_names_it_where_that_can_be_told(
    client: RawClient, text: str, close: int, request_named: int | None
) -> None:
    await client.send_text(text)
    assert await client.closed() == close
    error = client.seen[-1]

    assert error["type"] == "error"
    assert error["code"] == ("message_too_big" if close == 1009 else "protocol_error")
    assert error.get("request") == request_named


@pytest.mark.promise("P20")
async def test_messages_that_take_long_to_read_are_charged_for_it() -> None:
    """P20: a message that is hard to read costs what as many packets would."""
    hard = publish(1, "[" + "[0," * 5000 + "0" + "]" * 5000 + "]")
    async with running_node(rate_packets=100.0, rate_burst=100) as node, RawClient(node.url) as client:
        await client.hello()
        await client.send_text(hard)

        notice = await client.expect("notice", where=lambda packet: packet["code"] == "slowed_down")
        assert "rate_packets" in notice["message"]


@pytest.mark.promise("P20")
async def test_messages_without_a_packet_are_charged_as_one() -> None:
    """P20: whoever sends empty arrays is read no faster than others."""
    async with running_node(rate_packets=100.0, rate_burst=100) as node, RawClient(node.url) as client:
        await client.hello()
        for _ in range(150):
            await client.send_text("[]")

        notice = await client.expect("notice", where=lambda packet: packet["code"] == "slowed_down")
        assert "rate_packets" in notice["message"]


# --- Numbers that fall back ---------------------------------------------------------------------------------------


def ask(packet_id: int, number: int, **fields: object) -> Packet:
    return {"id": packet_id, "type": "publish", "request": number, "topic": f"a/{packet_id}", "value": 1, **fields}


@pytest.mark.parametrize(
    "again",
    [
        {"type": "publish", "topic": "a/other", "value": 2},
        {"type": "publish", "topic": "a/1", "value": 1},
        {"type": "subscribe", "selector": "a/**"},
        {"type": "properties", "set": {"team": "fx"}},
    ],
)
@pytest.mark.parametrize("number", [3, 5])
async def test_a_number_that_falls_back_is_refused_and_nothing_is_done(
    client: RawClient, number: int, again: Packet
) -> None:
    await client.send(ask(1, 5))
    assert await verdict(client) is None
    await client.send({"id": 2, "request": number, **again})
    reply = await client.expect("reply")

    assert reply["request"] == number
    assert reply["error"]["code"] == "bad_request"
    assert "number" in reply["error"]["message"]
    await client.send({"id": 3, "type": "subscribe", "request": 6, "selector": "a/**"})
    assert await verdict(client) is None
    update = await client.expect("update")
    assert (update["topic"], update["version"]) == ("a/1", 1)
    await client.send(ask(4, 7))
    assert (await client.expect("update"))["topic"] == "a/4", "nothing else was published"


async def test_a_packet_that_comes_again_is_ignored_whatever_it_holds(client: RawClient) -> None:
    await client.send(ask(1, 5))
    assert await verdict(client) is None
    await client.send(ask(1, 3), ask(1, 5), {"type": "ping"})
    assert (await client.receive())["type"] == "pong"


async def test_what_is_resubmitted_may_have_any_number_that_it_had(client: RawClient) -> None:
    await client.send(ask(1, 5))
    first = await client.expect("reply")
    await client.send(ask(2, 5, topic="a/1", resubmitted=True))
    again = await client.expect("reply")

    assert (again["version"], again["event"]) == (first["version"], first["event"])


async def test_another_node_knows_the_numbers_of_publishes_by_their_receipts(n1: TestNode, n2: TestNode) -> None:
    async with RawClient(n1.url) as raw:
        token = (await raw.hello())["token"]
        await raw.send(ask(1, 5, topic="a/x"))
        assert await verdict(raw) is None
    async with RawClient(n2.url) as raw:
        assert (await raw.resume(token, attempt=1, received=1, oldest=2))["outcome"] == "failed_over"
        await raw.send(ask(1, 5, topic="a/x"))
        assert await verdict(raw) == "bad_request"
        await raw.send(ask(2, 4, topic="a/x"))
        assert await verdict(raw) == "bad_request"
        await raw.send(ask(3, 6, topic="a/x"))
        reply = await raw.expect("reply")
        assert reply["version"] == 2
