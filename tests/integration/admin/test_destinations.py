"""What paths are, by the admin API and the command line: said, shown, taken back."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote

import pytest

from gateway.client import UpdateStream, connect
from gateway.core.destinations.destination import MAX_DESTINATIONS, Destination, Origin
from gateway.core.destinations.limits import (
    HISTORY_LIMITS,
    QUEUE_LIMITS,
    HistoryLimits,
    Unit,
    ValueLimits,
    limit_fields,
)
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import TopicPath
from tests.integration.admin.support import Pair
from tests.integration.admin.test_cli import Terminal, terminal
from tests.support.nodes import eventually

__all__ = ["terminal"]

DEFAULT = limit_fields(HistoryLimits())

AMOUNTS = [each for each in HISTORY_LIMITS if each.unit not in {Unit.SWITCH, Unit.NAMES}]
"""Limits of a history that have bounds."""


def path(selector: str) -> str:
    """Write a selector as one segment."""
    return f"/v1/destinations/{quote(selector, safe='')}"


async def put(pair: Pair, selector: str, body: dict[str, Any], role: str = "administrator") -> Any:
    return await pair.asker.ask(pair.n1, "PUT", path(selector), json=body, role=role)


async def of_file(pair: Pair, *selectors: str) -> None:
    await pair.n1.gateway.node.destinations.apply_file(
        [Destination(selector=parse_selector(each), limits=ValueLimits(), origin=Origin.FILE) for each in selectors]
    )


async def test_what_is_said_at_one_node_is_shown_by_another(pair: Pair) -> None:
    made = await put(pair, "log/**", {"kind": "history", "limits": {"count": 10, "age": 60.5}})
    assert made.status == 200
    assert made.body | {"made": 0} == {
        "selector": "log/**",
        "kind": "history",
        "limits": DEFAULT | {"count": 10, "age": 60.5},
        "origin": "administrator",
        "made": 0,
        "in_force": True,
    }
    table = pair.n2.gateway.node.destinations.table
    await eventually(lambda: table.history(TopicPath("log/a")) == HistoryLimits(count=10, age=60.5))
    for asked in ("log/**", "log/a/b"):
        assert (await pair.asker.ask(pair.n2, "GET", path(asked), role="viewer")).body == made.body
    for asked in ("other", "log/*"):
        unknown = await pair.asker.ask(pair.n2, "GET", path(asked))
        assert (unknown.status, unknown.kind) == (404, "destination-unknown")
    again = await put(pair, "log/**", {"kind": "value"})
    assert (again.body["kind"], again.body["limits"]) == ("value", {})
    assert (await pair.asker.ask(pair.n1, "DELETE", path("log/**"))).status == 204
    gone = await pair.asker.ask(pair.n1, "DELETE", path("log/**"))
    assert (gone.status, gone.kind) == (404, "destination-unknown")


async def test_what_is_said_takes_effect_on_what_is_published(pair: Pair) -> None:
    async def publish(value: int) -> None:
        written = await pair.asker.ask(pair.n2, "PUT", "/v1/topics/log%2Fa", json={"value": value})
        assert written.status == 200

    async def kept() -> list[int]:
        found = await pair.asker.ask(pair.n1, "GET", "/v1/topics/log%2Fa/history")
        assert found.status == 200, found.body
        return [each["value"] for each in found.body["items"]]

    await publish(1)
    await put(pair, "log/**", {"kind": "history", "limits": {"count": 100}})
    await eventually(lambda: pair.n2.gateway.node.destinations.table.has_history)
    await publish(2)
    await publish(3)
    assert await kept() == [2, 3]
    await put(pair, "log/a", {"kind": "value"})
    await eventually(lambda: pair.n2.gateway.node.destinations.table.history(TopicPath("log/a")) is None)
    await publish(4)
    refused = await pair.asker.ask(pair.n1, "GET", "/v1/topics/log%2Fa/history")
    assert (refused.status, "no destination says" in refused.body["detail"]) == (404, True)


async def test_what_the_file_says_is_told_apart_and_cannot_be_removed(pair: Pair) -> None:
    await of_file(pair, "a/**", "b")
    refused = await pair.asker.ask(pair.n1, "DELETE", path("a/**"))
    assert (refused.status, refused.kind) == (409, "conflict")
    await put(pair, "a/**", {"kind": "history"})
    ((*listed,),) = await pair.asker.pages(pair.n1, "/v1/destinations")
    assert [(each["selector"], each["origin"], each["in_force"]) for each in listed] == [
        ("a/**", "administrator", True),
        ("a/**", "file", False),
        ("b", "file", True),
    ]
    assert (await pair.asker.ask(pair.n1, "GET", path("a/x"))).body["kind"] == "history"
    assert (await pair.asker.ask(pair.n1, "DELETE", path("a/**"))).status == 204
    assert (await pair.asker.ask(pair.n1, "GET", path("a/x"))).body["origin"] == "file"


async def test_they_come_in_pages(pair: Pair) -> None:
    await of_file(pair, *(f"t/{number}" for number in range(5)))
    await put(pair, "t/2", {"kind": "value"})
    pages = await pair.asker.pages(pair.n1, "/v1/destinations", limit="1")
    assert [len(page) for page in pages] == [1] * 6
    assert [each["selector"] for page in pages for each in page] == ["t/0", "t/1", "t/2", "t/2", "t/3", "t/4"]


@pytest.mark.parametrize(
    ("selector", "body"),
    [
        ("a//b", {"kind": "value"}),
        ("ab*", {"kind": "value"}),
        ("$gateway/**", {"kind": "history"}),
        ("a", {"kind": "stack"}),
        ("a/*", {"kind": "queue"}),
        ("a", {"kind": "queue", "limits": {"full": "perhaps"}}),
        ("a", {}),
        ("a", {"kind": "value", "limits": {"count": 5}}),
        ("a", {"kind": "history", "limits": {"cuont": 5}}),
        *(("a", {"kind": "history", "limits": {each.name: each.low - 1}}) for each in AMOUNTS),
        *(("a", {"kind": "history", "limits": {each.name: each.high + 1}}) for each in AMOUNTS),
        *(
            ("a", {"kind": "history", "limits": {each.name: value}})
            for each in AMOUNTS
            for value in ("5", None)
            if value is not None or not each.optional
        ),
    ],
)
async def test_what_cannot_be_is_refused(pair: Pair, selector: str, body: dict[str, Any]) -> None:
    answer = await put(pair, selector, body)
    assert (answer.status, answer.kind) == (400, "bad-request")
    assert pair.n1.gateway.node.destinations.table.empty


async def test_the_bounds_of_the_document_are_those_of_the_gateway(pair: Pair) -> None:
    for each in AMOUNTS:
        for value in (each.low, each.high):
            answer = await put(pair, "a", {"kind": "history", "limits": {each.name: value}})
            assert (answer.status, answer.body["limits"][each.name]) == (200, value)


@pytest.mark.promise("P20")
async def test_every_limit_of_a_queue_can_be_set(pair: Pair) -> None:
    for each in QUEUE_LIMITS:
        allowed: list[object] = list(each.choices) if each.unit is Unit.CHOICE else [each.low, each.high]
        if each.unit is Unit.SWITCH:
            allowed = [True, False]
        for value in (*allowed, *([None] if each.optional else ())):
            answer = await put(pair, "jobs/q", {"kind": "queue", "limits": {each.name: value}})
            assert (answer.status, answer.body.get("limits", {}).get(each.name)) == (200, value), each.name
        refused: list[object] = (
            ["perhaps"] if each.choices or each.unit is Unit.SWITCH else [each.low - 1, each.high + 1]
        )
        for value in (*refused, *(() if each.optional else (None,))):
            answer = await put(pair, "jobs/q", {"kind": "queue", "limits": {each.name: value}})
            assert answer.status == 400, (each.name, value)
    assert (await put(pair, "jobs/*", {"kind": "queue"})).status == 400
    assert (await put(pair, "log/**", {"kind": "history", "limits": {"exclusive": True}})).status == 400


async def test_how_many_are_present_is_told_tree_by_tree(pair: Pair, terminal: Terminal) -> None:
    unmarked = await pair.asker.ask(pair.n1, "GET", f"{path('rooms/*/**')}/trees")
    assert (unmarked.status, unmarked.kind) == (404, "destination-unknown")
    assert (await put(pair, "rooms/*/**", {"kind": "value", "limits": {"presence": True}})).status == 200
    assert (await put(pair, "rooms/special/**", {"kind": "value", "limits": {"presence": True}})).status == 200
    await eventually(lambda: pair.n2.gateway.node.destinations.table.has_presence)
    kept: list[UpdateStream] = []
    async with AsyncExitStack() as stack:
        for number in range(6):
            url = (pair.n1, pair.n2)[number % 2].url
            session = await stack.enter_async_context(connect(url, principal=f"p{number}"))
            kept += [await session.subscribe(each) for each in (f"rooms/{number // 2}/chat", "rooms/special/chat")]
        asked = await pair.asker.ask(pair.n2, "GET", f"{path('rooms/*/**')}/trees", role="viewer")
        assert asked.status == 200
        assert sorted((each["tree"], each["members"]) for each in asked.body["items"]) == [
            (f"rooms/{number}", 2) for number in range(3)
        ]
        seen: list[str] = []
        query: str | None = "?limit=1"
        while query is not None:
            page = await pair.asker.ask(pair.n1, "GET", f"{path('rooms/*/**')}/trees{query}")
            seen += [each["tree"] for each in page.body["items"]]
            cursor = page.body["cursor"]
            query = None if cursor is None else f"?limit=1&cursor={cursor}"
        assert sorted(seen) == ["rooms/0", "rooms/1", "rooms/2"]
        code, printed, _ = await terminal.type("destination", "trees", "rooms/special/**")
        assert (code, printed.split()[-2:]) == (0, ["rooms/special", "6"])
        topic = quote("$presence/rooms/1/$count", safe="")
        assert (await pair.asker.ask(pair.n1, "GET", f"/v1/topics/{topic}")).body["value"]["count"] == 2


async def test_presence_can_be_set_and_what_makes_no_sense_is_refused(pair: Pair) -> None:
    limits = {"presence": True, "presence_properties": "name,team"}
    answer = await put(pair, "rooms/*/**", {"kind": "value", "limits": limits})
    assert (answer.status, answer.body["limits"]) == (200, limits)
    for refused in ({"presence": 1}, {"presence_properties": ",,"}, {"presence_properties": ["name"]}):
        assert (await put(pair, "a", {"kind": "value", "limits": refused})).status == 400, refused
    assert (await put(pair, "a/**/b", {"kind": "value", "limits": {"presence": True}})).status == 400


async def test_too_many_are_a_conflict(pair: Pair) -> None:
    await of_file(pair, *(f"t/{number}" for number in range(MAX_DESTINATIONS)))
    answer = await put(pair, "one/more", {"kind": "value"})
    assert (answer.status, answer.kind) == (409, "conflict")


async def test_only_who_may_declare_does(pair: Pair) -> None:
    for role in ("viewer", "operator"):
        assert (await put(pair, "a", {"kind": "value"}, role=role)).status == 403
        assert (await pair.asker.ask(pair.n1, "DELETE", path("a"), role=role)).status == 403
        assert (await pair.asker.ask(pair.n1, "GET", "/v1/destinations", role=role)).status == 200


# --- By the command line ----------------------------------------------------------------------------------------------


async def test_destinations_for_people_and_for_programs(pair: Pair, terminal: Terminal) -> None:
    code, out, err = await terminal.type("destination", "set", "log/**", "history", "--count", "10", "--age", "7d")
    assert (code, err) == (0, "")
    assert out == "log/** is a history (count 10, age 168 h, bytes 1 MiB); nodes follow within a second\n"
    assert (await terminal.type("destination", "set", "log/x", "value"))[1].startswith("log/x is a value; nodes")
    code, out, _ = await terminal.type("destination", "show", "log/a")
    assert out == "log/a is a history (count 10, age 168 h, bytes 1 MiB), as the administrator says of log/**\n"
    code, out, _ = await terminal.type("destination", "list")
    heading, log, plain = out.splitlines()
    assert heading.split() == ["Selector", "Kind", "Limits", "By", "Since", "In", "force"]
    assert (log.split()[:2], plain.split()[:2]) == (["log/**", "history"], ["log/x", "value"])
    assert [each["selector"] for each in await terminal.lines("destination", "list")] == ["log/**", "log/x"]
    assert (await terminal.lines("destination", "show", "log/x"))[0]["kind"] == "value"
    code, out, _ = await terminal.type("destination", "remove", "log/**", "--yes")
    assert (code, out) == (
        0,
        "nothing is said of log/** by administrators any more; nodes follow within a second\n",
    )
    code, _, err = await terminal.type("destination", "remove", "log/**", "--yes")
    assert (code, "no administrator has said anything" in err) == (1, True)


async def test_a_queue_is_described_by_the_command_line(terminal: Terminal) -> None:
    limits = ("deliveries=3", "exclusive=true", "ack_within=30s", "full=drop_oldest", "dead_count=7")
    words = (
        "destination",
        "set",
        "jobs/q",
        "queue",
        "--count",
        "10",
        *(word for each in limits for word in ("--limit", each)),
    )
    code, out, err = await terminal.type(*words)
    assert (code, err) == (0, "")
    assert out.startswith("jobs/q is a queue (count 10, ")
    (shown,) = await terminal.lines("destination", "show", "jobs/q")
    said = {"count": 10, "deliveries": 3, "exclusive": True, "ack_within": 30, "full": "drop_oldest", "dead_count": 7}
    assert said.items() <= dict(shown["limits"]).items()  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("a", "history", "--count", "0"), "--count is too small; give a whole number between 1 and 1,000,000"),
        (("a", "history", "--age", "soon"), "--age is not a duration"),
        (("a", "history", "--bytes", "1"), "--bytes is too small"),
        (("a", "value", "--count", "5"), "a value has no --count"),
        (("a", "stack"), "'stack' is not one of"),
        (("a", "queue", "--limit", "exclusive=perhaps"), "--limit exclusive is true or false, and not 'perhaps'"),
        (("a", "queue", "--limit", "deliveries=0"), "deliveries is too small"),
        (("a", "queue", "--age", "1d"), "a queue has no --age"),
    ],
)
async def test_mistakes_are_told(terminal: Terminal, words: tuple[str, ...], complaint: str) -> None:
    code, _, err = await terminal.type("destination", "set", *words)
    assert (code, complaint in err) == (2, True), err
