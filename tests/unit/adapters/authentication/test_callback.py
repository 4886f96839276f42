"""The callback: every answer, no answer, and a storm of clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

import pytest
from aiohttp import web

from gateway.adapters.authentication import CallbackAuthenticator
from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.app.runtime.clock import Clock
from gateway.app.security.verifications import Verifications
from gateway.ports import AuthenticationUnavailable, Credentials, CredentialsRefused, Identity, VerificationRefused
from tests.support.clock import VirtualClock, eventually
from tests.support.issuers import NOW, HttpStandIn
from tests.support.verifications import pool

SECRET = "s3cret of alice"
ALICE = Credentials(principal="alice", secret=SECRET, address="192.0.2.7")


class Service(HttpStandIn):
    """An operator's callback.

    Attributes:
        questions: what was asked, and the headers.
        status, fields: of the answers; a text instead of fields is answered as it is.
        go: answers are held back while it is not set.
        running, most: questions at the same time, now and at most.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.questions: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.status = 200
        self.fields: Any = {"principal": "alice", "roles": ["trader"], "properties": {"team": "fx"}}
        self.go = asyncio.Event()
        self.go.set()
        self.running = self.most = 0

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.questions.append(await request.json())
        self.headers.append(request.headers)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
        finally:
            self.running -= 1
        if isinstance(self.fields, bytes):
            return web.Response(body=self.fields, status=self.status)
        return web.json_response(self.fields, status=self.status)


class Bench:
    """An authenticator that asks a service."""

    def __init__(self, service: HttpStandIn, **changes: Any) -> None:
        self.clock = VirtualClock()
        self.wall = VirtualClock(NOW)
        usual: dict[str, Any] = {"timeout": 5.0, "remember": 60.0, "entries": 1000}
        places = changes.pop("pool", None) or pool(changes.pop("concurrency", 4))
        self.authenticator = CallbackAuthenticator(
            f"{service.url}/who", places, clock=self.clock, now=self.wall, **(usual | changes)
        )

    async def __aenter__(self) -> Self:
        await self.authenticator.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.authenticator.close()

    async def ask(self, credentials: Credentials = ALICE) -> Identity | None:
        return await self.authenticator.authenticate(credentials)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with Service() as running:
        yield running
        running.go.set()


async def test_a_yes_tells_who_it_is(service: Service) -> None:
    service.fields |= {"expires": NOW + 60, "credential": "c-1", "shoe_size": 43}
    async with Bench(service, bearer="the gateway's own secret") as bench:
        assert await bench.ask() == Identity(
            principal="alice",
            roles=frozenset({"trader"}),
            properties={"team": "fx"},
            expires=NOW + 60,
            credential="c-1",
        )
    assert service.questions == [{"principal": "alice", "secret": SECRET}]
    assert service.headers[0]["Authorization"] == "Bearer the gateway's own secret"
    assert service.headers[0]["Content-Type"] == "application/json"


async def test_the_principal_may_be_left_to_either_side(service: Service) -> None:
    service.fields = {}
    async with Bench(service) as bench:
        assert await bench.ask() == Identity(principal="alice")
        with pytest.raises(AuthenticationUnavailable, match="'principal' is missing"):
            await bench.ask(Credentials(secret=SECRET))
        service.fields = {"principal": "bob"}
        assert await bench.ask(Credentials(secret="of bob")) == Identity(principal="bob")


async def test_without_a_secret_there_is_nothing_to_ask(service: Service) -> None:
    async with Bench(service) as bench:
        assert await bench.ask(Credentials(principal="alice")) is None
        assert await bench.ask(Credentials(principal="alice", secret="x" * 20_000)) is None
        with pytest.raises(CredentialsRefused, match="no Unicode"):
            await bench.ask(Credentials(principal="alice", secret="\ud800"))
    assert service.requests == 0


@pytest.mark.parametrize(("status", "final"), [(401, False), (403, True)])
async def test_a_no_is_a_no_and_is_not_remembered(service: Service, status: int, *, final: bool) -> None:
    service.status = status
    async with Bench(service) as bench:
        for _ in range(2):
            with pytest.raises(CredentialsRefused) as caught:
                await bench.ask()
            assert caught.value.final is final
            assert SECRET not in str(caught.value)
    assert service.requests == 2


@pytest.mark.parametrize("status", [201, 204, 301, 302, 307, 400, 404, 429, 500, 502, 503])
async def test_whatever_is_no_clear_answer_lets_nobody_in_and_can_be_asked_again(service: Service, status: int) -> None:
    service.status = status
    async with Bench(service) as bench:
        with pytest.raises(AuthenticationUnavailable, match=f"answered with status {status}"):
            await bench.ask()
        service.status = 200
        assert await bench.ask() is not None


@pytest.mark.promise("P20")
@pytest.mark.parametrize(
    "fields",
    [
        b"",
        b"yes",
        b"true",
        b"\xff",
        b"[]",
        b'{"principal":"alice","principal":"root"}',
        b'{"expires":NaN}',
        b" " * 70_000,
        {"principal": 7},
        {"principal": ""},
        {"principal": "al\nice"},
        {"roles": "admin"},
        {"roles": [7]},
        {"roles": ["a b"]},
        {"properties": ["team"]},
        {"properties": {"team": 7}},
        {"properties": {"$team": "fx"}},
        {"expires": "tomorrow"},
        {"expires": True},
        {"expires": -1},
        {"credential": 7},
        {"credential": ""},
        {"remember": "long"},
        {"expires": 1e308},
        {"expires": 10**400},
        {"expires": NOW * 1000},
        {"expires": []},
        {"remember": -1},
        {"roles": ""},
        {"roles": 0},
        {"roles": {}},
        {"properties": ""},
        {"properties": []},
        {"properties": False},
        {"principal": None},
        {"principal": "\ud800"},
        {"credential": "\ud800"},
    ],
    ids=range(37),
)
async def test_nonsense_lets_nobody_in(service: Service, fields: Any) -> None:
    service.fields = fields
    async with Bench(service) as bench:
        with pytest.raises(AuthenticationUnavailable) as caught:
            await bench.ask()
    assert SECRET not in str(caught.value)
    assert "/who" in str(caught.value)


async def test_credentials_that_have_expired_are_refused(service: Service) -> None:
    service.fields = {"expires": NOW}
    async with Bench(service) as bench:
        with pytest.raises(CredentialsRefused, match="have expired"):
            await bench.ask()


async def test_a_service_that_hangs_holds_nobody_up_for_longer_than_its_time(service: Service) -> None:
    service.go.clear()
    one = Verifications(clock=Clock(), metrics=MemoryMetrics(), log=MemoryEventLog()).pool(1, patience=0.025)
    async with Bench(service, timeout=0.05, pool=one) as bench:
        others = [Credentials(principal=f"p{number}", secret=SECRET) for number in range(10)]
        first, *waiting = await asyncio.gather(*map(bench.ask, others), return_exceptions=True)

        assert isinstance(first, AuthenticationUnavailable)
        assert "within 0.05 s" in str(first)
        assert all(isinstance(each, VerificationRefused) for each in waiting)
        service.go.set()
        assert await bench.ask() is not None


async def test_a_number_of_seconds_that_no_float_holds_is_remembered_for_the_usual_time(service: Service) -> None:
    service.fields = {"remember": 10**400}
    async with Bench(service, remember=60.0) as bench:
        assert await bench.ask() == await bench.ask()
    assert service.requests == 1


async def test_a_service_that_is_away_can_be_asked_again(service: Service) -> None:
    async with Bench(service) as bench:
        await service.stop()
        with pytest.raises(AuthenticationUnavailable, match="cannot be asked"):
            await bench.ask()
        async with service:
            assert await bench.ask() is not None


async def test_a_connection_that_breaks_in_the_middle_is_no_answer() -> None:
    async def breaks(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b'{"principal":"alice"')
        assert request.transport is not None
        request.transport.abort()
        return response

    async with HttpStandIn(breaks) as server, Bench(server) as bench:
        with pytest.raises(AuthenticationUnavailable, match="cannot be asked"):
            await bench.ask()


# --- Storms -----------------------------------------------------------------------------------------------------------


async def test_ten_thousand_clients_with_the_same_credentials_cost_one_question(service: Service) -> None:
    service.go.clear()
    async with Bench(service) as bench:
        asked = [asyncio.create_task(bench.ask()) for _ in range(10_000)]
        await eventually(lambda: service.running == 1)
        service.go.set()

        assert {each.principal for each in await asyncio.gather(*asked) if each is not None} == {"alice"}
        await asyncio.gather(*(bench.ask() for _ in range(10_000)))
    assert service.requests == 1


async def test_no_more_questions_than_allowed_are_asked_at_the_same_time(service: Service) -> None:
    service.go.clear()
    service.fields = {}
    async with Bench(service, concurrency=3) as bench:
        others = [Credentials(principal=f"p{number}", secret=SECRET) for number in range(20)]
        asked = [asyncio.create_task(bench.ask(each)) for each in others]
        await eventually(lambda: service.running == 3)
        service.go.set()

        answers = await asyncio.gather(*asked)
    assert [each and each.principal for each in answers] == [each.principal for each in others]
    assert (service.requests, service.most) == (20, 3)


async def test_a_client_that_gives_up_does_not_take_the_answer_from_the_others(service: Service) -> None:
    service.go.clear()
    async with Bench(service) as bench:
        first, second = (asyncio.create_task(bench.ask()) for _ in range(2))
        await eventually(lambda: service.running == 1)
        first.cancel()
        service.go.set()

        assert await second is not None
    assert service.requests == 1


async def test_a_yes_is_remembered_for_its_time(service: Service) -> None:
    async with Bench(service, remember=60.0) as bench:
        await bench.ask()
        bench.clock.advance(59.9)
        await bench.ask()
        assert service.requests == 1
        bench.clock.advance(0.1)
        await bench.ask()
        assert service.requests == 2
        bench.authenticator.forget()
        await bench.ask()
        assert service.requests == 3


@pytest.mark.parametrize(
    ("fields", "seconds"), [({"remember": 5}, 5.0), ({"remember": 1e6}, 60.0), ({"remember": 0}, 0)]
)
async def test_the_callback_may_shorten_that(service: Service, fields: dict[str, Any], seconds: float) -> None:
    service.fields = fields
    async with Bench(service) as bench:
        await bench.ask()
        bench.clock.advance(max(0.0, seconds - 0.1))
        await bench.ask()
        assert service.requests == (1 if seconds else 2)
        bench.clock.advance(0.1)
        await bench.ask()
        assert service.requests == (2 if seconds else 3)


async def test_nothing_is_remembered_beyond_the_end_of_the_credentials(service: Service) -> None:
    service.fields = {"expires": NOW + 10}
    async with Bench(service) as bench:
        await bench.ask()
        bench.wall.advance(10)
        with pytest.raises(CredentialsRefused):
            await bench.ask()


async def test_what_is_remembered_is_bounded_and_holds_no_secret(service: Service) -> None:
    service.fields = {}
    async with Bench(service, entries=3) as bench:
        others = [Credentials(principal=f"p{number}", secret=SECRET) for number in range(5)]
        for each in others:
            await bench.ask(each)
        for each in others[2:]:
            await bench.ask(each)
        assert service.requests == 5
        await bench.ask(others[0])
        assert service.requests == 6
        assert SECRET not in repr(vars(bench.authenticator))


async def test_other_credentials_are_other_questions(service: Service) -> None:
    """Where one ends and the next begins is part of what is remembered."""
    service.fields = {"principal": "somebody"}
    async with Bench(service) as bench:
        for principal, secret in (("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc"), ("ab", "C")):
            await bench.ask(Credentials(principal=principal, secret=secret))
    assert service.requests == 5


@pytest.mark.parametrize("send", [False, True])
async def test_the_address_is_told_on_request_and_then_counts(service: Service, *, send: bool) -> None:
    async with Bench(service, send_address=send) as bench:
        for address in ("192.0.2.7", "192.0.2.8", "192.0.2.7"):
            await bench.ask(Credentials(principal="alice", secret=SECRET, address=address))
    assert service.requests == (2 if send else 1)
    assert ("address" in service.questions[0]) is send


async def test_closing_leaves_nothing_behind(service: Service) -> None:
    service.go.clear()
    async with Bench(service) as bench:
        asked = asyncio.create_task(bench.ask())
        await eventually(lambda: service.running == 1)
    with pytest.raises(AuthenticationUnavailable, match="cannot be asked"):
        await asked
    with pytest.raises(AuthenticationUnavailable, match="before the node starts"):
        await bench.ask()
