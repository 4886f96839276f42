"""What is wrong with a request is told as problem details; nothing shows a trace."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.catalogue import log_events as events
from tests.integration.admin.support import Pair


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/sessions?limit=0", "limit"),
        ("/v1/sessions?limit=1001", "limit"),
        ("/v1/sessions?limit=ten", "limit"),
        ("/v1/sessions?limit=1_0", "limit"),
        ("/v1/sessions?limit=5&limit=6", "limit"),
        ("/v1/sessions?page=2", "page"),
        ("/v1/nodes?limit=2", "limit"),
        ("/v1/sessions?cursor=%21", "cursor"),
        ("/v1/sessions?cursor=WzY0LG51bGwsbnVsbF0", "cursor"),
        ("/v1/sessions?cursor=" + "x" * 5000, "cursor"),
        ("/v1/sessions?filter=team%20%3D%201", "filter"),
        ("/v1/topics?values=maybe", "values"),
        ("/v1/topics?selector=a%2F%2Fb", "selector"),
        ("/v1/topics/a%2F%2Fb", "topic"),
        ("/v1/topics/*", "topic"),
    ],
)
async def test_a_parameter_that_does_not_fit_is_named(pair: Pair, path: str, name: str) -> None:
    answer = await pair.asker.ask(pair.n1, "GET", path)

    assert (answer.status, answer.kind) == (400, "bad-request"), answer.body
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert [each["name"] for each in answer.body["errors"]] == [name]


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({}, ["/message"]),
        ({"message": ""}, ["/message"]),
        ({"message": 7}, ["/message"]),
        ({"message": "x" * 2001}, ["/message"]),
        ({"message": "hi", "code": "x"}, ["/code"]),
        ([], [""]),
    ],
)
async def test_a_body_that_does_not_fit_is_told_with_the_place(pair: Pair, body: Any, names: list[str]) -> None:
    answer = await pair.asker.ask(pair.n1, "POST", "/v1/sessions/x/notice", json=body)

    assert (answer.status, answer.kind) == (400, "bad-request")
    assert [each["name"] for each in answer.body["errors"]] == names
    assert {each["in"] for each in answer.body["errors"]} == {"body"}


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'{"message": NaN}', b"[" * 100_000])
async def test_a_body_that_is_no_json_is_refused(pair: Pair, text: bytes) -> None:
    answer = await pair.asker.ask(
        pair.n1, "POST", "/v1/sessions/x/notice", data=text, headers={"Content-Type": "application/json"}
    )

    assert (answer.status, answer.kind) == (400, "bad-request") if len(text) < 70_000 else (413, "too-large")


async def test_a_body_of_another_type_is_refused(pair: Pair) -> None:
    answer = await pair.asker.ask(pair.n1, "POST", "/v1/sessions/x/notice", data={"message": "hi"})

    assert (answer.status, answer.kind) == (415, "unsupported-media-type")


@pytest.mark.promise("P20")
async def test_a_body_that_is_too_large_is_refused(pair: Pair) -> None:
    answer = await pair.asker.ask(pair.n1, "PUT", "/v1/topics/a", json={"value": "x" * 200_000})

    assert (answer.status, answer.kind) == (413, "too-large")


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/nothing", "/v1/topics/a/b", "/v1/sessions/x/y/z", "/v2/nodes"])
async def test_a_page_that_does_not_exist(pair: Pair, path: str) -> None:
    answer = await pair.asker.ask(pair.n1, "GET", path)

    assert (answer.status, answer.kind) == (404, "no-such-page")


@pytest.mark.parametrize("method", ["PATCH", "POST", "TRACE", "PROPFIND"])
async def test_a_method_that_a_page_does_not_know(pair: Pair, method: str) -> None:
    answer = await pair.asker.ask(pair.n1, method, "/v1/sessions/x")

    assert (answer.status, answer.kind) == (405, "method-not-allowed")
    assert answer.headers["Allow"] == "DELETE, GET, HEAD, OPTIONS"


async def test_head_is_get_without_the_body(pair: Pair) -> None:
    answer = await pair.asker.ask(pair.n1, "HEAD", "/v1/nodes")

    assert (answer.status, answer.body) == (200, None)


async def test_a_bug_shows_nothing_of_itself(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret details")

    monkeypatch.setattr(pair.n1.gateway.node.administration.sessions, "list", broken)

    answer = await pair.asker.ask(pair.n1, "GET", "/v1/sessions")

    assert (answer.status, answer.kind) == (500, "internal")
    assert "secret" not in str(answer.body)
    assert any(event is events.ADMIN_FAILED for event, _ in pair.n1.log.events)


async def test_a_grid_that_is_unreachable_is_told_with_a_time_to_ask_again(pair: Pair) -> None:
    pair.memory.go_away()

    answer = await pair.asker.ask(pair.n1, "GET", "/v1/sessions")

    assert (answer.status, answer.kind) == (503, "unavailable")
    assert answer.headers["Retry-After"] == "1"
