"""Commands that only look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from gateway.cli.admin.asking import Asker, asker_options
from gateway.cli.admin.showing import moment, plain, print_fields, print_json, print_table

DEFAULT_LIMIT: Final = 100
"""Items listed if nobody asks for another number: some screens."""

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
@asker_options
def nodes(node: str | None, *, asker: Asker, as_json: bool) -> None:
    """List the nodes of the cluster, or show NODE."""
    if node is not None:
        _show_one(asker.ask("GET", "nodes", node), as_json=as_json, moments=("started",))
        return
    items = asker.ask("GET", "nodes")["items"]
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
            "Clients at",
            "Admin port",
            "Version",
            "Started",
            "Why",
        ),
        (
            (
                *(each["node"], each["state"], each["connected"], each["disconnected"]),
                None if each["lag"] is None else round(each["lag"], 3),
                *(each["listen"], each["admin"], each["version"], moment(each["started"])),
                "; ".join(each["reasons"]),
            )
            for each in items
        ),
        nothing="No node holds a lease.",
    )


@click.command()
@click.argument("session", required=False)
@click.option(
    "--filter", "wanted", metavar="FILTER", help="Only sessions for which it holds: \"$principal is 'alice'\"."
)
@limit_option
@as_json_option
@asker_options
def sessions(session: str | None, *, asker: Asker, wanted: str | None, limit: int, as_json: bool) -> None:
    """List the sessions of all nodes, or show SESSION with its buffers.

    The filter language is explained in docs/reference/filters.md. Quote it for the shell.
    """
    if session is not None:
        found = asker.ask("GET", "sessions", session)
        if not as_json:
            found |= {f"live.{name}": value for name, value in (found.pop("live") or {}).items()}
        _show_one(found, as_json=as_json)
        return
    items, more = asker.all("sessions", query={} if wanted is None else {"filter": wanted}, limit=limit)
    _print_sessions(items, more=more, as_json=as_json, nothing="No session matches.")


@click.command()
@click.argument("topic")
@limit_option
@as_json_option
@asker_options
def subscribers(topic: str, *, asker: Asker, limit: int, as_json: bool) -> None:
    """List the sessions that select TOPIC."""
    items, more = asker.all("topics", topic, "subscribers", query={}, limit=limit)
    _print_sessions(items, more=more, as_json=as_json, nothing="No session selects it.")


@click.command()
@click.argument("topic", required=False)
@click.option("--selector", default="**", show_default=True, metavar="SELECTOR", help="Which topics.")
@click.option("--values", is_flag=True, help="With their values.")
@limit_option
@as_json_option
@asker_options
def topics(topic: str | None, *, asker: Asker, selector: str, values: bool, limit: int, as_json: bool) -> None:
    """List topics, or show TOPIC with its value."""
    if topic is not None:
        _show_one(asker.ask("GET", "topics", topic), as_json=as_json)
        return
    query = {"selector": selector, "values": "true" if values else "false"}
    items, more = asker.all("topics", query=query, limit=limit)
    if as_json:
        print_json(items)
    else:
        columns = ("Topic", "Version", "Bytes", *(("Value",) if values else ()))
        names = ("topic", "version", "size", *(("value",) if values else ()))
        rows = ([each[name] if name != "value" else _text(each[name]) for name in names] for each in items)
        print_table(columns, rows, nothing="No topic matches.")
    _tell_more(more)


@click.command()
@limit_option
@as_json_option
@asker_options
def revocations(*, asker: Asker, limit: int, as_json: bool) -> None:
    """List who is locked out."""
    items, more = asker.all("revocations", query={}, limit=limit)
    if as_json:
        print_json(items)
    else:
        print_table(
            ("Kind", "Value", "Since", "Until", "Reason"),
            (
                (each["kind"], each["value"], moment(each["made"]), moment(each["until"]), each["reason"])
                for each in items
            ),
            nothing="Nobody is locked out.",
        )
    _tell_more(more)


@click.command()
@click.option("--changed", is_flag=True, help="Only what differs from its default.")
@as_json_option
@asker_options
def configuration(*, asker: Asker, changed: bool, as_json: bool) -> None:
    """Show what the node at --url runs with; secrets are masked."""
    found = asker.ask("GET", "configuration")
    items = [each for each in found["items"] if each["changed"] or not changed]
    if as_json:
        print_json(items)
        return
    click.echo(f"Node {plain(found['node'])}")
    rows = ((each["name"], each["value"], "*" if each["changed"] else "") for each in items)
    print_table(("Setting", "Value", "Changed"), rows, nothing="Everything has its default.")


@click.command()
@as_json_option
@asker_options
def access(*, asker: Asker, as_json: bool) -> None:
    """Show whose the token is, and what it permits at this moment."""
    found = asker.ask("GET", "access")
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
    _tell_more(more)


def _show_one(found: dict[str, Any], *, as_json: bool, moments: tuple[str, ...] = ()) -> None:
    if as_json:
        print_json([found])
    else:
        print_fields({name: moment(value) if name in moments else value for name, value in found.items()})


def _text(value: object) -> object:
    return value if isinstance(value, str) else plain(value)


def _tell_more(more: object) -> None:
    if more:
        click.echo("There are more; raise --limit, or 0 for all.", err=True)
