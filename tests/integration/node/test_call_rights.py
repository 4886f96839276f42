"""What waits for a body, or for what it reads, is judged again: what counts is who may do what at its end."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, Final, Self

import pytest

from gateway.app.delivery.history_pages import HistoryPages
from gateway.client import Forbidden, connect
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import QueueLimits
from gateway.core.policy.permissions import Policy, Role, parse_template
from gateway.core.policy.revocations import RevocationKind
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import SessionId, TopicPath
from gateway.ports import PUBLISH_PATH, SEND_PATH, Credentials, Identity
from tests.support.http_calls import ALICE, call
from tests.support.nodes import TestNode, eventually, running_node

pytestmark = pytest.mark.promise("P19")

BODIES: Final = {
    PUBLISH_PATH: b'{"topic": "orders/7", "value": 1}',
    SEND_PATH: b'{"queue": "work", "value": 1}',
}


class LateBody:
    """A call whose head and half of its body have come."""

    def __init__(self, node: TestNode, path: str) -> None:
        self._node = node
        body = BODIES[path]
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: {ALICE['Authorization']}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._request = head.encode() + body

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._node.gateway.port)
        self._writer.write(self._request[:-10])
        await eventually(lambda: bool(self._node.gateway.node.calls._held))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def end(self) -> tuple[int, dict[str, Any]]:
        """Send the rest; returns status and content."""
        self._writer.write(self._request[-10:])
        head, _, content = (await self._reader.read()).partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(content)


@pytest.mark.parametrize("path", BODIES)
async def test_who_is_revoked_before_the_body_is_there_calls_in_vain(path: str) -> None:
    async with running_node() as node:
        async with LateBody(node, path) as late:
            await node.gateway.node.revocations.revoke(RevocationKind.PRINCIPAL, "alice")
            status, problem = await late.end()
        assert (status, problem["type"]) == (403, "urn:session-gateway:problem:revoked")
        bob = {"Authorization": "Basic " + base64.b64encode(b"bob:").decode()}
        assert (await call(node, "GET", "/v1/values/orders/7", headers=bob))[0] == 404, "nothing was published"
        assert node.gateway.node.calls._held == {}


@pytest.mark.parametrize("path", BODIES)
async def test_the_policy_counts_that_is_in_force_when_the_body_is_there(path: str) -> None:
    everything = parse_template("**")
    may, may_not = (
        Policy({"r": Role(select=(everything,), publish=each, send=each)}, default=["r"])
        for each in ((everything,), ())
    )
    async with running_node() as node:
        node.gateway.node.destinations.table.put(
            Destination(selector=parse_selector("work"), limits=QueueLimits(), origin=Origin.FILE)
        )
        authorisation = node.gateway.node.authorisation
        authorisation.reload(may)
        async with LateBody(node, path) as late:
            authorisation.reload(may_not)
            status, problem = await late.end()
        assert (status, problem["type"]) == (403, "urn:session-gateway:problem:forbidden")
        async with LateBody(node, path) as late:
            authorisation.reload(may)
            assert (await late.end())[0] == 200, "what is given counts at once, too"


async def test_credentials_that_end_before_the_body_is_there_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node() as node:
        callers = node.gateway.node.calls._callers
        clock = callers._clock
        end = clock.wall() + 60
        monkeypatch.setattr(
            callers._authentication, "_authenticator", Vouches(Identity(principal="alice", expires=end))
        )
        async with LateBody(node, PUBLISH_PATH) as late:
            monkeypatch.setattr(callers, "_clock", replace(clock, wall=lambda: end))
            status, problem = await late.end()
        assert (status, problem["type"]) == (401, "urn:session-gateway:problem:credentials_expired")


class Vouches:
    """Takes everybody for the same."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def authenticate(self, credentials: Credentials) -> Identity:
        return self._identity


async def test_who_is_known_no_more_when_the_body_is_there_calls_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node() as node:
        known = {"alice": Identity(principal="alice")}
        monkeypatch.setattr(node.gateway.node.enforcement, "_directory", Knows(known))
        async with LateBody(node, PUBLISH_PATH) as late:
            del known["alice"]
            status, problem = await late.end()
        assert (status, problem["type"]) == (403, "urn:session-gateway:problem:revoked")
        assert (await call(node, body={"topic": "t", "value": 1}))[0] == 403


class Knows:
    """A directory."""

    def __init__(self, known: dict[str, Identity]) -> None:
        self._known = known

    def find(self, principal: str) -> Identity | None:
        return self._known.get(principal)


@pytest.mark.parametrize("path", ["/v1/values/orders/7", "/v1/values?selector=orders/**", "/v1/history/orders/**"])
async def test_what_may_be_read_is_judged_again_when_it_was_found(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node() as node:
        assert (await call(node, body={"topic": "orders/7", "value": 1}))[0] == 200
        reading = node.gateway.node.calls._reading
        part, step = {
            "/v1/values/orders/7": (reading._topics, "read"),
            "/v1/values?selector=orders/**": (reading._values, "find"),
            "/v1/history/orders/**": (reading._pages, "find"),
        }[path]
        done = getattr(part, step)
        meanwhile: list[Awaitable[object]] = []

        async def slow(*what: Any, **more: Any) -> Any:
            found = await done(*what, **more)
            await meanwhile.pop()
            return found

        async def withdraw() -> None:
            node.gateway.node.authorisation.reload(Policy({}))

        monkeypatch.setattr(part, step, slow)
        meanwhile.append(withdraw())
        status, problem, headers = await call(node, "GET", path)
        assert (status, problem["type"]) == (503, "urn:session-gateway:problem:try_later")
        assert "Retry-After" in headers
        assert (await call(node, "GET", path))[0] == 403
        node.gateway.node.authorisation.reload(None)
        meanwhile.append(node.gateway.node.revocations.revoke(RevocationKind.PRINCIPAL, "alice"))
        status, problem, _ = await call(node, "GET", path)
        assert (status, problem["type"]) == (403, "urn:session-gateway:problem:revoked")


async def test_history_that_is_withdrawn_from_a_session_meanwhile_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    find = HistoryPages.find
    async with running_node() as node, connect(node.url, "alice") as session:
        await session.publish("orders/7", 1)
        held = node.gateway.node.sessions.get(SessionId(session.id))
        assert held is not None

        async def withdrawn(*given: Any, **named: Any) -> Any:
            page = await find(*given, **named)
            monkeypatch.setattr(HistoryPages, "find", find)
            node.gateway.node.authorisation.reload(Policy({}))
            await eventually(lambda: not held.permissions.may_receive(TopicPath("orders/7")))
            return page

        monkeypatch.setattr(HistoryPages, "find", withdrawn)
        with pytest.raises(Forbidden):
            await session.history("orders/7")
