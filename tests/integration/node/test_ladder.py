"""The ladder as code: which rung is chosen, and that a new rung needs no more than a module and its place."""

from __future__ import annotations

import pkgutil
from enum import StrEnum
from typing import cast

import pytest

from gateway.app.connections import ladder
from gateway.app.connections.claimer import ClaimedSession
from gateway.app.connections.ladder import RecoveryLadder, Rung
from gateway.app.connections.session_factory import RecoveryOutcome
from gateway.core.wire.codes import Outcome
from gateway.core.wire.packets import Notice, NoticeCode
from tests.support.nodes import TestNode
from tests.support.raw_client import RawClient

NOTHING_KEPT = 2**53 - 1
"""The oldest packet of a client that can resend none (protocol 5.4.4)."""


class Handoff:
    """A rung that there may be one day: asks somebody, who may not answer."""

    def __init__(self, rung: Rung, *, applies: bool, answers: bool) -> None:
        self.rung = rung
        self.outcome = rung.outcome
        self.is_applicable = applies
        self.answers = answers
        self.asked: list[ClaimedSession] = []

    def applies(self, claimed: ClaimedSession) -> bool:
        return self.is_applicable

    async def recover(self, claimed: ClaimedSession) -> RecoveryOutcome | None:
        self.asked.append(claimed)
        return await self.rung.recover(claimed) if self.answers else None


class Renamed(Handoff):
    """A rung as the one that it wraps, by another word."""

    async def recover(self, claimed: ClaimedSession) -> RecoveryOutcome | None:
        outcome = await super().recover(claimed)
        return None if outcome is None else outcome._replace(outcome=Outcome.FAILED_OVER)


def ladder_of(node: TestNode) -> RecoveryLadder:
    return node.gateway.node.connections._first_packets._resume_handler._ladder


def with_a_second_rung(node: TestNode, *, applies: bool, answers: bool) -> Handoff:
    found = ladder_of(node)
    first, *others = found._rungs
    second = Handoff(others[-1], applies=applies, answers=answers)
    found._rungs = (first, second, *others)
    return second


async def lost(node: TestNode) -> str:
    """Open a session, lose its connection, and return its token."""
    async with RawClient(node.url) as raw:
        token: str = (await raw.hello())["token"]
    return token


async def test_every_module_is_a_rung_and_the_table_names_them_in_order(n1: TestNode) -> None:
    modules = [type(rung).__module__.rpartition(".")[2] for rung in ladder_of(n1)._rungs]
    table = RecoveryLadder.recover.__doc__ or ""

    assert set(modules) == {each.name for each in pkgutil.iter_modules(ladder.__path__)}
    assert len(modules) == len(set(modules))
    assert sorted(modules, key=lambda name: table.index(f"`{name}`")) == modules


@pytest.mark.promise("P2")
async def test_a_rung_that_applies_is_preferred_to_those_below(n1: TestNode) -> None:
    second = with_a_second_rung(n1, applies=True, answers=True)
    token = await lost(n1)
    async with RawClient(n1.url) as back:
        again = await back.resume(token, attempt=1, oldest=NOTHING_KEPT)

    assert (again["outcome"], again["reason"]) == ("failed_over", "gap")
    (claimed,) = second.asked
    assert claimed.session.id == again["session"]
    assert (claimed.was_held, claimed.is_uninterrupted) == (True, True)


@pytest.mark.promise("P2")
@pytest.mark.parametrize("applies", [True, False])
async def test_a_rung_that_cannot_serve_a_session_leaves_it_to_the_next(n1: TestNode, *, applies: bool) -> None:
    second = with_a_second_rung(n1, applies=applies, answers=False)
    token = await lost(n1)
    async with RawClient(n1.url) as back:
        again = await back.resume(token, attempt=1, oldest=NOTHING_KEPT)

    assert (again["outcome"], again["reason"]) == ("failed_over", "gap")
    assert len(second.asked) == applies, "whoever says that it does not apply is not asked"


@pytest.mark.promise("P2")
async def test_no_rung_below_is_asked_for_a_session_that_can_be_reattached(n1: TestNode) -> None:
    second = with_a_second_rung(n1, applies=True, answers=True)
    token = await lost(n1)
    async with RawClient(n1.url) as back:
        again = await back.resume(token, attempt=1)

    assert again["outcome"] == Outcome.REATTACHED.value
    assert not second.asked


async def test_a_rung_says_whether_numbering_goes_on_and_not_the_word_for_it(n1: TestNode) -> None:
    found = ladder_of(n1)
    first, *others = found._rungs
    found._rungs = (Renamed(first, applies=True, answers=True), *others)
    async with RawClient(n1.url) as raw:
        welcome = await raw.hello()
        await raw.send({"id": 1, "type": "subscribe", "request": 1, "selector": "a"})
        await raw.expect("reply")
    async with RawClient(n1.url) as back:
        again = await back.resume(welcome["token"], attempt=1, received=1)

    assert (welcome["outcome"], welcome["numbering"]) == ("created", "restarted")
    assert (again["outcome"], again["numbering"], again["received"]) == ("failed_over", "kept", 1)


class Late(StrEnum):
    """What a later release may declare."""

    LANDED = "moon_landing"


@pytest.mark.promise("P2")
@pytest.mark.parametrize(
    ("supports", "is_asked"), [(None, False), (["handed_over"], False), (["moon_landing", "mirrored"], True)]
)
async def test_a_rung_of_a_later_release_is_for_clients_that_name_its_outcome(
    n1: TestNode, supports: list[str] | None, *, is_asked: bool
) -> None:
    """4.1.1; the words of this connection count, not those of the one before."""
    second = with_a_second_rung(n1, applies=True, answers=True)
    second.outcome = cast("Outcome", Late.LANDED)
    async with RawClient(n1.url) as raw:
        token = (await raw.hello(supports=None if supports else ["moon_landing"]))["token"]
    async with RawClient(n1.url) as back:
        again = await back.resume(token, attempt=1, oldest=NOTHING_KEPT, supports=supports)

    assert (again["outcome"], again["reason"]) == ("failed_over", "gap")
    assert len(second.asked) == is_asked


async def test_a_notice_of_a_later_release_is_for_clients_that_name_it(n1: TestNode) -> None:
    """4.1.1."""
    async with RawClient(n1.url) as knows, RawClient(n1.url) as other:
        await knows.hello(supports=["moon_landing"])
        await other.hello(supports=["handed_over", "mirrored"])
        held = n1.gateway.node.sessions
        held.delivery.notify(list(held), Notice(Late.LANDED, "It has landed."))
        held.delivery.notify(list(held), Notice(NoticeCode.ADMINISTRATOR, "Both are told."))

        assert [(await knows.receive())["code"] for _ in range(2)] == ["moon_landing", "administrator"]
        assert (await other.receive())["code"] == "administrator"


async def test_a_session_of_another_node_is_claimed_as_new_and_interrupted(n1: TestNode, n2: TestNode) -> None:
    second = with_a_second_rung(n2, applies=True, answers=True)
    token = await lost(n1)
    async with RawClient(n2.url) as back:
        again = await back.resume(token, attempt=1)

    assert (again["outcome"], again["reason"]) == ("failed_over", "other_node")
    (claimed,) = second.asked
    assert claimed.previous == n1.gateway.me
    assert (claimed.was_held, claimed.is_uninterrupted) == (False, False)
