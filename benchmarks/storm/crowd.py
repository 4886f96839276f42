"""Many sessions at once: they arrive, are cut off, come back, and all of them are judged together."""

from __future__ import annotations

import resource
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Final

from benchmarks.placement import bound_to
from benchmarks.storm.loop import Loop
from benchmarks.storm.member import Interest, Member

STORM_SECONDS: Final = 60.0
"""A storm that takes longer has failed: the window of its sessions would be over."""
_LATE_ACK: Final = 0.5
"""Seconds after which what was received is acknowledged, whatever else is awaited (protocol 5.3.2)."""
_SHARED_TOPICS: Final = 50
"""Topics that many sessions select, each by 1/50 of them."""
_DESKS: Final = 20
"""Likewise for those selected by a wildcard."""
_SPARE_DESCRIPTORS: Final = 200
"""For everything that is not a session."""


@dataclass
class Phase:
    """What happened since the storm began.

    Attributes:
        wanted: how many members are to become current.
        began: seconds of the monotonic clock.
        outcomes: of the welcomes.
        current: members that hold the current value of all their topics.
        finished: when the last of them did.
        waits: seconds from the beginning to each of these moments.
    """

    wanted: int
    began: float = field(default_factory=time.monotonic)
    outcomes: Counter[str] = field(default_factory=Counter)
    current: int = 0
    finished: float = 0.0
    waits: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """From the beginning until the last was current."""
        return self.finished - self.began


class Crowd:
    """Members and what they share.

    Attributes:
        loop: that serves them.
        members: in the order of their creation.
        goals: sequence number that is current, by topic.
        phase: of the present storm.
        own_cpu: CPU seconds of this process in the last phase.
        pings: that all members have answered.
        patience: seconds that a storm may take.
    """

    def __init__(self) -> None:
        """Begin with nobody."""
        self.loop = Loop()
        self.members: list[Member] = []
        self.goals: dict[str, int] = {}
        self.phase = Phase(0)
        self.own_cpu = 0.0
        self.pings = 0
        self.patience = STORM_SECONDS
        self._owing: deque[tuple[float, Member]] = deque()
        self._waiting: deque[Callable[[], None]] = deque()

    def close(self) -> None:
        """Cut everybody."""
        self.loop.close()

    # --- Board ------------------------------------------------------------------------------------------------------

    def welcomed(self, _: Member, outcome: str) -> None:
        """See ``Board``."""
        self.phase.outcomes[outcome] += 1

    def current(self, _: Member) -> None:
        """See ``Board``."""
        phase = self.phase
        phase.current += 1
        phase.finished = time.monotonic()
        phase.waits.append(phase.finished - phase.began)
        if self._waiting:
            self._waiting.popleft()()

    def failed(self, member: Member, what: str) -> None:
        """See ``Board``."""
        self.loop.fail(f"{member.name} {what}")

    def pinged(self) -> None:
        """See ``Board``."""
        self.pings += 1

    def owes(self, member: Member) -> None:
        """See ``Board``."""
        self._owing.append((time.monotonic() + _LATE_ACK, member))

    # --- Storms -----------------------------------------------------------------------------------------------------

    def add(self, sessions: int, *, prefix: str = "member") -> list[Member]:
        """Describe members, each with three selections: a shared topic, a wildcard, a topic of its own.

        Returns:
            The new ones.
        """
        allow_descriptors(sessions + len(self.members) + _SPARE_DESCRIPTORS)
        first = len(self.members)
        added = [
            Member(self.loop, self, f"{prefix}-{number}", interest_of(number))
            for number in range(first, first + sessions)
        ]
        self.members += added
        return added

    def arrive(
        self,
        address: tuple[str, int],
        *,
        expected: str,
        hint: str | None = None,
        members: Sequence[Member] | None = None,
        at_once: int | None = None,
    ) -> Phase:
        """Let members connect, and wait until each holds its current values.

        Args:
            address: host and port.
            expected: the outcome that each welcome must name.
            hint: node to ask for; None for the one of the last welcome, if there was one.
            members: who; everybody if None.
            at_once: how many may be on their way together; all if None.

        Returns:
            What happened; also to be found in ``phase`` if this fails.

        Raises:
            StormFailed: a check failed, or not everybody was served in time.
        """
        everybody = self.members if members is None else members
        for member in everybody:
            member.expect(member.awaited(expected))
        cpu = time.process_time()
        self.phase = phase = Phase(len(everybody))
        limit = len(everybody) if at_once is None else at_once
        self._waiting = deque(_arrival(member, address, expected, hint) for member in everybody[limit:])
        for member in everybody[:limit]:
            member.arrive(address, expected=expected, hint=hint)
        self.wait_current()
        self.own_cpu = time.process_time() - cpu
        return phase

    def expect(self, members: Sequence[Member], topics: Sequence[str]) -> Phase:
        """Begin a phase in which the connected *members* are to get the goals of *topics*, which were just raised."""
        raised = set(topics)
        awaiting = [(member, [each for each in member.topics if each in raised]) for member in members]
        self.phase = Phase(sum(bool(mine) for _, mine in awaiting))
        for member, mine in awaiting:
            member.expect(mine)
        return self.phase

    def wait_current(self) -> None:
        """Wait until all members of the phase are current.

        Raises:
            StormFailed: a check failed, or not everybody was served in time.
        """
        phase = self.phase
        self.loop.run(lambda: phase.current >= phase.wanted, seconds=self.patience, tick=self.acknowledge_due)

    def settle(self) -> None:
        """Let all acknowledgements go out and be read, so that the CPU they cost is counted."""
        deadline = time.monotonic() + 2 * _LATE_ACK
        self.loop.run(lambda: time.monotonic() >= deadline, seconds=STORM_SECONDS, tick=self.acknowledge_due)

    def idle(self, seconds: float) -> None:
        """Serve pings for some time.

        Raises:
            StormFailed: a check failed.
        """
        end = time.monotonic() + seconds
        self.loop.run(lambda: time.monotonic() >= end, seconds=seconds + STORM_SECONDS, tick=self.acknowledge_due)

    def cut(self, members: Sequence[Member] | None = None) -> None:
        """Reset the connections of members, of everybody by default."""
        for member in self.members if members is None else members:
            member.cut()

    def bye(self, members: Sequence[Member]) -> Phase:
        """End sessions and wait until the server has closed each.

        Raises:
            StormFailed: not in time.
        """
        self.phase = phase = Phase(len(members))
        for member in members:
            member.bye()
        self.loop.run(lambda: phase.outcomes["bye"] >= phase.wanted, seconds=STORM_SECONDS)
        phase.finished = time.monotonic()
        return phase

    def acknowledge_due(self) -> None:
        """Send the acknowledgements whose time has come."""
        now = time.monotonic()
        while self._owing and self._owing[0][0] <= now:
            self._owing.popleft()[1].acknowledge()


def _arrival(member: Member, address: tuple[str, int], expected: str, hint: str | None) -> Callable[[], None]:
    return lambda: member.arrive(address, expected=expected, hint=hint)


def interest_of(number: int) -> Interest:
    """Tell what the member with a number selects."""
    shared = f"market/{number % _SHARED_TOPICS}"
    desk = number % _DESKS
    own = f"account/{number}"
    return Interest((shared, f"desk/{desk}/*", own), (shared, f"desk/{desk}/limit", own))


def shared_topics(sessions: int) -> list[str]:
    """List the topics that more than one of so many members selects."""
    markets = [f"market/{number}" for number in range(min(_SHARED_TOPICS, sessions))]
    return markets + [f"desk/{number}/limit" for number in range(min(_DESKS, sessions))]


def all_topics(sessions: int) -> list[str]:
    """List the topics that so many members select."""
    return [*shared_topics(sessions), *(f"account/{number}" for number in range(sessions))]


def allow_descriptors(wanted: int) -> None:
    """Raise this process's bound on open files, which children inherit.

    Raises:
        OSError: the system does not allow so many.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise OSError(f"{wanted} open files are needed and the system allows {hard}: raise it with ulimit -n")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def crowd_on(core: int) -> Iterator[Crowd]:
    """Bind this process to a core for the length of the block, and yield an empty crowd that is cut at its end."""
    with bound_to(core), closing(Crowd()) as crowd:
        yield crowd
