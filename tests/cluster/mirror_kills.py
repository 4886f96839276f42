"""Kills nodes that back each other, again and again, and fails if one packet is missing: acceptance of rung 3.

```console
$ python -m tests.cluster.mirror_kills --kills 100
```

Sixty subscribers, by wildcards and by names, of 20 topics with 20 updates a second each. A node that serves clients is
killed at a random moment once every node has a whole copy at another one. Each client that it served must be
``mirrored`` with its packet numbers kept and nothing lost, and nobody else may notice. At the end each subscriber must
have had each version of each topic once, in order, and each publish must have been executed once.

For how long clients were without a connection is told apart for those that had been connected for a while. A node that
accepts clients and dies at once must not be stormed, so a client that is cut off again within ``stable_after`` waits
for up to twice as long as before (protocol 8.3). Kills follow each other as fast as nodes can be started again.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from gateway.client import Recovery
from gateway.core.pacing.backoff import DEFAULT_BACKOFF
from gateway.core.wire.codes import Numbering, Outcome
from tests.cluster.backups import Market
from tests.cluster.crowds import percentile

SUBSCRIBERS: Final = 60
LONGEST_PAUSE: Final = 1.0
"""Seconds from the moment at which all copies are whole to the kill, at most; when within them is drawn."""


STABLE_AFTER: Final = DEFAULT_BACKOFF.stable_after
"""Seconds of a connection after which a client comes back as soon as it did the first time."""


class Failed(Exception):
    """A kill cost somebody something."""


class Gaps:
    """Seconds for which clients were without a connection."""

    def __init__(self) -> None:
        self._stable: list[float] = []
        self._again: list[float] = []

    def add(self, recovery: Recovery, connected: float) -> None:
        """Note a recovery of a client that had been connected for so many seconds."""
        (self._stable if connected >= STABLE_AFTER else self._again).append(recovery.gap_seconds)

    def __str__(self) -> str:
        kinds = {f"connected for {STABLE_AFTER:g} s before": self._stable, "cut off again sooner": self._again}
        return "; ".join(
            f"{len(gaps)} {kind}: p50 {percentile(gaps, 0.5):.3f} s, p99 {percentile(gaps, 0.99):.3f} s, "
            f"max {max(gaps):.3f} s"
            for kind, gaps in kinds.items()
            if gaps
        )


async def run(kills: int, seed: int, mode: str, subscribers: int, folder: Path) -> tuple[list[Recovery], Gaps]:
    """Kill nodes, and return how those came back whom they served, and how long that took.

    Raises:
        Failed: somebody came back in another way, or somebody else noticed.
        AssertionError: somebody missed or repeated something, or did not come back at all.
    """
    chance = random.Random(seed)
    found: list[Recovery] = []
    gaps = Gaps()
    async with Market.open(folder, subscribers, mirror=mode) as market:
        await market.trade.rounds()
        for number in range(1, kills + 1):
            await market.whole()
            await asyncio.sleep(chance.random() * LONGEST_PAUSE)
            node = chance.choice(market.serving)
            backup = (await market.backings())[node].node
            victims = {member: member.welcomed for member in market.at(node)}
            killed = time.monotonic()
            came_back = await market.kill(node)
            found += came_back
            for member, welcomed in victims.items():
                gaps.add(member.recoveries[-1], killed - welcomed)
            say(f"kill {number:3} of {node}, backed by {backup}: {len(came_back)} sessions {describe(came_back)}")
            wrong = [each for each in came_back if not is_right(each)]
            if wrong:
                raise Failed(f"kill {number} of {node}: {wrong}")
            if len(market.recoveries) != len(found):
                raise Failed(f"kill {number} of {node}: others noticed, too")
            await market.restart(node)
        await market.trade.rounds()
        say("judging what everybody has had")
    return found, gaps


def is_right(recovery: Recovery) -> bool:
    """Tell whether a session went on with its copy."""
    return (recovery.outcome, recovery.numbering, recovery.lost) == (Outcome.MIRRORED, Numbering.KEPT, 0)


def describe(recoveries: list[Recovery]) -> str:
    """Say how some sessions came back."""
    kinds = Counter(each.outcome for each in recoveries)
    return ", ".join(f"{outcome} {count}" for outcome, count in sorted(kinds.items()))


def say(what: str) -> None:
    """Tell how it goes."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {what}\n")
    sys.stdout.flush()


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="repeats which nodes are killed when")
    parser.add_argument("--mirror", choices=("sync", "strict"), default="sync")
    parser.add_argument("--subscribers", type=int, default=SUBSCRIBERS)
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10_000)
    folder = Path(tempfile.mkdtemp(prefix="mirror-kills-"))
    say(f"seed {seed}, logs in {folder}")
    try:
        found, gaps = asyncio.run(run(given.kills, seed, given.mirror, given.subscribers, folder))
    except (Failed, AssertionError) as failure:
        say(f"FAILED with --seed {seed}: {failure}")
        return 1
    say(f"{given.kills} kills, {len(found)} recoveries: {describe(found)}; no hole, no repeat")
    say(f"without a connection: {gaps}")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
