"""Ends of credentials, in virtual time."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any, cast

import orjson

from gateway.app.context import Context
from gateway.app.registry.credential_expiry import LONGEST_STEP, Expiry
from gateway.app.runtime.clock import Clock
from gateway.app.session.session import Session
from gateway.core.session.server_session import ServerSession
from gateway.core.types import FIRST_GENERATION, SessionId
from tests.support.clock import VirtualClock
from tests.support.machines import opened

NOTICE = 60.0


class Held(ServerSession):
    """What a node adds to it that matters here."""

    credential_due = inf


class Bench:
    """One session whose credentials end, and the notices it was sent."""

    def __init__(self, *, left: float | None, notice: float = NOTICE) -> None:
        self.monotonic, self.wall = VirtualClock(50.0), VirtualClock(1_795_249_200.0)
        held = Held(SessionId("s"), principal="alice", window=60.0, machine=opened(), declared=FIRST_GENERATION)
        held.credential_expires = None if left is None else self.wall() + left
        self.session = cast("Session", held)
        surroundings: Any = SimpleNamespace(
            clock=Clock(monotonic=self.monotonic, wall=self.wall), parameters=SimpleNamespace(credential_notice=notice)
        )
        self.expiry = Expiry(cast("Context", surroundings))
        self.expiry.arm(self.session)

    @property
    def notices(self) -> list[str]:
        return [outgoing.body.decode() for run in self.session.machine.kept() for outgoing in run.packets]

    @property
    def due_in(self) -> float:
        return self.session.credential_due - self.monotonic()

    def pass_(self, seconds: float) -> bool:
        self.monotonic.advance(seconds)
        self.wall.advance(seconds)
        return self.session.credential_due <= self.monotonic() and self.expiry.is_over(self.session)


def test_credentials_without_an_end_are_never_due() -> None:
    bench = Bench(left=None)

    assert bench.due_in == inf
    assert not bench.expiry.is_over(bench.session)


def test_a_notice_ahead_and_then_the_end() -> None:
    bench = Bench(left=300.0)

    assert bench.due_in == 240.0
    assert not bench.pass_(239.0)
    assert bench.notices == []
    assert not bench.pass_(1.0)
    (notice,) = (orjson.loads("{" + each) for each in bench.notices)
    assert notice["code"] == "credentials_expiring"
    assert "60 s" in notice["message"]
    assert bench.due_in == 60.0
    assert not bench.pass_(59.0)
    assert bench.pass_(1.0)
    assert len(bench.notices) == 1


def test_what_lives_for_less_is_told_of_at_half_of_its_time() -> None:
    """At once, and a client would fetch tokens as fast as it can."""
    bench = Bench(left=10.0)

    assert bench.due_in == 5.0
    assert not bench.pass_(5.0)
    assert len(bench.notices) == 1
    assert bench.pass_(5.0)


def test_what_has_ended_already_is_over_at_once() -> None:
    bench = Bench(left=-5.0)

    assert bench.due_in == 0.0
    assert bench.pass_(0.0)
    assert bench.notices == []


def test_without_a_notice_only_the_end_is_waited_for() -> None:
    bench = Bench(left=10.0, notice=0.0)

    assert bench.due_in == 10.0
    assert bench.pass_(10.0)
    assert bench.notices == []


def test_fresh_credentials_begin_anew() -> None:
    bench = Bench(left=10.0)
    bench.pass_(5.0)

    bench.session.credential_expires = bench.wall() + 300.0
    bench.expiry.arm(bench.session)

    assert bench.due_in == 240.0
    assert not bench.pass_(240.0)
    assert len(bench.notices) == 2


def test_credentials_that_have_no_end_any_more() -> None:
    bench = Bench(left=10.0)
    bench.session.credential_expires = None

    assert not bench.pass_(10.0)
    assert bench.due_in == inf


def test_a_clock_that_is_set_is_followed() -> None:
    """The end is a time of day: set forward by a day, it comes a day sooner, and back, later."""
    bench = Bench(left=86_400.0 * 30)
    assert bench.due_in == LONGEST_STEP, "the time of day is looked at now and then"
    bench.wall.advance(86_400.0 * 30)
    assert bench.pass_(LONGEST_STEP)

    bench = Bench(left=300.0)
    bench.wall.now -= 1000.0
    assert not bench.pass_(240.0)
    assert bench.notices == []
    assert bench.due_in == 1000.0
