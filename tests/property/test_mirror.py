"""At every moment, what a backup gives of its copy is what the live node would give of the session (M1, seed 002).

The session lives through everything that the application, the client, the link and the clock can do to it, as in
``test_session_export``; after each of them a frame goes to the backup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from gateway.core.mirror.copies import Copies
from gateway.core.mirror.frames import SessionCut, read_frame
from gateway.core.mirror.log import MirrorLog
from gateway.core.session.export import export, restore
from gateway.core.session.handoff import assume
from gateway.core.session.server_session import ServerSession
from gateway.core.stream.machine import SessionMachine, StreamParameters
from gateway.core.stream.transitions import Role, State
from gateway.core.types import Epoch, EventId, GridGeneration, RequestNumber, SessionId
from tests.property.test_session_export import SessionExport, walk
from tests.support.session_twins import RECORDED, Twins

CUT: Final = SessionCut(frozenset({7, 9}), {RequestNumber(3): "a/**"})
"""Of the session: where its node is in two partitions, and the values of one subscribe are still to come."""

pytestmark = pytest.mark.promise("P12")


def goes_on(session: ServerSession, like: ServerSession) -> bytes:
    """What another node goes on with that has a record of the session from the grid, without what ended with its node.

    Which packets were written and how long ago is of the connection that is gone. In a gap nothing can go on: the
    session fails over.
    """
    sent, session.machine._sent = session.machine._sent, session.machine.last_numbered
    given = restore(export(session, 0.0), 0.0)
    session.machine._sent = sent
    given.settled()
    assert given.known_generation  # as this, it is looked at when it is asked for, whether the notice has arrived
    if given.machine.state is State.GAP:
        return b"gap"
    if given.machine.state in {State.ATTACHED, State.RESUMING}:
        given.machine.detach()
    given.pending.started = len(given.pending)
    taken = ServerSession(
        like.id,
        principal=like.principal,
        window=like.window,
        machine=SessionMachine(Role.SERVER, like.machine.parameters),
        declared=GridGeneration(1),
    )
    for name in RECORDED:
        setattr(taken, name, getattr(like, name))
    taken.stored_generation = GridGeneration(like.stored_generation + 1)  # the record is older than what is given
    token, attempt = given.token_generation, given.attempt
    assume(taken, given)
    machine = taken.machine
    machine.adopt(like.machine.parameters)
    machine._sent = machine.last_numbered
    machine._acknowledged = machine.received
    machine._heard = 0.0
    machine.stand(machine.standing())  # link packets are of a connection, too
    machine._proven = True
    machine.duplicates = 0
    return export(taken, 0.0) + f"{token} {attempt}".encode()


class MirroredTwins(Twins):
    """A session with its twins, and a copy that hears of it by frames alone."""

    def __init__(self, parameters: StreamParameters, *, tells: bool = True) -> None:
        super().__init__(parameters, tells=tells)
        self.place = 0
        self.woken = False
        self.log: MirrorLog[ServerSession] = MirrorLog(
            5, epoch_of=lambda _: Epoch(3), cut_of=lambda _: CUT, wake=self.wake, wake_later=self.wake, rate=1e9
        )
        self.copies = Copies()
        self.is_copied = True
        self.log.add(self.first)
        self.tick()

    def wake(self) -> None:
        self.woken = True

    def compare(self) -> None:
        super().compare()
        if self.is_copied:
            self.tick()

    def resume(self, *args: Any, **kwargs: Any) -> None:
        """A node looks at a session again when its client is there."""
        with self._looked_at_again():
            super().resume(*args, **kwargs)

    def select(self, selector: str, *, selects: bool) -> None:
        """It is looked at again when other selections are in force."""
        with self._looked_at_again():
            super().select(selector, selects=selects)

    def describe(self, name: str, partition: int) -> None:
        """What a client understands changes with its connection."""
        with self._looked_at_again():
            super().describe(name, partition)

    @contextmanager
    def _looked_at_again(self) -> Iterator[None]:
        self.is_copied = False
        yield
        self.is_copied = True
        if self.first.machine.state is not State.CLOSED:
            self.log.add(self.first)
        self.tick()

    def adopt(self, parameters: StreamParameters) -> None:
        """Bounds are those of the node, and do not change while it has a session."""

    def tick(self) -> None:
        if self.first.machine.state is State.CLOSED:
            self.end()
            return
        cuts = {7: EventId(f"7-1-{self.place}"), 8: EventId("8-1-1")}
        if self.woken:
            self.woken = False
            self.place += 1
            cuts[7] = EventId(f"7-1-{self.place}")
            frame = self.log.frame(cuts, self.now)
            assert frame is not None
            self.copies.apply(read_frame(frame))
            self.seen["mirrored frames"] += 1
        copy = self.copies.copy_of(SessionId("s"))
        assert copy is not None
        assert goes_on(copy.session, self.first) == goes_on(self.first, self.first)
        self.seen[f"mirrored {self.first.machine.state.value}"] += 1
        self.seen["mirrored waiting"] += self.first.machine.waiting > 0
        self.seen["mirrored folded"] += self.first.machine.is_folded
        self.seen["mirrored pending"] += len(self.first.pending) > 0
        self.seen["mirrored refusing"] += self.first.refusing

    def end(self) -> None:
        """The session has ended: no copy of it is kept."""
        if self.first in self.log:
            self.log.remove(self.first)
            frame = self.log.frame({}, self.now)
            assert frame is not None
            self.copies.apply(read_frame(frame))
            assert not len(self.copies)


class MirroredSession(SessionExport):
    """Whatever can be done to a session, in any order."""

    kind = MirroredTwins


TestMirroredSession = MirroredSession.TestCase
TestMirroredSession.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


WALKS: Final = 60


@pytest.fixture(scope="module")
def reached() -> Counter[str]:
    """In how many of ``WALKS`` walks each thing was there when the copy was compared."""
    counts: Counter[str] = Counter()
    for seed in range(WALKS):
        try:
            counts.update(what for what, times in walk(seed, MirroredTwins).items() if times)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    return counts


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("what", "share"),
    [
        ("frames", 1.0),
        ("attached", 0.9),
        ("detached", 0.3),
        ("gap", 0.2),
        ("waiting", 0.5),
        ("folded", 0.3),
        ("pending", 0.5),
        ("refusing", 0.3),
    ],
)
def test_random_lives_reach_what_is_to_be_copied(reached: Counter[str], what: str, share: float) -> None:
    assert reached[f"mirrored {what}"] >= share * WALKS, f"{what}: in {reached[f'mirrored {what}']} of {WALKS} walks"
