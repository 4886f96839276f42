"""Nodes with hooks, from a client's connect to a receiver."""

from __future__ import annotations

import asyncio
import shutil
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from time import time
from typing import Any

import pytest

from gateway.adapters.hook_sender import HttpHookSender
from gateway.adapters.memory import MemoryGridServer
from gateway.app.journal import writer
from gateway.app.journal.principals import hashed_with
from gateway.catalogue import hook_log_events as log
from gateway.client import UpdateStream, connect
from gateway.core.hooks.hook import Hook
from gateway.core.hooks.signing import sign
from gateway.settings import ConfigurationError, Settings
from gateway.settings.checks import check
from gateway.settings.hooks import read_hooks
from gateway.settings.values import PrincipalNames
from tests.clients.page_programs import programs
from tests.support.hook_receiver import KEY, HookReceiver
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.times import time_limit


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the journal soon."""
    monkeypatch.setattr(writer, "GATHER", 0.01)


@pytest.fixture
async def receiver() -> AsyncIterator[HookReceiver]:
    async with HookReceiver() as running:
        yield running


def logged(node: TestNode, event: object) -> list[dict[str, object]]:
    return [dict(fields) for each, fields in node.log.events if each is event]


async def delivering(node: TestNode) -> None:
    """Wait until the node delivers, from a cursor that is there."""
    hooks = node.gateway.node.hooks
    assert hooks is not None
    await eventually(lambda: any(each._known for each, _ in hooks._deliverers.values()))


async def test_the_life_of_a_session_is_told(tmp_path: Path, receiver: HookReceiver) -> None:
    file = tmp_path / "hooks.toml"
    file.write_text(receiver.section(tmp_path), "utf-8")
    async with running_node(journal=True, hooks=file) as node:
        await delivering(node)
        async with connect(node.url, principal="alice") as client:
            await client.subscribe("prices/**")
            session = client.id
        await eventually(lambda: bool(receiver.of_type("session_closed")))
        kinds = [each["type"] for each in receiver.events if each.get("subject") == session]
        assert kinds == ["session_opened", "session_selections_changed", "session_closed"]
        (opened,) = receiver.of_type("session_opened")
        assert (opened["source"], opened["data"]["principal"]) == ("/nodes/n1", "alice")
        assert receiver.of_type("session_selections_changed")[0]["data"]["names"] == ["+prices/**"]
        assert len(set(receiver.ids)) == len(receiver.ids)
        # The receiver has them before the node counts them.
        counted = 'gateway_hook_events_total{hook="crm"} 3.0'
        await eventually(lambda: counted in node.gateway.metrics.render().decode())


@pytest.mark.parametrize("hashed", [False, True])
async def test_a_hook_for_some_principals_and_topics_gets_nothing_of_others(
    tmp_path: Path, receiver: HookReceiver, hashed: bool
) -> None:
    file = tmp_path / "hooks.toml"
    settings: dict[str, Any] = {}
    name = "alice"
    kept: list[UpdateStream] = []
    if hashed:
        key = tmp_path / "key"
        key.write_text("6b" * 32, "utf-8")
        settings = {"journal_principals": PrincipalNames.HASHED, "journal_principals_key_file": key}
        name = hashed_with(key.read_text("utf-8").encode())("alice")
    async with HookReceiver() as other:
        filters = f'principals = ["{name}", "{name[:5]}nobody"]\nselectors = ["prices/**"]\n'
        file.write_text(receiver.section(tmp_path) + filters + other.section(tmp_path, name="all"), "utf-8")
        async with running_node(journal=True, hooks=file, **settings) as node:
            await delivering(node)
            await eventually(lambda: len(node.gateway.node.hooks._deliverers) == 2)  # type: ignore[union-attr]
            async with connect(node.url, principal="bob") as bob, connect(node.url, principal="alice") as alice:
                for session in (bob, alice):
                    kept += [await session.subscribe(each) for each in ("prices/a", "quotes/a")]
                    await session.set_properties({"name": "x"})
            await eventually(lambda: len(other.of_type("session_closed")) == 2)
            await eventually(lambda: len(receiver.of_type("session_closed")) == 1)
    assert {each["data"]["principal"] for each in receiver.events if "subject" in each} == {name}
    assert {each["data"]["names"][0] for each in receiver.of_type("session_selections_changed")} == {"+prices/a"}
    assert len(receiver.of_type("session_properties_changed")) == 1
    assert len(other.of_type("session_properties_changed")) == 2


async def test_a_receiver_that_was_down_gets_what_it_missed_and_nobody_else_waits(
    tmp_path: Path, receiver: HookReceiver
) -> None:
    file = tmp_path / "hooks.toml"
    async with HookReceiver() as other:
        file.write_text(receiver.section(tmp_path) + other.section(tmp_path, name="audit"), "utf-8")
        async with running_node(journal=True, hooks=file) as node:
            await delivering(node)
            await eventually(lambda: len(node.gateway.node.hooks._deliverers) == 2)  # type: ignore[union-attr]
            await receiver.stop()
            for _ in range(5):
                async with connect(node.url, principal="alice"):
                    pass
            await eventually(lambda: len(other.of_type("session_closed")) == 5)
            await eventually(lambda: bool(logged(node, log.HOOK_FAILING)))
            (failing,) = logged(node, log.HOOK_FAILING)
            assert "not-to-be-shown" not in str(failing)
            await receiver.start()
            await eventually(lambda: len(receiver.of_type("session_closed")) == 5)
            assert len(set(receiver.ids)) == len(receiver.ids)
            assert sorted(receiver.ids) == sorted(set(other.ids))


async def test_hooks_are_read_again_and_a_mistake_changes_nothing(tmp_path: Path, receiver: HookReceiver) -> None:
    file = tmp_path / "hooks.toml"
    file.write_text("", "utf-8")
    async with running_node(journal=True, hooks=file) as node:
        file.write_text("[[hook]]\nname = 1\n", "utf-8")
        node.gateway.reload()
        await eventually(lambda: bool(logged(node, log.HOOKS_KEPT)))
        file.write_text(receiver.section(tmp_path), "utf-8")
        node.gateway.reload()
        await delivering(node)
        assert logged(node, log.HOOKS_APPLIED) == [{"hooks": []}, {"hooks": ["crm"]}]
        async with connect(node.url, principal="alice"):
            pass
        await eventually(lambda: bool(receiver.of_type("session_closed")))


async def test_a_node_that_stops_gives_its_hooks_to_another_one(tmp_path: Path, receiver: HookReceiver) -> None:
    memory = MemoryGridServer()
    file = tmp_path / "hooks.toml"
    file.write_text(receiver.section(tmp_path), "utf-8")
    async with running_node("n2", memory=memory, journal=True, hooks=file) as n2:
        async with running_node("n1", memory=memory, journal=True, hooks=file):
            await eventually(lambda: memory.data.hooks.told() != {})
            receiver.fail(500)
        async with connect(n2.url, principal="alice"):
            pass
        receiver.recover()
        await delivering(n2)
        await eventually(lambda: bool(receiver.of_type("session_closed")))


async def test_hooks_without_a_journal_are_refused_in_one_sentence(tmp_path: Path) -> None:
    problems = [str(each) for each in check(Settings(node="n1", hooks=tmp_path / "x"), lambda name: name)]
    (said,) = [each for each in problems if "hooks" in each]
    assert "no session journal from which they could take events; give --journal, or remove the hooks" in said


async def test_a_file_that_is_wrong_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "hooks.toml"
    file.write_text("[[hook]]\n", "utf-8")
    with pytest.raises(ConfigurationError, match="there is no name"):
        async with running_node(journal=True, hooks=file):
            pass


# --- the receivers of the how-to --------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["python", "js"])
async def test_the_receivers_of_the_page_take_what_is_signed(tmp_path: Path, language: str) -> None:
    code = programs("send-events-to-other-systems", language)[0]
    assert "8300" in code
    probe = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0)
    port = probe.sockets[0].getsockname()[1]
    probe.close()
    await probe.wait_closed()
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "hook-crm").write_text(f"whsec_{b64encode(KEY).decode()}\n", "utf-8")
    program, name = (sys.executable, "receiver.py") if language == "python" else (shutil.which("node"), "receiver.mjs")
    if program is None:
        pytest.skip("there is no Node here")
    (tmp_path / name).write_text(code.replace("8300", str(port)), "utf-8")
    process = await asyncio.create_subprocess_exec(
        program, name, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        file = tmp_path / "hooks.toml"
        section = '[[hook]]\nname = "{}"\nurl = "http://127.0.0.1:{}/"\nevents = ["session_*"]\nsecret_file = "{}"\n'
        file.write_text(section.format("good", port, "secrets/hook-crm"), "utf-8")
        (good,) = read_hooks(file)
        await _is_up(port)
        async with running_node(journal=True, hooks=file) as node:
            await delivering(node)
            async with connect(node.url, principal="alice"):
                pass
            assert process.stdout is not None
            async with time_limit(30):
                lines = [(await process.stdout.readline()).decode() for _ in range(2)]
        assert lines[0].startswith("session_opened ")
        assert "alice" in lines[0]
        assert lines[1].startswith("session_closed ")
        assert await _status(Hook(name=good.name, url=good.url, events=good.events, keys=(b"x" * 32,))) == 401
    finally:
        process.kill()
        await process.wait()


async def _is_up(port: int) -> None:
    async with time_limit(30):
        while True:
            try:
                _, ends = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                ends.close()
                return


async def _status(hook: Hook) -> int:
    sender = HttpHookSender()
    try:
        return (await sender.post(hook, b"[]", sign("msg_1", b"[]", keys=hook.keys, now=time()))).status
    finally:
        await sender.close()
