"""Who may ask the admin API, and what unauthenticated clients learn."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from gateway.adapters.admin import OPERATIONS
from gateway.adapters.admin.access import Action
from gateway.catalogue import log_events as events
from gateway.core.pacing.failures import FORGIVEN
from gateway.settings.admin_tokens import new_token, tokens_line
from tests.integration.admin.support import Admins, Asker, Pair
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

EVERYTHING = [
    (each.method, each.path.replace("{", "").replace("}", ""), each.action or "any:read") for each in OPERATIONS
]


@pytest.mark.parametrize(("method", "path", "action"), EVERYTHING)
async def test_no_operation_answers_an_unauthenticated_client(pair: Pair, method: str, path: str, action: str) -> None:
    answer = await pair.asker.ask(pair.n1, method, path, role=None)

    assert (answer.status, answer.kind) == (401, "unauthenticated")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("method", "path", "action"), [each for each in EVERYTHING if not each[2].endswith(":read")])
async def test_a_viewer_changes_nothing(pair: Pair, method: str, path: str, action: str) -> None:
    answer = await pair.asker.ask(pair.n1, method, path, role="viewer")

    assert (answer.status, answer.kind) == (403, "forbidden")
    assert str(action) in answer.body["detail"]


@pytest.mark.parametrize(
    "said", ["", "Bearer", "Bearer ", "Basic b3BzOm9wcw==", "Bearer gwadm_x", "Bearer \xff", "bearer" * 100]
)
async def test_anything_else_than_a_token_is_refused(pair: Pair, said: str) -> None:
    answer = await pair.asker.ask(pair.n1, "GET", "/v1/nodes", role=None, headers={"Authorization": said})

    assert answer.status == 401


async def test_who_fails_too_often_is_told_to_wait_and_locks_nobody_out(pair: Pair) -> None:
    wrong = {"Authorization": "Bearer gwadm_wrong"}
    for _ in range(FORGIVEN):
        answer = await pair.asker.ask(pair.n1, "GET", "/v1/nodes", role=None, headers=wrong)
        assert answer.status == 401
    answer = await pair.asker.ask(pair.n1, "GET", "/v1/nodes", role=None, headers=wrong)

    assert (answer.status, answer.kind) == (429, "too-many-failures")
    assert int(answer.headers["Retry-After"]) >= 1
    assert (await pair.asker.ask(pair.n1, "GET", "/v1/nodes", role="viewer")).status == 200
    refused = [fields for event, fields in pair.n1.log.events if event is events.ADMIN_REFUSED]
    assert len(refused) == FORGIVEN
    assert "gwadm_" not in str(refused)


async def test_without_a_file_administration_is_off_and_says_how_to_switch_it_on(tmp_path: Path) -> None:
    admins = Admins.make(tmp_path)
    async with running_node("n1") as node, aiohttp.ClientSession() as http:
        answer = await Asker(http, admins).ask(node, "GET", "/v1/nodes")

    assert (answer.status, answer.kind) == (404, "administration-off")
    assert "admin_tokens_file" in answer.body["detail"]


async def test_health_needs_no_token_and_the_document_neither(pair: Pair) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert (await pair.asker.ask(pair.n1, "GET", path, role=None)).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9101", "127.0.0.1.evil.example", "localhost.evil"])
async def test_a_request_for_another_host_is_refused(pair: Pair, host: str) -> None:
    answer = await pair.asker.ask(pair.n1, "GET", "/v1/nodes", headers={"Host": host})

    assert (answer.status, answer.kind) == (421, "misdirected")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "[::1]:9101", "LOCALHOST:9101", "10.0.0.7"])
async def test_a_request_by_address_or_for_this_machine_is_served(pair: Pair, host: str) -> None:
    assert (await pair.asker.ask(pair.n1, "GET", "/v1/nodes", headers={"Host": host})).status == 200


async def test_names_can_be_allowed(tmp_path: Path) -> None:
    admins = Admins.make(tmp_path)
    async with (
        running_node("n1", admin_tokens_file=admins.file, admin_hosts=("gateway.internal",)) as node,
        aiohttp.ClientSession() as http,
    ):
        answer = await Asker(http, admins).ask(node, "GET", "/v1/nodes", headers={"Host": "Gateway.internal:80"})

    assert answer.status == 200


async def test_no_page_of_another_origin_is_admitted(pair: Pair) -> None:
    answer = await pair.asker.ask(pair.n1, "GET", "/v1/nodes", headers={"Origin": "https://evil.example"})
    preflight = await pair.asker.ask(
        pair.n1,
        "OPTIONS",
        "/v1/nodes",
        role=None,
        headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"},
    )

    for each in (answer, preflight):
        assert not [name for name in each.headers if name.lower().startswith("access-control")]
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Server"] == "gateway"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
@pytest.mark.parametrize("role", [None, "viewer"], ids=["without a token", "with a token"])
async def test_monitors_may_ask_by_any_name_and_learn_of_nobody(pair: Pair, path: str, role: str | None) -> None:
    """As the reference page says, and why."""
    async with RawClient(pair.n1.url) as client:
        welcome = await client.hello(principal="somebody-in-particular")
        url = f"{pair.n1.admin}{path}"
        said = {"Host": "rebound.example"}
        if role is not None:
            said["Authorization"] = f"Bearer {pair.admins.tokens[role]}"
        async with aiohttp.ClientSession() as http, http.get(url, headers=said) as answer:
            text = await answer.text()

    assert answer.status == 200
    assert "somebody-in-particular" not in text
    assert welcome["session"] not in text


async def test_a_reload_takes_a_token_away(pair: Pair, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    Admins.make(other).file.replace(pair.admins.file)
    pair.n1.gateway.reload()

    assert (await pair.asker.ask(pair.n1, "GET", "/v1/nodes")).status == 401
    assert (await pair.asker.ask(pair.n2, "GET", "/v1/nodes")).status == 200


async def test_a_role_that_nobody_defines_is_warned_of_once_the_file_is_read(pair: Pair) -> None:
    assert pair.n1.log.of(events.ADMIN_ROLE_UNDEFINED) == []
    with pair.admins.file.open("a") as file:
        file.write("\n" + tokens_line("ann", frozenset({"oprator"}), new_token()))

    pair.n1.gateway.reload()

    assert pair.n1.log.of(events.ADMIN_ROLE_UNDEFINED) == [{"role": "oprator", "tokens": ["ann"]}]
    async with running_node("n3", memory=pair.memory, admin_tokens_file=pair.admins.file) as late:
        assert late.log.of(events.ADMIN_ROLE_UNDEFINED) == [{"role": "oprator", "tokens": ["ann"]}]


async def test_changes_stand_in_the_audit_log_and_reading_does_not(pair: Pair) -> None:
    await pair.asker.ask(pair.n1, "GET", "/v1/sessions")
    await pair.asker.ask(pair.n1, "DELETE", "/v1/sessions/nobody%0Aforged", role="operator")

    ((_, line),) = [each for each in pair.n1.log.events if each[0] is events.ADMIN_ACTED]
    assert line == {
        "caller": "the-operator",
        "roles": ["operator"],
        "action": "sessions:close",
        "operation": "closeSession",
        "target": "session nobody\nforged",
        "outcome": "session-unknown",
        "address": "127.0.0.1",
        "forwarded_by": None,
    }


@pytest.mark.parametrize(("role", "may_drain"), [("viewer", False), ("operator", True), ("administrator", True)])
async def test_a_caller_is_told_what_it_may_do(pair: Pair, role: str, *, may_drain: bool) -> None:
    answer = await pair.asker.ask(pair.n1, "GET", "/v1/access", role=role)

    assert (answer.status, answer.body["name"], answer.body["roles"]) == (200, f"the-{role}", [role])
    assert "nodes:read" in answer.body["actions"]
    assert ("nodes:drain" in answer.body["actions"]) is may_drain
    assert set(answer.body["actions"]) <= set(Action)
