"""What was measured of one attack, and whether the node held."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final

from benchmarks.hostile.account import Account
from benchmarks.hostile.attack import Effort
from benchmarks.hostile.outage import Outage
from benchmarks.hostile.watch import Counts, Sight
from benchmarks.hostile.witness import SUBSCRIBERS
from gateway.adapters.redis.grid_connection import LONGEST_BACKOFF
from gateway.core.wire.codes import ErrorCode

LATENCY_BOUND: Final = 0.25
"""Seconds: the witness's p99 under attack stays below it …"""

QUIET_FACTOR: Final = 10.0
"""… or below so many times its quiet p99, whichever is more: on a machine that is slow by itself an attack is not to
blame for that."""

SLOW_LOGIN: Final = 1.0
"""Seconds of a login, resume or return, as the median under attack, that are too long, if ten times the quiet ones."""

RETURN_BOUND: Final = LONGEST_BACKOFF + LATENCY_BOUND
"""Seconds within which the node has Redis again that was away: the longest time between two attempts, and what one may
take under attack."""

FULL_CODE: Final = ErrorCode.GRID_UNAVAILABLE.value
"""What a client is told while Redis is full, if it asks for what Redis would have to store: it is to ask again."""

FULL_SHARE: Final = 0.5
"""Least share of the witness's publishes that are refused if Redis was full during the attack: values as small as
theirs are the last that find room."""

_OK: Final = 200
_P99: Final = 0.99


@dataclass(frozen=True)
class Phase:
    """A stretch of time, in seconds of the monotonic clock."""

    begin: float
    end: float

    def __contains__(self, moment: object) -> bool:
        return isinstance(moment, float) and self.begin <= moment < self.end

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.begin


def quantile(values: Sequence[float], share: float) -> float:
    """Tell the value that a share of *values* does not exceed: the nearest rank; NaN if there are none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@dataclass(frozen=True)
class Seen:
    """What a phase was like.

    Attributes:
        latencies: seconds of each update to each witness; of one that never came, until the witness stopped waiting.
        logins: seconds of each welcome that came.
        resumes: the same of resumes.
        failed_logins: logins and resumes without a welcome.
        returns: seconds of each return of a session that is there since before the attack.
        failed_returns: those that were refused or not answered.
        why_failed: what was said to those returns, logins and resumes that failed, and how often.
        refused: publishes of the witness that were refused.
        refusals: seconds until the witness knew of each.
        undocumented: publishes and logins that were refused with another code than a full Redis is documented to give.
        refused_by_redis: commands of all nodes that Redis refused for want of memory.
        lost: updates that were promised and never came, over all witnesses.
        declared: further ones that went with Redis, of which all subscribers were told (P2); they have no latency.
        cuts: connections of witnesses that the node closed, and resumes that failed after it.
        cpu: share of a core, of the node.
        resident: largest resident set, in bytes.
        unanswered: of our own questions for /readyz, those without an answer in time.
        unready: those answered otherwise than by 200.
        slowest_check: seconds.
        falls: how often HAProxy took the node for dead.
        failed_checks: HAProxy's checks that failed.
        down: whether it was seen to be anything else than UP.
        leases_lost: how often the lease was found expired.
        lease_left: least seconds that were left of the lease; NaN if nobody could look.
        late: seconds that the witness was late for its own schedule, for want of a CPU; the p99.
        unobserved: most seconds between two looks at the node.
        outage: when Redis was unreachable, if it was. No time that something took includes it.
    """

    latencies: Sequence[float]
    logins: Sequence[float]
    resumes: Sequence[float]
    failed_logins: int
    refused: int
    lost: int
    cuts: int
    cpu: float
    resident: int
    unanswered: int
    unready: int
    slowest_check: float
    falls: int
    failed_checks: int
    down: bool
    leases_lost: int
    lease_left: float
    declared: int = 0
    returns: Sequence[float] = ()
    failed_returns: int = 0
    why_failed: Mapping[str, int] = field(default_factory=dict)
    refused_by_redis: int = 0
    refusals: Sequence[float] = ()
    undocumented: int = 0
    late: float = 0.0
    unobserved: float = 0.0
    outage: Outage | None = None

    @property
    def p50(self) -> float:
        """Median latency, in seconds."""
        return median(self.latencies) if self.latencies else math.nan

    @property
    def p99(self) -> float:
        """In seconds."""
        return quantile(self.latencies, _P99)

    @property
    def refused_share(self) -> float:
        """Share of the witness's publishes that were refused."""
        published = self.refused + len(self.latencies) / SUBSCRIBERS
        return self.refused / published if published else 0.0


def seen(
    phase: Phase,
    account: Account,
    sight: Sight,
    counts: tuple[Counts, Counts],
    cpu: float,
    *,
    outage: Outage | None = None,
) -> Seen:
    """Collect what belongs to a phase: updates and logins that were due in it, looks that were taken in it.

    Args:
        phase: when.
        account: of the witnesses.
        sight: of the watch.
        counts: at its begin and at its end.
        cpu: share of a core that the node took.
        outage: when Redis was unreachable in the phase, if it was.
    """

    def net(began: float, took: float) -> float:
        return took if outage is None else outage.without(began, took)

    def is_declared(due: float) -> bool:
        return len(told) >= SUBSCRIBERS and outage is not None and outage.may_have_lost(due, min(told))

    before, after = counts
    told = [] if outage is None else [at for at in account.loss_declared if outage.begin <= at < phase.end]
    missing = [due for due in account.missing if due in phase]
    lost = [due for due in missing if not is_declared(due)]
    latencies = [net(due, took) for due, took in account.updates if due in phase]
    latencies += [net(due, account.ended - due) for due in lost]
    latencies += [
        net(due, account.ended - due) for due in account.unanswered if due in phase for _ in range(SUBSCRIBERS)
    ]
    checks = [each for each in sight.checks if each[0] in phase]
    welcomed = [
        [net(at, took) for at, took, why in each if at in phase and not why]
        for each in (account.logins, account.resumes, account.returns)
    ]
    leases = [left for at, left in sight.leases if at in phase]
    return Seen(
        latencies=latencies,
        logins=welcomed[0],
        resumes=welcomed[1],
        returns=welcomed[2],
        failed_returns=sum(bool(why) for at, _, why in account.returns if at in phase),
        why_failed=Counter(
            why for at, _, why in (*account.returns, *account.logins, *account.resumes) if at in phase and why
        ),
        refused_by_redis=after.refused_by_redis - before.refused_by_redis,
        failed_logins=sum(bool(why) for at, _, why in (*account.logins, *account.resumes) if at in phase),
        refused=_within(phase, (due for due, _, _ in account.refused)),
        refusals=[net(due, took) for due, took, _ in account.refused if due in phase],
        undocumented=sum(
            due in phase and why not in {"", FULL_CODE} for due, _, why in (*account.refused, *account.logins)
        ),
        lost=len(lost),
        declared=len(missing) - len(lost),
        cuts=_within(phase, (at for at, _ in account.cuts)),
        cpu=cpu,
        resident=max((size for at, size in sight.resident if at in phase), default=0),
        unanswered=sum(status == 0 for _, _, status in checks),
        unready=sum(status not in {0, _OK} for _, _, status in checks),
        slowest_check=max((took for _, took, _ in checks), default=math.nan),
        falls=after.falls - before.falls,
        failed_checks=after.failed_checks - before.failed_checks,
        down=any(at in phase for at in sight.down),
        leases_lost=after.leases_lost - before.leases_lost,
        lease_left=min(leases, default=math.nan),
        late=_or_none(quantile([late for due, late in account.late if due in phase], _P99)),
        unobserved=max((later - at for (at, _), (later, _) in pairwise(sight.resident) if at in phase), default=0.0),
        outage=outage,
    )


def _or_none(late: float) -> float:
    """Take it that a witness with nothing on its schedule was not late for it."""
    return 0.0 if math.isnan(late) else late


def busy_share(sight: Sight, attack: Phase) -> float:
    """Tell the share of the attacker's connections, over all looks, that kept the node busy (``Sight.kept_busy``)."""
    looks = [(connections, busy) for at, connections, busy in sight.kept_busy if at in attack]
    connections, busy = (sum(each) for each in zip(*looks, strict=True)) if looks else (0, 0)
    return busy / connections if connections else 0.0


def _within(phase: Phase, moments: Iterable[float]) -> int:
    return sum(each in phase for each in moments)


@dataclass(frozen=True)
class Measurement:
    """One attack, measured.

    Attributes:
        quiet: before it.
        attacked: during it, and the moments after in which what it had begun ended.
        effort: of the attacker.
        attacker_cpu: share of a core, of the attacker.
        attack_seconds: how long it lasted.
        attacker_waited: share of the attack for which the attacker was ready to run and had to wait for its core.
        kept_busy: share of its connections, over the attack, that kept the node busy; see ``Sight``.
        node_waited: share of the quiet phase for which the node had to wait for its core.
        node_waited_attacked: the same of the attack.
        resident_before: bytes of the node when the quiet phase began.
        resident_after: bytes of the node when the attacker had gone.
        disordered: updates that came to a witness again, or before older ones, at any time.
        folded: updates that were folded, and declared.
        full: whether the attack was to fill Redis, so that new data is refused to everybody, and nothing else is.
    """

    quiet: Seen
    attacked: Seen
    effort: Effort
    attacker_cpu: float
    attack_seconds: float
    resident_before: int
    resident_after: int
    attacker_waited: float = 0.0
    kept_busy: float = 0.0
    node_waited: float = 0.0
    node_waited_attacked: float = 0.0
    disordered: int = 0
    folded: int = 0
    full: bool = False

    @property
    def bound(self) -> float:
        """Seconds that the witness's p99 must stay below."""
        return max(LATENCY_BOUND, QUIET_FACTOR * self.quiet.p99)

    @property
    def p99(self) -> float:
        """Seconds, under attack: of updates; where Redis was full, of refusals as well, for they are the answers."""
        return quantile((*self.attacked.latencies, *(self.attacked.refusals if self.full else ())), _P99)


def remarks(measured: Measurement) -> list[str]:
    """Tell what does not decide whether the node held but must not be overlooked."""
    attacked, found = measured.attacked, []
    if measured.full:
        found.append(
            f"as Redis was full, {attacked.refused_share:.0%} of the witness's publishes and "
            f"{attacked.failed_logins:,} of its logins were refused, to be asked again"
        )
    if attacked.declared:
        found.append(
            f"{attacked.declared:,} updates of the witness were lost with Redis, and every subscriber was told"
        )
    if measured.folded:
        found.append(f"{measured.folded:,} updates of the witness were folded, and declared")
    return found


def broken_promises(measured: Measurement) -> list[str]:
    """Tell what an attack did to others that can be counted, and has nothing to do with how fast the machine is.

    What happened in the quiet phase as well, such as refusals while Redis was unreachable, is not the attack's doing.
    """
    quiet, attacked = measured.quiet, measured.attacked
    counted = (
        (attacked.lost, "updates of the witness were lost"),
        (measured.disordered, "updates of the witness came in disorder"),
        (attacked.cuts if not quiet.cuts else 0, "times a witness lost its connection"),
        (
            attacked.failed_returns if not quiet.failed_returns else 0,
            "returns of the witness were refused",
        ),
        *(_of_a_full_redis(attacked) if measured.full else _of_a_redis_with_room(quiet, attacked)),
        (attacked.leases_lost, "times the lease was lost"),
        (attacked.falls, "times HAProxy took the node for dead"),
        (attacked.unanswered if not quiet.unanswered else 0, "health checks had no answer"),
        (attacked.unready if not quiet.unready else 0, "times the node was not ready"),
    )
    found = [f"{number:,} {what}" for number, what in counted if number]
    if found and attacked.why_failed:
        found.append("it was told: " + ", ".join(f"{why} ({times:,})" for why, times in attacked.why_failed.items()))
    if attacked.lease_left <= 0 and not attacked.leases_lost:
        found.append("its lease had expired in Redis")
    if measured.full and not (attacked.refused_by_redis and attacked.refused_share >= FULL_SHARE):
        found.append(
            f"Redis was not full: it refused {attacked.refused_by_redis:,} commands, and "
            f"{attacked.refused_share:.0%} of the witness's publishes were refused"
        )
    if attacked.down and not quiet.down and not attacked.falls:
        found.append("HAProxy sent no new sessions to the node")
    return found


def _of_a_full_redis(attacked: Seen) -> Sequence[tuple[int, str]]:
    """Count what a full Redis is no reason for."""
    return ((attacked.undocumented, f"publishes or logins of the witness were refused otherwise than by {FULL_CODE}"),)


def _of_a_redis_with_room(quiet: Seen, attacked: Seen) -> Sequence[tuple[int, str]]:
    """Count what was refused though Redis had room, and that it had none."""
    return (
        (attacked.refused if not quiet.refused else 0, "publishes of the witness were refused"),
        (attacked.failed_logins if not quiet.failed_logins else 0, "logins or resumes of the witness were refused"),
        (attacked.refused_by_redis if not quiet.outage else 0, "commands were refused by Redis, as it was full"),
    )


def slow_newcomers(measured: Measurement) -> list[str]:
    """Tell what those who came meanwhile had to wait for; nothing if it was not long."""
    quiet, attacked, found = measured.quiet, measured.attacked, []
    for what, before, during in (
        ("login", quiet.logins, attacked.logins),
        ("resume", quiet.resumes, attacked.resumes),
        ("return", quiet.returns, attacked.returns),
    ):
        if before and during and median(during) >= max(SLOW_LOGIN, QUIET_FACTOR * median(before)):
            found.append(f"a {what} took {median(during):.1f} s")
        if before and not during and not (measured.full and what != "return"):
            found.append(f"not one {what} of the witness came to its end")
    return found


def judge(measured: Measurement) -> list[str]:
    """Tell why the node did not hold; nothing if it did."""
    found = [*broken_promises(measured), *slow_newcomers(measured)]
    p99 = measured.p99
    if math.isnan(p99) or math.isnan(measured.quiet.p99):
        found.append("the witness saw no update")
    elif p99 >= measured.bound:
        found.append(f"p99 of {p99 * 1e3:,.0f} ms, not below {measured.bound * 1e3:,.0f} ms")
    if measured.attacked.outage is not None:
        until_back = measured.attacked.outage.until_back
        if until_back is None:
            found.append("the node did not come back to Redis")
        elif until_back > RETURN_BOUND:
            found.append(f"the node had Redis again {until_back:.1f} s after it answered, not within {RETURN_BOUND} s")
    return found
