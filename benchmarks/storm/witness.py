"""Sessions that stay connected while others storm, and what an update takes to reach them: ``python -m``, by the case.

A process of its own, so that what it measures is the wait for the gateway and not that for the storm's own clients. It
publishes by a session of its own, each topic as often as asked and all topics evenly spread, and stamps each value with
the clock; the subscribers, on the same machine, subtract. It ends when it is told to (SIGTERM), and then writes pairs
of nanoseconds: when an update arrived, and how long it had taken.
"""

from __future__ import annotations

import array
import os
import signal
import time
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.storm.crowd import Crowd, allow_descriptors
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.member import Interest, Member
from benchmarks.storm.publisher import Publisher

_EVERY: Final = 0.001
"""Seconds by which a publish may be late."""
_DESCRIPTORS: Final = 500
_FOREVER: Final = 3600.0


class Witness(Member):
    """Notes each update, and misses none."""

    __slots__ = ()

    def _update(self, packet: dict[str, Any]) -> None:
        topic, version = packet["topic"], packet["version"]
        known = self._versions.get(topic)
        super()._update(packet)
        if packet.get("snapshot"):
            return
        if known is not None and version != known + 1:
            self._fail(f"was sent version {version} of {topic} after version {known}")
        _, sent, received = self.latest
        SAMPLES.append(received)
        SAMPLES.append(received - sent)


SAMPLES: Final = array.array("q")
"""Of this process: it has no other purpose."""


@click.command()
@click.argument("ports")
@click.argument("nodes")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--sessions", type=int, required=True)
@click.option("--topics", type=int, required=True)
@click.option("--rate", type=float, required=True, help="Updates per second of each topic.")
def main(ports: str, nodes: str, out: Path, *, sessions: int, topics: int, rate: float) -> None:
    """Witness a storm; makes the file OUT.ready when everything flows, and OUT at the end.

    PORTS has one for each of NODES, of the load balancer or of the node itself.
    """
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
    allow_descriptors(sessions + _DESCRIPTORS)
    crowd = Crowd()
    names = [f"live/{number}" for number in range(topics)]
    crowd.goals = dict.fromkeys(names, 0)
    hints = nodes.split(",")
    addresses = [("127.0.0.1", int(port)) for port in ports.split(",")]
    publisher = Publisher(crowd.loop, "witness-publisher")
    publisher.connect(addresses[0], hint=hints[0])
    for name in names:
        crowd.goals[name] = 1
    publisher.publish_all((name, 1) for name in names)
    for number in range(sessions):
        topic = names[number % topics]
        crowd.members.append(Witness(crowd.loop, crowd, f"witness-{number}", Interest((topic,), (topic,))))
    for place, (address, hint) in enumerate(zip(addresses, hints, strict=True)):
        crowd.arrive(address, expected="created", hint=hint, members=crowd.members[place :: len(hints)], at_once=100)
    if astray := {member.node for member in crowd.members} - set(hints):
        raise SystemExit(f"sessions that should stay were taken in by {', '.join(sorted(astray))}, which is to die")
    began = time.monotonic()
    published = 0

    def tick() -> None:
        nonlocal published
        due = int((time.monotonic() - began) * rate * topics)
        if published < due:
            turn = []
            while published < due:
                name = names[published % topics]
                crowd.goals[name] += 1
                turn.append((name, crowd.goals[name]))
                published += 1
            publisher.publish(turn)
        crowd.acknowledge_due()
        if published > topics * rate and not ready.exists():
            ready.touch()

    ready = out.with_name(out.name + ".ready")
    failure = ""
    try:
        crowd.loop.run(lambda: bool(stop), seconds=_FOREVER, tick=tick, every=_EVERY)
    except StormFailed as failed:
        failure = str(failed)
    out.with_name(out.name + ".failure").write_text(failure)
    with out.open("wb") as file:
        SAMPLES.tofile(file)
    # Nothing is tidied up: the cluster is about to be stopped.
    os._exit(1 if failure else 0)


if __name__ == "__main__":
    main()
