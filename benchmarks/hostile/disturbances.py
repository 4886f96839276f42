"""Why a measurement says little: who is measured, who measures or who attacks had not the CPU for it."""

from __future__ import annotations

from typing import Final

from benchmarks.hostile.verdict import LATENCY_BOUND, Measurement

BUSY: Final = "the machine was busy"
"""Begins what is said of a measurement that other work has disturbed."""

NODE_WAIT: Final = 0.05
"""Share of the quiet phase for which a node may wait for its core, which it has to itself."""

NODE_WAIT_ATTACKED: Final = 0.1
"""The same of the attack, in which it has the core nearly all the time, and meets there what the kernel does."""

ATTACKER_WAIT: Final = 0.5
"""Share of the attack for which an attacker may wait for its core, which it shares with Redis and the witness …"""

KEPT_BUSY: Final = 0.75
"""… unless so many of its connections kept the node busy: then its waiting spared the node nothing, and with more CPU
it would have been no stronger. The rest is for the beginning, when they fill."""

WITNESS_LATE: Final = LATENCY_BOUND / 10
"""Seconds that the witness may be late for its own schedule, as the p99: by as much its latencies are wrong."""

UNOBSERVED: Final = 0.5
"""Seconds between two looks at the node, which should be a tenth of one: a quarter of what a health check may take."""


def disturbances(measured: Measurement) -> list[str]:
    """Tell why a measurement says little; nothing if everybody had the CPU that the measurement needs.

    * The node must have its core: its latencies are judged.
    * The witness and whoever looks at the node must have had a CPU when it was time: what they note is judged.
    * An attacker that waits for a CPU is too weak only if the node had read what it had sent. As long as the node finds
      something on most of its connections whenever it looks, the node's own limits decide how much it takes. Those do
      not count on which the node has to wait until the attacker reads: there the attacker holds it up.
    """
    found = []
    if measured.node_waited > NODE_WAIT:
        found.append(f"the node waited for its core for {measured.node_waited:.0%} of the quiet phase")
    if measured.node_waited_attacked > NODE_WAIT_ATTACKED:
        found.append(f"the node waited for its core for {measured.node_waited_attacked:.0%} of the attack")
    if measured.attacker_waited > ATTACKER_WAIT and measured.kept_busy < KEPT_BUSY:
        found.append(
            f"the attacker waited for its core for {measured.attacker_waited:.0%} of the attack, and no more than "
            f"{measured.kept_busy:.0%} of its connections kept the node busy"
        )
    for name, phase in (("quiet phase", measured.quiet), ("attack", measured.attacked)):
        if phase.late > WITNESS_LATE:
            found.append(f"the witness was {phase.late * 1e3:.0f} ms late for its own schedule in the {name}")
        if phase.unobserved > UNOBSERVED:
            found.append(f"nobody looked at the node for {phase.unobserved:.1f} s of the {name}")
    return [f"{BUSY}: {each}" for each in found]
