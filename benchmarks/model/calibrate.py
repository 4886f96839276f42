"""Takes costs from what was measured, and keeps what was measured to test the model with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.cases.base import OURS
from benchmarks.model import predict
from benchmarks.model.costs import BadFile, Calibration, Costs, Deliver, Point, Publish, Step, read_json, tenfolds
from benchmarks.model.fitting import least_squares
from benchmarks.model.sweep import CASE

FITTED_SUBSCRIBERS: Final = 2_000
"""Most subscribers of the points that costs of deliveries are taken from; those with more are held out."""

FITTED_SESSIONS: Final = 2_000
"""Likewise for storms."""

RESTED: Final = 25.0
"""Percent of a core below which a node mostly rests. A processor that is woken is slower, by as much as it likes."""

SATURATED: Final = 95.0
"""Percent of a core above which latencies and joining depend on how far the publisher lets itself be slowed down, which
the model does not know. What each piece of work costs can still be told."""

_PERCENT: Final = 100.0
_MICROSECONDS: Final = 1e6
_KIB: Final = 1024.0
_HOUR: Final = 3_600.0
_NODES: Final = 2
"""That ``grid_cost`` runs."""
_MEMORY_SESSIONS: Final = 10_000
_HOW: Final = {
    CASE: "python -m benchmarks.model measure",
    "publish": "make bench ONLY=publish",
    "memory": "make bench ONLY=memory",
    "grid_cost": "make bench ONLY=grid_cost",
}
"""Which command gives the rows of a case."""


@dataclass(frozen=True)
class Measured:
    """Rows of one or several runs: medians over their rounds.

    Attributes:
        date: of the latest run.
        commit: of it.
        machine: of it.
        rows: values by case and variant.
    """

    date: str
    commit: str
    machine: Mapping[str, str | int]
    rows: Mapping[tuple[str, str], Mapping[str, float]]

    @classmethod
    def read(cls, files: Sequence[Path]) -> Measured:
        """Read results, as ``python -m benchmarks --json`` and ``python -m benchmarks.model measure`` write them.

        Raises:
            BadFile: one cannot be read, is no such file, was measured elsewhere than the others, or something failed.
        """
        collected: dict[tuple[str, str], dict[str, list[float]]] = {}
        runs = []
        for file in files:
            content = read_json(file)
            try:
                runs.append((str(content["date"]), str(content["commit"]), dict(content["machine"])))
                for row in content["rows"]:
                    _collect(row, collected, file)
            except (KeyError, TypeError, ValueError, AttributeError) as problem:
                raise BadFile(f"{file}: no results of a benchmark: {problem!r}") from problem
        for file, run in zip(files, runs, strict=True):
            if run[2] != runs[0][2]:
                raise BadFile(f"{file}: measured on another machine than {files[0]}; costs of two cannot be mixed")
        date, commit, machine = max(runs, key=lambda run: run[0])
        rows = {key: {name: median(each) for name, each in figures.items()} for key, figures in collected.items()}
        return cls(date, commit, machine, rows)

    def one(self, case: str, variant: str) -> Mapping[str, float]:
        """Take the row of a variant.

        Raises:
            BadFile: it was not measured.
        """
        found = self.rows.get((case, variant))
        if found is None:
            raise BadFile(f"nothing was measured of {case}: {variant}; run {_HOW.get(case, case)}")
        return found

    def kind(self, kind: str) -> Sequence[tuple[str, Mapping[str, float]]]:
        """Take the sweep's rows whose variant begins with *kind*.

        Raises:
            BadFile: there are none.
        """
        found = [
            (variant, values)
            for (case, variant), values in self.rows.items()
            if case == CASE and variant.startswith(f"{kind}: ")
        ]
        if not found:
            raise BadFile(f"nothing was measured of {kind}; run {_HOW[CASE]}")
        return found


def calibrate(files: Sequence[Path]) -> Calibration:
    """Take costs from results.

    Args:
        files: of one machine; together they must hold what ``_HOW`` names.

    Raises:
        BadFile: see ``Measured``; or the measurements contradict each other.
    """
    measured = Measured.read(files)
    publish = _publish(measured)
    take, follow_redis = _follow(measured)
    idle = measured.one("memory", f"{_MEMORY_SESSIONS:,} idle sessions")
    hour = measured.one("grid_cost", "hour of two nodes without sessions, extrapolated")
    ((_, forward),) = measured.kind("forward")
    ((_, values),) = measured.kind("values")
    deliver = _deliver(measured, publish, take)
    few, many = sorted((values for _, values in measured.kind("selections")), key=lambda values: values["selections"])
    more = many["selections"] - few["selections"]
    costs = Costs(
        deliver=deliver,
        publish=publish,
        follow_redis=follow_redis,
        connect=_step(measured, "connect"),
        reattach=_step(measured, "reattach"),
        failover=_step(measured, "failover"),
        idle_server=idle["idle"] / _PERCENT * _MICROSECONDS / _MEMORY_SESSIONS,
        idle_redis=hour["redis_cpu"] / _HOUR / _NODES,
        forward=forward["haproxy_cpu"],
        session_node=idle["resident"] * _KIB,
        session_grid=idle["grid"],
        selection_server=(many["server_cpu"] - few["server_cpu"]) / more,
        selection_node=(many["resident"] - few["resident"]) / more,
        selection_grid=(many["grid"] - few["grid"]) / more,
        session_haproxy=forward["haproxy_memory"],
        topic_node=values["resident"],
        topic_grid=values["grid"],
        path=0.0,
    )
    points = list(_points(measured))
    quietest = min((point for point in points if point.figure == "p50"), key=lambda each: each.measured, default=None)
    if quietest is None:
        raise BadFile(f"every node was saturated; run {_HOW[CASE]} on a machine that does nothing else")
    costs = replace(costs, path=max(0.0, quietest.measured - predict.predict(costs, quietest)))
    return Calibration(measured.date, measured.commit, measured.machine, costs, points)


def _collect(row: Mapping[str, Any], collected: dict[tuple[str, str], dict[str, list[float]]], file: Path) -> None:
    if row["contestant"] != OURS:
        return
    if row["failures"]:
        raise BadFile(f"{file}: {row['case']}, {row['variant']} failed ({row['failures'][0]}); measure it again")
    figures = collected.setdefault((row["case"], row["variant"]), {})
    for name, value in row["values"].items():
        figures.setdefault(name, []).append(float(value))


def _publish(measured: Measured) -> Publish:
    for (case, _), values in measured.rows.items():
        if case == "publish":
            return Publish(values["server_cpu"], values["redis_cpu"])
    raise BadFile(f"nothing was measured of publish; run {_HOW['publish']}")


def _follow(measured: Measured) -> tuple[float, float]:
    """Tell what reading an update that nobody wants costs the reading node, and Redis for each node that reads."""
    followers = {int(values["followers"]): values for _, values in measured.kind("foreign updates")}
    try:
        none, one, two = (followers[number] for number in range(3))
    except KeyError as missing:
        raise BadFile(f"nothing was measured of {missing} nodes that follow; run {_HOW[CASE]}") from missing
    take = one["reader_cpu"] - none["reader_cpu"]
    redis = (two["redis_cpu"] - none["redis_cpu"]) / 2
    if take <= 0 or redis <= 0:
        raise BadFile(
            "reading updates seems to cost nothing: the machine was too busy with other things; measure again"
        )
    return take, redis


def _deliver(measured: Measured, publish: Publish, take: float) -> Deliver:
    """Split the cost of paced updates into what comes with each turn, each write and each packet."""
    rows, rest = [], []
    for _, values in [*measured.kind("deliver"), *measured.kind("own topic")]:
        own = values["topics"] > 1
        if values["subscribers"] > FITTED_SUBSCRIBERS or values["server_busy"] < (SATURATED if own else RESTED):
            continue
        left = values["server_cpu"] - publish.server - take
        if left <= 0:
            continue
        joined, subscribers = values["updates_per_write"], values["subscribers"]
        if own:
            # So many come in a turn of a full node that it costs none of them anything; each is a write of its own.
            rows.append([0.0, 1.0, 1.0, tenfolds(subscribers), 1.0])
        else:
            writes = subscribers / joined
            rows.append([1 / joined, 1.0, writes, writes * tenfolds(subscribers), subscribers])
        rest.append(left)
    try:
        wake, encode, write, cold, packet = least_squares(rows, rest)
    except ValueError as problem:
        raise BadFile(f"deliveries: {problem}; run {_HOW[CASE]}") from problem
    return Deliver(wake=wake, take=take, encode=encode, write=write, packet=packet, cold=cold)


def _step(measured: Measured, kind: str) -> Step:
    fitted = [values for _, values in measured.kind(kind) if values["sessions"] <= FITTED_SESSIONS]
    if not fitted:
        raise BadFile(f"nothing was measured of {kind} with at most {FITTED_SESSIONS:,} sessions; run {_HOW[CASE]}")
    return Step(*(median(each[name] for each in fitted) for name in ("server_cpu", "redis_cpu", "haproxy_cpu")))


def _points(measured: Measured) -> Iterable[Point]:
    """Collect what the model must be able to tell."""
    for variant, values in [*measured.kind("deliver"), *measured.kind("own topic")]:
        if not RESTED <= values["server_busy"] <= SATURATED:
            continue
        fitted = values["subscribers"] <= FITTED_SUBSCRIBERS and values["topics"] == 1
        parameters = {name: values[name] for name in ("subscribers", "topics", "rate")}
        yield Point(variant, "server_cpu", "µs", values["server_cpu"], fitted, parameters)
        if values["topics"] == 1:
            yield Point(variant, "p50", "ms", values["p50"], fitted=False, parameters=parameters)
    for kind in ("connect", "reattach", "failover"):
        for variant, values in measured.kind(kind):
            fitted = values["sessions"] <= FITTED_SESSIONS
            parameters = {"sessions": values["sessions"], "client_cpu": values["client_cpu"]}
            yield Point(variant, "server_cpu", "µs", values["server_cpu"], fitted, parameters)
            yield Point(variant, "seconds", "s", values["seconds"], fitted=False, parameters=parameters)
    for (case, variant), values in measured.rows.items():
        if case == "fanout" and (saturated := re.fullmatch(r"([\d,]+) subscribers, as fast as it goes", variant)):
            parameters = {
                "subscribers": float(saturated[1].replace(",", "")),
                "joined": max(1.0, values["deliveries_per_read"]),
            }
            cpu = values["cpu_per_delivery"]
            yield Point(f"fanout: {variant}", "cpu_per_delivery", "µs", cpu, fitted=False, parameters=parameters)
