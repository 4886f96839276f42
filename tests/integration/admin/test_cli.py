"""``gateway admin`` against real nodes: what people and programs see, and how it fails."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.adapters.admin import AdminTokens
from gateway.cli.program import run
from gateway.client import connect
from gateway.core.types import Incarnation, NodeId, NodeRef, SessionId
from gateway.core.wire.codes import MirrorMode
from gateway.local.ports import free_port
from gateway.ports import Backup
from gateway.settings import HostPort
from tests.integration.admin.support import Pair, running_pair
from tests.support.clock import eventually as in_time
from tests.support.nodes import FREQUENT_RENEWALS, eventually
from tests.support.raw_client import RawClient


class Terminal:
    """Somebody who types commands."""

    def __init__(self, pair: Pair, captured: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._captured = captured
        self.environment = monkeypatch
        monkeypatch.setenv("GATEWAY_ADMIN_URL", pair.n1.admin)
        monkeypatch.setenv("GATEWAY_ADMIN_TOKEN", pair.admins.tokens["administrator"])

    async def type(self, *words: str) -> tuple[int, str, str]:
        """Run a command; returns its exit code and what it printed."""
        code = await asyncio.to_thread(run, ["admin", *words])
        captured = self._captured.readouterr()
        return code, captured.out, captured.err

    async def lines(self, *words: str) -> list[dict[str, object]]:
        """Run a command that prints one object a line."""
        code, out, err = await self.type(*words, "--json")
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def terminal(pair: Pair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(pair, capsys, monkeypatch)


async def test_nodes_for_people_and_for_programs(terminal: Terminal) -> None:
    code, out, _ = await terminal.type("nodes")

    assert code == 0
    heading, one, two = out.splitlines()
    assert heading.split()[:4] == ["Node", "State", "Connected", "Disconnected"]
    assert (one.split()[:2], two.split()[:2]) == (["n1", "ready"], ["n2", "ready"])
    assert [each["node"] for each in await terminal.lines("nodes")] == ["n1", "n2"]
    code, out, _ = await terminal.type("nodes", "n2")
    assert "state         ready" in out


async def test_a_node_that_died_is_shown_as_lost_with_how_long_it_has_been(pair: Pair, terminal: Terminal) -> None:
    grid = pair.n1.gateway.node._context.grid
    await grid.nodes.join(NodeRef(NodeId("n7"), Incarnation("first")), lease=0.001)
    await in_time(lambda: _is_lost(pair), message="others have taken over from it")

    code, out, _ = await terminal.type("nodes")

    assert code == 0
    assert re.search(r"^n7 +lost \d+ s ago ", out, re.MULTILINE), out
    assert [each["node"] for each in await terminal.lines("nodes") if each["state"] == "lost"] == ["n7"]


async def _is_lost(pair: Pair) -> bool:
    return bool(await pair.n1.gateway.node._context.grid.nodes.lost())


async def test_links_are_shown_as_the_node_that_answers_has_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_pair(tmp_path, link=HostPort("127.0.0.1", 0), dev=True, **FREQUENT_RENEWALS) as pair:
        terminal = Terminal(pair, capsys, monkeypatch)

        async def are_linked() -> bool:
            return [each["linked"] for each in await terminal.lines("nodes")] == [None, True]

        await in_time(are_linked)
        _, out, _ = await terminal.type("nodes")
        heading, _, two = out.splitlines()
        assert two[heading.index("Link") :].split()[0] == "up"
        one, two_told = await terminal.lines("nodes")
        assert (one["heard"], str(two_told["link"]).partition(":")[0]) == (None, "127.0.0.1")
        assert isinstance(two_told["heard"], float)


async def test_who_backs_whom_is_shown_with_how_much_is_copied(pair: Pair, terminal: Terminal) -> None:
    grid, n1, n2 = pair.n1.gateway.node._context.grid, pair.n1.gateway.me, pair.n2.gateway.me
    await grid.nodes.tell_backup(n1, Backup(node=n2, mode=MirrorMode.SYNC, whole=3, of=5), keep=60.0)
    await grid.nodes.tell_backup(n2, Backup(node=n1, mode=MirrorMode.ASYNC, whole=2, of=2), keep=60.0)

    _, out, _ = await terminal.type("nodes")
    heading, one, two = out.splitlines()
    place = heading.index("Backup")
    assert (one[place:].split("  ")[0], two[place:].split("  ")[0]) == ("n2 (3 of 5)", "n1")
    told = await terminal.lines("nodes")
    shown = [(each["backup"], each["mirror"], each["copied"], each["to_copy"]) for each in told]
    assert shown == [("n2", "sync", 3, 5), ("n1", "async", 2, 2)]
    code, out, _ = await terminal.type("nodes", "n1")
    assert (code, "backup        n2" in out) == (0, True)


async def test_sessions_are_found_shown_told_moved_and_closed(pair: Pair, terminal: Terminal) -> None:
    urls = [pair.n1.url, pair.n2.url]
    async with await connect(urls, principal="alice", properties={"team": "fx"}) as session:
        (listed,) = await terminal.lines("sessions", "--filter", "team is 'fx'")
        assert listed["session"] == session.id
        code, out, _ = await terminal.type("sessions", session.id)
        assert (code, "live.resend_packets" in out) == (0, True)

        said = await terminal.type("notice", session.id, "hello")
        assert said[:2] == (0, f"message queued for {session.id}\n")
        said = await terminal.type("move", session.id, "--to", "n2")
        assert said[:2] == (0, f"{session.id} moves to n2, within seconds or not at all\n")
        await eventually(lambda: session.node == "n2")
        assert (await terminal.type("close", session.id, "--yes"))[:2] == (0, f"{session.id} closed\n")
        assert await terminal.lines("sessions") == []


async def test_clients_move_until_nodes_serve_about_as_many(pair: Pair, terminal: Terminal) -> None:
    urls = [pair.n1.url, pair.n2.url]
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(connect(urls, principal="alice")) for _ in range(5)]
        assert {each.node for each in sessions} == {"n1"}
        plan = [{"from": "n1", "to": "n2", "sessions": 2}]
        assert await terminal.lines("rebalance", "--dry-run") == plan
        code, out, _ = await terminal.type("rebalance", "--yes", "--rate", "1000")
        assert (code, out.splitlines()[-1]) == (0, "2 sessions move, within seconds or not at all")
        await eventually(lambda: sorted(each.node for each in sessions) == ["n1"] * 3 + ["n2"] * 2)

        async def settled() -> bool:
            return (await terminal.type("rebalance", "--dry-run"))[2] == "The nodes have about as many sessions each.\n"

        await in_time(settled)


async def opened(pair: Pair, *principals: str) -> list[str]:
    """Open sessions at the first node, whose clients are away then."""
    sessions = []
    for principal in principals:
        async with RawClient(pair.n1.url) as client:
            sessions.append(str((await client.hello(principal, window=60))["session"]))
    await eventually(lambda: not pair.n1.gateway.node.sessions.connected())
    return sessions


async def test_a_close_that_the_grid_has_not_confirmed_is_not_called_done(pair: Pair, terminal: Terminal) -> None:
    first, second = await opened(pair, "alice", "bob")
    pair.memory.go_away()

    code, out, err = await terminal.type("close", first, second, "--yes")

    assert (code, out.splitlines()) == (
        3,
        [f"{each} closed at n1, its end in the grid is pending" for each in (first, second)],
    )
    assert err.startswith(f"gateway: warning: not ended yet: {first}: n1 has closed the session"), err
    assert err.rstrip().endswith("(and 1 more)")
    code, out, _ = await terminal.type("close", first, "--yes", "--json")
    assert (code, json.loads(out)["state"], json.loads(out)["node"]) == (3, "pending", "n1")

    pair.memory.come_back()
    await eventually(lambda: not pair.n1.gateway.node.sessions.is_end_pending(SessionId(first)))
    code, _, err = await terminal.type("sessions", first)
    assert (code, "there is no session" in err) == (1, True)


async def test_of_several_sessions_each_is_closed_whatever_becomes_of_the_others(
    pair: Pair, terminal: Terminal
) -> None:
    first, last = await opened(pair, "alice", "bob")

    code, out, err = await terminal.type("close", first, "nobody", last, "--yes")

    assert (code, out) == (1, f"{first} closed\n{last} closed\n")
    assert err.startswith("gateway: error: nobody: there is no session"), err


async def test_it_is_told_where_closing_has_stopped(pair: Pair, terminal: Terminal) -> None:
    terminal.environment.setenv("GATEWAY_ADMIN_TOKEN", pair.admins.tokens["viewer"])

    code, out, err = await terminal.type("close", "a", "b", "c", "--yes")

    assert (code, out) == (2, "")
    assert err.splitlines()[0] == "gateway: error: stopped at a, with 2 left that were not tried"


async def test_a_notice_for_a_client_that_is_away_is_not_called_sent(pair: Pair, terminal: Terminal) -> None:
    (session,) = await opened(pair, "alice")

    code, out, _ = await terminal.type("notice", session, "hello")

    assert (code, out) == (
        0,
        f"message queued for {session}, whose client is away: it gets the message if it comes back to n1\n",
    )


async def test_what_clients_wrote_cannot_steer_a_terminal(pair: Pair, terminal: Terminal) -> None:
    async with RawClient(pair.n1.url) as client:
        await client.hello("eve", properties={"a\x07": "\x1b[2J\u202e[bold]b[/bold]\n"})

        for words in (("sessions",), ("sessions", "--json")):
            _, out, _ = await terminal.type(*words)
            assert not [each for each in out if not each.isprintable() and each != "\n"]
            assert "[bold]" in out


@pytest.mark.parametrize("topic", [".", ".."])
async def test_a_topic_of_dots_is_set_and_shown(terminal: Terminal, topic: str) -> None:
    assert (await terminal.type("set", topic, "1"))[0] == 0
    (found,) = await terminal.lines("topics", topic)
    assert found["topic"] == topic


async def test_topics_are_set_shown_listed_and_removed(terminal: Terminal) -> None:
    code, said, _ = await terminal.type("set", "prices/ACME", '{"bid": 1.5}')
    (found,) = await terminal.lines("topics", "prices/ACME")
    assert (code, said) == (0, f"prices/ACME version 1 event {found['event']}\n")
    (listed,) = await terminal.lines("topics", "--values")
    assert listed["value"] == {"bid": 1.5}
    code, out, _ = await terminal.type("topics", "prices/ACME")
    assert (code, 'value    {"bid": 1.5}' in out) == (0, True)
    assert await terminal.lines("subscribers", "prices/ACME") == []
    assert (await terminal.type("delete", "prices/ACME", "--yes"))[0] == 0
    code, _, err = await terminal.type("topics", "prices/ACME")
    assert (code, err) == (
        1,
        "gateway: error: the topic has no value: nothing was published to it, or it was deleted\n",
    )


async def test_lists_are_completed_from_pages_up_to_the_limit(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cli.admin.api_client.LARGEST_PAGE", 2)
    for number in range(5):
        await terminal.type("set", f"a/{number}", "1")

    code, out, err = await terminal.type("topics", "--limit", "3", "--json")

    assert (code, len(out.splitlines()), "There are more" in err) == (0, 3, True)
    code, out, err = await terminal.type("topics", "--limit", "5", "--json")
    assert (code, len(out.splitlines()), err) == (0, 5, "")
    assert len(await terminal.lines("topics", "--limit", "0")) == 5


async def test_drain_and_undrain(pair: Pair, terminal: Terminal) -> None:
    assert (await terminal.type("drain", "n2", "--yes"))[:2] == (0, "n2 drains: 0 sessions with a client left\n")
    assert pair.n2.gateway.node.lifecycle.draining
    assert (await terminal.type("undrain", "n2"))[:2] == (0, "n2 is ready\n")


async def test_locking_out_and_letting_in(terminal: Terminal) -> None:
    code, out, _ = await terminal.type("revoke", "principal", "mallory", "--for", "2h", "--reason", "ticket", "--yes")
    assert (code, out.startswith("the principal mallory is blocked until 20")) == (0, True)
    (listed,) = await terminal.lines("revocations")
    assert (listed["value"], listed["reason"]) == ("mallory", "ticket")
    assert (await terminal.type("revocations"))[0] == 0
    assert (await terminal.type("unblock", "principal", "mallory"))[0] == 0
    assert await terminal.lines("revocations") == []
    code, _, err = await terminal.type("unblock", "principal", "mallory")
    assert (code, "if one was just made through another node, it is unblocked now" in err) == (1, True)
    assert (await terminal.type("revoke", "principal", "m", "--for", "soon", "--yes"))[0] == 2


async def test_the_configuration(terminal: Terminal) -> None:
    code, out, _ = await terminal.type("configuration", "--changed")

    assert (code, "drain_jitter" in out, "window_default" in out) == (0, True, False)


async def test_nothing_is_done_unless_somebody_means_it(pair: Pair, terminal: Terminal) -> None:
    for words in (("drain", "n1"), ("close", "x"), ("delete", "a"), ("revoke", "session", "x")):
        code, _, err = await terminal.type(*words)
        assert (code, "give --yes" in err) == (2, True)
    assert not pair.n1.gateway.node.lifecycle.draining


async def test_mistakes_are_told_in_one_line_and_have_exit_code_2(terminal: Terminal, tmp_path: Path) -> None:
    for words, said in (
        (("sessions", "--filter", "team = 1"), "= is not an operator"),
        (("sessions", "--url", "ftp://x"), "--url is the address of an admin port"),
        (("sessions", "--url", "http://user:secret@x"), "a secret must not be in --url"),
        (("set", "a", "not json"), "the value is not JSON"),
        (("set", "a//b", "1"), "topic"),
    ):
        code, _, err = await terminal.type(*words)
        assert (code, said in err) == (2, True), err
        assert "Traceback" not in err
        assert "secret@" not in err

    terminal.environment.setenv("GATEWAY_ADMIN_TOKEN", "gwadm_wrong")
    code, _, err = await terminal.type("nodes")
    assert (code, "gwadm_wrong" in err) == (2, False)
    terminal.environment.delenv("GATEWAY_ADMIN_TOKEN")
    assert "there is no token" in (await terminal.type("nodes"))[2]
    assert "cannot be read" in (await terminal.type("nodes", "--token-file", str(tmp_path / "none")))[2]


async def test_a_token_from_a_file(pair: Pair, terminal: Terminal, tmp_path: Path) -> None:
    terminal.environment.delenv("GATEWAY_ADMIN_TOKEN")
    file = tmp_path / "token"
    file.write_text(pair.admins.tokens["viewer"] + "\n")

    assert (await terminal.type("nodes", "--token-file", str(file)))[0] == 0


async def test_failures_have_exit_code_1(terminal: Terminal) -> None:
    code, _, err = await terminal.type("nodes", "--url", f"http://127.0.0.1:{free_port()}")
    assert (code, "does not answer" in err) == (1, True)
    code, _, err = await terminal.type("sessions", "nobody")
    assert (code, "there is no session" in err) == (1, True)


async def test_a_token_that_was_made_is_admitted(pair: Pair, terminal: Terminal, tmp_path: Path) -> None:
    code, line, err = await terminal.type("token", "create", "alice", "--role", "viewer", "--role", "operator")
    assert code == 0
    (secret,) = [word for word in err.split() if word.startswith("gwadm_")]
    assert secret not in line
    file = tmp_path / "admins2"
    file.write_text(line)
    found = AdminTokens(file).find(secret)
    assert found is not None
    assert (found.name, sorted(found.roles)) == ("alice", ["operator", "viewer"])

    target = tmp_path / "secret"
    code, line, err = await terminal.type("token", "create", "bob", "--role", "viewer", "--file", str(target))
    assert (code, "gwadm_" in err, target.stat().st_mode & 0o777) == (0, False, 0o600)
    assert (await terminal.type("token", "create", "bob", "--role", "viewer", "--file", str(target)))[0] == 2
    assert (await terminal.type("token", "create", "b:b", "--role", "viewer"))[0] == 2
