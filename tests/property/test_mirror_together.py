"""What many sessions are sent together is noted once, and their copies are exact all the same (M1, seed 002).

Sessions are sent runs together and alone, wait, fold, are away, lose rights, come and go between two frames, in any
order. After each frame every copy is compared with its session.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

import pytest

from gateway.core.mirror.copies import Copies
from gateway.core.mirror.frames import SessionCut, read_frame
from gateway.core.mirror.log import MirrorLog
from gateway.core.session.server_session import ServerSession
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.messages import SharedFrame
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.stream.transitions import Role, State
from gateway.core.types import Epoch, EventId, GridGeneration, PacketId, SessionId, TokenGeneration, Version
from gateway.core.wire import codec
from tests.property.test_mirror import goes_on
from tests.support.session_twins import PLENTY, small_parameters

pytestmark = pytest.mark.promise("P12")

SESSIONS: Final = 5
STEPS: Final = 120
SEEDS: Final = 80
TOPICS: Final = ("a", "b", "c")


class World:
    """Some sessions of a node, which are sent things as its flusher sends them, and their copies."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.seen: Counter[str] = Counter()
        self.versions: Counter[str] = Counter()
        self.named = 0
        self.place = 0
        self.log: MirrorLog[ServerSession] = MirrorLog(
            1,
            epoch_of=lambda _: Epoch(3),
            cut_of=lambda _: SessionCut(frozenset({7}), {}),
            wake=lambda: None,
            wake_later=lambda: None,
            rate=1e9,
        )
        self.copies = Copies()
        self.sessions = tuple([self.made() for _ in range(SESSIONS)])

    def made(self) -> ServerSession:
        self.named += 1
        machine = SessionMachine(
            Role.SERVER, small_parameters(packets=12, size=4_000, message_bytes=500, ack_packets=100)
        )
        machine.open(0.0, generation=TokenGeneration(1))
        session = ServerSession(
            SessionId(f"s{self.named}"), principal="alice", window=60.0, machine=machine, declared=GridGeneration(1)
        )
        self.log.add(session)
        return session

    def one(self) -> ServerSession:
        return self.random.choice(self.sessions)

    def run(self) -> Run:
        topics = self.random.choices(TOPICS, k=self.random.choice([1, 1, 1, 3]))
        return Run(tuple([self.update(topic) for topic in topics]))

    def update(self, topic: str) -> Outgoing:
        self.versions[topic] += 1
        number = self.versions[topic]
        value = b"%d" % number
        body = codec.encode_update(topic, Version(number), EventId(f"7-1-{number}"), value, snapshot=False)
        return Outgoing(topic, body)

    # --- What happens -------------------------------------------------------------------------------------------------

    def send_together(self) -> None:
        run = self.run()
        shared = SharedFrame(run, is_told=True)
        others = [each for each in self.sessions if each.machine.send_now(shared, self.room(each)) is None]
        if len(others) < len(self.sessions):
            self.log.sent_together(run, self.sessions, others)
            self.seen["together"] += 1
            self.seen["together, with others"] += bool(others)
        for session in others:
            session.machine.submit_run(run)

    def send_alone(self) -> None:
        session = self.one()
        if session.machine.send_now(SharedFrame(run := self.run()), self.room(session)) is None:
            session.machine.submit_run(run)

    def reply(self) -> None:
        session = self.one()
        session.machine.submit(Outgoing(None, b'"type":"notice","code":"x"}'))
        self.flush(session)

    def room(self, session: ServerSession) -> int:
        return PLENTY if session.machine.state is State.ATTACHED and self.random.random() < 0.9 else 0

    def flush(self, session: ServerSession | None = None) -> None:
        session = session or self.one()
        if session.machine.state is State.ATTACHED:
            session.machine.flush(self.random.choice([0, 100, PLENTY, PLENTY]))

    def acknowledge(self) -> None:
        session = self.one()
        machine = session.machine
        if machine.state is State.ATTACHED and machine.unacknowledged and not machine.has_output:
            machine.receive_ack(PacketId(self.random.randint(machine.oldest, machine.last_numbered)), 0.0)

    def leave_or_return(self) -> None:
        session = self.one()
        machine = session.machine
        if machine.state is State.ATTACHED:
            machine.detach()
        else:
            machine.resume()
            received = PacketId(machine.oldest - 1)
            if machine.can_reattach(received=received, oldest=PacketId(1), generation=TokenGeneration(1)):
                machine.reattach(received=received, now=0.0)
            else:
                machine.restart(0.0, generation=TokenGeneration(1))
        self.log.add(session)

    def withdraw(self) -> None:
        topic = self.random.choice(TOPICS)
        self.one().machine.withhold(lambda each: each == topic)
        self.seen["withdrawn"] += 1

    def replace(self) -> None:
        gone = self.one()
        self.log.remove(gone)
        new = self.made()
        self.sessions = tuple([new if each is gone else each for each in self.sessions])
        self.seen["replaced"] += 1

    def regroup(self) -> None:
        """The index makes the tuple of subscribers anew, in another order perhaps."""
        self.sessions = tuple(self.random.sample(self.sessions, SESSIONS))

    # --- Frames -------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        self.place += 1
        frame = self.log.frame({7: EventId(f"7-1-{self.place}")}, 0.0)
        assert frame is not None
        self.copies.apply(read_frame(frame))
        assert len(self.copies) == SESSIONS
        for session in self.sessions:
            copy = self.copies.copy_of(session.id)
            assert copy is not None
            assert goes_on(copy.session, session) == goes_on(session, session)
            self.seen["waiting"] += session.machine.waiting > 0
            self.seen[session.machine.state.value] += 1

    def live(self) -> None:
        acts = {
            self.send_together: 10,
            self.send_alone: 3,
            self.reply: 2,
            self.flush: 4,
            self.acknowledge: 4,
            self.tick: 6,
            self.leave_or_return: 1,
            self.withdraw: 0.5,
            self.replace: 0.3,
            self.regroup: 0.5,
        }
        for act in self.random.choices(list(acts), weights=list(acts.values()), k=STEPS):
            act()
        self.tick()


@pytest.fixture(scope="module")
def seen() -> Counter[str]:
    """In how many worlds each thing was there."""
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        world = World(seed)
        try:
            world.live()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        counts.update(what for what, times in world.seen.items() if times)
    return counts


@pytest.mark.thorough
@pytest.mark.parametrize(
    "what", ["together", "together, with others", "waiting", "attached", "detached", "withdrawn", "replaced"]
)
def test_copies_of_what_many_were_sent_are_exact(seen: Counter[str], what: str) -> None:
    assert seen[what] >= SEEDS / 2, f"{what}: in {seen[what]} of {SEEDS} worlds"
