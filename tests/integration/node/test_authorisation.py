"""What clients ask for, judged by a policy, and policies that change under them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.adapters.authentication import HashParameters, hash_secret, users_line
from gateway.adapters.memory import MemoryGridServer
from gateway.app.security import authorisation
from gateway.catalogue import log_events
from gateway.catalogue import policy_log_events as events
from gateway.core.policy.permissions import Policy, Role, parse_template
from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.types import SessionId
from gateway.settings import StaticUsers
from tests.support.event_streams import reading
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import Closed, Packet, RawClient
from tests.support.times import time_limit

POLICY = """\
default = ["reader"]
[roles.reader]
select = ["prices/public/**", "prices/*/delayed", "users/${principal}/**"]
properties = ["team"]
[roles.feed]
publish = ["prices/**"]
[roles.operator]
select = ["$gateway/**"]
[principals]
feed = ["feed"]
"""

TREE = "prices/public/**"
SHORTER = POLICY.replace('"prices/public/**", ', "")


def basic(principal: str) -> dict[str, str]:
    """Show who calls, where a name is enough."""
    return {"Authorization": "Basic " + base64.b64encode(f"{principal}:".encode()).decode()}


class Client:
    """A raw client that counts its packets."""

    def __init__(self, raw: RawClient) -> None:
        self.raw = raw
        self.sent = 0
        self.welcome: Packet = {}

    async def ask(self, kind: str, **fields: Any) -> Packet:
        number = await self.say(kind, **fields)
        return await self.reply(number)

    async def say(self, kind: str, **fields: Any) -> int:
        self.sent += 1
        await self.raw.send({"id": self.sent, "request": self.sent, "type": kind, **fields})
        return self.sent

    async def reply(self, number: int) -> Packet:
        return await self.raw.expect("reply", where=lambda reply: reply["request"] == number)

    async def forbidden(self, kind: str, **fields: Any) -> str:
        error = (await self.ask(kind, **fields))["error"]
        assert error["code"] == "forbidden"
        return str(error["message"])

    async def allowed(self, kind: str, **fields: Any) -> None:
        reply = await self.ask(kind, **fields)
        assert "error" not in reply, reply


def write(file: Path, text: str) -> None:
    file.write_text(text, "utf-8")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    write(path, POLICY)
    return path


@pytest.fixture
async def node(file: Path) -> AsyncIterator[TestNode]:
    async with running_node(policy=file) as node:
        yield node


Connect = Callable[..., Coroutine[Any, Any, Client]]


@pytest.fixture
async def connected() -> AsyncIterator[Connect]:
    """Opens sessions, whose connections are cut at the end."""
    clients: list[Client] = []

    async def connect(node: TestNode, principal: str = "alice", **fields: Any) -> Client:
        client = Client(RawClient(node.url))
        clients.append(client)
        await client.raw.connect()
        client.welcome = await client.raw.hello(principal, **fields)
        return client

    yield connect
    for client in clients:
        await client.raw.cut()


# --- What is asked for ------------------------------------------------------------------------------------------------


async def test_a_selector_that_is_too_wide_is_refused_and_the_part_that_is_allowed_is_named(
    node: TestNode, connected: Connect
) -> None:
    alice = await connected(node)
    assert await alice.forbidden("subscribe", selector="prices/**") == (
        "you may not select all of 'prices/**', but of it 'prices/public/**' and 'prices/*/delayed'"
    )
    assert await alice.forbidden("subscribe", selector="**") == (
        "you may not select all of '**', but of it 'prices/public/**' and 'prices/*/delayed' and 'users/alice/**'"
    )
    assert await alice.forbidden("subscribe", selector="users/*/x") == (
        "you may not select all of 'users/*/x', but of it 'users/alice/x'"
    )
    assert await alice.forbidden("subscribe", selector="users/bob/**") == (
        "you may not select 'users/bob/**', nor any part of it"
    )
    await alice.allowed("subscribe", selector="users/alice/*/x")
    await alice.allowed("subscribe", selector="prices/public/**")
    await alice.allowed("unsubscribe", selector="**")


async def test_what_an_unsubscribe_keeps_is_no_way_round_the_policy(node: TestNode, connected: Connect) -> None:
    alice = await connected(node)
    await alice.allowed("subscribe", selector="users/alice/**")
    await alice.allowed("unsubscribe", selector="users/alice/**", keep=["users/alice/x", "prices/**", "users/bob/**"])

    (session,) = node.gateway.node.sessions
    assert session.selections.to_wire() == ("+users/alice/x", "+prices/public/**", "+prices/*/delayed")


async def test_a_part_that_cannot_be_said_in_selectors_is_not_said_wrongly(node: TestNode, connected: Connect) -> None:
    role = Role(select=(parse_template("**/a/**/b/**/c/**"), parse_template("x/**")))
    node.gateway.node.authorisation.reload(Policy({"r": role}, default=["r"]))
    alice = await connected(node)
    assert await alice.forbidden("subscribe", selector="**/d/**/e/**/f/**") == (
        "you may not select all of '**/d/**/e/**/f/**', but of it 'x/**/d/**/e/**/f/**', among others"
    )
    only = Role(select=(parse_template("**/a/**/b/**/c/**"),))
    node.gateway.node.authorisation.reload(Policy({"r": only}, default=["r"]))
    assert "cannot be said in few words; ask for less of it" in await alice.forbidden(
        "subscribe", selector="**/d/**/e/**/f/**"
    )


async def test_publishing_and_properties_need_permission(node: TestNode, connected: Connect) -> None:
    alice, feed = await connected(node, properties={"team": "fx"}), await connected(node, "feed")
    assert await alice.forbidden("publish", topic="prices/x", value=1) == "you may not publish to 'prices/x'"
    await feed.allowed("publish", topic="prices/x", value=1)
    assert await feed.forbidden("publish", topic="news", value=1) == "you may not publish to 'news'"
    await alice.allowed("properties", set={"team": None})
    assert await alice.forbidden("properties", set={"team": "x", "desk": "y"}) == (
        "you may not set the property 'desk'; you may set 'team'"
    )
    assert b'gateway_forbidden_total{permission="publish"} 2.0' in node.gateway.metrics.render()


async def test_a_run_of_publishes_is_judged_one_by_one(node: TestNode, connected: Connect) -> None:
    feed = await connected(node, "feed")
    topics = ("prices/a", "news", "prices/b")
    await feed.raw.send(
        *({"id": n, "request": n, "type": "publish", "topic": topic, "value": n} for n, topic in enumerate(topics, 1))
    )
    replies = {reply["request"]: reply for reply in [await feed.raw.expect("reply") for _ in topics]}
    assert [replies[n].get("error", {}).get("code") for n in (1, 2, 3)] == [None, "forbidden", None]


async def test_a_hello_with_forbidden_properties_opens_no_session(node: TestNode) -> None:
    async with RawClient(node.url) as raw:
        await raw.send({"type": "hello", "principal": "alice", "properties": {"desk": "rates"}})
        error = await raw.expect("error")
        assert error["code"] == "forbidden"
        assert error["message"] == "you may not set the property 'desk'; you may set 'team'"
        with pytest.raises(Closed) as closed:
            await raw.receive()
        assert closed.value.code == 4207
    assert len(node.gateway.node.sessions) == 0


async def test_the_system_s_topics_are_nobody_s_without_their_name(connected: Connect) -> None:
    async with running_node() as node:
        alice = await connected(node)
        await alice.allowed("subscribe", selector="**")
        assert await alice.forbidden("subscribe", selector="$gateway/**") == (
            "you may not select '$gateway/**', nor any part of it"
        )
        for topic in ("$gateway/nodes/n1", "$other"):
            assert "only the gateway publishes below" in await alice.forbidden("publish", topic=topic, value=1)
        assert [each["principals"] for each in node.log.of(events.POLICY_ABSENT)] == ["anybody at all"]
        assert any("no policy" in str(each["shortcut"]) for each in node.log.of(log_events.DEVELOPMENT_MODE))


# --- What changes -----------------------------------------------------------------------------------------------------


async def reloaded(node: TestNode) -> dict[str, object]:
    before = len(node.log.of(events.POLICY_RELOADED))
    node.gateway.reload()
    await eventually(lambda: len(node.log.of(events.POLICY_RELOADED)) > before)
    return node.log.of(events.POLICY_RELOADED)[-1]


async def test_a_policy_that_is_read_again_takes_away_and_gives(node: TestNode, file: Path, connected: Connect) -> None:
    alice = await connected(node)
    await alice.allowed("subscribe", selector="prices/public/**")
    await alice.allowed("subscribe", selector="users/alice/**")
    write(file, SHORTER)
    told = await reloaded(node)
    assert (told["sessions"], told["roles"], told["principals"]) == (1, 3, 1)
    notice = await alice.raw.expect("notice")
    assert notice["code"] == "permissions_withdrawn"
    # What is allowed of 'prices/public/**' still is: 'prices/*/delayed'.
    assert notice["withdrawn"] == ["prices/public/**"]
    assert notice["selections"] == ["+prices/public/delayed", "+users/alice/**"]
    (logged,) = node.log.of(events.SELECTIONS_WITHDRAWN)
    assert logged == {
        "session": alice.welcome["session"],
        "principal": "alice",
        "selectors": ["prices/public/**"],
    }
    await alice.forbidden("subscribe", selector="prices/public/**")

    write(file, POLICY)
    await reloaded(node)
    await alice.allowed("subscribe", selector="prices/public/**")
    assert not node.log.undeclared


async def test_a_policy_with_an_error_changes_nothing(node: TestNode, file: Path, connected: Connect) -> None:
    alice = await connected(node)
    await alice.allowed("subscribe", selector="prices/public/**")
    write(file, SHORTER.replace("roles.feed", "rolls.feed"))
    node.gateway.reload()
    await eventually(lambda: bool(node.log.of(events.POLICY_KEPT)))
    assert f"{file}:5: rolls: there is no such key; did you mean 'roles'?" in str(
        node.log.of(events.POLICY_KEPT)[0]["error"]
    )
    await eventually(
        lambda: bool(node.log.of(events.SESSIONS_REVIEWED))
    )  # the directories were read again all the same
    assert node.log.of(events.POLICY_RELOADED) == []
    await alice.allowed("subscribe", selector="prices/public/x")
    assert not any(packet["type"] == "notice" for packet in alice.raw.seen)


async def test_all_sessions_are_judged_in_slices_and_none_is_dropped(
    node: TestNode, file: Path, monkeypatch: pytest.MonkeyPatch, connected: Connect
) -> None:
    monkeypatch.setattr(authorisation, "REVIEW_SLICE", 0.0)
    clients = [await connected(node, f"user-{number}") for number in range(7)]
    for client in clients:
        await client.allowed("subscribe", selector="prices/public/**")
    write(file, SHORTER)
    for _ in range(3):  # also while one is at it
        node.gateway.reload()
    for client in clients:
        assert (await client.raw.expect("notice"))["selections"] == ["+prices/public/delayed"]
        await client.allowed("subscribe", selector=f"users/user-{clients.index(client)}/x")
    assert node.gateway.node.sessions.connected() == 7


async def test_a_policy_that_comes_during_a_review_is_put_in_force_for_all(
    node: TestNode, connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorisation, "REVIEW_SLICE", 0.0)
    for number in range(4):
        await connected(node, f"user-{number}")
    inner = node.gateway.node
    first, second = (Policy({name: Role()}, default=[name]) for name in ("first", "second"))
    inner.authorisation.reload(first)
    judged = [each for each in inner.sessions if each.permissions.roles == {"first"}]
    while not judged:
        await asyncio.sleep(0)
        judged = [each for each in inner.sessions if each.permissions.roles == {"first"}]
    assert len(judged) < 4
    inner.authorisation.reload(second)
    await eventually(lambda: all(each.permissions.roles == {"second"} for each in inner.sessions))


async def test_a_policy_with_trees_that_are_too_long_is_not_taken(
    node: TestNode, file: Path, connected: Connect
) -> None:
    """Bug: it was, and then every login and every review failed."""
    write(file, POLICY.replace("[roles.feed]", 'presence = ["' + "/".join(["a"] * 31) + '"]\n[roles.feed]'))
    node.gateway.reload()
    await eventually(lambda: bool(node.log.of(events.POLICY_KEPT)))
    alice = await connected(node)
    await alice.allowed("subscribe", selector="prices/public/**")


@pytest.mark.promise("P19")
async def test_a_bug_in_judging_one_session_or_stream_keeps_nothing_for_anybody(
    node: TestNode, file: Path, connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All others are judged, and the one is dropped: what it may do now, its next resume tells."""
    clients = {name: await connected(node, name) for name in ("a", "b", "c")}
    for client in clients.values():
        await client.allowed("subscribe", selector=TREE)
    inner = node.gateway.node
    judge = inner.authorisation.permissions_of
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(reading(node.url, TREE, headers=basic(name))) for name in clients]
        for reader in readers:
            await reader.until("complete")

        def failing(session: Any) -> Any:
            if session.principal == "b":
                raise ValueError("a bug")
            return judge(session)

        monkeypatch.setattr(inner.authorisation, "permissions_of", failing)
        write(file, SHORTER)
        node.gateway.reload()
        for name in ("a", "c"):
            assert (await clients[name].raw.expect("notice"))["selections"] == ["+prices/public/delayed"]
        ends = [(await reader.until("end"))[-1].data["code"] for reader in readers]
        assert ends == ["forbidden", "internal", "forbidden"]
    await eventually(lambda: {each.principal for each in inner.sessions} == {"a", "c"})
    assert [each["error"] for each in node.log.of(log_events.CONNECTION_FAILED)] == ["ValueError('a bug')"]
    assert [each["error"] for each in node.log.of(log_events.STREAM_FAILED)] == ["ValueError('a bug')"]
    assert node.log.of(events.POLICY_RELOADED)[0]["withdrawn"] == 2


async def test_what_is_withdrawn_while_it_is_being_selected_is_not_selected(file: Path, connected: Connect) -> None:
    """The grid has the wider list already when the right goes; neither the node nor the grid may keep it."""
    memory = MemoryGridServer()
    async with running_node(policy=file, memory=memory) as node:
        alice = await connected(node)
        await alice.allowed("subscribe", selector="users/alice/**")
        memory.stall()
        number = await alice.say("subscribe", selector="prices/public/**")
        session = node.gateway.node.sessions.get(SessionId(alice.welcome["session"]))
        assert session is not None
        await eventually(session.selecting.locked)
        write(file, SHORTER)
        await reloaded(node)
        memory.flow()
        assert (await alice.reply(number))["error"]["code"] == "forbidden"
        assert list(session.selections.to_wire()) == ["+users/alice/**"]
        store = node.gateway.node._context.grid.sessions
        async with time_limit(5):
            while (await store.find(session.id)).selections != ("+users/alice/**",):  # type: ignore[union-attr]  # noqa: ASYNC110
                await asyncio.sleep(0.005)


async def test_a_session_that_is_just_being_opened_is_not_overlooked(connected: Connect) -> None:
    memory = MemoryGridServer()
    async with running_node(memory=memory) as node:
        inner = node.gateway.node
        memory.stall()
        opening = asyncio.create_task(connected(node))
        await eventually(lambda: inner.connections.handshakes == 1)
        inner.authorisation.reload(Policy({"only": Role()}, default=["only"]))
        await eventually(lambda: len(node.log.of(events.POLICY_RELOADED)) == 1)
        assert len(inner.sessions) == 0
        memory.flow()
        client = await opening
        session = inner.sessions.get(SessionId(client.welcome["session"]))
        assert session is not None
        assert session.permissions.roles == {"only"}


async def test_what_was_in_force_before_another_node_had_the_session_is_not_sent(
    node: TestNode, connected: Connect
) -> None:
    alice = await connected(node)
    await alice.allowed("subscribe", selector="prices/public/**")
    inner = node.gateway.node
    session = inner.sessions.get(SessionId(alice.welcome["session"]))
    assert session is not None
    # As after a claim: the record has a list that was narrowed elsewhere, and the index the one from before.
    session.selections = Selections.from_wire(["+users/alice/**"])
    inner.authorisation._policy = Policy({"r": Role(select=(parse_template("users/**"),))}, default=["r"])
    assert inner.authorisation.enforce(session) == ()
    assert inner.sessions.delivery.in_force(session) == NOTHING


# --- The file of users ------------------------------------------------------------------------------------------------


def user(name: str, *roles: str, **properties: str) -> str:
    return users_line(name, hash_secret("a long secret", HashParameters(2, 1, 1)), roles, properties)


async def test_the_file_of_users_decides_who_exists_and_what_they_are(tmp_path: Path, connected: Connect) -> None:
    users, policy = tmp_path / "users", tmp_path / "policy.toml"
    write(policy, '[roles.fx]\nselect = ["fx/${principal.team}/**"]\n[roles.log]\nselect = ["log"]\n')
    write(users, "\n".join([user("alice", "fx", "log", team="spot"), user("bob", "log")]))
    memory = MemoryGridServer()
    settings: dict[str, Any] = {"auth": StaticUsers(users), "policy": policy, "memory": memory}
    async with running_node("n1", **settings) as one, running_node("n2", **settings) as two:
        alice = await connected(one, secret="a long secret")
        bob = await connected(one, "bob", secret="a long secret")
        gone = await connected(one, "bob", secret="a long secret")
        await alice.allowed("subscribe", selector="fx/spot/**")
        await alice.allowed("subscribe", selector="log")
        await gone.raw.cut()
        write(users, user("alice", "fx", team="swap"))
        for node in (one, two):
            node.gateway.reload()
        # Other roles, another team: the old one's topics are gone, the new one's can be had.
        assert (await alice.raw.expect("notice"))["withdrawn"] == ["fx/spot/**", "log"]
        await alice.allowed("subscribe", selector="fx/swap/**")
        # Nobody of that name any more: connected or not, on any node.
        assert (await bob.raw.expect("error"))["code"] == "revoked"
        assert await bob.raw.closed() == 4206
        for node in (two, one):
            async with RawClient(node.url) as raw:
                answer = await raw.resume(gone.welcome["token"], attempt=1)
                assert (answer["type"], answer["code"]) in {("error", "revoked"), ("error", "session_closed")}


async def test_whoever_is_gone_comes_back_to_no_node(tmp_path: Path, connected: Connect) -> None:
    """The node that had the session has not heard of it, so nobody has ended it yet."""
    users = tmp_path / "users"
    write(users, "\n".join([user("alice"), user("bob")]))
    memory = MemoryGridServer()
    settings: dict[str, Any] = {"auth": StaticUsers(users), "memory": memory}
    async with running_node("n1", **settings) as one, running_node("n2", **settings) as two:
        bob = await connected(one, "bob", secret="a long secret")
        alice = await connected(one, secret="a long secret")
        write(users, user("alice"))
        two.gateway.reload()
        for client, kind in ((bob, "error"), (alice, "welcome")):
            await client.raw.cut()
            async with RawClient(two.url) as raw:
                answer = await raw.resume(client.welcome["token"], attempt=1)
                assert (answer["type"], answer.get("code")) == (kind, "revoked" if kind == "error" else None)
        store = two.gateway.node._context.grid.sessions
        async with time_limit(5):
            while await store.find(SessionId(bob.welcome["session"])) is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
