"""What users of the Python client write passes their own type checker, without a cast."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.times import scaled

ROOT: Final = Path(__file__).resolve().parents[2]

PROGRAM: Final = """\
import asyncio
import warnings
from dataclasses import dataclass

from gateway.client import ClearTextWarning, Forbidden, Session, Update, connect


@dataclass
class Quote:
    bid: float
    tags: list[str]


def quote_of(update: Update) -> Quote:
    return Quote(update.value["bid"] + 0.5, [tag.upper() for tag in update.value["tags"]])


async def follow(session: Session) -> dict[str, float]:
    best: dict[str, float] = {}
    async with await session.subscribe("prices/**") as stream:
        async for update in stream:
            if update.removed:
                best.pop(update.topic, None)
                continue
            best[update.topic] = max(best.get(update.topic, 0.0), quote_of(update).bid)
            if len(best) > update.value.get("enough", 10):
                break
    return best


async def main() -> None:
    warnings.simplefilter("error", ClearTextWarning)
    async with connect("wss://gateway.example", principal="alice", properties={"team": "fx"}) as session:
        receipt = await session.publish("prices/ACME", {"bid": 1, "tags": ["a"]}, timeout=5)
        version: int = receipt.version
        try:
            print(version, await follow(session))
        except Forbidden as error:
            print(error.code)


asyncio.run(main())
"""


def test_a_program_passes_the_strictest_checks_without_a_cast(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file=", str(program)],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "MYPYPATH": str(ROOT), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(120),
    )
    assert (checked.returncode, checked.stdout) == (0, "Success: no issues found in 1 source file\n"), checked.stderr
