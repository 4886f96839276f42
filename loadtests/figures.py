"""The figures that thresholds are set for: their names, their units, and how they come out of what was counted.

Knows nothing of locust; ``reporting.request_counts`` brings what locust counted into the form that is needed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from loadtests.tally import Tally

DELIVER: Final = "deliver"
PUBLISH: Final = "publish"
CONNECT: Final = "connect"
SEND: Final = "send"
RECEIVE: Final = "receive"
SETTLE: Final = "settle"
READ: Final = "read history"
ASK: Final = "ask"
CALL_PUBLISH: Final = "call publish"
CALL_SEND: Final = "call send"
CALL_READ: Final = "call values"
RESUME_PREFIX: Final = "resume "
"""Begins the names of recoveries; the outcome follows."""

_MEDIAN: Final = 0.50
_TAIL: Final = 0.99


@dataclass(frozen=True, slots=True)
class Requests:
    """What was counted under one name.

    Attributes:
        count: all of them, failed ones too.
        failures: failed ones.
        times: how many took how many milliseconds.
    """

    count: int = 0
    failures: int = 0
    times: Mapping[float, int] = field(default_factory=dict)

    @classmethod
    def together(cls, several: Iterable[Requests]) -> Requests:
        """Count several names as one."""
        count = failures = 0
        times: dict[float, int] = {}
        for each in several:
            count += each.count
            failures += each.failures
            for milliseconds, number in each.times.items():
                times[milliseconds] = times.get(milliseconds, 0) + number
        return cls(count, failures, times)

    def quantile(self, share: float) -> float | None:
        """Return the milliseconds within which *share* of them were done; None if there were none.

        The smallest time for which at least that share is as fast: of one request, every quantile is that request.
        """
        wanted = share * sum(self.times.values())
        seen = 0
        for milliseconds in sorted(self.times):
            seen += self.times[milliseconds]
            if seen >= wanted:
                return milliseconds
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything that was counted in a run, over all processes.

    Attributes:
        requests: by name.
        tally: the rest.
        rate: publishes per second of one publisher, as planned.
        publishers: how many were planned, those that call by HTTP among them.
        user_errors: exceptions in the load generator itself.
        script_errors: steps of the scenario that could not be done, such as a node that did not drain.
        deployed: nodes that were drained and started again.
        left_behind: sessions that drained nodes had to close, because they did not follow the go-away.
    """

    requests: Mapping[str, Requests]
    tally: Tally
    rate: float
    publishers: int
    user_errors: int = 0
    script_errors: int = 0
    deployed: int = 0
    left_behind: int = 0


class Of(Enum):
    """What a figure tells something about, which decides what an objective means that is not met."""

    PACE = auto()
    """How fast and how much: a load generator that is late spoils it."""
    PROMISE = auto()
    """Whether the gateway kept a promise. Whoever sees one broken has seen it, however late."""
    GENERATOR = auto()
    """The load generator itself. If its objective is not met, the run tells nothing about the gateway's pace."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What there is to know about a figure besides its value.

    Attributes:
        unit: as it is printed after the value; empty for counts and shares.
        meaning: one line for people.
        of: what it tells something about.
        users: without which it cannot be measured: of each of these groups, users of one kind at least. Those that
            every run has are not named.
    """

    unit: str
    meaning: str
    of: Of = Of.PACE
    users: tuple[tuple[str, ...], ...] = ()

    def has_users(self, numbers: Mapping[str, int]) -> bool:
        """Tell whether there are users that it can be measured of."""
        return all(any(numbers.get(kind, 0) for kind in kinds) for kinds in self.users)


_CONSUMED: Final = (("consumers",), ("senders", "callers"))
_READ: Final = (("readers",),)
_CALLED: Final = (("callers",),)
_ASKED: Final = (("askers",), ("handlers",))


FIGURES: Final[Mapping[str, Figure]] = {
    "deliver_p50_ms": Figure("ms", "from when a value was due to when a subscriber had it: the median"),
    "deliver_p99_ms": Figure("ms", "from when a value was due to when a subscriber had it: the p99"),
    "publish_p50_ms": Figure("ms", "from when a value was due to when its receipt was there: the median"),
    "publish_p99_ms": Figure("ms", "from when a value was due to when its receipt was there: the p99"),
    "connect_p99_ms": Figure("ms", "from the first attempt to the welcome of a new session: the p99"),
    "resume_p99_ms": Figure("ms", "from the loss of a connection to the welcome on the next one: the p99"),
    "receive_p50_ms": Figure(
        "ms", "from when a message was due to when a consumer had it: the median", users=_CONSUMED
    ),
    "receive_p99_ms": Figure("ms", "from when a message was due to when a consumer had it: the p99", users=_CONSUMED),
    "settle_p99_ms": Figure(
        "ms", "from when a message was settled to when that was confirmed: the p99", users=_CONSUMED
    ),
    "read_p99_ms": Figure(
        "ms", "from when a page of a history was asked for to when it was there: the p99", users=_READ
    ),
    "call_p99_ms": Figure(
        "ms",
        "from when a publish, a send or a page of values by HTTP was due to when it was answered: the p99",
        users=_CALLED,
    ),
    "request_p99_ms": Figure(
        "ms", "from when a request of a handler was due to when its answer was there: the p99", users=_ASKED
    ),
    "failure_ratio": Figure("", "failed requests of all requests, whatever their name"),
    "throughput_share": Figure("", "updates received, of those planned for the subscribed time"),
    "publish_share": Figure("", "publishes confirmed, of those planned for the time"),
    "completeness": Figure("", "updates that told something new, of those that a subscriber was owed"),
    "accepted_share": Figure("", "messages accepted, of those sent", users=_CONSUMED),
    "answered_share": Figure(
        "", "requests answered, of those that handlers were asked, each try included", users=_ASKED
    ),
    "redelivered": Figure("", "messages that came again, or that somebody may have received before", users=_CONSUMED),
    "events_read": Figure("", "events that readers of histories were given", users=_READ),
    "sessions": Figure("", "sessions opened"),
    "sessions_lost": Figure("", "sessions that ended though nobody closed them"),
    "recoveries": Figure("", "connections that were lost and got back"),
    "recoveries_per_session": Figure("", "connections lost and got back, for each session opened"),
    "reattached_share": Figure("", "recoveries with both resend buffers (rung 1), of all"),
    "handed_over_share": Figure("", "recoveries with what a living node handed over (rung 2), of all"),
    "mirrored_share": Figure("", "recoveries with a backup's copy (rung 3), of all"),
    "failed_over_share": Figure("", "recoveries from the grid (rung 4), of all"),
    "replayed_share": Figure("", "failovers that sent every missed update, of those of subscribers"),
    "not_replayed": Figure("", "failovers of subscribers that sent current values instead"),
    "longest_silence_s": Figure("s", "the longest time that a subscriber saw no update"),
    "longest_recovery_s": Figure("s", "the longest time from a loss to the welcome"),
    "violations": Figure(
        "",
        "broken promises: versions, sequences, contents, packet ids, messages, requests, undeclared losses",
        Of.PROMISE,
    ),
    "undeclared": Figure("", "updates missing without a declaration", Of.PROMISE),
    "deployed": Figure("", "nodes drained and started again"),
    "left_behind": Figure("", "sessions that a drained node had to close"),
    "script_errors": Figure("", "steps of the scenario that could not be done"),
    "user_errors": Figure("", "exceptions in the load generator"),
    "generator_late_share": Figure(
        "", "how often the generator itself was late; above, the run is invalid", Of.GENERATOR
    ),
}


def figures(measured: Measured) -> dict[str, float | None]:
    """Compute every figure; None where nothing was there to be measured.

    Args:
        measured: what was counted.
    """
    tally, requests = measured.tally, measured.requests
    everything = Requests.together(requests.values())
    deliver, publish = requests.get(DELIVER, Requests()), requests.get(PUBLISH, Requests())
    receive = requests.get(RECEIVE, Requests())
    resumes = Requests.together(each for name, each in requests.items() if name.startswith(RESUME_PREFIX))
    values: dict[str, float | None] = {
        "deliver_p50_ms": deliver.quantile(_MEDIAN),
        "deliver_p99_ms": deliver.quantile(_TAIL),
        "publish_p50_ms": publish.quantile(_MEDIAN),
        "publish_p99_ms": publish.quantile(_TAIL),
        "connect_p99_ms": requests.get(CONNECT, Requests()).quantile(_TAIL),
        "resume_p99_ms": resumes.quantile(_TAIL),
        "receive_p50_ms": receive.quantile(_MEDIAN),
        "receive_p99_ms": receive.quantile(_TAIL),
        "settle_p99_ms": requests.get(SETTLE, Requests()).quantile(_TAIL),
        "read_p99_ms": requests.get(READ, Requests()).quantile(_TAIL),
        "call_p99_ms": Requests.together(
            requests.get(each, Requests()) for each in (CALL_PUBLISH, CALL_SEND, CALL_READ)
        ).quantile(_TAIL),
        "request_p99_ms": requests.get(ASK, Requests()).quantile(_TAIL),
        "failure_ratio": _share(everything.failures, everything.count),
        "throughput_share": _share(tally.updates, tally.subscribed_seconds * measured.publishers * measured.rate),
        "publish_share": _share(tally.published, tally.publishing_seconds * measured.rate),
        "completeness": _share(tally.fresh, tally.owed),
        "accepted_share": _share(tally.accepted, tally.sent),
        "answered_share": _share(tally.answered, tally.asked),
        "redelivered": tally.redelivered if tally.messages else None,
        "events_read": tally.events,
        "sessions": tally.sessions_opened,
        "sessions_lost": tally.sessions_lost,
        "recoveries": tally.recoveries,
        "recoveries_per_session": _share(tally.recoveries, tally.sessions_opened),
        "reattached_share": _share(tally.reattached, tally.recoveries),
        "handed_over_share": _share(tally.handed_over, tally.recoveries),
        "mirrored_share": _share(tally.mirrored, tally.recoveries),
        "failed_over_share": _share(tally.failed_over, tally.recoveries),
        "replayed_share": _share(tally.replayed, tally.replayed + tally.not_replayed),
        "not_replayed": tally.not_replayed,
        "longest_silence_s": tally.longest_silence if tally.subscribed_seconds else None,
        "longest_recovery_s": tally.longest_recovery if tally.recoveries else None,
        "violations": tally.violations,
        "undeclared": tally.undeclared,
        "deployed": measured.deployed,
        "left_behind": measured.left_behind,
        "script_errors": measured.script_errors,
        "user_errors": measured.user_errors,
        "generator_late_share": _share(tally.late_ticks, tally.ticks),
    }
    return values


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
