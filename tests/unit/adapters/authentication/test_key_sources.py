"""Keys at a URL: rotation, failures, and that nobody can turn the gateway against the provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Self

import pytest
from aiohttp import web

from gateway.adapters.authentication import Algorithm, ClaimRules, JwtAuthenticator, UrlKeys, key_sources
from gateway.adapters.authentication.key_sources import COOLDOWN
from gateway.adapters.memory import MemoryEventLog
from gateway.catalogue import log_events as events
from gateway.catalogue.log_event import LogEvent
from gateway.ports import AuthenticationUnavailable, Credentials, CredentialsRefused
from tests.support.clock import VirtualClock, eventually
from tests.support.issuers import AUDIENCE, ISSUER, NOW, HttpStandIn, Provider, jwk, token

NEVER = 86400.0


class Bench:
    """An authenticator that fetches the keys of a provider."""

    def __init__(self, provider: HttpStandIn, *, refresh: float = NEVER, timeout: float = 5.0) -> None:
        self.clock = VirtualClock()
        self.log = MemoryEventLog()
        self.keys = UrlKeys(f"{provider.url}/keys", refresh=refresh, timeout=timeout, log=self.log, clock=self.clock)
        self.authenticator = JwtAuthenticator(
            self.keys,
            algorithms=frozenset({Algorithm.ES256}),
            rules=ClaimRules(issuer=ISSUER, audiences=frozenset({AUDIENCE})),
            now=lambda: NOW,
        )

    async def __aenter__(self) -> Self:
        await self.keys.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.keys.close()

    async def ask(self, secret: str) -> str:
        identity = await self.authenticator.authenticate(Credentials(secret=secret))
        assert identity is not None
        return identity.principal

    def told(self, event: LogEvent) -> int:
        return len(self.log.of(event))


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider(jwk("ES256")) as running:
        yield running


async def test_a_crowd_at_the_start_fetches_once(provider: Provider) -> None:
    async with Bench(provider) as bench:
        answers = await asyncio.gather(*(bench.ask(token("ES256")) for _ in range(50)))

    assert set(answers) == {"alice"}
    assert provider.requests == 1


async def test_a_rotated_key_is_found_at_once_and_the_old_one_stays_as_long_as_it_is_published(
    provider: Provider,
) -> None:
    async with Bench(provider) as bench:
        await bench.ask(token("ES256"))
        bench.clock.advance(COOLDOWN)
        provider.keys = [jwk("ES256"), jwk("ES256", 2)]

        answers = await asyncio.gather(*(bench.ask(token("ES256", 2)) for _ in range(50)))
        assert set(answers) == {"alice"}
        assert provider.requests == 2
        assert await bench.ask(token("ES256")) == "alice"

        provider.keys = [jwk("ES256", 2)]
        bench.keys.reload()
        await eventually(lambda: bench.told(events.ISSUER_KEYS_FETCHED) == 3)
        bench.clock.advance(COOLDOWN)
        with pytest.raises(CredentialsRefused, match="does not have"):
            await bench.ask(token("ES256"))


async def test_the_set_is_fetched_again_by_itself(provider: Provider) -> None:
    async with Bench(provider, refresh=0.01) as bench:
        await bench.ask(token("ES256"))
        provider.keys = [jwk("ES256", 2)]

        await eventually(lambda: bench.told(events.ISSUER_KEYS_FETCHED) == 2)

        assert await bench.ask(token("ES256", 2)) == "alice"


async def test_made_up_key_ids_cannot_turn_the_gateway_against_the_provider(provider: Provider) -> None:
    async with Bench(provider) as bench:
        await bench.ask(token("ES256"))
        for attempt in range(100):
            # It may be the key of a rotation that happens right now, so that "no" would be wrong.
            with pytest.raises(AuthenticationUnavailable):
                await bench.ask(token("ES256", 2, headers={"kid": f"made-up-{attempt}"}))
        assert provider.requests == 1

        bench.clock.advance(COOLDOWN)
        with pytest.raises(CredentialsRefused, match="does not have"):
            await bench.ask(token("ES256", 2, headers={"kid": "made-up"}))
        assert provider.requests == 2


@pytest.mark.parametrize("failure", ["status", "nonsense", "no keys", "away"])
async def test_the_last_good_keys_stay_in_force(provider: Provider, failure: str) -> None:
    async with Bench(provider) as bench:
        await bench.ask(token("ES256"))
        match failure:
            case "status":
                provider.status = 503
            case "nonsense":
                provider.answer = _nonsense
            case "no keys":
                provider.keys = []
            case _:
                await provider.stop()
        bench.keys.reload()
        await eventually(lambda: bench.told(events.ISSUER_KEYS_KEPT) == 1)

        assert await bench.ask(token("ES256")) == "alice"
        # A key that nobody knows may be a new one, of which the provider cannot tell now.
        bench.clock.advance(COOLDOWN)
        with pytest.raises(AuthenticationUnavailable, match="gives no keys now"):
            await bench.ask(token("ES256", 2))
        assert await bench.ask(token("ES256")) == "alice"


async def test_a_provider_that_is_away_for_long_is_asked_every_few_minutes(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However seldom keys are fetched: the alert counts failures within a quarter of an hour."""
    assert key_sources.RETRY_MOST <= 300
    monkeypatch.setattr(key_sources, "RETRY_INITIAL", 0.01)
    monkeypatch.setattr(key_sources, "RETRY_MOST", 0.02)
    provider.status = 503
    async with Bench(provider, refresh=NEVER) as bench:
        # Doubled each time, the last of these would come after minutes.
        await eventually(lambda: bench.told(events.ISSUER_KEYS_KEPT) >= 15)


async def _nonsense(_request: web.Request) -> web.Response:
    return web.Response(text="<html>sign in</html>")


async def test_nobody_is_admitted_and_nobody_refused_for_good_before_there_are_keys(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_sources, "RETRY_INITIAL", 0.05)
    provider.status = 500
    async with Bench(provider) as bench:
        with pytest.raises(AuthenticationUnavailable):
            await bench.ask(token("ES256"))

        provider.status = 200
        await eventually(lambda: bench.told(events.ISSUER_KEYS_FETCHED) == 1)
        assert await bench.ask(token("ES256")) == "alice"


async def test_a_provider_that_hangs_holds_nobody_up_for_longer_than_its_time(provider: Provider) -> None:
    provider.held = asyncio.Event()
    async with Bench(provider, timeout=0.05) as bench:
        with pytest.raises(AuthenticationUnavailable):
            await bench.ask(token("ES256"))
    provider.held.set()


async def test_a_redirect_is_not_followed() -> None:
    async def redirect(request: web.Request) -> web.Response:
        raise web.HTTPFound(str(request.url.with_path("/elsewhere")))

    async with HttpStandIn(redirect) as server, Bench(server) as bench:
        with pytest.raises(AuthenticationUnavailable):
            await bench.ask(token("ES256"))
        assert bench.told(events.ISSUER_KEYS_KEPT) == server.requests == 1


@pytest.mark.parametrize("compressed", [False, True])
async def test_an_endless_answer_is_cut_and_a_compressed_one_is_not_unpacked(*, compressed: bool) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        if compressed:
            response.enable_compression(web.ContentCoding.gzip)
        await response.prepare(request)
        while sent < 2**25:
            await response.write(b" " * 65536)
            sent += 65536
        return response

    async with HttpStandIn(endless) as server, Bench(server) as bench:
        with pytest.raises(AuthenticationUnavailable):
            await bench.ask(token("ES256"))
    assert compressed or sent < 2**24
