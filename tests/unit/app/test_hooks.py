"""Hooks of whole nodes in virtual time: who delivers, in which order, and receivers that do not take what comes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest

from gateway.app.administration.hooks import ClusterHooks
from gateway.app.hooks import hooks as module
from gateway.app.hooks.hooks import Hooks, preferred
from gateway.app.journal.session_events import SessionExpired
from gateway.catalogue import hook_log_events as log
from gateway.catalogue import hook_metrics as catalogue
from gateway.core.hooks.hook import Hook, HookName
from gateway.core.hooks.signing import is_signed
from gateway.core.types import Epoch, SessionId
from gateway.ports import NoPostAnswer, PostAnswer
from gateway.ports.hook_administration import HookState
from tests.support.virtual_cluster import VirtualCluster, VirtualNode, run_virtually

KEY = b"k" * 32
CRM = Hook(name=HookName("crm"), url="https://crm/", events=frozenset({"session_expired"}), keys=(KEY,))
AUDIT = replace(CRM, name=HookName("audit"), url="https://audit/")
COUNTERS = (catalogue.HOOK_EVENTS, catalogue.HOOK_FAILURES, catalogue.HOOK_GAPS, catalogue.HOOK_MISSING)


class Receivers:
    """All receivers, as the nodes of a cluster reach them.

    Attributes:
        taken: ids of sessions, in the order in which events about them were taken, by receiver.
        gaps: data of gaps that were told.
        requests: of each its id, the node that sent it, when, and how many events it had.
        answer: what the next requests to a receiver get; None for no answer, and 200 if nothing is said.
        dead: nodes that reach nobody any more.
        before_answer: awaited when a request was taken, before the node hears of that.
    """

    def __init__(self) -> None:
        self.taken: dict[str, list[str]] = {}
        self.ids: list[str] = []
        self.gaps: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, float, int]] = []
        self.answer: dict[str, PostAnswer | None] = {}
        self.dead: set[str] = set()
        self.before_answer: Callable[[str], Awaitable[None]] | None = None

    def sender(self, node: str) -> _Sender:
        """Make what a node posts with."""
        return _Sender(self, node)


class _Sender:
    def __init__(self, receivers: Receivers, node: str) -> None:
        self._all = receivers
        self._node = node

    async def post(self, hook: Hook, body: bytes, headers: Mapping[str, str]) -> PostAnswer:
        receivers = self._all
        now = asyncio.get_running_loop().time()
        assert is_signed(headers, body, key=KEY, now=now)
        events = orjson.loads(body)
        receivers.requests.append((headers["webhook-id"], self._node, now, len(events)))
        answer = receivers.answer.get(hook.name, PostAnswer(200, None))
        await asyncio.sleep(0.01)
        if answer is None or self._node in receivers.dead:
            await asyncio.sleep(hook.timeout)
            raise NoPostAnswer("nobody there")
        if 200 <= answer.status < 300:
            for each in events:
                receivers.ids.append(each["id"])
                if each["type"] == "gap":
                    receivers.gaps.append(each["data"])
                else:
                    receivers.taken.setdefault(hook.name, []).append(each["subject"])
        if receivers.before_answer is not None:
            await receivers.before_answer(self._node)
        return answer

    async def forget(self, hook: Hook) -> None:
        """Nothing is open."""

    async def close(self) -> None:
        """Nothing is open."""


class Scene:
    """A cluster with hooks."""

    def __init__(self, cluster: VirtualCluster, *hooks: Hook) -> None:
        self.cluster = cluster
        self.receivers = Receivers()
        self.configured = hooks or (CRM,)
        cluster.hook_sender = self.receivers.sender
        self._number = 0

    async def start(self, *names: str) -> list[VirtualNode]:
        """Start nodes, and wait until somebody delivers for each hook."""
        nodes = await self.cluster.start(*names)
        for node in nodes:
            hooks(node).apply(self.configured)
        await self.cluster.until(lambda: self.known(nodes[0]))
        return nodes

    async def known(self, node: VirtualNode) -> bool:
        return (await node.grid.hooks.told()).keys() >= {each.name for each in self.configured}

    def tell(self, node: VirtualNode, count: int = 1, *, session: str | None = None) -> list[str]:
        """Have something happen to sessions, and return their ids."""
        told = []
        for _ in range(count):
            self._number += 1
            told.append(session or f"s{self._number}")
            node.node._context.announce(SessionExpired(SessionId(told[-1]), Epoch(self._number)))
        return told

    async def taken(self, sessions: list[str], hook: Hook = CRM) -> None:
        """Wait until a receiver has events about all of *sessions*."""
        await self.cluster.until(lambda: set(sessions) <= set(self.receivers.taken.get(hook.name, [])))

    def deliverer(self, hook: Hook = CRM) -> VirtualNode:
        """Tell which living node delivers."""
        return next(
            each for each in self.cluster.nodes.values() if not each.dead and hook.name in hooks(each)._deliverers
        )


def hooks(node: VirtualNode) -> Hooks:
    assert node.node.hooks is not None
    return node.node.hooks


def logged(scene: Scene, event: object) -> list[dict[str, Any]]:
    return [dict(fields) for node in scene.cluster.nodes.values() for each, fields in node.log.events if each is event]


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole nodes take a while to live through an hour."""
    monkeypatch.setattr(module, "FORGET_AFTER", 30.0)
    monkeypatch.setattr(module, "SWEEP_EVERY", 3.0)


def virtually(play: Callable[[Scene], Awaitable[None]], *configured: Hook, **settings: Any) -> None:
    async def scene(cluster: VirtualCluster) -> None:
        await play(Scene(cluster, *configured))

    run_virtually(scene, **settings)


def test_one_node_delivers_everything_once_and_in_order() -> None:
    async def play(scene: Scene) -> None:
        n1, n2, n3 = await scene.start("n1", "n2", "n3")
        told = [each for node in (n1, n2, n3) for each in scene.tell(node, 100)]
        one = [scene.tell(n2, session="one") for _ in range(50)]
        await scene.taken([*told, "one"])
        await scene.cluster.until(lambda: len(scene.receivers.ids) == 350)
        assert len(set(scene.receivers.ids)) == 350
        assert len({node for _, node, _, _ in scene.receivers.requests}) == 1
        assert max(count for *_, count in scene.receivers.requests) <= CRM.batch_events
        numbers = [int(each.rpartition("-")[2]) for each in scene.receivers.ids if each.startswith(n2.me.incarnation)]
        ones = [
            int(each.rpartition("-")[2])
            for each, about in zip(scene.receivers.ids, scene.receivers.taken["crm"], strict=True)
            if about == "one"
        ]
        assert ones == sorted(ones)
        assert len(ones) == len(one)
        assert len(numbers) == 150
        assert scene.deliverer().metrics.count(catalogue.HOOK_EVENTS, label="crm") == 350

    virtually(play)


def test_the_counters_of_a_hook_are_there_before_anything_is_counted() -> None:
    """A counter that begins with 1 has not grown for Prometheus, and the alert about the first gap would not fire."""

    async def play(scene: Scene) -> None:
        (n1,) = await scene.start("n1")
        for counter in COUNTERS:
            assert n1.metrics.counts(counter) == {"crm": 0}
        hooks(n1).apply((CRM, AUDIT))
        for counter in COUNTERS:
            assert n1.metrics.counts(counter) == {"crm": 0, "audit": 0}

    virtually(play)


def test_a_new_hook_gets_what_happens_from_now_on_and_only_what_it_wants() -> None:
    async def play(scene: Scene) -> None:
        (n1,) = await scene.cluster.start("n1")
        scene.tell(n1, 20)
        await asyncio.sleep(5)
        hooks(n1).apply(scene.configured)
        await scene.cluster.until(lambda: scene.known(n1))
        later = scene.tell(n1, 3)
        await scene.taken(later)
        assert sorted(scene.receivers.taken["crm"]) == sorted(later)

    virtually(play)


def test_a_receiver_that_is_down_gets_everything_when_it_is_back() -> None:
    async def play(scene: Scene) -> None:
        (n1,) = await scene.start("n1")
        scene.receivers.answer["crm"] = PostAnswer(503, None)
        told = scene.tell(n1, 30)
        await asyncio.sleep(100)
        told += scene.tell(n1, 30)
        await asyncio.sleep(30)
        times = [at for _, _, at, _ in scene.receivers.requests]
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert all(2.0 ** (n - 1) <= each <= 2.0**n + 1 for n, each in enumerate(pauses)), pauses
        assert 6 <= len(times) <= 9, "it is left alone"
        assert len({each for each, *_ in scene.receivers.requests}) == 1, "the same request has the same id"
        assert n1.metrics.gauge(catalogue.HOOK_BEHIND, label="crm") >= 60, "and what the node tells of itself"
        assert n1.metrics.gauge(catalogue.HOOK_BEHIND_SECONDS, label="crm") > 100
        scene.receivers.answer.clear()
        await scene.taken(told)
        await scene.cluster.until(lambda: n1.metrics.gauge(catalogue.HOOK_BEHIND, label="crm") == 0)
        assert len(scene.receivers.ids) == len(set(scene.receivers.ids)) == 60
        assert n1.metrics.gauge(catalogue.HOOK_BEHIND_SECONDS, label="crm") == 0
        (failing,) = logged(scene, log.HOOK_FAILING)
        assert "503" in failing["error"]
        (recovered,) = logged(scene, log.HOOK_RECOVERED)
        assert recovered["failures"] == len(times)

    virtually(play)


def test_administrators_see_where_a_hook_posts_and_its_last_failure_also_when_that_is_over() -> None:
    secret = replace(CRM, url="https://crm.example:8443/token-in-the-path?key=token-in-the-query")

    async def play(scene: Scene) -> None:
        (n1,) = await scene.start("n1")
        administration = ClusterHooks(n1.grid.hooks)
        (view,) = await administration.list()
        assert (view.state, view.url, view.events) == (
            HookState.DELIVERING,
            "https://crm.example:8443",
            ("session_expired",),
        )
        assert (view.delivered, view.failed, view.error, view.failures) == (None, None, "", 0)
        scene.receivers.answer["crm"] = PostAnswer(500, None)
        told = scene.tell(n1)
        await scene.cluster.until(lambda: len(scene.receivers.requests) == 3)
        (view,) = await administration.list()
        assert (view.state, view.behind > 0) == (HookState.FAILING, True)
        scene.receivers.answer.clear()
        await scene.taken(told)
        await scene.cluster.until(lambda: is_delivering(administration))
        (view,) = await administration.list()
        assert "500" in view.error
        assert (view.failures, view.failing, view.attempt) == (0, None, None)
        assert view.failed is not None
        assert view.delivered is not None
        assert view.failed < view.delivered
        # What is changed in the file is told although nothing is delivered.
        hooks(n1).apply([replace(secret, events=frozenset({"session_opened"}))])
        await scene.cluster.until(lambda: gets(administration, "session_opened"))
        assert b"token" not in (await n1.grid.hooks.told())[CRM.name]

    virtually(play, secret)


async def is_delivering(administration: ClusterHooks) -> bool:
    return [each.state for each in await administration.list()] == [HookState.DELIVERING]


async def gets(administration: ClusterHooks, kind: str) -> bool:
    return [each.events for each in await administration.list()] == [(kind,)]


def test_a_receiver_can_ask_to_be_left_alone() -> None:
    async def play(scene: Scene) -> None:
        (n1,) = await scene.start("n1")
        scene.receivers.answer["crm"] = PostAnswer(429, "120")
        told = scene.tell(n1)
        await scene.cluster.until(lambda: len(scene.receivers.requests) == 1)
        scene.receivers.answer.clear()
        assert await scene.cluster.until(lambda: "crm" in scene.receivers.taken) == pytest.approx(120, abs=2)
        assert scene.receivers.taken["crm"] == told

    virtually(play)


def test_a_receiver_that_is_gone_is_asked_nothing_until_somebody_says_so() -> None:
    async def play(scene: Scene) -> None:
        (n1,) = await scene.start("n1")
        scene.receivers.answer["crm"] = PostAnswer(410, None)
        told = scene.tell(n1)
        await asyncio.sleep(60)
        assert len(scene.receivers.requests) == 1
        assert n1.metrics.gauge(catalogue.HOOK_SUSPENDED, label="crm") == 1
        assert len(logged(scene, log.HOOK_SUSPENDED)) == 1
        # Who delivers next knows it, too.
        scene.cluster.kill(n1)
        scene.receivers.dead.add("n1")
        (n2,) = await scene.cluster.start("n2")
        hooks(n2).apply(scene.configured)
        await scene.cluster.until(lambda: CRM.name in hooks(n2)._deliverers)
        await asyncio.sleep(30)
        assert len(scene.receivers.requests) == 1
        scene.receivers.answer.clear()
        assert await n2.grid.hooks.ask_again(CRM.name)
        await scene.taken(told)
        assert n2.metrics.gauge(catalogue.HOOK_SUSPENDED, label="crm") == 0

    virtually(play)


def test_another_address_is_tried_at_once() -> None:
    async def play(scene: Scene) -> None:
        (n1,) = await scene.start("n1")
        scene.receivers.answer["crm"] = PostAnswer(410, None)
        told = scene.tell(n1)
        await asyncio.sleep(20)
        scene.receivers.answer.clear()
        hooks(n1).apply([replace(CRM, url="https://new.crm/")])
        await scene.taken(told)

    virtually(play)


def test_a_request_that_is_too_large_is_sent_in_pieces() -> None:
    async def play(scene: Scene) -> None:
        (n1,) = await scene.start("n1")
        scene.receivers.answer["crm"] = PostAnswer(413, None)
        told = scene.tell(n1, 40)
        await scene.cluster.until(lambda: len(scene.receivers.requests) == 3)
        scene.receivers.answer.clear()
        await scene.taken(told)
        sizes = [count for *_, count in scene.receivers.requests]
        assert sizes[:3] == sorted(sizes[:3], reverse=True)
        assert sizes[3] <= sizes[2] // 2 < sizes[0] // 2
        assert len(scene.receivers.ids) == 40

    virtually(play)


@pytest.mark.promise("P20")
def test_a_receiver_that_hangs_harms_no_other_one() -> None:
    async def play(scene: Scene) -> None:
        (n1,) = await scene.start("n1")
        scene.receivers.answer["crm"] = None
        told = scene.tell(n1, 200)
        await scene.taken(told, AUDIT)
        assert "crm" not in scene.receivers.taken
        assert len([each for each in scene.receivers.requests if each[3] == 200]) == 0
        scene.receivers.answer.clear()
        await scene.taken(told)

    virtually(play, CRM, AUDIT)


def test_a_node_that_dies_between_the_answer_and_the_cursor_loses_nothing() -> None:
    """Duplicates have the same ids."""

    async def play(scene: Scene) -> None:
        await scene.start("n1", "n2")
        first = scene.deliverer()
        other = next(each for each in scene.cluster.nodes.values() if each is not first)

        async def die(node: str) -> None:
            if node == first.me.node and not first.dead:
                scene.cluster.kill(first)
                scene.receivers.dead.add(node)

        scene.receivers.before_answer = die
        told = scene.tell(other, 30)
        await scene.cluster.until(lambda: first.dead)
        told += scene.tell(other, 30)
        await scene.taken(told)
        assert len(set(scene.receivers.ids)) == 60
        assert len(scene.receivers.ids) > 60, "the first ones came twice"
        assert scene.deliverer() is other

    virtually(play)


@pytest.mark.promise("P3")
def test_a_node_that_was_cut_off_moves_nothing_when_it_is_back() -> None:
    async def play(scene: Scene) -> None:
        await scene.start("n1", "n2")
        first = scene.deliverer()
        other = next(each for each in scene.cluster.nodes.values() if each is not first)
        scene.receivers.answer["crm"] = None
        told = scene.tell(other, 10)
        await scene.cluster.until(lambda: bool(scene.receivers.requests))
        first.grid.cut()
        scene.receivers.answer.clear()
        await scene.cluster.until(lambda: CRM.name in hooks(other)._deliverers)
        await scene.taken(told)
        first.grid.mend()
        told = scene.tell(other, 10)
        await scene.taken(told)
        await asyncio.sleep(60)
        assert await other.grid.hooks.behind(CRM.name) == 0
        assert sum(CRM.name in hooks(each)._deliverers for each in (first, other)) == 1

    virtually(play)


def test_what_the_journal_dropped_is_told() -> None:
    async def play(scene: Scene) -> None:
        (n1,) = await scene.start("n1")
        scene.receivers.answer["crm"] = None
        scene.tell(n1, 5, session="one")
        await asyncio.sleep(5)
        for _ in range(40):
            scene.tell(n1, session="one")
            await asyncio.sleep(1)
        scene.receivers.answer.clear()
        await scene.cluster.until(lambda: bool(scene.receivers.gaps))
        (gap,) = scene.receivers.gaps
        assert gap["reason"] == "retention"
        await scene.cluster.until(lambda: len(scene.receivers.taken["crm"]) + gap["count"] == 45)
        assert n1.metrics.count(catalogue.HOOK_GAPS, label="crm") == 1
        assert n1.metrics.count(catalogue.HOOK_MISSING, label="crm") == gap["count"] > 10
        assert logged(scene, log.HOOK_GAP) == [{"hook": "crm", "reason": "retention", "missing": gap["count"]}]

    async def scene(cluster: VirtualCluster) -> None:
        cluster.server._data.journal._length = 20
        await play(Scene(cluster))

    run_virtually(scene)


@pytest.mark.promise("P10")
def test_a_grid_that_is_away_and_comes_back() -> None:
    async def play(scene: Scene) -> None:
        (n1,) = await scene.start("n1")
        told = scene.tell(n1, 5)
        await scene.taken(told)
        scene.cluster.server.go_away()
        await asyncio.sleep(100)
        told = scene.tell(n1, 5)
        scene.cluster.server.come_back(restarted=True)
        await scene.taken(told)
        assert {each["reason"] for each in scene.receivers.gaps} <= {"grid_lost_writes"}
        # Whether the hook is read first, or its lease renewed: its node knows that it is no new one.
        for delay in (0.0, 0.4, 1.1, 2.3, 4.9):
            await asyncio.sleep(10 + delay)
            scene.cluster.server.come_back(emptied=True)
            told = scene.tell(n1, 5)
            await scene.taken(told)

    virtually(play)


def test_a_hook_that_was_removed_frees_its_cursor_and_not_at_once() -> None:
    async def play(scene: Scene) -> None:
        (n1,) = await scene.start("n1")
        hooks(n1).apply([])
        await scene.cluster.until(lambda: not hooks(n1)._deliverers)
        told = scene.tell(n1, 5)
        await asyncio.sleep(module.FORGET_AFTER / 2)
        hooks(n1).apply(scene.configured)
        await scene.taken(told)
        hooks(n1).apply([])
        await asyncio.sleep(module.FORGET_AFTER + 4 * module.SWEEP_EVERY)
        assert await n1.grid.hooks.told() == {}
        assert await n1.grid.hooks.behind(CRM.name) is None
        assert logged(scene, log.HOOK_FORGOTTEN) == [{"hook": "crm"}]
        hooks(n1).apply(scene.configured)
        scene.tell(n1)
        await scene.cluster.until(lambda: scene.known(n1))

    virtually(play)


def test_a_node_without_hooks_forgets_those_of_others_that_are_gone() -> None:
    async def play(scene: Scene) -> None:
        (n1,) = await scene.start("n1")
        scene.cluster.kill(n1)
        (n2,) = await scene.cluster.start("n2")
        await asyncio.sleep(module.FORGET_AFTER + 5 * module.SWEEP_EVERY)
        assert await n2.grid.hooks.told() == {}

    virtually(play)


def test_hooks_are_given_back_by_a_node_that_stops() -> None:
    async def play(scene: Scene) -> None:
        await scene.start("n1", "n2")
        first = scene.deliverer()
        other = next(each for each in scene.cluster.nodes.values() if each is not first)
        await hooks(first).close()
        assert await scene.cluster.until(lambda: CRM.name in hooks(other)._deliverers) < 40
        told = scene.tell(other)
        await scene.taken(told)

    virtually(play)


def test_hooks_are_shared_out() -> None:
    async def play(scene: Scene) -> None:
        nodes = await scene.start("n1", "n2", "n3")
        await scene.cluster.until(lambda: sum(len(hooks(each)._deliverers) for each in nodes) == len(many))
        refs = sorted(each.me for each in nodes)
        assert len({preferred(each.name, refs) for each in many}) > 1

    many = tuple(replace(CRM, name=HookName(f"h{number}")) for number in range(8))
    virtually(play, *many)
