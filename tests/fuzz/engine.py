"""Runs a fuzzer: draws cases, looks after the node between them, and makes what fails as small as it can.

A case is a list of steps that can be written as JSON, drawn from seed, name of the fuzzer and number of the case. So a
failure can be had again by its number, and the smallest failing list of steps by its file.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol, TypeAlias

Step: TypeAlias = Any
"""What can be written as JSON; bytes are written as text in Latin-1."""

Case: TypeAlias = list[Step]

SIDE_BY_SIDE: Final = 12
"""Cases at a time: so many that the node always has something to do, and so few that a guilty one is found soon."""

LOOK_EVERY: Final = 2.0
"""Seconds between two looks at the node."""

MOST_TRIES: Final = 400
"""Runs that making a case smaller may take."""


class Finding(Exception):
    """Something happened that must not."""


class Fuzzer(Protocol):
    """One interface under strange input.

    Attributes:
        name: on the command line.
    """

    name: str

    def draw(self, random: Random) -> Case:
        """Draw a case."""

    async def run(self, case: Case) -> None:
        """Run a case.

        Raises:
            Finding: it was answered as nothing may be.
        """

    async def look(self) -> None:
        """Look whether all is well beside the cases.

        Raises:
            Finding: it is not.
        """


@dataclass(frozen=True, slots=True)
class Result:
    """How a run went.

    Attributes:
        cases: how many were run.
        seconds: how long that took.
        failure: what was found, in words, with all that is needed to have it again; None if nothing was.
    """

    cases: int
    seconds: float
    failure: str | None


def case_of(fuzzer: Fuzzer, seed: int, number: int) -> Case:
    """Draw one case of a run."""
    return fuzzer.draw(Random(f"{seed}/{fuzzer.name}/{number}"))


async def fuzz(
    fuzzer: Fuzzer, *, seed: int, seconds: float = 0.0, cases: int = 0, folder: Path | None = None
) -> Result:
    """Run cases until the time is over or their number is reached, or until something is found.

    Args:
        fuzzer: which.
        seed: decides all cases.
        seconds: for how long; 0 for as long as *cases* take.
        cases: how many; 0 for as many as there is time for.
        folder: where the smallest failing case is written.
    """
    begun = looked = time.monotonic()
    number = 0
    while (not cases or number < cases) and (not seconds or time.monotonic() - begun < seconds):
        batch = {each: case_of(fuzzer, seed, each) for each in range(number, number + SIDE_BY_SIDE)}
        number += len(batch)
        found = await asyncio.gather(*(_verdict(fuzzer.run, case) for case in batch.values()))
        guilty = [(each, verdict) for each, verdict in zip(batch, found, strict=True) if verdict]
        if not guilty and time.monotonic() - looked > LOOK_EVERY:
            looked = time.monotonic()
            if verdict := await _verdict(fuzzer.look):
                guilty = [(-1, verdict)]
        if guilty:
            return Result(
                number, time.monotonic() - begun, await _report(fuzzer, seed, guilty[0], list(batch.values()), folder)
            )
    verdict = await _verdict(fuzzer.look)
    failure = f"{fuzzer.name}, seed {seed}, after {number} cases: {verdict}" if verdict else None
    return Result(number, time.monotonic() - begun, failure)


async def smallest(case: Case, fails: Callable[[Case], Awaitable[bool]]) -> Case:
    """Leave out steps, then parts of texts, for as long as it still fails."""
    tries = 0

    async def still(candidate: Case) -> bool:
        nonlocal tries
        tries += 1
        return tries <= MOST_TRIES and await fails(candidate)

    size = max(1, len(case) // 2)
    while size:
        at = 0
        while at < len(case):
            candidate = case[:at] + case[at + size :]
            if candidate and await still(candidate):
                case = candidate
            else:
                at += size
        size //= 2
    for at in range(len(case)):
        case = await _smaller_step(case, at, still)
    return case


async def _smaller_step(case: Case, at: int, still: Callable[[Case], Awaitable[bool]]) -> Case:
    """Shorten the longest text of a step."""
    step = case[at]
    texts = [place for place, each in enumerate(step) if isinstance(each, str)] if isinstance(step, list) else []
    if not texts:
        return case
    longest = max(texts, key=lambda place: len(step[place]))
    size = len(step[longest]) // 2
    while size:
        start = 0
        while start < len(case[at][longest]):
            text = case[at][longest]
            shorter = [*case[at][:longest], text[:start] + text[start + size :], *case[at][longest + 1 :]]
            candidate = [*case[:at], shorter, *case[at + 1 :]]
            if await still(candidate):
                case = candidate
            else:
                start += size
        size //= 2
    return case


def _keep(file: Path, written: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(written)


async def _verdict(run: Callable[..., Awaitable[None]], *arguments: Any) -> str | None:
    try:
        await run(*arguments)
    except Finding as finding:
        return str(finding)
    return None


async def _report(
    fuzzer: Fuzzer, seed: int, guilty: tuple[int, str], batch: Sequence[Case], folder: Path | None
) -> str:
    number, complaint = guilty

    async def fails(case: Case) -> bool:
        return bool(await _verdict(fuzzer.run, case) or await _verdict(fuzzer.look))

    suspects = [case_of(fuzzer, seed, number)] if number >= 0 else list(batch)
    for case in suspects:
        if await fails(case):
            least = await smallest(case, fails)
            break
    else:
        return f"{fuzzer.name}, seed {seed}, case {number}: {complaint}\nIt did not happen again by itself."
    written = json.dumps(least)
    if folder is not None:
        _keep(folder / f"{fuzzer.name}-{seed}-{number}.json", written)
    return f"{fuzzer.name}, seed {seed}, case {number}: {complaint}\nsmallest failing input: {written}"
