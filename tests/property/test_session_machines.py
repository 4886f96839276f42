"""Two session machines joined by a bad link: every packet exactly once and in order, or a declared restart (P2, P6).

A third machine is that of another node, to which the session is handed over at any point of its history: what it was
given, and all that follows, has to be as if the session had stayed (P12).

Two drivers run the same actions (``tests.support.link_pair``). Hypothesis searches for short counterexamples and
shrinks them. A seeded walk is weighted like the life of a mobile client, and shows by numbers that the interesting
states are reached often; a search that never gets there would prove nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import HealthCheck, event, settings, target
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gateway.core.stream.transitions import State
from tests.support.link_ends import PLENTY, End
from tests.support.link_pair import LinkPair, parameters
from tests.support.link_server import ServerEnd

pytestmark = pytest.mark.promise("P2", "P5", "P6", "P12")

TOPICS: Final = ("a", "b", "c")
BUFFERS: Final = (1, 2, 4, 8, 30)
"""Bounds of resend buffers, in packets: from "one at a time" to "never full"."""
ROOMS: Final = (0, 0, 60, 300, PLENTY)
"""Bytes a transport takes; 0 is push-back, 60 is less than one update."""
TIMES: Final = (0.125, 0.3125, 0.3125, 6.0)
"""Seconds: before and after a due acknowledgement, and towards a ping. Sums of them are exact, so that a machine that
was exported and restored can be compared to the last bit."""


def make_pair(client: int, server: int, server_bytes: int, ack_packets: int, *, tells: bool) -> LinkPair:
    return LinkPair(
        parameters(packets=client),
        parameters(packets=server, size=server_bytes, ack_packets=ack_packets),
        tells_generations=tells,
    )


class SessionMachines(RuleBasedStateMachine):
    """The actions of both applications, both timers and the link, in any order."""

    pair: LinkPair

    @initialize(
        client=st.sampled_from(BUFFERS),
        server=st.sampled_from(BUFFERS),
        server_bytes=st.sampled_from((150, 4096)),
        ack_packets=st.sampled_from((1, 4, 100)),
        tells=st.booleans(),
    )
    def begin(self, client: int, server: int, server_bytes: int, ack_packets: int, tells: bool) -> None:
        self.pair = make_pair(client, server, server_bytes, ack_packets, tells=tells)

    def end(self, server: bool) -> End:
        return self.pair.server if server else self.pair.client

    # --- The applications ---------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 5))
    def client_asks(self, count: int) -> None:
        for _ in range(count):
            self.pair.client.publish()

    @rule(topics=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=12), room=st.sampled_from(ROOMS))
    def topics_change(self, topics: list[str], room: int) -> None:
        self.pair.server.update_all(topics, room=room)

    @rule()
    def server_declares(self) -> None:
        self.pair.server.notify()

    @rule()
    def server_renews_the_token(self) -> None:
        self.pair.server.renew_token()

    # --- The network --------------------------------------------------------------------------------------------------

    @rule(server=st.booleans(), room=st.sampled_from(ROOMS))
    def flush(self, server: bool, room: int) -> None:
        self.end(server).flush(room)

    @rule(to_server=st.integers(0, 4), to_client=st.integers(0, 4))
    def deliver(self, to_server: int, to_client: int) -> None:
        self.pair.deliver_to_server(to_server)
        self.pair.deliver_to_client(to_client)

    @rule(to_client=st.booleans(), fault=st.sampled_from((LinkPair.lose, LinkPair.double, LinkPair.swap)))
    def tamper(self, to_client: bool, fault: Callable[..., None]) -> None:
        fault(self.pair, to_client=to_client)

    @rule(client_notices=st.booleans(), server_notices=st.booleans())
    def cut(self, client_notices: bool, server_notices: bool) -> None:
        self.pair.cut(client_notices=client_notices, server_notices=server_notices)

    @rule(served=st.booleans(), welcomed=st.booleans())
    def reconnect(self, served: bool, welcomed: bool) -> None:
        self.pair.reconnect()
        if served:
            self.pair.deliver_to_server()
            if welcomed:
                self.pair.deliver_to_client()

    @rule()
    def a_late_resume_arrives(self) -> None:
        self.pair.deliver_late_resume()

    # --- The cluster --------------------------------------------------------------------------------------------------

    @rule()
    def the_node_is_replaced(self) -> None:
        self.pair.replace_server()

    @rule(forgets=st.booleans(), stops=st.booleans(), served=st.booleans())
    def the_session_moves(self, forgets: bool, stops: bool, served: bool) -> None:
        self.pair.move(forgets=forgets, stops=stops)
        if served:
            self.pair.deliver_to_server()

    @rule()
    def the_node_that_took_it_dies(self) -> None:
        self.pair.lose_taker()

    @rule(is_slow=st.booleans())
    def the_grid_slows_down(self, is_slow: bool) -> None:
        self.pair.is_slow = is_slow

    @rule()
    def a_request_begins(self) -> None:
        self.pair.server.begin()

    @rule()
    def a_request_is_answered(self) -> None:
        self.pair.server.answer()

    # --- Time and form ------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from(TIMES))
    def time_passes(self, seconds: float) -> None:
        self.pair.pass_time(seconds)

    @rule(server=st.booleans(), room=st.sampled_from(ROOMS))
    def restore(self, server: bool, room: int) -> None:
        self.end(server).restore(room)

    @rule()
    def settle(self) -> None:
        self.pair.settle()

    def teardown(self) -> None:
        if not hasattr(self, "pair"):
            return
        seen = dict(self.pair.seen)
        for what in seen:
            event(what)
        target(float(len(seen)), label="different things seen")
        self.pair.settle()


TestSessionMachines = SessionMachines.TestCase
TestSessionMachines.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


# --- The seeded walk --------------------------------------------------------------------------------------------------

WALKS: Final = 400
STEPS: Final = 200


def walk(seed: int) -> Counter[str]:
    """Drive a pair through random actions; returns what was seen."""
    pick = random.Random(seed)  # reproducible by its seed, and no secret
    pair = make_pair(
        pick.choice((2, 8, 30)),
        pick.choice((1, 4, 30, 60)),
        pick.choice((150, 4096, 4096)),
        pick.choice((1, 4, 100)),
        tells=pick.random() < 0.7,
    )

    def side() -> bool:
        return pick.random() < 0.5

    def end() -> End:
        return pair.server if side() else pair.client

    def come_back() -> None:
        if pair.client.connection is None:
            pair.reconnect()

    # Not bound methods: another server may have taken the first one's place by the time the action is taken.
    def of_server(act: Callable[[ServerEnd], object]) -> Callable[[], object]:
        return lambda: act(pair.server)

    actions: list[tuple[float, Callable[[], object]]] = [
        (10, pair.client.publish),
        (8, lambda: pair.server.update(pick.choice(TOPICS))),
        (4, lambda: pair.server.update_all(pick.choices(TOPICS, k=pick.randint(1, 4)), room=pick.choice(ROOMS))),
        (4, of_server(ServerEnd.notify)),
        (1, of_server(ServerEnd.renew_token)),
        (12, lambda: end().flush(pick.choice(ROOMS))),
        (10, lambda: pair.deliver_to_server(pick.randint(1, 5))),
        (10, lambda: pair.deliver_to_client(pick.randint(1, 5))),
        (5, lambda: pair.pass_time(pick.choice(TIMES))),
        (2, lambda: end().restore(pick.choice(ROOMS))),
        (10, come_back),
        (1, lambda: pair.cut(client_notices=pick.random() < 0.8, server_notices=side())),
        (0.3, pair.reconnect),
        (0.5, pair.deliver_late_resume),
        (0.7, lambda: pair.lose(to_client=side())),
        (0.7, lambda: pair.double(to_client=side())),
        (0.7, lambda: pair.swap(to_client=side())),
        (0.2, pair.replace_server),
        (1, lambda: pair.move(forgets=side(), stops=side())),
        (0.3, pair.lose_taker),
        (2, lambda: setattr(pair, "is_slow", side())),
        (4, of_server(ServerEnd.begin)),
        (3, of_server(ServerEnd.answer)),
    ]
    weights = [weight for weight, _ in actions]
    acts = [act for _, act in actions]
    for act in pick.choices(acts, weights, k=STEPS):
        act()
        if pair.server.machine.conflated:
            pair.seen["conflated"] += 1
        if pair.client.machine.unacknowledged >= pair.client.machine.parameters.resend_packets:
            pair.seen["client held back"] += 1
    pair.settle()
    return pair.seen


@pytest.fixture(scope="module")
def reached() -> Counter[str]:
    """In how many of ``WALKS`` walks each thing was seen."""
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
        ("reattached", 0.3),
        ("handed_over", 0.3),
        ("handed over with requests", 0.1),
        ("handed over with begun requests", 0.05),
        ("taker lost", 0.1),
        ("missed meanwhile", 0.02),
        ("outdated", 0.02),
        ("failed_over", 0.5),
        ("gap", 0.4),
        ("cut while resuming", 0.3),
        ("client in an earlier numbering", 0.1),
        ("node replaced", 0.2),
        ("conflated", 0.3),
        ("folded", 0.2),
        ("sent at once", 0.1),
        ("client held back", 0.3),
        ("violation", 0.05),
        ("stale attempt", 0.01),
        ("ping timeout", 0.005),
    ],
)
def test_random_walks_keep_every_promise_and_reach_the_interesting_states(
    reached: Counter[str], what: str, share: float
) -> None:
    assert reached[what] >= share * WALKS, f"{what}: {reached[what]} of {WALKS} walks"


def test_cut_twice_in_a_row_without_traffic_loses_nothing() -> None:
    """Socket.IO's Redis streams adapter replayed packets here: what was recovered had not moved its offset."""
    pair = LinkPair(parameters(), parameters())
    pair.client.flush(PLENTY)
    pair.deliver_to_server(9)
    for _ in range(3):
        pair.server.update("a")
        pair.client.publish()
        pair.client.flush(PLENTY)
        pair.server.flush(PLENTY)
    for _ in range(5):
        pair.cut(client_notices=True, server_notices=False)
        pair.reconnect()
        assert pair.deliver_to_server()
        assert pair.client.machine.state is State.RESUMING
    assert pair.deliver_to_client()

    assert pair.seen["failed_over"] == 0
    assert pair.seen["reattached"] == 5
    pair.settle()


@pytest.mark.parametrize("tells", [True, False])
def test_what_a_former_node_kept_is_no_good_to_who_was_served_anew(tells: bool) -> None:
    """Numbering has begun anew at the node that took it: packet ids fit both by accident, and the token tells."""
    pair = LinkPair(parameters(), parameters(packets=4), tells_generations=tells)
    pair.client.flush(PLENTY)
    pair.deliver_to_server(9)
    for _ in TOPICS:
        pair.server.notify()
    pair.server.flush(PLENTY)
    pair.deliver_to_client(9)
    pair.client.publish()
    pair.client.flush(PLENTY)
    pair.client.machine.forget_kept()  # it cannot resend what the server misses, so that numbering begins anew
    pair.move(forgets=False)
    pair.deliver_to_server()
    pair.deliver_to_client()
    assert pair.seen["failed_over"] == 1
    for topic in TOPICS:
        pair.server.update(topic)
    pair.server.flush(PLENTY)
    pair.deliver_to_client(9)
    assert pair.former is not None
    assert pair.client.machine.received <= pair.former.machine.last_numbered

    pair.lose_taker()
    pair.reconnect()
    pair.deliver_to_server()

    assert pair.seen["outdated"] == 1
    assert pair.seen["failed_over"] == 2
    pair.settle()


@pytest.mark.parametrize("tells", [True, False])
def test_a_welcome_lost_after_a_restart_does_not_mix_two_numberings(tells: bool) -> None:
    """The client's ids are of the old numbering, and would fit the new one by accident: nothing may be skipped."""
    pair = LinkPair(parameters(packets=4), parameters(packets=4), tells_generations=tells)
    pair.client.flush(PLENTY)
    pair.deliver_to_server(9)
    for topic in TOPICS:
        pair.server.update(topic)
    pair.server.flush(PLENTY)
    pair.deliver_to_client(9)
    pair.cut(client_notices=True, server_notices=True)
    for _ in range(5):
        pair.server.notify()
    assert pair.server.machine.state is State.GAP

    pair.reconnect()
    pair.deliver_to_server()
    assert pair.seen["failed_over"] == 1
    # The welcome is lost; 3 snapshots are numbered 1 to 3, and the client has received 3 packets of the old numbering.
    pair.cut(client_notices=True, server_notices=True)
    pair.reconnect()
    pair.deliver_to_server()

    assert pair.seen["client in an earlier numbering"] == 1
    assert pair.seen["failed_over"] == 2
    pair.settle()
