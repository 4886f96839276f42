"""``make autobahn``: run the Autobahn test suite against the client port, and compare with the recorded outcomes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import click
import uvloop

from gateway.core.wire.codec import SUBPROTOCOL
from tests.autobahn.echo import echo_server
from tests.autobahn.outcomes import RECORDED, Outcomes, by_section, differences, read_report
from tests.autobahn.python2 import FOLDER, NoPython2, environment, find_python2, install

CASES: Final = ("1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.*", "10.*")
"""All but 12 and 13, which are about compression: it is not negotiated (protocol 1.5)."""

START: Final = """
import site, sys
site.addsitedir(sys.argv[1])  # packages in parts, as zope, are found by nothing less
sys.path.insert(0, sys.argv[1])  # before what this Python has of its own
from autobahntestsuite.wstest import run
sys.argv = ["wstest", "--mode", "fuzzingclient", "--spec", sys.argv[2]]
run()
"""


async def run_suite(python: str, suite: Path, cases: tuple[str, ...]) -> Outcomes:
    """Run cases.

    Args:
        python: 2.7.
        suite: where the suite is installed.
        cases: numbers, with stars.

    Raises:
        subprocess.CalledProcessError: it has failed itself; its last words are in its output.
    """
    reports = FOLDER.resolve() / "reports"
    async with echo_server() as server:
        specification = {
            "outdir": str(reports),
            "servers": [
                {
                    "agent": "gateway",
                    "url": f"ws://127.0.0.1:{server.port}/v1/connect",
                    "protocols": [SUBPROTOCOL],
                }
            ],
            "cases": list(cases),
            "exclude-cases": [],
            "exclude-agent-cases": {},
        }
        file = FOLDER.resolve() / "specification.json"
        file.write_text(json.dumps(specification))
        process = await asyncio.create_subprocess_exec(
            *[python, "-c", START, str(suite), str(file)],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment(),
        )
        output, _ = await process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, python, output.decode(errors="replace"))
    return read_report(reports / "index.json")


@click.command()
@click.option("--case", "cases", multiple=True, help="Run these only, as 6.4.*; nothing is recorded then.")
@click.option("--record", is_flag=True, help="Take the outcomes for the known ones from now on.")
def main(cases: tuple[str, ...], record: bool) -> None:
    """Run the Autobahn test suite; exits with 1 if something came out otherwise than recorded, 2 without Python 2.7."""
    try:
        python = find_python2()
    except NoPython2 as missing:
        click.echo(str(missing), err=True)
        sys.exit(2)
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        suite = install(python)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(run_suite(python, suite, cases or CASES))
    except subprocess.CalledProcessError as failed:
        click.echo(f"{failed}\n{(failed.output or '')[-2000:]}", err=True)
        sys.exit(1)
    for section, counted in by_section(found).items():
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counted.items())
        click.echo(f"{section:>3}  {counted.total():>3} cases: {outcomes}")
    if record and not cases:
        RECORDED.write_text(json.dumps(found, indent=1) + "\n")
    recorded: Outcomes = json.loads(RECORDED.read_text())
    if cases:
        recorded = {number: outcome for number, outcome in recorded.items() if number in found}
    complaints = differences(found, recorded)
    click.echo("\n".join(complaints) or "all as recorded", err=bool(complaints))
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
