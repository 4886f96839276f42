"""What happens during a run: how many users there are when, and what is done to the system under test.

A scenario is a script: a function that runs beside the load, in a greenlet of the process that leads the test, and ends
when the test shall end. ``ScenarioShape`` is what locust sees of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from locust import LoadTestShape

from loadtests.cluster import ClusterFailed, LocalCluster
from loadtests.greenlets import sleep, spawn

if TYPE_CHECKING:
    from locust import User

CUT_MESSAGE: Final = "cut_all_connections"
"""Message of the leading process to those that run users."""

SPAWN_RATE: Final = 40.0
"""Users that arrive per second: 200 in five seconds."""

CALM_SHARE: Final = 0.08
"""Part of the whole duration between the steps of a rolling deploy, four seconds usually: clients settle, and figures
show each step by itself."""

OUTAGE_SECONDS: Final = 8.0
"""How long a killed or hanging node stays away: HAProxy takes about two seconds to notice a hanging one."""

_RAMP_STEPS: Final = 5
_STORM_SHARES: Final = (0.35, 0.65)
"""When all connections are cut, in parts of the whole duration."""
_FAULT_SHARE: Final = 0.35
"""When a node is killed or made to hang, likewise."""
_FILL_SECONDS: Final = 120.0
"""How long users may take to arrive before that counts as a failure."""
_LOOK_SECONDS: Final = 0.2

FREE: Final = "free"
"""No scenario: whoever uses the web page decides how many users there are."""


class Sabotage(StrEnum):
    """What is broken on purpose, to see that the objectives notice."""

    NONE = "none"
    HANG = "hang"
    """The node with the most connections hangs (SIGSTOP) for some seconds in the middle of the run."""


@dataclass(kw_only=True)
class Stage:
    """Where a scenario plays, and what it notes down.

    Attributes:
        total: users when all are there.
        duration: seconds of the whole run, as far as the scenario is free to choose.
        cluster: the stack that it may hurt, or None.
        arrived: tells how many users there are.
        cut_all: cuts all connections of all processes.
        say: tells people what is going on.
        users: users that there shall be now.
        deployed: nodes that were drained and started again.
        left_behind: sessions that drained nodes had to close.
        errors: what could not be done.
    """

    total: int
    duration: float
    cluster: LocalCluster | None
    arrived: Callable[[], int]
    cut_all: Callable[[], None]
    say: Callable[[str], None]
    users: int = 1
    deployed: int = 0
    left_behind: int = 0
    errors: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def fill(self, share: float = 1.0) -> None:
        """Have a share of all users, and wait until they are there.

        Raises:
            ClusterFailed: they did not arrive in time.
        """
        self.users = max(1, round(self.total * share))
        deadline = time.monotonic() + _FILL_SECONDS
        while self.arrived() < self.users:
            if time.monotonic() >= deadline:
                raise ClusterFailed(f"only {self.arrived()} of {self.users} users arrived in {_FILL_SECONDS:g} s")
            sleep(_LOOK_SECONDS)

    def until(self, share: float) -> None:
        """Wait until a share of the whole duration is over."""
        sleep(max(0.0, self.began + share * self.duration - time.monotonic()))

    def calm(self) -> None:
        """Wait until things have settled."""
        sleep(CALM_SHARE * self.duration)

    def stack(self) -> LocalCluster:
        """Return the stack.

        Raises:
            ClusterFailed: there is none that may be hurt.
        """
        if self.cluster is None:
            raise ClusterFailed("this scenario needs the local stack of `make up`: leave out --url")
        return self.cluster


def steady(stage: Stage) -> None:
    """All users from the beginning to the end."""
    stage.fill()
    stage.until(1)


def ramp(stage: Stage) -> None:
    """More and more users, in equal steps."""
    for step in range(1, _RAMP_STEPS + 1):
        stage.fill(step / _RAMP_STEPS)
        stage.say(f"{stage.users} users")
        stage.until(step / _RAMP_STEPS)


def storm(stage: Stage) -> None:
    """All connections are cut in the same instant, twice."""
    stage.fill()
    for share in _STORM_SHARES:
        stage.until(share)
        stage.say("all connections are cut")
        stage.cut_all()
    stage.until(1)


def node_kill(stage: Stage) -> None:
    """The node with the most connections is killed, and started again later."""
    cluster = stage.stack()
    stage.fill()
    stage.until(_FAULT_SHARE)
    node = cluster.busiest()
    stage.say(f"{node} is killed (SIGKILL)")
    cluster.kill(node)
    try:
        sleep(OUTAGE_SECONDS)
    finally:
        cluster.start_missing()
    cluster.ready(node)
    stage.say(f"{node} is back")
    stage.until(1)


def rolling_deploy(stage: Stage) -> None:
    """All nodes are replaced, one after the other: drained through ``lb``, stopped, started again."""
    cluster = stage.stack()
    stage.fill()
    for node in cluster.nodes():
        stage.calm()
        stage.say(f"{node} is drained (lb drain, SIGTERM)")
        stage.left_behind += cluster.deploy(node)
        stage.deployed += 1
        stage.say(f"{node} is back (lb ready)")
    stage.calm()


def hang(stage: Stage) -> None:
    """Break the stack: see ``Sabotage.HANG``. Runs beside a scenario, and mends what it broke however it ends."""
    cluster = stage.stack()
    stage.until(_FAULT_SHARE)
    node = cluster.busiest()
    stage.say(f"sabotage: {node} hangs (SIGSTOP)")
    cluster.pause(node)
    try:
        sleep(OUTAGE_SECONDS)
    finally:
        cluster.go_on(node)
    stage.say(f"sabotage: {node} goes on (SIGCONT)")


Script = Callable[[Stage], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A script and what it usually plays with.

    Attributes:
        script: see the module.
        summary: one line for people.
        flapping: users with a bad network, if nobody says otherwise.
        hurts: whether it does something to the stack, so that it needs one of ours.
    """

    script: Script
    summary: str
    flapping: int = 0
    hurts: bool = False


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "steady": Scenario(steady, "all users from the beginning to the end; nobody's connection may be lost"),
    "ramp": Scenario(ramp, "more users in five steps, some of them on a bad network", flapping=10),
    "storm": Scenario(storm, "all connections cut in the same instant, twice"),
    "node-kill": Scenario(node_kill, "the node with the most connections is killed", hurts=True),
    "rolling-deploy": Scenario(rolling_deploy, "all nodes drained and replaced, one after the other", hurts=True),
}


class Play:
    """A scenario under way.

    Args:
        scenario: which.
        stage: where.
        sabotage: what to break beside it.

    Attributes:
        stage: as given.
    """

    def __init__(self, scenario: Scenario, stage: Stage, sabotage: Sabotage) -> None:
        self.stage = stage
        self._acts = [spawn(self._act, scenario.script)]
        if sabotage is Sabotage.HANG:
            self._acts.append(spawn(self._act, hang))

    def over(self) -> bool:
        """Tell whether the test shall end."""
        return self._acts[0].finished()

    def end(self) -> None:
        """Call off what is still under way, and wait until everything is mended."""
        for act in self._acts:
            act.kill()
        for act in self._acts:
            act.join()

    def _act(self, script: Script) -> None:
        try:
            script(self.stage)
        except Exception as error:  # noqa: BLE001 - whatever it is, the verdict must say that the script was not played
            self.stage.errors.append(str(error))
            self.stage.say(f"FAILED: {error}")


class ScenarioShape(LoadTestShape):
    """What locust sees of a scenario. The locustfile gives it ``begin``, which raises the curtain.

    Attributes:
        play: what is under way; None before a test and after it.
    """

    begin: Callable[[], Play]
    play: Play | None = None

    def tick(self) -> tuple[int, float, list[type[User]] | None] | None:
        """Tell locust how many users there shall be; None ends the test."""
        if self.play is None:
            # Not in ``reset_time``: a leading process calls that in the middle of a test, when its workers are there.
            self.play = self.begin()
        if self.play.over():
            return None
        return self.play.stage.users, SPAWN_RATE, None
