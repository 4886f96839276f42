"""``python -m gateway.local up|down|demo|zones``: what ``make`` runs under these names."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import click

from gateway.core.wire.errors import GatewayError
from gateway.local import detached, zones_demo
from gateway.local.demo import Demo, DemoOptions
from gateway.local.observatory import Observation
from gateway.local.ports import DEFAULT_BASE, MAXIMUM_NODES, PortPlan, PortsTaken
from gateway.local.processes import ProcessFailed, ProgramMissing
from gateway.local.recipes import BACKED_UP, StackOptions
from gateway.local.run_folder import StackState, StateUnreadable
from gateway.local.stack import Stack

_RUN_FOLDERS: Final = Path(".local")
"""Ignored by git. Each stack has a folder of its own in it, named after what it is for and its port base."""
_DEFAULT_NODES: Final = 3
_MINIMUM_DEMO_NODES: Final = 2
"""A session needs somewhere to go."""
_EXIT_FAILED: Final = 1
_EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
_EXIT_TERMINATED: Final = 128 + signal.SIGTERM
"""As shells report a program that was ended by a signal."""

_port_base = click.option(
    "--port-base", type=int, default=DEFAULT_BASE, show_default=True, help="First of the ports on 127.0.0.1."
)
_nodes = click.option(
    "--nodes", type=click.IntRange(1, MAXIMUM_NODES), default=_DEFAULT_NODES, show_default=True, help="Gateway nodes."
)

_prometheus = click.option("--prometheus", is_flag=True, help="Have a Prometheus watch it, with the alerts of deploy.")


@click.group()
def program() -> None:
    """Run the whole gateway on this machine: Redis, nodes and HAProxy on loopback."""


@program.command()
@_port_base
@_nodes
@_prometheus
def up(port_base: int, nodes: int, prometheus: bool) -> None:
    """Start the stack and leave it running."""
    folder = _folder("up", port_base)
    ports = PortPlan.from_base(port_base, nodes)
    observation = _observation(prometheus)
    stack = Stack(
        StackOptions(
            ports=ports, folder=folder, detached=True, observation=observation, demo_page=True, node_settings=BACKED_UP
        )
    )
    started = _run(detached.up(stack, folder))
    state = StackState.read(folder)
    pids = {} if state is None else {name: identity.pid for name, identity in state.processes.items()}
    click.echo(f"Started {', '.join(started)}.\n" if started else "Everything runs already.\n")
    rows = [
        ("clients", stack.url, pids.get("haproxy")),
        *((node, stack.admin_url(node, "/metrics"), pids.get(node)) for node in stack.node_names),
        ("haproxy", stack.balancer_stats_url, pids.get("haproxy")),
        ("redis", stack.grid_url, pids.get("redis")),
        ("demo page", stack.demo_page_url, pids.get("demo-page")),
    ]
    if stack.observatory is not None:
        rows.append(("prometheus", asyncio.run(stack.observatory.alerts_url()), pids.get("prometheus")))
    for name, address, pid in rows:
        click.echo(f"  {name:10} {address:40} pid {pid}")
    gateway = _command("gateway")
    make = "make {}" + ("" if port_base == DEFAULT_BASE else f" PORT_BASE={port_base}")
    click.echo(
        f"  {'logs':10} {folder / 'logs'}\n\n"
        "See live values survive cuts and kills, in a browser:\n"
        f"  {stack.demo_page_url}\n"
        "Try, in two terminals:\n"
        f"  {gateway} sub 'prices/**' --url {stack.url}\n"
        f"  {gateway} pub prices/ACME '{{\"bid\": 1}}' --url {stack.url}\n"
        "Then kill the node that the first one is on (kill -9 and its pid above) and publish again.\n"
        "Look at the cluster and steer it, in a browser:\n"
        f"  {stack.admin_url(stack.node_names[0], '/console/')}  (sign in with the token in {stack.admin_token_file})\n"
        "or here:\n"
        f"  export GATEWAY_ADMIN_URL={stack.admin_url(stack.node_names[0])}\n"
        f"  export GATEWAY_ADMIN_TOKEN_FILE={stack.admin_token_file}\n"
        f"  {gateway} admin sessions\n"
        f"`{make.format('up')}` starts again what you killed; `{make.format('down')}` stops everything."
    )


@program.command()
@_port_base
def down(port_base: int) -> None:
    """Stop what `up` started, and nothing else."""
    stopped = detached.down(_folder("up", port_base))
    click.echo(f"Stopped: {', '.join(stopped)}." if stopped else "Nothing of ours runs.")


@program.command()
@_port_base
@_nodes
@click.option("--sessions", type=click.IntRange(6), default=48, show_default=True, help="Subscribing sessions.")
@click.option(
    "--rate", type=click.FloatRange(1), default=10.0, show_default=True, help="Publishes per second and topic."
)
@_prometheus
def demo(port_base: int, nodes: int, sessions: int, rate: float, prometheus: bool) -> None:
    """Watch clients keep their sessions while their nodes, HAProxy and Redis die. Fails if a promise is broken."""
    if nodes < _MINIMUM_DEMO_NODES:
        raise click.UsageError("the demo kills nodes one after the other, so it needs at least 2")
    folder = _folder("demo", port_base)
    ports = PortPlan.from_base(port_base, nodes)
    observation = _observation(prometheus)
    stack = Stack(StackOptions(ports=ports, folder=folder, observation=observation, node_settings=BACKED_UP))
    if stack.observatory is not None:
        click.echo(f"Watch it meanwhile: {stack.observatory.url}")
    verdict = _run(Demo(stack, DemoOptions(sessions=sessions, rate=rate)).run())
    if not verdict.passed:
        raise click.exceptions.Exit(_EXIT_FAILED)


@program.command()
@_port_base
def zones(port_base: int) -> None:
    """Watch three clusters send each other what their clients want, while links and nodes die."""
    clusters = zones_demo.describe(_folder("zones", port_base), zones_demo.port_plans(port_base))
    if not _run(zones_demo.ZonesDemo(clusters).run()):
        raise click.exceptions.Exit(_EXIT_FAILED)


def _observation(wanted: bool) -> Observation | None:
    return Observation() if wanted else None


def _folder(purpose: str, port_base: int) -> Path:
    return _RUN_FOLDERS / f"{purpose}-{port_base}"


def _command(name: str) -> str:
    """Write how a user in this directory calls a program of this virtual environment."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        return f"python -m {name}"
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


class _Terminated(Exception):
    """SIGTERM came, and everything was stopped."""


def _run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine; SIGTERM ends it as Ctrl-C does, so that its clean-up runs.

    Raises:
        _Terminated: by SIGTERM.
    """

    async def interruptible() -> Any:
        task = asyncio.ensure_future(main)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await task

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        raise _Terminated from None


def main() -> int:
    """Run the program and return its exit code."""
    try:
        result = program.main(prog_name="python -m gateway.local", standalone_mode=False)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort, _Terminated) as end:
        click.echo("Interrupted; everything was stopped.", err=True)
        return _EXIT_TERMINATED if isinstance(end, _Terminated) else _EXIT_INTERRUPTED
    except (ProcessFailed, PortsTaken, ProgramMissing, StateUnreadable, GatewayError, ValueError) as error:
        click.echo(f"error: {error}", err=True)
        return _EXIT_FAILED
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
