"""Either node dies wherever a drain, a move or the passing on of sessions waits: nothing is lost (H4, P12)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from gateway.core.types import NodeRef
from tests.integration.client.handoff_scene import NOBODY, Scene, scene
from tests.support.nodes import eventually
from tests.support.suspensions import Places
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P3", "P5", "P12")

DRAIN, MOVE, PASS_ON, KEEP = "a drain", "a move", "sessions are passed on", "nobody takes them"
"""What n1 does: all its clients go, an administrator moves one of them, and it stops while its client is away."""

WAITS = {
    DRAIN: {"Drain.run", "SessionMover._later", "Drain._until_taken"},
    MOVE: {"SessionMover._sent"},
    PASS_ON: {"Drain._start_windows", "SessionOffers.offer", "SessionOffers._offer_to"},
    KEEP: {"Drain._start_windows", "Departure.confirm"},
}
"""Functions that wait themselves or for others, at least; what else waits is found."""

OUTCOMES = {DRAIN: "handed_over", MOVE: "handed_over", PASS_ON: "reattached", KEEP: "handed_over"}
"""At n2, if nobody dies."""


def watch(patch: pytest.MonkeyPatch, found: Scene, places: Places, *accepting: NodeRef) -> None:
    """Watch all that n1 does to be left by its sessions."""
    stop = found.n1.gateway.node._planned_stop
    drain, moves, departure = stop._drain, stop._moves, stop._departure
    offers = drain._offers
    assert offers is not None
    for owner, name in (
        (drain, "run"),
        (drain, "_until_taken"),
        (drain, "_start_windows"),
        (moves, "_later"),
        (moves, "_sent"),
        (moves, "hang_up"),
        (offers, "offer"),
        (offers, "_offer_to"),
        (departure, "confirm"),
    ):
        patch.setattr(owner, name, places.watched(getattr(owner, name)))

    async def staying() -> list[NodeRef]:
        return list(accepting)

    patch.setattr(offers, "_staying", staying)


async def come_when_expected(found: Scene, places: Places) -> None:
    """Have the client, who has left as it was told to, come to n2 when n1 waits for that."""
    await eventually(lambda: any(each.startswith("Drain._until_taken") for each in places.seen))
    if not places.has_acted:
        found.lead_to(found.n2)


async def killed(patch: pytest.MonkeyPatch, what: str, victim: str, at: str | None) -> Places:
    """Have n1 left by its session, and a node killed when n1 first waits at a place; returns where it waited."""
    async with scene(patch) as found:
        dead = found.n1 if victim == "n1" else found.n2
        goes_to = found.n3 if victim == "n2" else found.n2
        is_over = asyncio.Event()
        is_away = what in {PASS_ON, KEEP}

        def kill() -> None:
            found.kill(dead, leads=False)
            is_over.set()
            if not is_away:
                # Who was at the dead node, or was told to go there, looks for another one.
                found.lead_to(goes_to)

        places = Places(at, kill)
        watch(patch, found, places, *([found.n2.gateway.me] if what == PASS_ON else []))
        async with time_limit(60), found.traffic():
            await found.goes_on()
            (session,) = [each for each in found.n1.gateway.node.sessions if each.principal == "alice"]
            found.proxy.target = found.n2.gateway.port if what == MOVE else NOBODY
            if is_away:
                found.proxy.cut()
                await eventually(lambda: session.on_clock)
            if what == MOVE:
                leaving = found.n1.gateway.node._planned_stop._moves.send(
                    session, found.n2.gateway.me.node, reason="an administrator says so"
                )
            else:
                leaving = asyncio.create_task(found.n1.gateway.drain())
            coming = asyncio.create_task(come_when_expected(found, places)) if what == DRAIN else None
            over = asyncio.create_task(is_over.wait())
            await asyncio.wait([leaving, over], return_when=asyncio.FIRST_COMPLETED)
            if is_away:
                found.lead_to(goes_to if is_over.is_set() else found.n2)
            await eventually(lambda: len(found.recoveries) >= 1)
            await found.goes_on()
            for each in filter(None, (leaving, over, coming)):
                each.cancel()
        found.judge()
        if at is None:
            assert [(each.outcome, each.node) for each in found.recoveries] == [(OUTCOMES[what], "n2")]
    return places


def cases() -> Iterator[object]:
    """List what n1 does and which node dies; that of the other node takes as long again."""
    for what in WAITS:
        for victim in ("n1", "n2"):
            marks = [pytest.mark.thorough] if victim == "n2" else []
            yield pytest.param(what, victim, marks=marks, id=f"{what}, {victim} dies")


@pytest.mark.parametrize(("what", "victim"), list(cases()))
async def test_a_node_that_dies_wherever_the_leaving_one_waits_costs_nothing(what: str, victim: str) -> None:
    """Every update comes once and in order, and every publish is executed once, whoever goes on with the session."""
    with pytest.MonkeyPatch.context() as patch:
        places = (await killed(patch, what, victim, None)).seen
    died_at: set[str] = set()
    for place in places:
        with pytest.MonkeyPatch.context() as patch:
            # What is timed may be over sooner in one run than in another.
            if (await killed(patch, what, victim, place)).has_acted:
                died_at.add(place.partition(":")[0])
    assert died_at >= WAITS[what], places
