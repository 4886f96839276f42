"""The JavaScript client: its own tests, its types, and what it has to have in common with the rest of the project."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import gateway
from gateway.core.client.promises import Promises
from gateway.core.client.request_table import UNNUMBERED
from gateway.core.topics.selections import NOTHING
from gateway.core.topics.selectors import covers, matches, overlaps, parse_selector
from gateway.core.types import TopicPath
from gateway.core.wire.codec import decode_from_server
from gateway.core.wire.codes import CLOSE_CODES, ERRORS, Outcome
from gateway.core.wire.errors import InvalidSelector, RemoteProtocolError
from gateway.core.wire.packets import NoticeCode, SetProperties, Subscribe, Unsubscribe
from tests.clients.driver import CLIENT, Driver, Refused, node_environment
from tests.support.times import scaled, time_limit

SEED = 20_261_121
"""Cases are drawn at random, the same ones every time."""

CASES = 400


def run(*command: str, folder: Path = CLIENT, seconds: float = 100) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=node_environment(),
        capture_output=True,
        text=True,
        timeout=scaled(seconds),
        check=False,
    )


def test_its_own_tests_pass() -> None:
    result = run("node", "--test", "test/")
    assert result.returncode == 0, result.stdout[-8000:]
    assert re.search(r"^# pass [1-9]\d+$", result.stdout, re.MULTILINE), "tests were found and run"


def test_its_types_hold_and_so_do_those_of_the_console(tmp_path: Path) -> None:
    """By TypeScript, a tool of development: the client itself is run as it is written."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(CLIENT / name, tools)
    installed = run("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", folder=tools)
    assert installed.returncode == 0, installed.stderr
    checked = run(str(tools / "node_modules" / ".bin" / "tsc"), "--project", "jsconfig.json")
    assert checked.returncode == 0, checked.stdout


def test_it_has_the_version_of_the_package() -> None:
    package = json.loads((CLIENT / "package.json").read_text())
    assert package["version"] == gateway.__version__
    assert f'VERSION = "{gateway.__version__}"' in (CLIENT / "src" / "version.js").read_text()
    assert "dependencies" not in package


def test_its_codes_are_those_of_the_registry() -> None:
    script = """
        import { CloseCode, ERROR_CODES, NoticeCode, Outcome, RETRYABLE_ERRORS, reconnectFor } from "./src/codes.js";
        const codes = Array.from({ length: 4400 }, (_, code) => reconnectFor(code));
        const all = [CloseCode, Outcome, RETRYABLE_ERRORS, codes, reconnectFor(null), ERROR_CODES, NoticeCode];
        console.log(JSON.stringify(all));
    """
    result = run("node", "--input-type=module", "--eval", script)
    assert result.returncode == 0, result.stderr
    codes, outcomes, retryable, reconnects, lost, errors, notices = json.loads(result.stdout)
    assert codes == {each.name.upper(): each.code for each in CLOSE_CODES}
    assert set(outcomes.values()) == {each.value for each in Outcome} - {Outcome.REFUSED.value}
    assert notices == {each.name: each.value for each in NoticeCode if each.name in notices}
    assert sorted(errors) == sorted(code.value for code in ERRORS)
    assert sorted(retryable) == sorted(code.value for code, spec in ERRORS.items() if spec.retryable)
    from gateway.core.wire.codes import reconnect_for  # noqa: PLC0415 - next to what it is compared with

    assert reconnects == [reconnect_for(code).name.lower() for code in range(4400)]
    assert lost == reconnect_for(None).name.lower()


# --- The same answers as the other implementation -------------------------------------------------------------------


def some_selector(chance: random.Random) -> str:
    segments = chance.choices(["a", "b", "*", "**", "$s", "c"], weights=[5, 4, 3, 3, 1, 1], k=chance.randint(1, 5))
    return "/".join(segments)


def some_topic(chance: random.Random) -> str:
    return "/".join(chance.choices(["a", "b", "c", "$s"], weights=[5, 4, 2, 1], k=chance.randint(1, 5)))


async def test_selectors_mean_the_same() -> None:
    chance = random.Random(SEED)
    async with Driver() as client:
        for _ in range(CASES):
            one, other, topic = some_selector(chance), some_selector(chance), some_topic(chance)
            try:
                first, second = parse_selector(one), parse_selector(other)
            except InvalidSelector:
                with pytest.raises(Refused):
                    await client.do("compare", one=one, other=other, topic=topic)
                continue
            assert await client.do("parse", text=one) == first.text
            expected = [covers(first, second), overlaps(first, second), matches(first, TopicPath(topic))]
            assert await client.do("compare", one=one, other=other, topic=topic) == expected, (one, other, topic)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/a",
        "a/",
        "a//b",
        "a*",
        "***",
        "a\nb",
        "a/\u2028",
        "x" * 1025,
        "/".join("a" * 33),
        "**/a/**/b/**/c/**/d/**/e",
    ],
)
async def test_what_is_no_selector_is_refused_by_both(text: str) -> None:
    with pytest.raises(InvalidSelector):
        parse_selector(text)
    async with Driver() as client:
        with pytest.raises(Refused, match="InvalidSelector"):
            await client.do("parse", text=text)


async def test_lists_of_selections_are_compacted_alike() -> None:
    chance = random.Random(SEED)
    async with Driver() as client:
        for _ in range(CASES):
            entries = [
                (chance.choice(["subscribe", "subscribe", "unsubscribe"]), some_selector(chance))
                for _ in range(chance.randint(1, 6))
            ]
            try:
                parsed = [(kind, parse_selector(text)) for kind, text in entries]
            except InvalidSelector:
                continue
            expected = NOTHING
            for kind, selector in parsed:
                expected = expected.select(selector) if kind == "subscribe" else expected.deselect(selector)
            assert await client.do("select", entries=entries) == list(expected.to_wire()), entries


def ask_of(each: dict[str, Any]) -> Subscribe | Unsubscribe | SetProperties:
    match each["type"]:
        case "subscribe":
            return Subscribe(UNNUMBERED, each["selector"])
        case "unsubscribe":
            return Unsubscribe(UNNUMBERED, each["selector"])
        case _:
            return SetProperties(UNNUMBERED, each["set"])


def told(ask: object) -> dict[str, Any]:
    match ask:
        case Subscribe():
            return {"type": "subscribe", "selector": ask.selector}
        case Unsubscribe():
            return {"type": "unsubscribe", "selector": ask.selector}
        case SetProperties():
            return {"type": "properties", "set": dict(ask.changes)}
    raise AssertionError(ask)


async def test_what_a_failover_lacks_is_found_alike() -> None:
    chance = random.Random(SEED)

    def some_asks(most: int) -> list[dict[str, Any]]:
        asks: list[dict[str, Any]] = []
        for _ in range(chance.randint(0, most)):
            kind = chance.choice(["subscribe", "subscribe", "unsubscribe", "properties"])
            if kind == "properties":
                asks.append({"type": kind, "set": {chance.choice("xy"): chance.choice([None, "1", "2"])}})
            else:
                asks.append({"type": kind, "selector": chance.choice(["a/**", "a/b", "b", "**", "a/*", "$gateway/**"])})
        return asks

    welcome: dict[str, Any] = {"selections": [], "properties": {}}
    async with Driver() as client:
        for _ in range(CASES):
            executed, unanswered, other = some_asks(4), some_asks(2), some_asks(3)
            promises, failed_over = Promises({}), Promises({})
            for each in executed:
                promises.executed(ask_of(each))
            for each in chance.choice([other, executed, executed[:-1]]):
                failed_over.executed(ask_of(each))
            failover: dict[str, Any] = {
                "selections": list(failed_over._selections.to_wire()),
                "properties": dict(failed_over._properties),
            }
            expected = promises.missing(
                selections=failover["selections"],
                properties=failover["properties"],
                unanswered=[ask_of(each) for each in unanswered],
            )
            found = await client.do(
                "promises", welcome=welcome, executed=executed, failover=failover, unanswered=unanswered
            )
            assert found == [told(each) for each in expected], (executed, failover, unanswered)


def protocol_examples() -> list[str]:
    """Every example of the protocol document that a server sends."""
    text = (Path(gateway.__file__).parents[1] / "docs" / "reference" / "protocol.md").read_text()
    blocks = text.split("```json ")[1:]
    return [body.split("```")[0].partition("\n")[2] for body in blocks if body.split(None, 1)[0] in {"server", "both"}]


async def test_the_examples_of_the_protocol_are_understood_by_both() -> None:
    examples = protocol_examples()
    assert len(examples) > 15
    async with Driver() as client:
        for text in examples:
            try:
                packets = decode_from_server(text)
            except RemoteProtocolError:
                with pytest.raises(Refused):
                    await client.do("decode", text=text)
                continue
            assert len(await client.do("decode", text=text)) == len(packets)


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "7", '"x"', "[7]", "{}", '{"type": 7}', '{"type": "hello"}', '{"type": "ack"}',
        '{"type": "ack", "received": -1}', '{"type": "ack", "received": 1.5}', '{"type": "ack", "received": "1"}',
        '{"type": "update", "topic": "a", "version": 1, "event": "e", "value": 1}',
        '{"id": 0, "type": "notice", "code": "c", "message": "m"}',
        '{"id": 1, "type": "update", "topic": "a", "version": 1, "event": "e"}',
        '{"id": 1, "type": "update", "topic": "a", "version": 0, "event": "e", "value": 1}',
        '{"id": 1, "type": "reply", "request": 1, "error": "no"}',
        '{"id": 9007199254740992, "type": "notice", "code": "c", "message": "m"}',
        '{"type": "go-away", "reason": "r", "delay": -1}',
        '{"type": "ping", "token": 7}',
    ],
)  # fmt: skip
async def test_what_no_server_may_send_is_refused_by_both(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_from_server(text)
    async with Driver() as client, time_limit(20):
        with pytest.raises(Refused, match="RemoteProtocolError"):
            await client.do("decode", text=text)
