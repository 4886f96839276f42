"""``python -m tests.fuzz``: run fuzzers, or replay what one has found."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import click

from tests.fuzz.config import ConfigFuzzer
from tests.fuzz.engine import Case, Finding, Fuzzer, Result, fuzz
from tests.fuzz.handshake import HandshakeFuzzer
from tests.fuzz.node import NodeUnderWatch, watched_node
from tests.fuzz.session import SessionFuzzer
from tests.fuzz.upgrade import UpgradeFuzzer

WIRE: Final[dict[str, Callable[[NodeUnderWatch], Fuzzer]]] = {
    each.name: each for each in (UpgradeFuzzer, HandshakeFuzzer, SessionFuzzer)
}
NAMES: Final = (*WIRE, ConfigFuzzer.name)

WARM_UP_CASES: Final = 600
"""Cases before the node's size is taken: caches are full by then, and every code path has run."""


@asynccontextmanager
async def prepared(name: str) -> AsyncIterator[tuple[Fuzzer, NodeUnderWatch | None]]:
    """Prepare a fuzzer, with a node if it needs one."""
    if name == ConfigFuzzer.name:
        files = ConfigFuzzer()
        try:
            yield files, None
        finally:
            files.clean()
        return
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        async with watched_node(Path(folder)) as node:
            yield WIRE[name](node), node


async def run(name: str, *, seed: int, seconds: float = 0.0, cases: int = 0, folder: Path | None = None) -> Result:
    """Run one fuzzer.

    Args:
        name: which.
        seed: decides all cases.
        seconds: for how long.
        cases: or for how many cases.
        folder: where the smallest failing case is written.
    """
    async with prepared(name) as (fuzzer, node):
        if node is None:
            return await fuzz(fuzzer, seed=seed, seconds=seconds, cases=cases, folder=folder)
        warm = await fuzz(fuzzer, seed=seed, cases=min(cases, WARM_UP_CASES) or WARM_UP_CASES, folder=folder)
        if warm.failure:
            return warm
        result = warm
        try:
            await node.settle()
            # Another seed, or the first cases would be the same again.
            more = await fuzz(fuzzer, seed=seed + 1, seconds=seconds, cases=cases, folder=folder)
            result = Result(warm.cases + more.cases, warm.seconds + more.seconds, more.failure)
            if more.failure is None:
                figures = await node.settle()
                grown = (figures["memory_after"] - figures["memory_before"]) / 1024
                click.echo(
                    f"  {name}: memory {figures['memory_after'] / 1024:,.0f} KiB ({grown:+,.0f}), "
                    f"{figures['descriptors']:.0f} descriptors, {figures['witnessed']:,.0f} numbers witnessed in order"
                )
        except Finding as finding:
            return Result(result.cases, result.seconds, f"{name}, seed {seed}: {finding}")
        return result


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--seconds", default=600.0, show_default=True, help="For each.")
@click.option("--seed", type=int, help="Decides all cases; drawn if not given.")
@click.option(
    "--findings", type=click.Path(path_type=Path), default=Path(".local/fuzz"), help="Where failing input goes."
)
@click.option(
    "--replay", type=click.Path(path_type=Path, exists=True), help="Run the one case of a file, with one name."
)
def main(names: tuple[str, ...], seconds: float, seed: int | None, findings: Path, replay: Path | None) -> None:
    """Throw strange input at a node and its files; exits with 1 if something was found.

    NAMES: upgrade, handshake, session, config; all by default.
    """
    if replay is not None:
        if len(names) != 1:
            raise click.UsageError("--replay needs the one name of its fuzzer")
        sys.exit(asyncio.run(_replay(names[0], json.loads(replay.read_text()))))
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    failed = False
    for name in names or NAMES:
        click.echo(f"{name}: seed {seed}, {seconds:g} s")
        result = asyncio.run(run(name, seed=seed, seconds=seconds, folder=findings))
        click.echo(f"{name}: {result.cases:,} cases in {result.seconds:.0f} s, {result.failure or 'nothing found'}")
        failed = failed or result.failure is not None
    sys.exit(1 if failed else 0)


async def _replay(name: str, case: Case) -> int:
    async with prepared(name) as (fuzzer, _):
        try:
            await fuzzer.run(case)
            await fuzzer.look()
        except Finding as finding:
            click.echo(f"{name}: {finding}")
            return 1
    click.echo(f"{name}: nothing found")
    return 0


if __name__ == "__main__":
    main()
