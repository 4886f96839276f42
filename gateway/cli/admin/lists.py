"""Commands that only look, and how they show what the admin API answers.

Tables are for people, one JSON object a line for programs. Principals, properties and topics are what clients chose to
write: nothing of them may steer a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli.admin.api_client import ApiClient, api_client_options
from gateway.cli.arguments import SessionCommand

_MINUTE: Final = 60.0
_TWO_MINUTES: Final = 2 * _MINUTE

LONGEST_CELL: Final = 120
"""Characters of one cell; what is longer is cut, and whole in JSON."""


def plain(value: object) -> str:
    """Write a value so that it cannot steer a terminal."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def moment(seconds: float | None) -> str:
    """Write seconds since 1970 for people."""
    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%SZ}"


def duration(seconds: float) -> str:
    """Write how long something took for people: in seconds up to two minutes, then in minutes."""
    return f"{seconds:.0f} s" if seconds < _TWO_MINUTES else f"{seconds / _MINUTE:.0f} min"


def print_json(items: Iterable[object]) -> None:
    """Print one object a line, in ASCII."""
    for each in items:
        click.echo(json.dumps(each))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, nothing: str) -> None:
    """Print a table; columns of numbers are aligned to the right.

    Args:
        headings: of the columns.
        rows: values of each row.
        nothing: what to say if there are none.
    """
    found = [list(row) for row in rows]
    if not found:
        click.echo(nothing, err=True)
        return
    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        numbers = all(isinstance(row[number], int | float | None) and row[number] is not True for row in found)
        table.add_column(heading, justify="right" if numbers else "left", overflow="fold")
    for row in found:
        table.add_row(*(_cell(value) for value in row))
    # A table into a file or a pipe is not cut at the width of a terminal that is not there.
    console = Console()
    console = console if console.is_terminal else Console(width=10_000)
    console.print(table, soft_wrap=not console.is_terminal)


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print one thing, a field a line."""
    width = max(len(name) for name in fields) + 2
    for name, value in fields.items():
        click.echo(f"{name:<{width}}{plain(value)}")


def _cell(value: object) -> Text:
    text = plain(value)
    return Text(text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}…")


_LINKED: Final = {True: "up", False: "down", None: None}
"""How a link is shown."""

DEFAULT_LIMIT: Final = 100
"""Items listed by default: some screens."""

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

as_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
limit_option = click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=DEFAULT_LIMIT,
    show_default=True,
    metavar="NUMBER",
    help="Most items; 0 for all.",
)


@click.command()
@click.argument("node", required=False)
@as_json_option
@api_client_options
def nodes(node: str | None, *, client: ApiClient, as_json: bool) -> None:
    """List the nodes of the cluster, or show NODE."""
    if node is not None:
        _show_one(client.ask("GET", "nodes", node), as_json=as_json, moments=("started",))
        return
    items = client.ask("GET", "nodes")["items"]
    if as_json:
        print_json(items)
        return
    print_table(
        (
            "Node",
            "State",
            "Connected",
            "Disconnected",
            "Lag s",
            "Link",
            "Backup",
            "Master",
            "Clients at",
            "Admin port",
            "Version",
            "Started",
            "Why",
        ),
        (
            (
                *(each["node"], _state(each), each["connected"], each["disconnected"]),
                None if each["lag"] is None else round(each["lag"], 3),
                _LINKED[each.get("linked")],
                _backup(each),
                "yes" if each.get("master") else None,
                *(each["listen"], each["admin"], each["version"], moment(each["started"])),
                "; ".join(each["reasons"]),
            )
            for each in items
        ),
        nothing="No node holds a lease.",
    )


@click.command()
@as_json_option
@api_client_options
def master(*, client: ApiClient, as_json: bool) -> None:
    """Show which node is the master of the cluster."""
    found = [each for each in client.ask("GET", "nodes")["items"] if each.get("master")]
    if as_json:
        print_json(found)
    elif found:
        click.echo(f"{plain(found[0]['node'])}, {_state(found[0])}")
    else:
        click.echo("No node is the master at the moment.", err=True)


def _state(node: Mapping[str, Any]) -> str:
    """Write the state of a node; of a lost one with how long it has been, of a suspect with who does not hear it."""
    lost, suspected_by = node.get("lost"), node.get("suspected_by")
    if suspected_by:
        return f"{node['state']}, suspected by {', '.join(suspected_by)}"
    return str(node["state"]) if lost is None else f"{node['state']} {duration(lost)} ago"


def _backup(node: Mapping[str, Any]) -> str | None:
    """Write which node backs a node, and of how many of its sessions it has a copy if not of all."""
    backup = node.get("backup")
    if backup is None or node["copied"] == node["to_copy"]:
        return backup
    return f"{backup} ({node['copied']} of {node['to_copy']})"


@click.command()
@as_json_option
@api_client_options
def takeovers(*, client: ApiClient, as_json: bool) -> None:
    """List the takeovers of failed nodes."""
    items = client.ask("GET", "takeovers")["items"]
    if as_json:
        print_json(items)
        return
    print_table(
        ("Node", "Taken over by", "Stage", "Step", "Sessions", "Left s"),
        (
            (each["node"], each["by"], each["stage"], each["step"], each["sessions"], round(each["left"], 1))
            for each in items
        ),
        nothing="No node is taken over.",
    )


@click.command(cls=SessionCommand)
@click.argument("session", required=False)
@click.option(
    "--filter", "wanted", metavar="FILTER", help="Only sessions for which it holds: \"$principal is 'alice'\"."
)
@limit_option
@as_json_option
@api_client_options
def sessions(session: str | None, *, client: ApiClient, wanted: str | None, limit: int, as_json: bool) -> None:
    """List the sessions of all nodes, or show SESSION with its buffers.

    The filter language is explained in docs/reference/filters.md. Quote it for the shell.
    """
    if session is not None:
        found = client.ask("GET", "sessions", session)
        if not as_json:
            found |= {f"live.{name}": value for name, value in (found.pop("live") or {}).items()}
        _show_one(found, as_json=as_json)
        return
    items, more = client.all("sessions", query={} if wanted is None else {"filter": wanted}, limit=limit)
    _print_sessions(items, more=more, as_json=as_json, nothing="No session matches.")


@click.command()
@click.argument("topic")
@limit_option
@as_json_option
@api_client_options
def subscribers(topic: str, *, client: ApiClient, limit: int, as_json: bool) -> None:
    """List the sessions with a subscription that matches TOPIC."""
    items, more = client.all("topics", topic, "subscribers", query={}, limit=limit)
    _print_sessions(items, more=more, as_json=as_json, nothing="No session subscribes to it.")


@click.command()
@click.argument("topic")
@click.option("--after", metavar="EVENT", help="Only what came after this event.")
@limit_option
@as_json_option
@api_client_options
def history(topic: str, *, client: ApiClient, after: str | None, limit: int, as_json: bool) -> None:
    """List the events that are kept of TOPIC, the oldest first.

    A destination of kind history says which topics keep events, and how many.
    """
    items, more = client.all("topics", topic, "history", query={} if after is None else {"after": after}, limit=limit)
    if as_json:
        print_json(items)
    else:
        rows = ([each["event"], each["version"], _text(each["value"]) if each["size"] else "removed"] for each in items)
        print_table(("Event", "Version", "Value"), rows, nothing="Nothing is kept of it.")
    tell_more(more)


@click.command()
@click.argument("topic", required=False)
@click.option("--selector", default="**", show_default=True, metavar="SELECTOR", help="Which topics.")
@click.option("--values", is_flag=True, help="With their values.")
@limit_option
@as_json_option
@api_client_options
def topics(topic: str | None, *, client: ApiClient, selector: str, values: bool, limit: int, as_json: bool) -> None:
    """List topics, or show TOPIC with its value."""
    if topic is not None:
        _show_one(client.ask("GET", "topics", topic), as_json=as_json)
        return
    query = {"selector": selector, "values": "true" if values else "false"}
    items, more = client.all("topics", query=query, limit=limit)
    if as_json:
        print_json(items)
    else:
        columns = ("Topic", "Version", "Bytes", *(("Value",) if values else ()))
        names = ("topic", "version", "size", *(("value",) if values else ()))
        rows = ([each[name] if name != "value" else _text(each[name]) for name in names] for each in items)
        print_table(columns, rows, nothing="No topic matches.")
    tell_more(more)


@click.command()
@limit_option
@as_json_option
@api_client_options
def revocations(*, client: ApiClient, limit: int, as_json: bool) -> None:
    """List the sessions, principals and credentials that are blocked."""
    items, more = client.all("revocations", query={}, limit=limit)
    if as_json:
        print_json(items)
    else:
        print_table(
            ("Kind", "Value", "Since", "Until", "Reason"),
            (
                (each["kind"], each["value"], moment(each["made"]), moment(each["until"]), each["reason"])
                for each in items
            ),
            nothing="Nothing is blocked.",
        )
    tell_more(more)


@click.command()
@click.option("--changed", is_flag=True, help="Only settings that differ from their default.")
@as_json_option
@api_client_options
def configuration(*, client: ApiClient, changed: bool, as_json: bool) -> None:
    """Show the configuration of the node at --url; secrets are masked."""
    found = client.ask("GET", "configuration")
    items = [each for each in found["items"] if each["changed"] or not changed]
    if as_json:
        print_json(items)
        return
    click.echo(f"Node {plain(found['node'])}")
    rows = ((each["name"], each["value"], "*" if each["changed"] else "") for each in items)
    print_table(("Setting", "Value", "Changed"), rows, nothing="Every setting has its default.")


@click.command()
@as_json_option
@api_client_options
def access(*, client: ApiClient, as_json: bool) -> None:
    """Show the owner of the token, and what it permits at this moment."""
    found = client.ask("GET", "access")
    if as_json:
        print_json([found])
    else:
        print_fields({**found, "roles": ", ".join(found["roles"]), "actions": ", ".join(found["actions"])})


def _print_sessions(items: list[Any], *, more: bool, as_json: bool, nothing: str) -> None:
    if as_json:
        print_json(items)
    else:
        print_table(
            ("Session", "Principal", "Node", "Connected", "Properties"),
            (
                (
                    *(each["session"], each["principal"], each["node"], each["connected"]),
                    " ".join(f"{plain(name)}={plain(value)}" for name, value in sorted(each["properties"].items())),
                )
                for each in items
            ),
            nothing=nothing,
        )
    tell_more(more)


def _show_one(found: dict[str, Any], *, as_json: bool, moments: tuple[str, ...] = ()) -> None:
    if as_json:
        print_json([found])
    else:
        print_fields({name: moment(value) if name in moments else value for name, value in found.items()})


def _text(value: object) -> object:
    return value if isinstance(value, str) else plain(value)


def tell_more(more: object) -> None:
    """Say that a list was cut, if it was."""
    if more:
        click.echo("There are more; raise --limit, or 0 for all.", err=True)
