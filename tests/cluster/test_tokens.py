"""Tokens: what is wrong with one is told by its own reason, on any node, and harms nobody; none is ever written down.

P8, rung 5 of the ladder. A thief has what he could have: the tokens of a session, old and new, packets that he saw pass
by, and keys that are no longer in use.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from gateway.adapters.redis.keys import Keys
from gateway.adapters.tokens.signer import ItsdangerousTokenSigner, key_id, read_unverified
from gateway.client import Recovery, connect
from gateway.core.types import SessionId, TokenGeneration
from gateway.core.wire.codes import REFUSED, STALE_ATTEMPT, CloseCode, ErrorCode, Outcome
from gateway.local.stack import Stack
from tests.cluster.crowds import Figures
from tests.cluster.grid_reader import PREFIX, GridReader, dump
from tests.support.faults import eventually, faulty
from tests.support.raw_client import Packet, RawClient
from tests.support.stack import cluster
from tests.support.times import scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P8")]

FIRST_KEY: Final = "the-first-key-of-this-cluster-7f2a"
NEXT_KEY: Final = "the-next-key-of-this-cluster-91cc"
RETIRED_KEY: Final = "a-key-that-was-retired-long-ago-03be"
PASSWORD: Final = "correct-horse-battery-staple"
LIFE: Final = 3600.0
FAR_AHEAD: Final = 1000
"""An attempt above all others: it is not the attempt for which these are refused."""
SHORT_WINDOW: Final = scaled(2.0)
KEYS: Final = Keys(PREFIX)
SETTINGS: Final[dict[str, Any]] = {"log_level": "debug", "reap_interval": 0.3, "backoff_initial": 0.05}


# --- Secrets, and where they must not be ------------------------------------------------------------------------------


@dataclass
class Secrets:
    """Everything that must never be written down.

    Attributes:
        texts: the secrets, tokens among them.
    """

    texts: set[str] = field(default_factory=lambda: {FIRST_KEY, NEXT_KEY, RETIRED_KEY, PASSWORD})

    def token(self, token: str) -> str:
        """Note a token; its signature alone is as good as all of it."""
        self.texts |= {token, token.rpartition(".")[2]}
        return token

    def in_text(self, text: str) -> list[str]:
        return [secret for secret in self.texts if secret in text]


async def assert_nowhere(stack: Stack, secrets: Secrets, folder: Path, sessions: Iterable[str]) -> str:
    """Search logs, the grid and its files, and all metrics.

    Args:
        stack: that runs.
        secrets: what to search for.
        folder: the run folder; files of keys in it are called ``*.keys``.
        sessions: ids that must be found, or the search would find nothing at all.

    Returns:
        Figures.
    """
    # HAProxy logs a request when its connection is over, in its own time; and nodes write their lines a moment late.
    await eventually(lambda: "GET /v1/connect" in _logs(_files(folder))["haproxy.log"], "HAProxy logged a request")
    await eventually(
        lambda: any("resume_refused" in text for text in _logs(_files(folder)).values()), "a node logged a refusal"
    )
    texts = _files(folder)
    logs = _logs(texts)
    nodes = "".join(logs[f"{node}.log"] for node in stack.node_names)
    for session in sessions:
        assert session in nodes
    assert "resume_refused" in nodes
    # The append-only file has every write that Redis was ever told to do.
    assert any(".aof" in name and len(text) > 1000 for name, text in logs.items())
    grid = await dump(stack.grid_url)
    assert len(grid) > 1
    texts["grid"] = str(grid)
    urls = [stack.admin_url(node, "/metrics") for node in stack.node_names]
    async with aiohttp.ClientSession() as http:
        for url in (*urls, stack.balancer_metrics_url, stack.balancer_stats_url):
            async with http.get(url) as response:
                texts[url] = await response.text()
    found = {where: secrets.in_text(text) for where, text in texts.items()}
    assert {where: what for where, what in found.items() if what} == {}
    return f"{len(secrets.texts)} secrets searched for in {sum(map(len, texts.values())):,} bytes: none found"


def _logs(texts: dict[str, str]) -> dict[str, str]:
    """The same texts by the names of their files."""
    return {Path(name).name: text for name, text in texts.items()}


def _files(folder: Path) -> dict[str, str]:
    """Read every file of a run, but those that are there to hold keys."""
    return {
        str(path): path.read_bytes().decode("latin-1")
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".keys" and path.name != "token-keys"
    }


# --- Clients that do as they like -------------------------------------------------------------------------------------


class Holder:
    """Who a session belongs to.

    Args:
        stack: where.
        secrets: where its tokens are noted.
    """

    def __init__(self, stack: Stack, secrets: Secrets) -> None:
        self._stack = stack
        self._secrets = secrets
        self._sent = self._received = 0
        self._raw: RawClient | None = None
        self.welcome: Packet = {}
        self.tokens: list[str] = []
        self.attempt = 0

    @property
    def raw(self) -> RawClient:
        """The connection."""
        assert self._raw is not None, "open first"
        return self._raw

    @property
    def session(self) -> str:
        return str(self.welcome["session"])

    @property
    def token(self) -> str:
        """The newest one."""
        return self.tokens[-1]

    async def open(self, node: str, **fields: Any) -> None:
        """Open the session, with a secret that no node has a use for."""
        await self._connect(node)
        self._take(await self.raw.hello(secret=PASSWORD, **fields))

    async def resume(self, node: str, *, prove: bool = True) -> str:
        """Cut the connection and resume, with the newest token; returns the outcome."""
        await self.cut()
        self.attempt += 1
        await self._connect(node)
        answer = await self.raw.resume(self.token, attempt=self.attempt, received=self._received, oldest=self._sent + 1)
        assert answer["type"] == "welcome", answer
        self._take(answer)
        if answer["outcome"] == Outcome.FAILED_OVER:
            self._sent = self._received = 0
        if prove:
            await self.raw.send({"type": "ack", "received": self._received})
        return str(answer["outcome"])

    async def use(self) -> None:
        """Use the connection."""
        self._sent += 1
        number = self._sent
        request = self.attempt * 100 + number
        await self.raw.send({"id": number, "request": request, "type": "publish", "topic": "used", "value": number})
        reply = await self.raw.expect("reply", where=lambda packet: packet["request"] == request)
        assert "error" not in reply
        self._received = reply["id"]
        await self.raw.send({"type": "ack", "received": self._received})

    async def bye(self) -> None:
        await self.raw.send({"type": "bye"})
        await self.raw.expect("bye")
        await self.cut()

    async def cut(self) -> None:
        """Lose the connection; harmless if there is none."""
        if self._raw is not None:
            await self._raw.cut()

    async def _connect(self, node: str) -> None:
        self._raw = RawClient(self._stack.node_url(node))
        await self._raw.connect()

    def _take(self, welcome: Packet) -> None:
        self.welcome = welcome
        self.tokens.append(self._secrets.token(welcome["token"]))


@asynccontextmanager
async def holders(stack: Stack, secrets: Secrets, count: int) -> AsyncIterator[list[Holder]]:
    """People with sessions, not opened yet."""
    people = [Holder(stack, secrets) for _ in range(count)]
    try:
        yield people
    finally:
        for person in people:
            await person.cut()


@dataclass(frozen=True, slots=True)
class Forgery:
    """A resume that must be refused.

    Attributes:
        token: that it shows.
        reason: for which it is refused.
        attempt: that it claims.
        close: how the connection ends.
    """

    token: str
    reason: ErrorCode
    attempt: int = FAR_AHEAD
    close: CloseCode = REFUSED


async def assert_refused(stack: Stack, forgeries: Mapping[str, Forgery], nodes: Iterable[str]) -> None:
    for node in nodes:
        for name, forgery in forgeries.items():
            async with RawClient(stack.node_url(node)) as thief:
                answer = await thief.resume(forgery.token, attempt=forgery.attempt)
                assert (name, answer["type"], answer.get("code")) == (name, "error", forgery.reason), answer
                assert "retry_after" not in answer
                assert await thief.closed() == forgery.close.code, name


def tampered(token: str, others: str) -> dict[str, str]:
    """Change a token in ways that do not need a key."""
    payload, _, signature = token.rpartition(".")
    flip = {"A": "B"}
    return {
        "payload changed": f"{payload[:8]}{flip.get(payload[8], 'A')}{payload[9:]}.{signature}",
        "signature changed": f"{payload}.{signature[:8]}{flip.get(signature[8], 'A')}{signature[9:]}",
        "signature cut off": payload,
        "signature of another token": f"{payload}.{others.rpartition('.')[2]}",
        "nothing": "",
        "nonsense": "no token at all",
    }


async def record(stack: Stack, session: str) -> Any:
    async with GridReader(stack.grid_url) as grid:
        return await grid.call("HGETALL", KEYS.session(SessionId(session)))


def key_file(folder: Path, name: str, *keys: str) -> Path:
    path = folder / f"{name}.keys"
    path.write_text("".join(f"{key}\n" for key in keys))
    return path


# --- The tests --------------------------------------------------------------------------------------------------------


async def test_a_token_that_is_not_good_is_refused_everywhere_and_harms_nobody(
    tmp_path: Path, figures: Figures, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = Secrets()
    keys = key_file(tmp_path, "cluster", FIRST_KEY)
    signer = ItsdangerousTokenSigner([FIRST_KEY.encode()], life=LIFE)
    stranger = ItsdangerousTokenSigner([RETIRED_KEY.encode()], life=LIFE)
    async with (
        cluster(tmp_path, token_keys_file=keys, **SETTINGS) as stack,
        holders(stack, secrets, 4) as (owner, unproven, leaver, absent),
        faulty(stack.url) as (url, proxy),
        connect(url, principal="python", secret=PASSWORD) as session,
    ):
        await absent.open("n1", window=SHORT_WINDOW)
        await absent.cut()
        await owner.open("n1")
        for _ in range(2):
            assert await owner.resume("n1") == Outcome.REATTACHED
        # Resumed, but the node has no sign yet that the new token has arrived.
        await unproven.open("n1")
        assert await unproven.resume("n1", prove=False) == Outcome.REATTACHED
        await leaver.open("n1")
        await leaver.bye()
        await eventually(lambda: _is_confirmed(stack, owner.session, 3), "the proof of the new token is in the grid")

        now = time.time()
        name = SessionId(owner.session)
        newest = TokenGeneration(3)
        forgeries = {
            how: Forgery(secrets.token(text), ErrorCode.TOKEN_INVALID)
            if "." in text
            else Forgery(text, ErrorCode.TOKEN_INVALID)
            for how, text in tampered(owner.token, unproven.token).items()
        }
        forgeries |= {
            "expired": Forgery(secrets.token(signer.sign(name, newest, now=now - 2 * LIFE)), ErrorCode.TOKEN_EXPIRED),
            "signed with a retired key": Forgery(
                secrets.token(stranger.sign(name, newest, now=now)), ErrorCode.TOKEN_KEY_RETIRED
            ),
            "of nobody": Forgery(
                secrets.token(signer.sign(SessionId("nobody"), newest, now=now)), ErrorCode.SESSION_UNKNOWN
            ),
            "of a closed session": Forgery(leaver.token, ErrorCode.SESSION_CLOSED),
            "of an older generation": Forgery(owner.tokens[0], ErrorCode.TOKEN_SUPERSEDED),
            "a resume seen before": Forgery(owner.tokens[1], ErrorCode.TOKEN_SUPERSEDED, attempt=2),
            "a resume seen before, not proven": Forgery(
                unproven.tokens[0], ErrorCode.STALE_ATTEMPT, attempt=1, close=STALE_ATTEMPT
            ),
        }
        before = [await record(stack, person.session) for person in (owner, unproven)]
        await assert_refused(stack, forgeries, ("n1", "n2"))
        assert [await record(stack, person.session) for person in (owner, unproven)] == before
        # Through HAProxy it is the same, and in its log as little.
        async with RawClient(stack.url) as thief:
            assert (await thief.resume(owner.tokens[0], attempt=FAR_AHEAD))["code"] == ErrorCode.TOKEN_SUPERSEDED
        await eventually(lambda: _is_gone(stack, absent.session), "the absent one's window is over")
        await assert_refused(
            stack, {"of an expired session": Forgery(absent.token, ErrorCode.SESSION_EXPIRED)}, ("n1", "n2")
        )

        for person in (owner, unproven):
            assert not person.raw.ws.closed
            await person.use()
            assert await person.resume("n1") == Outcome.REATTACHED
            assert await person.resume("n2") == Outcome.FAILED_OVER
            await person.use()
        proxy.cut()
        recovery = await _first(session.recoveries())
        assert recovery.outcome == Outcome.REATTACHED
        resume = session._supervisor._machine._resume
        assert resume is not None
        secrets.token(resume._token)

        told = await assert_nowhere(stack, secrets, tmp_path, [owner.session, unproven.session, session.id])
        assert secrets.in_text(caplog.text) == []
        assert session.id in caplog.text
        metrics = await stack.metrics("n2")
        for reason in {forgery.reason for forgery in forgeries.values()}:
            assert metrics[f'gateway_resumes_total{{outcome="{reason}"}}'] > 0
        figures(
            f"{len(forgeries) + 1} kinds of bad tokens refused with {len({f.reason for f in forgeries.values()}) + 1} "
            f"reasons on the owner and on another node; the owners went on; {told}"
        )
        for person in (owner, unproven):
            await person.bye()


@pytest.mark.thorough
async def test_keys_are_rolled_over_without_losing_a_session(tmp_path: Path, figures: Figures) -> None:
    """Three nodes in the three steps of a rollover: the new key verifies; it signs; the old one is dropped."""
    secrets = Secrets()
    first, following = (key_file(tmp_path, name, key) for name, key in (("first", FIRST_KEY), ("next", NEXT_KEY)))
    both = key_file(tmp_path, "both", FIRST_KEY, NEXT_KEY)
    unused = key_file(tmp_path, "unused", "a-key-that-nobody-has-signed-with")
    async with (
        cluster(tmp_path, token_keys_file=first, token_verify_keys_file=following, **SETTINGS) as stack,
        holders(stack, secrets, 3) as (early, late, stayer),
    ):
        for node, keys in (("n2", both), ("n3", following)):
            await stack.kill_node(node)
            await stack.start_node(node, token_keys_file=keys, token_verify_keys_file=unused)
        await stack.balanced()
        await early.open("n1")
        await stayer.open("n1")
        await late.open("n2")
        assert [_signed_with(holder) for holder in (early, stayer, late)] == [FIRST_KEY, FIRST_KEY, NEXT_KEY]

        # Signed with the next key already, shown to a node that only verifies with it; and back again.
        assert await late.resume("n1") == Outcome.FAILED_OVER
        assert _signed_with(late) == FIRST_KEY
        assert await late.resume("n2") == Outcome.FAILED_OVER
        assert await late.resume("n3") == Outcome.FAILED_OVER
        assert _signed_with(late) == NEXT_KEY
        # Signed with the old key: good where it still verifies, refused by its own reason where it is dropped.
        retired = {"signed with the dropped key": Forgery(stayer.token, ErrorCode.TOKEN_KEY_RETIRED)}
        before = await record(stack, stayer.session)
        await assert_refused(stack, retired, ("n3",))
        assert await record(stack, stayer.session) == before
        assert await early.resume("n2") == Outcome.FAILED_OVER
        assert _signed_with(early) == NEXT_KEY
        assert await early.resume("n3") == Outcome.FAILED_OVER
        await stayer.use()
        assert await stayer.resume("n1") == Outcome.REATTACHED
        async with RawClient(stack.url) as somebody:
            secrets.token((await somebody.hello(secret=PASSWORD))["token"])
            await somebody.send({"type": "bye"})
            await somebody.expect("bye")

        sessions = [holder.session for holder in (early, late, stayer)]
        told = await assert_nowhere(stack, secrets, tmp_path, sessions)
        figures(f"3 sessions over 3 steps of a rollover, none lost; the dropped key refused as such; {told}")
        for holder in (early, late, stayer):
            await holder.use()
            await holder.bye()


async def _is_confirmed(stack: Stack, session: str, generation: int) -> bool:
    async with GridReader(stack.grid_url) as grid:
        return bool(await grid.call("HGET", KEYS.session(SessionId(session)), "confirmed") == str(generation))


async def _is_gone(stack: Stack, session: str) -> bool:
    return not await record(stack, session)


async def _first(recoveries: AsyncIterator[Recovery]) -> Recovery:
    return await anext(aiter(recoveries))


def _signed_with(holder: Holder) -> str:
    read = read_unverified(holder.token)
    return {key_id(key.encode()): key for key in (FIRST_KEY, NEXT_KEY)}[read.key]
