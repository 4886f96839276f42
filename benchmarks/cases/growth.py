"""How claims and selector matching grow with what is there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Row
from benchmarks.cases.generated import flags_of, measure
from benchmarks.checkout import THIS
from benchmarks.generator.driver import Load
from benchmarks.storm.cluster import running
from benchmarks.storm.crowd import all_topics, allow_descriptors, crowd_on, interest_of
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.member import Member
from benchmarks.storm.scenarios import HOME, PREPARING_AT_ONCE, REFUGE, observe, publish_everything, warm_up
from benchmarks.systems.base import Role, StartOptions
from gateway.core.topics.selection_index import SelectionIndex
from gateway.core.topics.selections import NOTHING
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import TopicPath

_NAME: Final = "growth"
STORED: Final = (100, 1_000, 10_000)
"""Sessions in the grid while some of them are claimed."""
CLAIMED: Final = 100
"""That fail over; the others stay away."""
SELECTIONS: Final = (1, 10, 100, 1_000, 10_000, 100_000)
SUBSCRIBERS: Final = (100, 1_000, 10_000)
"""Of one topic."""
MATCHES: Final = 20_000
"""Topics that are matched for one figure."""
_GROUPS: Final = 1_000
"""Roots over which the selections are spread."""
_DESCRIPTORS: Final = 1_000
_MICROSECONDS: Final = 1e6

_UPDATES_PER_SECOND: Final = 10.0
"""So few that each update is written alone to each of 10,000 subscribers, and a core is enough for them."""
_WINDOW: Final = 4
"""Updates under way at most; more would mean that the node cannot keep up."""
_WARM_UP: Final = 1.0
_MEASURE: Final = 4.0
"""Seconds."""

UPDATE_SERVER: Final = Figure("update_server", "server CPU / update", "µs", Better.LOWER)
CLAIM_SERVER: Final = Figure("claim_server", "server CPU / claim", "µs", Better.LOWER)
CLAIM_STORE: Final = Figure("claim_redis", "Redis CPU / claim", "µs", Better.LOWER)
MATCH_KNOWN: Final = Figure("match_known", "match, topic seen before", "µs", Better.LOWER, 3)
MATCH_NEW: Final = Figure("match_new", "match, new topic", "µs", Better.LOWER, 3)


class GrowthCase(Case):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "Growth"
    about: ClassVar[str] = (
        "Claims: 100 sessions fail over while so many are stored. Matching: one topic against so many selections of as "
        "many sessions, nine of ten literal, every tenth with a wildcard. Fan-out: one topic of so many subscribers, "
        "10 updates/s."
    )
    figures: ClassVar[Sequence[Figure]] = (
        CLAIM_SERVER,
        CLAIM_STORE,
        MATCH_KNOWN,
        MATCH_NEW,
        UPDATE_SERVER,
    )
    contestants: ClassVar[Sequence[str]] = (OURS,)
    rounds: ClassVar[int] = 1

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        rows = []
        for stored in STORED[:-1] if context.quick else STORED:
            context.progress.say(f"growth: claims with {stored:,} stored sessions")
            rows.append(_claims(contestant, context, stored))
        # Matching is measured in this process, which has no other version.
        for selections in SELECTIONS if context.checkout is THIS else ():
            context.progress.say(f"growth: matching with {selections:,} selections")
            rows.append(_matches(contestant, selections))
        rows += _fan_out(contestant, context)
        return rows


def _fan_out(contestant: str, context: Context) -> Sequence[Row]:
    system = context.systems[contestant]
    rows = []
    with system.running(context.placement, StartOptions(connections=SUBSCRIBERS[-1])) as running_system:
        for subscribers in SUBSCRIBERS:
            context.progress.say(f"growth: fan-out to {subscribers:,} subscribers")
            load = Load(
                subscribers,
                rate=_UPDATES_PER_SECOND,
                window=_WINDOW,
                warm_up=_WARM_UP,
                measure=context.seconds(_MEASURE),
            )
            report = measure(running_system, load, context)
            cost = report.cpu_per_delivery(Role.SERVER)
            values = {} if cost is None else {UPDATE_SERVER.name: cost * subscribers}
            rows.append(
                Row(
                    _NAME,
                    f"{subscribers:,} subscribers",
                    contestant,
                    values,
                    report.sentences(),
                    flags_of(load, report),
                    details={"size": subscribers, "report": report.raw},
                )
            )
    return rows


def _claims(contestant: str, context: Context, stored: int) -> Row:
    allow_descriptors(stored + _DESCRIPTORS)
    values: dict[str, float] = {}
    failures = []
    with (
        running(context.placement, balancer=False, checkout=context.checkout) as cluster,
        crowd_on(context.placement.others) as crowd,
    ):
        try:
            publish_everything(cluster, crowd, all_topics(stored))
            warm_up(cluster, crowd, stored, [REFUGE])
            # Somebody on the survivor follows the same partitions, or the first claims would pay for reading all their
            # values, which grow along with the sessions.
            keeper = Member(crowd.loop, crowd, "keeper", interest_of(0))
            crowd.arrive(cluster.direct(REFUGE), expected="created", members=[keeper])
            crowd.add(stored)
            crowd.arrive(cluster.direct(HOME), expected="created", at_once=PREPARING_AT_ONCE)
            crowd.settle()
            # The node is killed and not told: what the survivor does for the others when the lease expires comes later.
            cluster.kill(HOME)
            crowd.cut()
            few = crowd.members[:: stored // CLAIMED]
            storm = observe(
                cluster,
                crowd,
                [REFUGE],
                "failed_over",
                lambda: crowd.arrive(cluster.direct(REFUGE), expected="failed_over", members=few),
            )
            failures += [storm.failure] if storm.failure else []
            values[CLAIM_SERVER.name] = storm.per_session(Role.SERVER) * _MICROSECONDS
            values[CLAIM_STORE.name] = storm.per_session(Role.STORE) * _MICROSECONDS
        except StormFailed as failed:
            failures.append(str(failed))
    return Row(_NAME, f"{stored:,} stored sessions", contestant, values, failures, details={"size": stored})


def index_of(selections: int) -> SelectionIndex[int]:
    """Make an index in which as many subscribers have one selection each; every tenth with a wildcard."""
    index: SelectionIndex[int] = SelectionIndex()
    for number in range(selections):
        root = number % _GROUPS
        text = f"root-{root}/{number}/*" if number % 10 == 0 else f"root-{root}/{number}/bid"
        index.set(number, NOTHING.select(parse_selector(text)))
    return index


def _matches(contestant: str, selections: int) -> Row:
    index = index_of(selections)
    known = [TopicPath(f"root-{number % _GROUPS}/{number}/bid") for number in range(min(selections, MATCHES))]
    new = [TopicPath(f"root-{number % _GROUPS}/{number % selections}/new-{number}") for number in range(MATCHES)]
    for topic in known:
        index.match(topic)
    failures = []
    began = time.process_time()
    for _ in range(max(1, MATCHES // len(known))):
        for topic in known:
            index.match(topic)
    known_seconds = (time.process_time() - began) / (max(1, MATCHES // len(known)) * len(known))
    began = time.process_time()
    for topic in new:
        index.match(topic)
    new_seconds = (time.process_time() - began) / len(new)
    if any(index.match(topic) != (number,) for number, topic in enumerate(known)):
        failures.append("the index names the wrong subscribers")
    values = {MATCH_KNOWN.name: known_seconds * _MICROSECONDS, MATCH_NEW.name: new_seconds * _MICROSECONDS}
    return Row(_NAME, f"{selections:,} selections", contestant, values, failures, details={"size": selections})
