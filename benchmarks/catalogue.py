"""All systems and all cases, by name and in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.cases.base import Case
from benchmarks.cases.connect import ConnectCase
from benchmarks.cases.cross_node import CrossNodeCase
from benchmarks.cases.failover import FailoverCase
from benchmarks.cases.fanout import FanOut
from benchmarks.cases.grid_cost import GridCostCase
from benchmarks.cases.growth import GrowthCase
from benchmarks.cases.handoff import HandoffCase
from benchmarks.cases.history import HistoryCase
from benchmarks.cases.memory import MemoryCase
from benchmarks.cases.mirror import MirrorCase
from benchmarks.cases.own_topic import OwnTopic
from benchmarks.cases.publish import PublishCase
from benchmarks.cases.queue import QueueCase
from benchmarks.cases.reattach import ReattachCase
from benchmarks.cases.replay import ReplayCase
from benchmarks.cases.snapshot import SnapshotCase
from benchmarks.cases.steady import Steady
from benchmarks.cases.takeover import TakeoverCase
from benchmarks.hostile.case import Hostile
from benchmarks.systems.base import SystemUnderTest
from benchmarks.systems.c_floor import CFloor
from benchmarks.systems.centrifugo import Centrifugo, CentrifugoRedis
from benchmarks.systems.gateway import GatewayNode
from benchmarks.systems.jetstream import JetStream, JetStreamFile
from benchmarks.systems.mosquitto import Mosquitto
from benchmarks.systems.nats import Nats
from benchmarks.systems.nchan import Nchan
from benchmarks.systems.python_socketio import PythonSocketIo
from benchmarks.systems.socketio import SocketIo

SYSTEMS: Final[Sequence[type[SystemUnderTest]]] = (
    GatewayNode,
    Nchan,
    Nats,
    Mosquitto,
    JetStream,
    JetStreamFile,
    Centrifugo,
    CentrifugoRedis,
    SocketIo,
    PythonSocketIo,
    CFloor,
)

CASES: Final[Sequence[type[Case]]] = (
    FanOut,
    Steady,
    OwnTopic,
    PublishCase,
    CrossNodeCase,
    ConnectCase,
    ReattachCase,
    HandoffCase,
    FailoverCase,
    ReplayCase,
    MirrorCase,
    QueueCase,
    HistoryCase,
    TakeoverCase,
    MemoryCase,
    SnapshotCase,
    GridCostCase,
    GrowthCase,
    Hostile,
)
"""Steady comes after fan-out, whose results tell it what half of a saturation is."""


def systems_by_name() -> Mapping[str, type[SystemUnderTest]]:
    """Return the systems by name."""
    return {each.name: each for each in SYSTEMS}


def cases_by_name() -> Mapping[str, type[Case]]:
    """Return the cases by name."""
    return {each.name: each for each in CASES}


def cases_by_default() -> Mapping[str, type[Case]]:
    """Return the cases that run when none is named, and that a published run must have."""
    return {name: case for name, case in cases_by_name().items() if not case.apart}
