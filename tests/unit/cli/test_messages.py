"""``pub`` and ``sub`` against a client that a test plays."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Self

import pytest

from gateway.core.client.types import Notice, Receipt, Recovery, SelectionsWithdrawn, Update
from gateway.core.types import JsonValue
from gateway.core.wire.codes import FailoverReason, Numbering, Outcome
from gateway.core.wire.errors import GatewayError
from tests.unit.cli.conftest import Run

UPDATES = [
    Update("prices/ACME", {"bid": 1}, 3, "7-1-1", snapshot=True),
    Update("prices/ACME", "open", 7, "7-1-5", snapshot=False, folded=3),
]
RECOVERY = Recovery(
    outcome=Outcome.FAILED_OVER,
    numbering=Numbering.RESTARTED,
    reason=FailoverReason.OTHER_NODE,
    node="n2",
    gap_seconds=0.4213,
    resent=2,
    lost=None,
    conflated=None,
    attempts=1,
    cause="the connection was lost",
)


class FakeSession:
    """A session that says what a test wants it to."""

    id, node = "s1", "n1"

    def __init__(self) -> None:
        self.declared: list[Notice] = []
        self.published: list[tuple[str, JsonValue]] = []
        self.subscribed: list[str] = []
        self.connected: list[tuple[tuple[str, ...], str, str | None]] = []
        self.updates: list[Update] = list(UPDATES)
        self.recovers: list[Recovery] = [RECOVERY]
        self.ends: BaseException | None = None
        self.on_last_update: Callable[[], None] = lambda: None
        self.recovered = asyncio.Event()
        self.answers = True
        self.recovers_first = False
        self.closed = False

    async def connect(
        self, urls: tuple[str, ...], *, principal: str, secret: str | None, connect_timeout: float
    ) -> Self:
        assert connect_timeout > 0
        self.connected.append((urls, principal, secret))
        if self.ends is not None:
            raise self.ends
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_details: object) -> None:
        self.closed = True

    async def publish(self, topic: str, value: JsonValue, *, ttl: float | None = None) -> Receipt:
        if not self.answers:
            await asyncio.Event().wait()
        if self.recovers_first:
            await self.recovered.wait()
        self.published.append((topic, value))
        return Receipt("7-1-9", 12)

    async def subscribe(self, selector: str) -> AsyncIterator[Update]:
        self.subscribed.append(selector)
        return self._stream()

    async def _stream(self) -> AsyncIterator[Update]:
        await self.recovered.wait()
        for update in self.updates:
            yield update
        self.on_last_update()
        await asyncio.Event().wait()

    async def notices(self) -> AsyncIterator[Notice]:
        for notice in self.declared:
            yield notice
        await asyncio.Event().wait()

    async def recoveries(self) -> AsyncIterator[Recovery]:
        for recovery in self.recovers:
            yield recovery
        self.recovered.set()
        await asyncio.Event().wait()


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    found = FakeSession()
    monkeypatch.setattr("gateway.client.connect", found.connect)
    return found


def test_pub_publishes_and_tells_version_and_event(run: Run, session: FakeSession) -> None:
    result = run("pub", "prices/ACME", '{"bid": 1}')

    assert (result.code, result.out, result.err) == (0, "prices/ACME version 12 event 7-1-9\n", "")
    assert session.published == [("prices/ACME", {"bid": 1})]
    assert session.connected == [(("ws://127.0.0.1:8101/v1/connect",), "cli", None)]
    assert session.closed


def test_pub_takes_the_value_from_standard_input_and_the_rest_from_the_environment(
    run: Run, session: FakeSession
) -> None:
    environment = {"GATEWAY_URL": "ws://a/v1, ws://b/v1", "GATEWAY_PRINCIPAL": "alice", "GATEWAY_SECRET": "hunter2"}

    assert run("pub", "t", "-", stdin="[1]", environment=environment).code == 0
    assert session.published == [("t", [1])]
    assert session.connected == [(("ws://a/v1", "ws://b/v1"), "alice", "hunter2")]


def test_clear_text_to_another_host_is_a_line_and_no_python(run: Run, session: FakeSession) -> None:
    for url, warns in (("ws://gateway.example", True), ("wss://gateway.example", False)):
        result = run("pub", "t", "1", "--url", url)

        warning = "gateway: warning: secrets and tokens go to gateway.example in clear text; use wss"
        assert (result.code, result.err.startswith(warning)) == (0, warns)
        assert "ClearTextWarning" not in result.err


def test_pub_refuses_what_is_not_json_before_connecting(run: Run, session: FakeSession) -> None:
    result = run("pub", "t", "open")

    assert result.code == 2
    assert "the value is not JSON" in result.err
    assert session.connected == []


def test_pub_tells_why_it_failed(run: Run, session: FakeSession) -> None:
    session.ends = GatewayError("the principal and secret were not accepted")

    result = run("pub", "t", "1")

    assert (result.code, result.err) == (1, "gateway: error: the principal and secret were not accepted\n")


def test_pub_tells_of_a_recovery_before_its_receipt(run: Run, session: FakeSession) -> None:
    session.recovers_first = True

    result = run("pub", "t", "1")

    assert (result.code, result.out) == (0, "t version 12 event 7-1-9\n")
    assert result.err == "-- failed_over at n2 after 0.42 s: 2 packets resent, an unknown number of lost\n"


def test_pub_gives_up_and_says_that_it_may_have_happened(run: Run, session: FakeSession) -> None:
    session.answers = False

    result = run("pub", "t", "1", "--timeout", "0.1")

    assert result.code == 1
    assert "the value may have been published or not" in result.err
    assert session.closed


def test_sub_prints_updates_and_recoveries_as_they_happen(run: Run, session: FakeSession) -> None:
    result = run("sub", "prices/**", "--count", "2")

    assert result.code == 0
    assert session.subscribed == ["prices/**"]
    assert result.out.splitlines() == [
        'prices/ACME = {"bid":1}  (version 3, snapshot)',
        'prices/ACME = "open"  (version 7, in the place of 3 more)',
    ]
    assert result.err.splitlines() == [
        "session s1 at n1; Ctrl-C ends it",
        "-- failed_over at n2 after 0.42 s: 2 packets resent, an unknown number of lost, current values follow",
    ]
    assert session.closed


@pytest.mark.parametrize(
    ("recovery", "told"),
    [
        (replace(RECOVERY, replayed=True, lost=0), "2 packets resent, 0 lost, every missed update follows"),
        (
            replace(RECOVERY, not_replayed=(3, 40)),
            "2 packets resent, an unknown number of lost, current values follow of topic partitions 3, 40",
        ),
        (replace(RECOVERY, numbering=Numbering.KEPT, lost=0), "2 packets resent, 0 lost"),
    ],
)
def test_sub_tells_what_takes_the_place_of_what_was_missed(
    run: Run, session: FakeSession, recovery: Recovery, told: str
) -> None:
    session.recovers = [recovery]
    assert run("sub", "**", "--count", "1").err.splitlines()[-1] == f"-- failed_over at n2 after 0.42 s: {told}"


WITHDRAWN = SelectionsWithdrawn("permissions_withdrawn", "you may not", ("prices/**",), ("+prices/x",))


def test_sub_prints_notices(run: Run, session: FakeSession) -> None:
    session.declared = [WITHDRAWN, Notice("administrator", "bell\a")]
    told = run("sub", "prices/**", "--count", "1").err.splitlines()
    assert [line for line in told if line.startswith("-- ") and " at n2 " not in line] == [
        "-- permissions_withdrawn: you may not",
        "-- administrator: 'bell\\x07'",
    ]


def test_sub_writes_notices_for_programs(run: Run, session: FakeSession) -> None:
    session.declared = [WITHDRAWN]
    lines = map(json.loads, run("sub", "prices/**", "--count", "1", "--json").out.splitlines())
    assert [line for line in lines if line["kind"] == "notice"] == [
        {
            "kind": "notice",
            "code": "permissions_withdrawn",
            "message": "you may not",
            "withdrawn": ["prices/**"],
            "selections": ["+prices/x"],
        }
    ]


def test_sub_writes_json_for_programs(run: Run, session: FakeSession) -> None:
    result = run("sub", "**", "--count", "1", "--json")

    recovery, update = (json.loads(line) for line in result.out.splitlines())
    assert recovery == {
        "kind": "recovery",
        "outcome": "failed_over",
        "reason": "other_node",
        "node": "n2",
        "gap_seconds": 0.4213,
        "resent": 2,
        "lost": None,
        "replayed": False,
        "not_replayed": [],
    }
    assert update == {
        "kind": "update",
        "topic": "prices/ACME",
        "value": {"bid": 1},
        "version": 3,
        "event_id": "7-1-1",
        "snapshot": True,
        "folded": 0,
    }
    assert result.err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_sub_ends_well_when_it_is_told_to(run: Run, session: FakeSession, number: signal.Signals) -> None:
    session.on_last_update = lambda: os.kill(os.getpid(), number)

    result = run("sub", "**")

    assert result.code == 0
    assert len(result.out.splitlines()) == 2
    assert session.closed


def test_sub_tells_when_its_session_ends(run: Run, session: FakeSession) -> None:
    def end() -> None:
        raise GatewayError("the session's window ended")

    session.on_last_update = end

    result = run("sub", "**")

    assert result.code == 1
    assert result.err.endswith("gateway: error: the session's window ended\n")


def test_an_empty_url_is_told(run: Run, session: FakeSession) -> None:
    assert run("sub", "**", "--url", " ,").code == 2


@pytest.mark.parametrize(
    ("arguments", "why"),
    [(("pub", "a/*", "1"), "a topic names one thing"), (("pub", "a//b", "1"), "a//b"), (("sub", "a//*"), "a//*")],
)
def test_what_is_no_topic_or_selector_is_misuse_and_connects_nobody(
    run: Run, session: FakeSession, arguments: tuple[str, ...], why: str
) -> None:
    result = run(*arguments)

    assert result.code == 2, result.err
    assert why in result.err
    assert session.connected == []
