"""The fuzzers for a moment each, with the same cases each time; and the engine, where there is something to find."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.__main__ import NAMES, run
from tests.fuzz.engine import Case, Finding, case_of, fuzz

pytestmark = pytest.mark.thorough

CASES = {"upgrade": 240, "handshake": 120, "session": 24, "config": 600}
"""For each fuzzer: some two seconds."""


@pytest.mark.parametrize("name", NAMES)
async def test_strange_input_does_no_harm(name: str, tmp_path: Path) -> None:
    result = await run(name, seed=4, cases=CASES[name], folder=tmp_path)

    assert result.failure is None
    assert result.cases >= CASES[name]


def kept(folder: Path) -> list[Path]:
    return list(folder.iterdir())


class Guilty:
    """Fails if a case has both a 7 and a text with an x."""

    name = "guilty"

    def draw(self, random: Random) -> Case:
        return [[random.randrange(50), random.choice(("abc", "wxyz" * 20))] for _ in range(random.randrange(1, 30))]

    async def run(self, case: Case) -> None:
        if any(number == 7 for number, _ in case) and any("x" in text for _, text in case):
            raise Finding("seven and x")

    async def look(self) -> None:
        pass


async def test_what_is_found_is_made_small_and_can_be_had_again(tmp_path: Path) -> None:
    result = await fuzz(Guilty(), seed=1, cases=10_000, folder=tmp_path)

    assert result.failure is not None
    assert "guilty, seed 1, case " in result.failure
    (file,) = kept(tmp_path)
    number = int(file.stem.rpartition("-")[2])
    assert file.read_text() in result.failure
    least = json.loads(file.read_text())
    assert len(least) <= 2
    assert "".join(text for _, text in least).count("x") == 1
    for case in (least, case_of(Guilty(), 1, number)):
        with pytest.raises(Finding):
            await Guilty().run(case)


async def test_a_run_ends_with_its_time() -> None:
    result = await fuzz(Guilty(), seed=1, seconds=0.01, cases=0)

    assert result.seconds < 5
