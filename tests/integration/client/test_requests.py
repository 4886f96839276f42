"""Requests and their handlers from the outside: clients at real nodes over one grid, through cuts, moves and deaths."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import pytest

from gateway.client import (
    AnswerLost,
    Forbidden,
    GatewayError,
    HandlerFailed,
    HandlerLost,
    HandlersBusy,
    InvalidSelector,
    NoHandler,
    Request,
    RequestRefused,
    RequestTimedOut,
    Session,
    connect,
)
from gateway.core.wire.codes import ErrorCode, MirrorMode
from tests.integration.client.cutting_proxy import CuttingProxy
from tests.support.linked_nodes import LinkedNodes
from tests.support.mirrored_nodes import caught_up
from tests.support.nodes import TestNode, eventually
from tests.support.times import scaled, time_limit

pytestmark = pytest.mark.promise("P1", "P5")

QUICK: dict[str, Any] = {
    "backoff_initial": 0.01,
    "backoff_maximum": 0.05,
    "lease": scaled(60.0),
    "lease_renew": scaled(0.2),
}
QUOTES = "quotes/**"
ACME = "quotes/ACME"
PATIENCE = 30.0
LONG = scaled(30.0)
"""Seconds for an answer that comes."""


class Scene:
    """Nodes over one grid, a proxy in front of the first for who asks, and one for who handles.

    Attributes:
        calls: how often each question was handled, by its value.
    """

    def __init__(self, linked: LinkedNodes, nodes: list[TestNode], proxies: list[CuttingProxy]) -> None:
        self.nodes = nodes
        self.asking, self.handling = proxies
        self._linked = linked
        self.calls: Counter[Any] = Counter()

    @property
    def grid(self) -> Any:
        return self._linked.grid

    async def answer(self, request: Request) -> object:
        """Answer, and count."""
        self.calls[request.value] += 1
        return {"path": request.path, "value": request.value, "by": request.principal}

    def lead(self, proxy: CuttingProxy, node: int) -> None:
        """Have a client lose its connection, and come back to another node."""
        proxy.target = self.nodes[node].gateway.port
        proxy.cut()

    def kill(self, node: int) -> None:
        """Take a node from the world in this very moment."""
        dead = self.nodes[node]
        for other in self.nodes:
            if other is not dead:
                self._linked.network.cut(dead.gateway.me, other.gateway.me)
        dead.gateway.node._context.grid.cut()  # type: ignore[attr-defined]

    def none_open(self) -> bool:
        """Tell whether the grid holds no question."""
        return not [each for each in self.grid.inventory() if each.startswith("question")]


@asynccontextmanager
async def scene(patch: pytest.MonkeyPatch, **settings: Any) -> AsyncIterator[Scene]:
    """Run three nodes."""
    linked = LinkedNodes(patch)
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(linked.run("n1", "n2", "n3", **(QUICK | settings)))
        proxies = [await stack.enter_async_context(CuttingProxy(nodes[0].gateway.port)) for _ in range(2)]
        yield Scene(linked, nodes, proxies)


@pytest.fixture
async def found(monkeypatch: pytest.MonkeyPatch, nothing_left_over: None) -> AsyncIterator[Scene]:
    async with scene(monkeypatch) as three:
        yield three


@pytest.fixture
async def asker(found: Scene) -> AsyncIterator[Session]:
    async with connect(found.asking.url, "alice") as session:
        yield session


@pytest.fixture
async def worker(found: Scene) -> AsyncIterator[Session]:
    async with connect(found.handling.url, "bob") as session:
        yield session


async def test_a_request_is_answered_with_all_that_belongs_to_it(found: Scene, asker: Session, worker: Session) -> None:
    asked: list[Request] = []

    async def quote(request: Request) -> object:
        asked.append(request)
        return {"bid": 1.5}

    await worker.handle(QUOTES, quote)
    assert await asker.request(ACME, {"side": "bid"}, timeout=LONG) == {"bid": 1.5}
    (one,) = asked
    assert (one.path, one.value, one.principal, one.session_id) == (ACME, {"side": "bid"}, "alice", asker.id)
    assert 0 < one.timeout <= LONG
    assert not one.redelivered
    await eventually(found.none_open)


async def test_many_requests_at_a_time_are_answered_each_once(found: Scene, asker: Session, worker: Session) -> None:
    await worker.handle(QUOTES, found.answer, concurrency=100)
    for _ in range(5):
        values = await asyncio.gather(*(asker.request(ACME, number, timeout=LONG) for number in range(60)))
        assert [each["value"] for each in values] == list(range(60))
    assert set(found.calls.values()) == {5}
    await eventually(found.none_open)


async def test_the_least_busy_handler_is_asked(found: Scene, asker: Session, worker: Session) -> None:
    """One that does not answer has one request; the other is given all that follow."""
    stuck, free = asyncio.Event(), Counter[str]()

    async def slow(request: Request) -> object:
        free["slow"] += 1
        await stuck.wait()
        return "slow"

    async def quick(_: Request) -> object:
        free["quick"] += 1
        return "quick"

    async with connect(found.nodes[1].url, "carol") as other:
        await worker.handle(QUOTES, slow)
        first = asyncio.create_task(asker.request(ACME, timeout=LONG))
        await eventually(lambda: free["slow"] == 1)
        await other.handle(QUOTES, quick)
        assert [await asker.request(ACME, timeout=LONG) for _ in range(4)] == ["quick"] * 4
        stuck.set()
        assert await first == "slow"
    assert free == {"slow": 1, "quick": 4}


async def test_nobody_handles_it(found: Scene, asker: Session, worker: Session) -> None:
    """Nobody did, nobody does any more, and nobody for this path: told at once, and nothing is left."""
    with pytest.raises(NoHandler):
        await asker.request(ACME)
    async with await worker.handle(QUOTES, found.answer):
        await asker.request(ACME, 1, timeout=LONG)
        with pytest.raises(NoHandler):
            await asker.request("other/ACME")
    with pytest.raises(NoHandler):
        await asker.request(ACME)
    assert found.none_open()


async def test_all_who_handle_it_are_busy(asker: Session, worker: Session) -> None:
    go_on = asyncio.Event()

    async def wait(_: Request) -> object:
        await go_on.wait()
        return None

    await worker.handle(QUOTES, wait, concurrency=1)
    first = asyncio.create_task(asker.request(ACME, timeout=LONG))
    await eventually(lambda: bool(worker._supervisor.handlers._tasks))
    with pytest.raises(HandlersBusy):
        await asker.request(ACME, timeout=LONG)
    go_on.set()
    assert await first is None
    assert await asker.request(ACME, timeout=LONG) is None


async def test_a_handler_may_fail_and_says_only_what_it_means_to(asker: Session, worker: Session) -> None:
    async def refuse(request: Request) -> object:
        if request.value == "told":
            raise HandlerFailed("there is no such stock")
        if request.value == "set":
            return {1, 2}
        raise RuntimeError("password=1234")

    await worker.handle(QUOTES, refuse)
    with pytest.raises(HandlerFailed, match="no such stock"):
        await asker.request(ACME, "told", timeout=LONG)
    for value in ("else", "set"):
        with pytest.raises(HandlerFailed, match=r"^the handler failed$"):
            await asker.request(ACME, value, timeout=LONG)


async def test_there_may_be_no_answer_in_time(found: Scene, asker: Session, worker: Session) -> None:
    """The handler is cancelled, whoever asks learns that it may have been executed, and a later one is answered."""
    cancelled = asyncio.Event()

    async def hang(request: Request) -> object:
        if request.value == "quick":
            return 1
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return None

    await worker.handle(QUOTES, hang, concurrency=1)
    with pytest.raises((RequestTimedOut, HandlerFailed)) as error:
        await asker.request(ACME, "slow", timeout=0.3)
    assert not isinstance(error.value, RequestTimedOut) or error.value.sent
    async with time_limit(PATIENCE):
        await cancelled.wait()
    await eventually(found.none_open)
    assert await asker.request(ACME, "quick", timeout=LONG) == 1


async def test_a_request_may_be_for_a_principal_or_a_session(found: Scene, asker: Session, worker: Session) -> None:
    async with connect(found.nodes[2].url, "bob") as other, connect(found.nodes[1].url, "carol") as third:
        for each, name in ((worker, "worker"), (other, "other"), (third, "third")):

            async def say(_: Request, name: str = name) -> object:
                return name

            await each.handle(QUOTES, say)
        bobs = [await asker.request(ACME, principal="bob", timeout=LONG) for _ in range(4)]
        assert Counter(bobs) == {"worker": 2, "other": 2}
        assert {await asker.request(ACME, session_id=other.id, timeout=LONG) for _ in range(3)} == {"other"}
        with pytest.raises(NoHandler):
            await asker.request(ACME, principal="dave")


async def test_what_makes_no_sense_is_refused(found: Scene, asker: Session, worker: Session) -> None:
    with pytest.raises(RequestRefused) as refused:
        await worker.handle("*/ACME", found.answer)
    assert refused.value.code is ErrorCode.BAD_SELECTOR
    with pytest.raises(InvalidSelector):
        await worker.handle("", found.answer)
    with pytest.raises(ValueError, match="concurrency"):
        await worker.handle(QUOTES, found.answer, concurrency=0)
    await worker.handle(QUOTES, found.answer)
    with pytest.raises(ValueError, match="already"):
        await worker.handle(QUOTES, found.answer)
    with pytest.raises(ValueError, match="timeout"):
        await asker.request(ACME, timeout=1000.0)
    with pytest.raises(RequestRefused):
        await asker.request(ACME, timeout=0.001)
    with pytest.raises(RequestRefused):
        await asker.request("$gateway/x")
    for number in range(31):
        await worker.handle(f"quotes/{number}", found.answer)
    with pytest.raises(RequestRefused) as refused:
        await worker.handle("quotes/more", found.answer)
    assert refused.value.code is ErrorCode.TOO_MANY_HANDLERS


@pytest.mark.promise("P20")
async def test_a_session_waits_for_so_many_answers_and_no_more(asker: Session, worker: Session) -> None:
    go_on = asyncio.Event()

    async def wait(_: Request) -> object:
        await go_on.wait()
        return None

    await worker.handle(QUOTES, wait, concurrency=1000)
    waiting = [asyncio.create_task(asker.request(ACME, timeout=LONG)) for _ in range(64)]
    await eventually(lambda: len(asker._supervisor._machine._opened_sender.exchanges._waiting) == 64)
    with pytest.raises(RequestRefused) as refused:
        await asker.request(ACME, timeout=LONG)
    assert refused.value.code is ErrorCode.TOO_MANY_QUESTIONS
    go_on.set()
    await asyncio.gather(*waiting)


# --- Over the rungs of the ladder -----------------------------------------------------------------------------------

RUNGS: dict[str, Callable[[Scene, CuttingProxy], Awaitable[None]]] = {}


def rung(step: Callable[[Scene, CuttingProxy], Awaitable[None]]) -> Callable[[Scene, CuttingProxy], Awaitable[None]]:
    RUNGS[step.__name__] = step
    return step


@rung
async def reattached(found: Scene, proxy: CuttingProxy) -> None:
    found.lead(proxy, 0)


@rung
async def handed_over(found: Scene, proxy: CuttingProxy) -> None:
    found.lead(proxy, 1)


@rung
async def failed_over(found: Scene, proxy: CuttingProxy) -> None:
    found.kill(0)
    found.lead(proxy, 1)


async def outcome(session: Session) -> str:
    async with time_limit(PATIENCE):
        return str((await anext(session.recoveries())).outcome)


async def ask(session: Session, value: object) -> Any:
    """Ask until somebody is there: its node may not have told the grid yet that its client is back."""
    async with time_limit(PATIENCE):
        while True:
            try:
                return await session.request(ACME, value, timeout=LONG)
            except NoHandler:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("name", RUNGS)
async def test_a_handler_needs_not_be_registered_again(found: Scene, worker: Session, name: str) -> None:
    """And what it was asked before the move, it is asked once, and answers after it."""
    async with connect(found.nodes[2].url, "alice") as asker:
        go_on = asyncio.Event()

        async def wait(request: Request) -> object:
            await go_on.wait()
            return await found.answer(request)

        await worker.handle(QUOTES, wait)
        before = asyncio.create_task(asker.request(ACME, "before", timeout=LONG))
        await eventually(lambda: bool(worker._supervisor.handlers._tasks))

        await RUNGS[name](found, found.handling)

        assert await outcome(worker) == name
        go_on.set()
        assert (await before)["value"] == "before"
        assert (await ask(asker, "after"))["value"] == "after"
        assert found.calls == {"before": 1, "after": 1}
        await eventually(found.none_open)


@pytest.mark.parametrize("name", RUNGS)
async def test_an_answer_finds_who_asked(found: Scene, asker: Session, name: str) -> None:
    """Given while its client is on the way, or afterwards."""
    async with connect(found.nodes[2].url, "bob") as worker:
        waiting: dict[Any, asyncio.Event] = {"during": asyncio.Event(), "after": asyncio.Event()}

        async def wait(request: Request) -> object:
            await waiting[request.value].wait()
            return await found.answer(request)

        await worker.handle(QUOTES, wait)
        during = asyncio.create_task(asker.request(ACME, "during", timeout=LONG))
        after = asyncio.create_task(asker.request(ACME, "after", timeout=LONG))
        await eventually(lambda: len(worker._supervisor.handlers._tasks) == 2)

        await RUNGS[name](found, found.asking)
        waiting["during"].set()

        assert await outcome(asker) == name
        assert (await during)["value"] == "during"
        waiting["after"].set()
        assert (await after)["value"] == "after"
        assert found.calls == {"during": 1, "after": 1}
        await eventually(found.none_open)


async def test_both_go_on_from_the_copies_of_a_backup(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third rung: what was asked is answered once, and nothing is registered again."""
    async with (
        scene(monkeypatch, backup="n2", mirror=MirrorMode.SYNC, mirror_patience=scaled(20.0)) as found,
        connect(found.asking.url, "alice") as asker,
        connect(found.handling.url, "bob") as worker,
    ):
        go_on = asyncio.Event()

        async def wait(request: Request) -> object:
            await go_on.wait()
            return await found.answer(request)

        await worker.handle(QUOTES, wait)
        asked = asyncio.create_task(asker.request(ACME, "before", timeout=LONG))
        await eventually(lambda: bool(worker._supervisor.handlers._tasks))
        await caught_up(found.nodes[0], 2)
        found.kill(0)
        found.lead(found.asking, 2)
        found.lead(found.handling, 1)
        assert await outcome(asker) == await outcome(worker) == "mirrored"
        go_on.set()
        assert (await asked)["value"] == "before"
        assert (await ask(asker, "after"))["value"] == "after"
        assert found.calls == {"before": 1, "after": 1}
        await eventually(found.none_open)


async def test_both_move_while_a_request_is_under_way(found: Scene, asker: Session, worker: Session) -> None:
    """The node of both dies, each comes to another one, and the request is executed once."""
    go_on = asyncio.Event()

    async def wait(request: Request) -> object:
        await go_on.wait()
        return await found.answer(request)

    await worker.handle(QUOTES, wait)
    asked = asyncio.create_task(asker.request(ACME, 1, timeout=LONG))
    await eventually(lambda: bool(worker._supervisor.handlers._tasks))
    found.kill(0)
    found.lead(found.asking, 1)
    found.lead(found.handling, 2)
    assert await outcome(asker) == await outcome(worker) == "failed_over"
    go_on.set()
    assert (await asked)["value"] == 1
    assert found.calls == {1: 1}


async def test_a_dead_nodes_handler_is_passed_by(found: Scene, worker: Session) -> None:
    """What was not taken in time is given to another handler, and nothing is asked twice."""
    async with connect(found.nodes[1].url, "alice") as asker, connect(found.nodes[2].url, "carol") as other:
        await worker.handle(QUOTES, found.answer)
        await asker.request(ACME, 0, timeout=LONG)
        found.kill(0)
        await other.handle(QUOTES, found.answer)
        values = await asyncio.gather(*(asker.request(ACME, number, timeout=LONG) for number in range(1, 9)))
        assert [each["value"] for each in values] == list(range(1, 9))
        assert set(found.calls.values()) == {1}
        found.lead(found.handling, 2)


async def test_a_handler_that_ends_is_told_of(asker: Session, worker: Session) -> None:
    """Whoever asked learns at once that there will be no answer, and that it may have been executed."""
    begun = asyncio.Event()

    async def hang(_: Request) -> object:
        begun.set()
        await asyncio.Event().wait()
        return None

    await worker.handle(QUOTES, hang)
    asked = asyncio.create_task(asker.request(ACME, timeout=LONG))
    async with time_limit(PATIENCE):
        await begun.wait()
    await worker.close()
    with pytest.raises(HandlerLost) as lost:
        await asked
    assert lost.value.may_have_been_executed


@pytest.mark.promise("P10")
@pytest.mark.parametrize("emptied", [False, True], ids=["restarted", "emptied"])
async def test_a_grid_that_comes_back(found: Scene, asker: Session, worker: Session, *, emptied: bool) -> None:
    """With its data, the answer comes; without, whoever asks is told so. Handlers go on in any case."""
    go_on, begun = asyncio.Event(), asyncio.Event()

    async def wait(request: Request) -> object:
        begun.set()
        await go_on.wait()
        return await found.answer(request)

    await worker.handle(QUOTES, wait)
    asked = asyncio.create_task(asker.request(ACME, "before", timeout=LONG))
    async with time_limit(PATIENCE):
        await begun.wait()
    found.grid.go_away()
    found.grid.come_back(restarted=True, emptied=emptied)
    if emptied:
        with pytest.raises(AnswerLost) as lost:
            await asked
        assert lost.value.may_have_been_executed
        go_on.set()
    else:
        go_on.set()
        assert (await asked)["value"] == "before"
    assert (await ask(asker, "after"))["value"] == "after"
    assert found.calls["after"] == 1


@pytest.mark.promise("P7")
async def test_nothing_is_left_of_sessions_that_asked_and_handled(found: Scene) -> None:
    async with connect(found.asking.url, "alice") as asker, connect(found.handling.url, "bob") as worker:
        await worker.handle(QUOTES, found.answer)
        await asker.request(ACME, 1, timeout=LONG)
        assert any(each.startswith("handler") for each in found.grid.inventory())
    assert not [each for each in found.grid.inventory() if each.startswith(("handler", "question"))]


@pytest.mark.promise("P11")
async def test_idle_handlers_cost_the_grid_nothing(found: Scene, worker: Session) -> None:
    steps = 0
    await worker.handle(QUOTES, found.answer)
    exchanges = found.nodes[0].gateway.node._context.grid.exchanges

    def count(step: Any) -> Any:
        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal steps
            steps += 1
            return step(*arguments, **named)

        return counted

    with pytest.MonkeyPatch.context() as patch:
        for name in ("handle", "ask", "take", "answer", "read", "forget", "fire"):
            patch.setattr(exchanges, name, count(getattr(exchanges, name)))
        await asyncio.sleep(scaled(0.5))
    assert steps == 0


async def test_requests_survive_cuts_moves_and_deaths(found: Scene) -> None:
    """Two ask and three handle while all are cut and led elsewhere: each request is handled once, or refused."""
    random = Random(17)
    answered: list[int] = []
    uncertain: list[int] = []
    refused: list[int] = []
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(CuttingProxy(found.nodes[0].gateway.port)) for _ in range(5)]
        sessions = [
            await stack.enter_async_context(connect(each.url, f"user{number}")) for number, each in enumerate(proxies)
        ]
        for each in sessions[2:]:
            await each.handle(QUOTES, found.answer)

        async def ask(session: Session, numbers: range) -> None:
            for number in numbers:
                try:
                    value = await session.request(ACME, number, timeout=LONG)
                    assert value["value"] == number
                    answered.append(number)
                except (NoHandler, HandlersBusy):
                    refused.append(number)
                    await asyncio.sleep(0.01)
                except GatewayError:
                    uncertain.append(number)

        async def disturb() -> None:
            while True:
                await asyncio.sleep(0.02)
                found.lead(random.choice(proxies), random.randrange(3))

        disturbing = asyncio.create_task(disturb())
        async with time_limit(PATIENCE * 4):
            await asyncio.gather(ask(sessions[0], range(100)), ask(sessions[1], range(1000, 1100)))
        disturbing.cancel()
    assert max(found.calls.values()) == 1, "nothing is executed twice"
    assert set(answered) <= set(found.calls)
    assert not set(refused) & set(found.calls), "what was refused was not executed"
    assert not uncertain
    assert len(answered) > 100


async def test_permissions_are_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Who may request, who may handle, and who may choose who is asked."""
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[roles.user]\nrequest = ["quotes/**"]\n[roles.chooser]\naddress = ["quotes/**"]\n'
        '[roles.worker]\nhandle = ["quotes/*"]\n[principals]\nalice = ["user"]\ncarol = ["user", "chooser"]\n'
        'bob = ["worker"]\n'
    )
    async with scene(monkeypatch, policy=policy) as found, AsyncExitStack() as stack:
        alice, carol, bob = [
            await stack.enter_async_context(connect(found.asking.url, name)) for name in ("alice", "carol", "bob")
        ]
        with pytest.raises(Forbidden):
            await bob.handle(QUOTES, found.answer)
        with pytest.raises(Forbidden):
            await alice.handle("quotes/ACME", found.answer)
        await bob.handle("quotes/*", found.answer)
        assert (await alice.request(ACME, 1, timeout=LONG))["by"] == "alice"
        with pytest.raises(Forbidden):
            await alice.request(ACME, principal="bob")
        with pytest.raises(Forbidden):
            await bob.request(ACME)
        assert (await carol.request(ACME, 2, principal="bob", timeout=LONG))["by"] == "carol"
