"""Topics by the admin API: listed, read, set, removed, and who selects them."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from gateway.catalogue.log_events import ADMIN_ACTED
from gateway.core.url_segments import to_segment
from tests.integration.admin.support import Pair
from tests.support.raw_client import RawClient


def path(topic: str) -> str:
    """Write a topic as one segment."""
    return f"/v1/topics/{quote(topic, safe='')}"


async def put(pair: Pair, topic: str, value: object, key: str | None = None) -> dict[str, object]:
    """Set a topic."""
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = await pair.asker.ask(pair.n1, "PUT", path(topic), json={"value": value}, headers=headers)
    assert answer.status == 200, answer.body
    return dict(answer.body)


async def test_a_value_that_is_set_reaches_who_selects_it_and_can_be_read(pair: Pair) -> None:
    async with RawClient(pair.n2.url) as client:
        await client.hello()
        await client.send({"id": 1, "type": "subscribe", "request": 1, "selector": "prices/**"})
        await client.expect("reply")

        written = await put(pair, "prices/ACME é", {"bid": 1.5})

        update = await client.expect("update")
        assert (update["topic"], update["version"], update["event"]) == (
            "prices/ACME é",
            written["version"],
            written["event"],
        )
        assert update["value"] == {"bid": 1.5}
    read = await pair.asker.ask(pair.n2, "GET", path("prices/ACME é"))
    assert read.body == {
        "topic": "prices/ACME é",
        "version": 1,
        "event": written["event"],
        "size": 11,
        "value": {"bid": 1.5},
    }


@pytest.mark.parametrize("topic", ["a{b}", "{}", "{topic}", "a/{b}/c", "}{", "a%7Bb"])
async def test_a_topic_may_have_braces(pair: Pair, topic: str) -> None:
    await put(pair, topic, 1)

    read = await pair.asker.ask(pair.n2, "GET", path(topic))
    subscribers = await pair.asker.ask(pair.n2, "GET", f"{path(topic)}/subscribers")

    assert (read.status, read.body.get("topic"), read.body.get("value")) == (200, topic, 1)
    assert (subscribers.status, subscribers.body.get("items")) == (200, [])
    assert (await pair.asker.ask(pair.n1, "DELETE", path(topic))).status == 200
    assert (await pair.asker.ask(pair.n2, "GET", path(topic))).kind == "topic-unknown"


@pytest.mark.parametrize("topic", [".", "..", "..."])
async def test_a_topic_may_be_dots(pair: Pair, topic: str) -> None:
    """Bug: no browser could ask for them, as it takes these segments out of a path."""
    segment = to_segment(topic)
    written = await pair.asker.ask(pair.n1, "PUT", f"/v1/topics/{segment}", json={"value": 1})
    assert (written.status, written.body.get("topic")) == (200, topic)
    read = await pair.asker.ask(pair.n2, "GET", f"/v1/topics/{segment}")
    assert (read.status, read.body.get("topic")) == (200, topic)
    assert (await pair.asker.ask(pair.n1, "DELETE", f"/v1/topics/{segment}")).status == 200
    (acted,) = [each for each in pair.n1.log.of(ADMIN_ACTED) if each["operation"] == "deleteTopic"]
    assert acted["target"] == f"topic {topic}"


async def test_a_key_makes_a_repetition_harmless(pair: Pair) -> None:
    first = await put(pair, "a", 1, "order-7")
    await put(pair, "a", 2)
    again = await put(pair, "a", 1, "order-7")

    assert first["duplicate"] is False
    assert again == first | {"duplicate": True}
    assert (await pair.asker.ask(pair.n1, "GET", path("a"))).body["value"] == 2
    assert (await put(pair, "b", 1, "order-7"))["duplicate"] is False


async def test_nothing_is_left_of_what_writes_for_administrators(pair: Pair) -> None:
    await put(pair, "a", 1)

    left = {name for name in pair.memory.inventory() if not name.startswith(("value of", "stream ", "lease of"))}
    assert all(name.startswith("receipts of $admin-") for name in left)


@pytest.mark.parametrize("topic", ["$gateway/nodes/n1", "$other"])
async def test_topics_of_the_system_cannot_be_written(pair: Pair, topic: str) -> None:
    for method, body in (("PUT", {"value": 1}), ("DELETE", None)):
        answer = await pair.asker.ask(pair.n1, method, path(topic), json=body)
        assert (answer.status, answer.kind) == (403, "reserved")


async def test_a_value_that_is_too_large_is_refused_as_for_clients(pair: Pair) -> None:
    answer = await pair.asker.ask(pair.n1, "PUT", path("a"), json={"value": "x" * 40_000})

    assert (answer.status, answer.kind) == (400, "bad-request")
    assert answer.body["errors"][0]["name"] == "/value"


@pytest.mark.parametrize("limit", ["1", "3", "1000"])
async def test_pages_hold_every_topic_that_a_selector_matches(pair: Pair, limit: str) -> None:
    topics = [f"{root}/{number}" for root in ("prices", "orders", "news") for number in range(5)]
    for topic in topics:
        await put(pair, topic, topic)

    for selector, expected in (
        ("**", topics),
        ("orders/*", topics[5:10]),
        ("*/3", [each for each in topics if each.endswith("/3")]),
        ("news/4", ["news/4"]),
        ("news/9", []),
    ):
        pages = await pair.asker.pages(pair.n2, "/v1/topics", selector=selector, limit=limit, values="true")
        items = [item for page in pages for item in page]
        assert sorted(item["topic"] for item in items) == sorted(expected)
        assert all(item["value"] == item["topic"] for item in items)
        assert all(len(page) <= int(limit) for page in pages)


async def test_values_are_left_out_unless_they_are_asked_for(pair: Pair) -> None:
    await put(pair, "a", "x" * 100)

    ((item,),) = await pair.asker.pages(pair.n1, "/v1/topics")

    assert (item["value"], item["size"]) == (None, 102)


async def test_a_page_ends_before_it_gets_too_large(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.administration.topics.PAGE_BYTES", 150)
    for number in range(6):
        await put(pair, f"a/{number}", "x" * 98)

    pages = await pair.asker.pages(pair.n1, "/v1/topics", values="true")

    assert [len(page) for page in pages] == [2, 2, 2]


async def test_who_selects_a_topic(pair: Pair) -> None:
    clients = {}
    for node, name, selectors in (
        (pair.n1, "all", ["+**"]),
        (pair.n2, "prices", ["+prices/*"]),
        (pair.n2, "but", ["+prices/**", "-prices/ACME"]),
        (pair.n1, "other", ["+news"]),
    ):
        client = clients[name] = RawClient(node.url)
        await client.connect()
        await client.hello(name)
        for number, each in enumerate(selectors, 1):
            kind = "subscribe" if each[0] == "+" else "unsubscribe"
            await client.send({"id": number, "type": kind, "request": number, "selector": each[1:]})
            await client.expect("reply")

    pages = await pair.asker.pages(pair.n1, f"{path('prices/ACME')}/subscribers", limit="1")

    assert sorted(item["principal"] for page in pages for item in page) == ["all", "prices"]
    for client in clients.values():
        await client.cut()


async def test_a_removed_topic_is_told_to_who_selects_it_and_gone_for_all_others(pair: Pair) -> None:
    written = await put(pair, "prices/ACME", 1)
    async with RawClient(pair.n2.url) as client:
        await client.hello()
        await client.send({"id": 1, "type": "subscribe", "request": 1, "selector": "prices/*"})
        assert (await client.expect("update"))["value"] == 1

        answer = await pair.asker.ask(pair.n1, "DELETE", path("prices/ACME"))

        assert (answer.status, answer.body["version"]) == (200, int(str(written["version"])) + 1)
        update = await client.expect("update")
        assert (update["removed"], update["value"], update["version"]) == (True, None, answer.body["version"])
        assert "snapshot" not in update

        # Who selects it now has nothing to take back; neither list nor detail show it.
        await client.send({"id": 2, "type": "subscribe", "request": 2, "selector": "prices/ACME"})
        await client.expect("reply")
        assert (await pair.asker.ask(pair.n1, "GET", path("prices/ACME"))).kind == "topic-unknown"
        assert await pair.asker.pages(pair.n1, "/v1/topics") == [[]]
        assert await pair.asker.pages(pair.n1, "/v1/topics", selector="prices/ACME") == [[]]

        again = await put(pair, "prices/ACME", 2)
        update = await client.expect("update")
        assert again["version"] == update["version"] == answer.body["version"] + 1
        assert "removed" not in update


async def test_removing_twice_is_removing_once(pair: Pair) -> None:
    await put(pair, "a", 1)
    first = await pair.asker.ask(pair.n1, "DELETE", path("a"))
    second = await pair.asker.ask(pair.n1, "DELETE", path("a"))

    assert second.body == first.body | {"duplicate": True}
    assert (await pair.asker.ask(pair.n1, "DELETE", path("never"))).kind == "topic-unknown"


async def test_a_session_that_was_away_hears_of_the_removal_when_it_fails_over(pair: Pair) -> None:
    await put(pair, "prices/ACME", 1)
    client = RawClient(pair.n1.url)
    await client.connect()
    welcome = await client.hello()
    await client.send({"id": 1, "type": "subscribe", "request": 1, "selector": "prices/*"})
    await client.expect("update")
    await client.cut()
    removed = await pair.asker.ask(pair.n1, "DELETE", path("prices/ACME"))

    async with RawClient(pair.n2.url) as again:
        resumed = await again.resume(welcome["token"], attempt=1)
        update = await again.expect("update")

    assert resumed["outcome"] == "failed_over"
    assert (update["removed"], update["snapshot"], update["version"]) == (True, True, removed.body["version"])


async def test_a_node_that_read_the_values_again_does_not_bring_a_removed_topic_back(pair: Pair) -> None:
    await put(pair, "prices/ACME", 1)
    async with RawClient(pair.n2.url) as client:
        await client.hello()
        await client.send({"id": 1, "type": "subscribe", "request": 1, "selector": "prices/*"})
        await client.expect("update")
        delivery = pair.n2.gateway.node.sessions.delivery
        (partition,) = list(delivery.replicas)
        pair.n2.gateway.node._context.grid.tail.unfollow(partition.number)
        # The removal is forgotten already when the node comes to read again.
        data = pair.memory._data.topics._partitions[partition.number]
        await pair.asker.ask(pair.n1, "DELETE", path("prices/ACME"))
        data.forget_removals(float("inf"))

        delivery._position_lost(partition.number)

        update = await client.expect("update")
        assert (update["removed"], update["snapshot"], update["version"]) == (True, True, 2)
        assert not partition.values
    assert (await pair.asker.ask(pair.n1, "GET", path("prices/ACME"))).status == 404


async def test_revocations_block_and_unblock(pair: Pair) -> None:
    async with RawClient(pair.n2.url) as client:
        await client.hello("mallory")
        body = {"kind": "principal", "value": "mallory", "reason": "ticket 7"}
        made = await pair.asker.ask(pair.n1, "POST", "/v1/revocations", json=body, role="operator")

        assert made.status == 201
        assert (made.body["kind"], made.body["value"], made.body["until"]) == ("principal", "mallory", None)
        assert await client.closed() is not None
    ((listed,),) = await pair.asker.pages(pair.n1, "/v1/revocations")
    assert listed == made.body

    unblocked = await pair.asker.ask(pair.n1, "DELETE", "/v1/revocations/principal/mallory")
    assert unblocked.status == 204
    again = await pair.asker.ask(pair.n1, "DELETE", "/v1/revocations/principal/mallory")
    assert (again.status, again.kind) == (404, "revocation-unknown")


async def test_revocations_come_in_pages(pair: Pair) -> None:
    for number in range(5):
        body = {"kind": "credential", "value": f"token/{number}", "until": 4_000_000_000}
        assert (await pair.asker.ask(pair.n1, "POST", "/v1/revocations", json=body)).status == 201

    pages = await pair.asker.pages(pair.n1, "/v1/revocations", limit="2")

    assert [item["value"] for page in pages for item in page] == [f"token/{number}" for number in range(5)]
    unblocked = await pair.asker.ask(pair.n1, "DELETE", "/v1/revocations/credential/token%2F0")
    assert unblocked.status == 204


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "colour", "value": "x"},
        {"kind": "principal", "value": ""},
        {"kind": "principal", "value": "a\nb"},
        {"kind": "principal", "value": "x", "until": 1},
        {"kind": "principal", "value": "x", "until": "tomorrow"},
        {"value": "x"},
    ],
)
async def test_what_cannot_be_revoked_is_refused(pair: Pair, body: dict[str, object]) -> None:
    answer = await pair.asker.ask(pair.n1, "POST", "/v1/revocations", json=body)

    assert (answer.status, answer.kind) == (400, "bad-request")


async def test_the_configuration_shows_no_secret(pair: Pair) -> None:
    answer = await pair.asker.ask(pair.n2, "GET", "/v1/configuration", role="viewer")

    shown = {each["name"]: each for each in answer.body["items"]}
    assert answer.body["node"] == "n2"
    assert shown["node"]["value"] == "n2"
    assert shown["window_default"]["changed"] is False
    assert "a-key-for-tests" not in str(answer.body)
