"""A session that was exported and restored cannot be told from the first one, whatever has been and whatever follows.

Hypothesis searches for short counterexamples; a seeded walk shows by numbers that sessions are exported in all the
states that matter.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gateway.core.types import PacketId
from gateway.core.wire.packets import Ping, Pong
from tests.support.session_twins import KINDS, PLENTY, Twins, small_parameters

TOPICS: Final = ("a", "b", "c", None)
"""``None`` stands for what has none and must arrive."""
ROOMS: Final = (0, 0, 1, 60, 300, PLENTY)
"""Bytes a transport takes; 0 is push-back, 60 is less than one update."""
BUFFERS: Final = (1, 2, 4, 8, 30)
"""Bounds of resend buffers, in packets."""
TIMES: Final = (0.125, 0.3125, 6.0, 20.0)
"""Seconds: before and after a due acknowledgement, towards a ping, and towards the end of patience."""
CLOCKS: Final = (0.0, 4096.0, -64.25)
"""Seconds by which the clock of another node is ahead."""
ENDS: Final = (None, -1.0, 8.0, 100.0)
"""Seconds for which credentials are good."""
WAYS: Final = ("done", "done", "refused", "for now", "dropped", "again")
"""How a run of requests ends."""

parameter_sets = st.builds(
    small_parameters,
    packets=st.sampled_from(BUFFERS),
    size=st.sampled_from((150, 4096)),
    message_bytes=st.sampled_from((100, 600)),
    ack_packets=st.sampled_from((1, 4)),
)


rooms = st.sampled_from(ROOMS) | st.integers(0, 700)


class SessionExport(RuleBasedStateMachine):
    """Whatever the application, the client, the link and the clock can do to a session, in any order."""

    kind: type[Twins] = Twins
    twins: Twins

    @initialize(parameters=parameter_sets, tells=st.booleans())
    def begin(self, parameters: object, tells: bool) -> None:
        self.twins = self.kind(parameters, tells=tells)  # type: ignore[arg-type]

    @rule(ahead=st.sampled_from(CLOCKS))
    def hand_over(self, ahead: float) -> None:
        self.twins.hand_over(ahead)

    @rule(ahead=st.sampled_from(CLOCKS))
    def take(self, ahead: float) -> None:
        self.twins.take(ahead)

    # --- The application ----------------------------------------------------------------------------------------------

    @rule(topics=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=6), snapshot=st.booleans())
    def submit(self, topics: list[str | None], snapshot: bool) -> None:
        self.twins.submit(topics, snapshot=snapshot)

    @rule(topics=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3), room=rooms)
    def send_now(self, topics: list[str | None], room: int) -> None:
        self.twins.submit(topics, room=room)

    @rule(room=rooms)
    def flush(self, room: int) -> None:
        self.twins.flush(room)

    @rule()
    def conflate(self) -> None:
        self.twins.conflate()

    @rule(topic=st.sampled_from(TOPICS[:3]))
    def withhold(self, topic: str) -> None:
        self.twins.withhold(topic)

    @rule(which=st.sampled_from(("forget_kept", "declare_loss", "send_link", "prove", "give_up", "detach")))
    def do(self, which: str) -> None:
        getattr(self.twins, which)()

    @rule(parameters=parameter_sets)
    def adopt(self, parameters: object) -> None:
        self.twins.adopt(parameters)  # type: ignore[arg-type]

    @rule(selector=st.sampled_from(("a/**", "a/b", "b/*")), selects=st.booleans())
    def select(self, selector: str, selects: bool) -> None:
        self.twins.select(selector, selects=selects)

    @rule(name=st.sampled_from(("x", "y", "$client")), partition=st.integers(0, 63))
    def describe(self, name: str, partition: int) -> None:
        self.twins.describe(name, partition)

    # --- Requests, and what else comes over the network ---------------------------------------------------------------

    @rule(
        kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
        jump=st.sampled_from((0, 0, 0, 0, -1, -2, 1)),
        resubmitted=st.booleans(),
        acknowledges=st.booleans(),
        grid=st.booleans(),
    )
    def ask(self, kinds: list[str], jump: int, resubmitted: bool, acknowledges: bool, grid: bool) -> None:
        self.twins.ask(kinds, jump=jump, resubmitted=resubmitted, acknowledges=acknowledges, grid=grid)

    @rule()
    def start(self) -> None:
        self.twins.start()

    @rule(how=st.sampled_from(WAYS))
    def finish(self, how: str) -> None:
        self.twins.finish(how)

    @rule(back=st.sampled_from((0, 0, 1, 2, 5, -1)), alone=st.booleans())
    def acknowledge(self, back: int, alone: bool) -> None:
        self.twins.acknowledge(back, alone=alone)

    @rule(packet=st.sampled_from((Ping(), Pong(PacketId(0)))))
    def hear(self, packet: Ping | Pong) -> None:
        self.twins.hear(packet)

    @rule(
        back=st.integers(0, 6),
        oldest=st.sampled_from((1, 1, 1, 0, 2)),
        generation=st.sampled_from((None, 1, 2, 9)),
        again=st.booleans(),
    )
    def resume(self, back: int, oldest: int, generation: int | None, again: bool) -> None:
        self.twins.resume(back, oldest=oldest, generation=generation, again=again)

    # --- Time ---------------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from(TIMES))
    def time_passes(self, seconds: float) -> None:
        self.twins.pass_time(seconds)

    @rule(seconds=st.sampled_from(ENDS), notice=st.sampled_from((0.0, 60.0)))
    def show_credentials(self, seconds: float | None, notice: float) -> None:
        self.twins.show_credentials(seconds, notice)

    @rule()
    def look_at_credentials(self) -> None:
        self.twins.look_at_credentials()

    def teardown(self) -> None:
        if hasattr(self, "twins"):
            for what in self.twins.seen:
                event(what)


TestSessionExport = SessionExport.TestCase
TestSessionExport.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


# --- The seeded walk --------------------------------------------------------------------------------------------------

WALKS: Final = 150
STEPS: Final = 150


def walk(seed: int, kind: type[Twins] = Twins) -> Counter[str]:
    """Live through a session at random, with a handoff now and then; returns what was there to be exported."""
    pick = random.Random(seed)  # reproducible by its seed, and no secret
    twins = kind(
        small_parameters(
            packets=pick.choice((4, 8, 30)),
            size=pick.choice((300, 4096)),
            message_bytes=pick.choice((100, 600)),
            ack_packets=pick.choice((1, 4)),
        ),
        tells=pick.random() < 0.7,
    )

    def is_so(share: float = 0.5) -> bool:
        return pick.random() < share

    def ask() -> None:
        kinds = pick.choices(KINDS, (4, 2, 8, 1, 1, 1, 1, 0.2, 0.5, 0.5, 0.5, 0.5), k=pick.randint(1, 3))
        jump = 0 if is_so(0.95) else pick.choice((-1, 1))
        twins.ask(kinds, jump=jump, resubmitted=is_so(0.2), acknowledges=is_so(), grid=is_so(0.8))

    def come_back() -> None:
        twins.detach()
        twins.resume(pick.randint(0, 2), oldest=1, generation=pick.choice((None, 9)), again=is_so(0.2))

    actions: list[tuple[float, Callable[[], object]]] = [
        (6, lambda: twins.hand_over(pick.choice(CLOCKS))),
        (1, lambda: twins.take(pick.choice(CLOCKS))),
        (8, lambda: twins.submit(pick.choices(TOPICS, k=pick.randint(1, 5)))),
        (2, lambda: twins.submit(pick.choices(TOPICS, k=2), snapshot=True)),
        (4, lambda: twins.submit([pick.choice(TOPICS)], room=PLENTY)),
        (12, lambda: twins.flush(pick.choice(ROOMS))),
        (8, lambda: twins.acknowledge(pick.choice((0, 1, 2, 3)), alone=is_so())),
        (10, ask),
        (8, twins.start),
        (8, lambda: twins.finish(pick.choice(WAYS))),
        (6, lambda: twins.pass_time(pick.choice(TIMES[:3]))),
        (1, lambda: twins.pass_time(TIMES[-1])),
        (1.5, twins.detach),
        (4, come_back),
        (0.5, twins.give_up),
        (0.5, twins.conflate),
        (1, lambda: twins.withhold("a")),
        (1, twins.declare_loss),
        (1, twins.send_link),
        (1, lambda: twins.hear(Ping())),
        (1, twins.prove),
        (2, lambda: twins.show_credentials(pick.choice(ENDS), 60.0)),
        (8, twins.look_at_credentials),
        (1, lambda: twins.select(pick.choice(("a/**", "a/b")), selects=is_so())),
        (1, lambda: twins.describe(pick.choice("xy"), pick.randint(0, 63))),
        (0.02, twins.close),
    ]
    weights = [weight for weight, _ in actions]
    acts = [act for _, act in actions]
    for act in pick.choices(acts, weights, k=STEPS):
        act()
    return twins.seen


@pytest.fixture(scope="module")
def reached() -> Counter[str]:
    """In how many of ``WALKS`` walks each thing was there when the session was exported."""
    counts: Counter[str] = Counter()
    for seed in range(WALKS):
        try:
            counts.update(what for what, times in walk(seed).items() if times)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    return counts


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("what", "share"),
    [
        ("exported", 0.99),
        ("taken", 0.5),
        ("attached", 0.9),
        ("detached", 0.3),
        ("gap", 0.2),
        ("closed", 0.01),
        ("folded", 0.3),
        ("marked", 0.2),
        ("waiting", 0.5),
        ("kept", 0.8),
        ("half a run", 0.08),
        ("to be resent", 0.2),
        ("pending", 0.5),
        ("started", 0.5),
        ("unseen", 0.5),
        ("refusing", 0.3),
        ("declaring", 0.3),
        ("credentials told", 0.1),
        ("acknowledgement due", 0.3),
        ("pinged", 0.2),
    ],
)
def test_random_lives_can_be_handed_over_at_any_point_and_reach_what_is_to_be_exported(
    reached: Counter[str], what: str, share: float
) -> None:
    assert reached[what] >= share * WALKS, f"{what}: in {reached[what]} of {WALKS} walks"
