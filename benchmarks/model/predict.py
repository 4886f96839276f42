"""What the model says of work that was measured, so that both can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.model import storm, tick
from benchmarks.model.costs import Calibration, Costs, Point, Step

TOLERANCES: Final = {
    ("server_cpu", True): 0.35,
    ("server_cpu", False): 0.6,
    ("cpu_per_delivery", False): 1.0,
    ("seconds", False): 0.75,
    ("p50", False): 1.0,
}
"""How far measured and predicted may be apart, by figure and by whether it was fitted: 0.35 means that neither is more
than 1.35 times the other. As wide as machines that are shared make it: on such a machine the same measurement, taken
twice, differs by a quarter; a median latency that is made of a few milliseconds of waiting by half. Storms
last longer than predicted rather than shorter: the model's node, HAProxy and Redis work side by side all the while. Ten
thousand subscribers cost a node more than is predicted, probably for reading an acknowledgement from each, which
at a few updates a second is one for each update; the model has no cost for that."""

_STORMS: Final = ("connect", "reattach", "failover")


@dataclass(frozen=True)
class Comparison:
    """A measured figure beside the model's."""

    point: Point
    predicted: float
    tolerance: float

    @property
    def off(self) -> float:
        """By what factor the larger exceeds the smaller, less 1; without bound if one of them is 0."""
        low, high = sorted((self.point.measured, self.predicted))
        return high / low - 1 if low > 0 else float("inf")

    @property
    def holds(self) -> bool:
        """Whether they are as close as demanded."""
        return self.off <= self.tolerance


def compare(calibration: Calibration) -> list[Comparison]:
    """Predict every point of a calibration."""
    return [
        Comparison(point, predict(calibration.costs, point), TOLERANCES[point.figure, point.fitted])
        for point in calibration.points
    ]


def predict(costs: Costs, point: Point) -> float:
    """Predict the figure of a point.

    Raises:
        ValueError: the model says nothing about such a figure.
    """
    kind = point.name.partition(":")[0]
    given = point.parameters
    if kind in {"deliver", "own topic"}:
        own = given["topics"] > 1
        stream = tick.Stream(
            given["rate"],
            1.0 if own else given["subscribers"],
            given["subscribers"],
            publish=costs.publish.server,
            path=costs.path,
        )
        turns = tick.simulate(costs.deliver, stream)
        if point.figure == "server_cpu":
            return turns.cpu
        if point.figure == "p50":
            return turns.p50
    if kind == "fanout" and point.figure == "cpu_per_delivery":
        subscribers, joined = given["subscribers"], given["joined"]
        return (costs.deliver.tick(joined, subscribers) / joined + costs.publish.server) / subscribers
    if kind in _STORMS:
        step: Step = getattr(costs, kind)
        if point.figure == "server_cpu":
            return step.server
        if point.figure == "seconds":
            # All at the same instant; clients, HAProxy and Redis share the benchmark's other core.
            storm_ = storm.Comeback(int(given["sessions"]), step, shared=True, client=given["client_cpu"])
            return storm.simulate(storm_).last
    raise ValueError(f"nothing is known of {point.figure} of {kind}")
