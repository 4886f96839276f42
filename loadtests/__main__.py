"""``python -m loadtests``: what ``make load`` and ``make load-ui`` run. Sees to the stack, then starts locust.

Exit status: 0 all objectives met; 1 an objective missed; 2 the run could not be begun; 3 the run is invalid, because
the load generator was late.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from gateway.local.ports import DEFAULT_BASE, LAST_PORT, LOOPBACK, MAXIMUM_NODES, is_taken
from gateway.local.run_folder import StateUnreadable
from loadtests import cluster
from loadtests.cluster import ClusterFailed, LocalCluster
from loadtests.first_session import GatewayUnusable, must_open

_RUN_FOLDERS: Final = Path(".local")
"""Ignored by git; where `make up` keeps its run folder, and where reports go."""
_DEFAULT_NODES: Final = 3
_WEB_PORT: Final = 8089
_EXIT_NOT_BEGUN: Final = 2
_EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
_EXIT_TERMINATED: Final = 128 + signal.SIGTERM
"""As shells report a program that was ended by a signal."""
_LOCUSTFILE: Final = Path(__file__).with_name("locustfile.py")
_STOP_SECONDS: Final = 30.0
"""How long locust may take to end after Ctrl-C: it closes its users' sessions."""


@click.command(context_settings={"ignore_unknown_options": True, "max_content_width": 100})
@click.option("--scenario", default=None, help="steady, ramp, storm, node-kill, rolling-deploy. Default: steady.")
@click.option("--ui", is_flag=True, help="With locust's web page, on 127.0.0.1, instead of one run to the end.")
@click.option(
    "--web-port", type=click.IntRange(1, LAST_PORT), default=_WEB_PORT, show_default=True, help="Port of the web page."
)
@click.option("--port-base", type=int, default=DEFAULT_BASE, show_default=True, help="First port of the local stack.")
@click.option(
    "--nodes",
    type=click.IntRange(1, MAXIMUM_NODES),
    default=_DEFAULT_NODES,
    show_default=True,
    help="Nodes of the local stack, if it has to be started.",
)
@click.option("--url", default=None, help="Load this gateway, and not the local stack.")
@click.argument("locust_options", nargs=-1, type=click.UNPROCESSED)
def program(
    *,
    scenario: str | None,
    ui: bool,
    web_port: int,
    port_base: int,
    nodes: int,
    url: str | None,
    locust_options: Sequence[str],
) -> int:
    """Put the gateway under load and judge it by the objectives in loadtests/slo.toml.

    Uses the stack that `make up` left running; if there is none, starts one and stops it afterwards. All further
    options are locust's, and those that `locust -f loadtests/locustfile.py --help` lists under "Gateway load test", for
    example --subscribers 500 --processes 2 --seconds 120.
    """
    scenario = scenario or ("free" if ui else "steady")
    output = _RUN_FOLDERS / f"load-{port_base}" / scenario
    folder = None if url is not None else _RUN_FOLDERS / f"up-{port_base}"
    report, verdict = output / "report.html", output / "verdict.json"
    if ui and is_taken(web_port):
        raise click.UsageError(
            f"port {web_port} of {LOOPBACK} is in use by another program; choose another with --web-port"
        )
    for earlier in (report, verdict):
        # Or a run that does not begin would be told by the report of the one before it.
        earlier.unlink(missing_ok=True)
    if url is not None:
        asyncio.run(must_open(url))
    started = folder is not None and _see_to_stack(folder, port_base, nodes)
    try:
        if folder is not None:
            cluster.declare(folder, base=port_base)
        command = [
            *(sys.executable, "-m", "locust", "-f", str(_LOCUSTFILE)),
            *("--host", url or f"ws://{LOOPBACK}:{port_base}", "--loglevel", "WARNING"),
            *("--scenario", scenario, "--html", str(report), "--verdict", str(verdict)),
            *(() if folder is None else ("--stack", str(folder))),
            *(("--web-host", LOOPBACK, "--web-port", str(web_port)) if ui else ("--headless", "--only-summary")),
            *locust_options,
        ]
        if ui:
            click.echo(f"Open http://{LOOPBACK}:{web_port}; the objectives are at /slo. Ctrl-C ends it.")
        code = _run(command)
        if verdict.exists():
            click.echo(f"report: {report}\nfigures: {verdict}")
        return code
    finally:
        if started and folder is not None:
            click.echo("Stopping the stack again.")
            cluster.stop(folder, base=port_base)


def _see_to_stack(folder: Path, base: int, nodes: int) -> bool:
    """Make sure that a whole stack runs; True if it was started here.

    Raises:
        ClusterFailed: it does not, and that is not for a load test to mend.
    """
    stack = LocalCluster(folder)
    started = not stack.parts()
    if started:
        click.echo(f"Starting Redis, {nodes} nodes and HAProxy (`make up` keeps them running) …")
        cluster.start(folder, base=base, nodes=nodes)
    complaint = stack.complaint()
    if complaint is not None:
        raise ClusterFailed(f"the stack in {folder} is not whole, so there is nothing to measure: {complaint}")
    return started


def _run(command: Sequence[str]) -> int:
    """Run locust to its end, also if that is Ctrl-C, which the terminal sends to it as well."""
    root = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    with subprocess.Popen(command, env=environment) as locust:  # noqa: S603 - our own program
        try:
            return locust.wait()
        except BaseException as end:
            if not isinstance(end, KeyboardInterrupt):
                locust.terminate()
            try:
                locust.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                locust.kill()
            raise


class _Terminated(Exception):
    """SIGTERM came."""


def _terminate(_number: int, _frame: object) -> None:
    raise _Terminated


def main() -> int:
    """Run the program and return its exit code."""
    # As with Ctrl-C, what was started is stopped.
    signal.signal(signal.SIGTERM, _terminate)
    try:
        result = program.main(prog_name="python -m loadtests", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return _EXIT_NOT_BEGUN
    except (KeyboardInterrupt, click.Abort, _Terminated) as end:
        return _EXIT_TERMINATED if isinstance(end, _Terminated) else _EXIT_INTERRUPTED
    except (ClusterFailed, GatewayUnusable, StateUnreadable) as error:
        click.echo(f"error: {error}", err=True)
        return _EXIT_NOT_BEGUN
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
