"""An attack in a process of its own: ``python -m benchmarks.hostile.attacker NAME TARGET --seconds 8``.

It writes a line ``begin`` to its output when its preparation is over, and at the end a line of JSON: what it has cost.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Final

import click
import uvloop

from benchmarks.hostile.attack import Attacker
from benchmarks.hostile.catalogue import ATTACKS
from benchmarks.hostile.connection import Lost
from benchmarks.hostile.target import Target
from benchmarks.measure import process_waited

BEGIN: Final = "begin"

NICENESS: Final = 10
"""Attackers get what Redis, HAProxy and the witness leave of their common core, and keep none of them from its turn: a
real attacker has a machine of its own."""

_FAILED: Final = 3
"""Exit code if the preparation failed."""


@click.command()
@click.argument("name", type=click.Choice(sorted(ATTACKS)))
@click.argument("target", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--seconds", type=float, required=True, help="Length of the attack.")
@click.option("--core", type=int, required=True, help="That it runs on.")
def main(name: str, target: Path, *, seconds: float, core: int) -> None:
    """Attack a node by what NAME does; TARGET says where it is."""
    os.nice(NICENESS)
    os.sched_setaffinity(0, {core})
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    uvloop.install()
    try:
        told = asyncio.run(_attack(name, Target.read(target), seconds))
    except Lost as lost:
        print(f"{name}: it could not be prepared: {lost}", file=sys.stderr)
        raise SystemExit(_FAILED) from lost
    print(json.dumps(told), flush=True)
    # Nothing is tidied up: thousands of connections end with the process.
    os._exit(0)


async def _attack(name: str, target: Target, seconds: float) -> dict[str, object]:
    began: list[float] = []

    def announce() -> None:
        began.extend((time.process_time(), time.monotonic(), process_waited(os.getpid())))
        print(BEGIN, flush=True)

    attack = ATTACKS[name]
    attacker = Attacker(target, announce, addresses=attack.addresses, entry=attack.entry)
    await attack.run(attacker, seconds)
    cpu, wall = time.process_time() - began[0], time.monotonic() - began[1]
    waited = process_waited(os.getpid()) - began[2]
    return {**dataclasses.asdict(attacker.finish()), "cpu": cpu, "seconds": wall, "waited": waited}


if __name__ == "__main__":
    main()
