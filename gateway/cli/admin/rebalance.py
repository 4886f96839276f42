"""``gateway admin rebalance``: has clients move, so that all nodes have about as many."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import click

from gateway.cli.admin.api_client import EXIT_FAILED, AnswerProblem, ApiClient, api_client_options, confirm
from gateway.cli.admin.changes import yes_option
from gateway.cli.admin.lists import as_json_option, print_json, print_table

RATE: Final = 50.0
"""Sessions that are moved in a second: a handoff takes about 1.3 ms of two nodes together, so that is some 4 % of a
core of each."""

WITHIN: Final = 10.0
"""Per cent of the average that a node may have more, before anything is moved: clients come and go all the time."""

TOLD_EVERY: Final = 2.0
"""Seconds between two lines that show how many sessions move."""

_READY: Final = "ready"


class Transfer(NamedTuple):
    """Sessions that go from one node to another.

    Attributes:
        source: name of the node that has them.
        target: name of the node that gets them.
        sessions: how many.
    """

    source: str
    target: str
    sessions: int


def transfers(connected: Mapping[str, int], within: float = 0.0) -> list[Transfer]:
    """Tell what to move so that all nodes have as many sessions, give or take one, by as few moves as that takes.

    Args:
        connected: sessions with a client, by the name of the node.
        within: per cent of the average that a node may have more; if none has, nothing is moved.
    """
    if not connected:
        return []
    total, nodes = sum(connected.values()), len(connected)
    if max(connected.values()) <= total / nodes * (1 + within / 100):
        return []
    share, left_over = divmod(total, nodes)
    # Who has most keeps what cannot be shared.
    ranked = sorted(connected, key=lambda node: (-connected[node], node))
    surplus = {node: connected[node] - share - (place < left_over) for place, node in enumerate(ranked)}
    givers = [node for node in ranked if surplus[node] > 0]
    takers = [node for node in reversed(ranked) if surplus[node] < 0]
    planned: list[Transfer] = []
    while givers and takers:
        source, target = givers[0], takers[0]
        count = min(surplus[source], -surplus[target])
        planned.append(Transfer(source, target, count))
        surplus[source] -= count
        surplus[target] += count
        if not surplus[source]:
            givers.pop(0)
        if not surplus[target]:
            takers.pop(0)
    return planned


@click.command()
@click.option(
    "--within",
    type=click.FloatRange(min=0.0),
    default=WITHIN,
    show_default=True,
    metavar="PERCENT",
    help="Move nothing if no node has more than the average and so much.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0.0, min_open=True),
    default=RATE,
    show_default=True,
    metavar="NUMBER",
    help="Sessions that are moved in a second.",
)
@click.option("--dry-run", is_flag=True, help="Tell what would be moved, and move nothing.")
@yes_option
@as_json_option
@api_client_options
def rebalance(*, client: ApiClient, within: float, rate: float, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Move clients from nodes with many sessions to nodes with few, as after nodes were added or restarted.

    Only nodes that are ready take part. The sessions go on where they are, and lose nothing. Those of clients that are
    away stay: they go where their clients go. The exit code is 1 if some could not be moved.
    """
    nodes = client.ask("GET", "nodes")["items"]
    ready = {each["node"]: each["connected"] for each in nodes if each["state"] == _READY}
    planned = transfers({node: count for node, count in ready.items() if count is not None}, within)
    if as_json:
        print_json([{"from": each.source, "to": each.target, "sessions": each.sessions} for each in planned])
    else:
        print_table(("From", "To", "Sessions"), planned, nothing="The nodes have about as many sessions each.")
    if dry_run or not planned:
        return 0
    count = sum(each.sessions for each in planned)
    confirm(f"Move {count} {'session' if count == 1 else 'sessions'}?", yes=yes)
    moved = _move_all(client, planned, rate)
    if moved < count:
        click.echo(f"gateway: warning: {count - moved} of {count} sessions could not be moved", err=True)
        return EXIT_FAILED
    if not as_json:
        click.echo(f"{count} {'session moves' if count == 1 else 'sessions move'}, within seconds or not at all")
    return 0


def _move_all(client: ApiClient, planned: list[Transfer], rate: float) -> int:
    """Ask for all moves, so many in a second, and show how far that is; returns how many are under way."""
    total = sum(each.sessions for each in planned)
    moved, due = 0, time.monotonic()
    told = due + TOLD_EVERY
    sessions = {source: _connected(client, source) for source in {each.source for each in planned}}
    for transfer in planned:
        left = transfer.sessions
        for session in sessions[transfer.source]:
            due = max(due + 1 / rate, time.monotonic() - 1 / rate)
            time.sleep(max(0.0, due - time.monotonic()))
            if time.monotonic() >= told:
                click.echo(f"{moved} of {total} sessions move", err=True)
                told = time.monotonic() + TOLD_EVERY
            try:
                client.ask("POST", "sessions", session, "move", body={"node": transfer.target})
            except AnswerProblem:
                continue  # its client has left, or it has moved by itself: another one goes
            moved += 1
            left -= 1
            if not left:
                break
    return moved


def _connected(client: ApiClient, node: str) -> Iterator[str]:
    """Go through the sessions with a client at a node."""
    found, _ = client.all("sessions", query={"filter": f"$node is '{node}'"}, limit=0)
    return (each["session"] for each in found if each["connected"])
