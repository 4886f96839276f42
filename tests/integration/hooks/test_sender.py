"""What posts to receivers, against receivers that do what they should not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.adapters.hook_sender import MOST_OF_ANSWER, HttpHookSender
from gateway.core.hooks.hook import Hook, HookName
from gateway.core.hooks.signing import sign
from gateway.ports import NoPostAnswer, PostAnswer
from tests.support.hook_receiver import KEY, HookReceiver, answer
from tests.support.times import scaled

BODY = b'[{"id": "1", "type": "x"}]'


@pytest.fixture
async def receiver() -> AsyncIterator[HookReceiver]:
    async with HookReceiver() as running:
        yield running


@pytest.fixture
async def sender() -> AsyncIterator[HttpHookSender]:
    made = HttpHookSender()
    yield made
    await made.close()


def hook(receiver: HookReceiver, **changes: object) -> Hook:
    made = Hook(name=HookName("crm"), url=receiver.url, events=frozenset(), keys=(KEY,), timeout=scaled(0.5))
    return replace(made, **changes)  # type: ignore[arg-type]


async def post(sender: HttpHookSender, to: Hook) -> PostAnswer:
    return await sender.post(to, BODY, sign("msg_1", BODY, keys=[KEY], now=1000))


async def test_a_request_is_what_is_promised(sender: HttpHookSender, receiver: HookReceiver) -> None:
    assert await post(sender, hook(receiver)) == PostAnswer(204, None)
    assert receiver.ids == ["1"]
    (headers,) = receiver.requests
    assert headers["content-type"] == "application/cloudevents-batch+json; charset=utf-8"
    assert headers["webhook-id"] == "msg_1"
    assert headers["user-agent"].startswith("session-gateway/")
    assert "cookie" not in headers


async def test_a_connection_is_used_again(sender: HttpHookSender, receiver: HookReceiver) -> None:
    receiver.answer = answer(200, {"Set-Cookie": "a=b"}, b"thank you")
    for _ in range(3):
        await post(sender, hook(receiver))
    assert (len(receiver.requests), receiver.open) == (3, 1)
    assert "cookie" not in receiver.requests[-1]


async def test_the_time_that_is_asked_for_is_told(sender: HttpHookSender, receiver: HookReceiver) -> None:
    receiver.fail(503, {"Retry-After": "7"})
    assert await post(sender, hook(receiver)) == PostAnswer(503, "7")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(sender: HttpHookSender, receiver: HookReceiver, status: int) -> None:
    async with HookReceiver() as other:
        receiver.fail(status, {"Location": other.url})
        assert (await post(sender, hook(receiver))).status == status
        assert other.requests == []


async def test_a_receiver_that_hangs_is_left(sender: HttpHookSender, receiver: HookReceiver) -> None:
    receiver.hangs = True
    with pytest.raises(NoPostAnswer, match="did not answer within") as error:
        await post(sender, hook(receiver))
    assert "not-to-be-shown" not in str(error.value)


async def test_a_receiver_that_is_down_or_breaks_off_has_not_answered(
    sender: HttpHookSender, receiver: HookReceiver
) -> None:
    receiver.answer, receiver.then_closes = b"HTTP/1.1 20", True
    with pytest.raises(NoPostAnswer, match="cannot be reached") as error:
        await post(sender, hook(receiver))
    assert "not-to-be-shown" not in str(error.value)
    await receiver.stop()
    with pytest.raises(NoPostAnswer, match="cannot be reached"):
        await post(sender, hook(receiver))


async def test_what_has_answered_has_the_events_whatever_becomes_of_the_rest(
    sender: HttpHookSender, receiver: HookReceiver
) -> None:
    receiver.answer, receiver.then_closes = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab", True
    assert (await post(sender, hook(receiver))).status == 200
    receiver.then_closes = False
    assert (await post(sender, hook(receiver))).status == 200, "its rest never comes"


async def test_an_answer_without_end_is_cut_off(sender: HttpHookSender, receiver: HookReceiver) -> None:
    receiver.answer = answer(200, {"Content-Length": "999999999"}, b"x" * (2 * MOST_OF_ANSWER))
    assert (await post(sender, hook(receiver))).status == 200
    receiver.recover()
    assert (await post(sender, hook(receiver))).status == 204


async def test_an_answer_that_is_no_http_is_none(sender: HttpHookSender, receiver: HookReceiver) -> None:
    receiver.answer, receiver.then_closes = b"SSH-2.0-OpenSSH_9.6\r\n\r\n", True
    with pytest.raises(NoPostAnswer):
        await post(sender, hook(receiver))


async def test_a_changed_hook_gets_another_connection(sender: HttpHookSender, receiver: HookReceiver) -> None:
    await post(sender, hook(receiver))
    async with HookReceiver() as other:
        assert (await post(sender, hook(other))).status == 204
        assert other.ids == ["1"]
    await sender.forget(hook(receiver))
