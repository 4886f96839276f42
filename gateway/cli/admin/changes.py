"""Commands that change something; what cannot be undone is confirmed first."""

from __future__ import annotations

import secrets
import sys
import time
from typing import Any

import click
import orjson

from gateway.cli.admin.api_client import (
    EXIT_FAILED,
    EXIT_PENDING,
    AnswerProblem,
    ApiClient,
    api_client_options,
    confirm,
)
from gateway.cli.admin.lists import as_json_option, moment, plain, print_json
from gateway.cli.arguments import SessionCommand, ValueCommand
from gateway.core.policy.revocations import RevocationKind
from gateway.core.wire.errors import GatewayError
from gateway.settings.errors import Unfit
from gateway.settings.quantities import Seconds

yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
kind_argument = click.argument("kind", type=click.Choice([kind.value for kind in RevocationKind]))


@click.command()
@click.argument("node")
@yes_option
@as_json_option
@api_client_options
def drain(node: str, *, client: ApiClient, yes: bool, as_json: bool) -> None:
    """Move all clients of NODE to other nodes; NODE keeps running. `gateway admin nodes NODE` shows the progress."""
    confirm(f"Move all clients of {node} to other nodes?", yes=yes)
    found = client.ask("POST", "nodes", node, "drain")
    _told(
        found, as_json=as_json, text=f"{plain(found['node'])} drains: {found['connected']} sessions with a client left"
    )


@click.command()
@click.argument("node")
@as_json_option
@api_client_options
def undrain(node: str, *, client: ApiClient, as_json: bool) -> None:
    """End the drain of NODE: it accepts sessions again."""
    found = client.ask("POST", "nodes", node, "undrain")
    _told(found, as_json=as_json, text=f"{plain(found['node'])} is {plain(found['state'])}")


@click.command(cls=SessionCommand)
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@yes_option
@as_json_option
@api_client_options
def close(sessions: tuple[str, ...], *, client: ApiClient, yes: bool, as_json: bool) -> int:
    """End SESSION for good; its client cannot resume it.

    Of several, each is tried, whatever becomes of the others. The exit code is 1 if one could not be closed, else 3 if
    one is closed at its node while the grid is unreachable, so that its end is still to come.
    """
    confirm(f"End {_number(sessions, 'session')}?", yes=yes)
    failed = False
    pending: list[str] = []
    try:
        for number, session in enumerate(sessions, start=1):
            try:
                found = client.ask("DELETE", "sessions", session)
            except AnswerProblem as problem:
                if len(sessions) == 1:
                    raise
                failed = True
                click.echo(f"gateway: error: {plain(session)}: {plain(str(problem))}", err=True)
                continue
            except (GatewayError, click.UsageError):
                # The node does not answer, or takes no request of this caller: the others would fare no better.
                if len(sessions) > 1:
                    left = f"{len(sessions) - number} left that were not tried"
                    click.echo(f"gateway: error: stopped at {plain(session)}, with {left}", err=True)
                raise
            if found is not None:
                pending.append(f"{plain(session)}: {plain(found['detail'])}")
            _told_of_close(session, found, as_json=as_json)
    finally:
        if pending:
            more = f" (and {len(pending) - 1} more)" if len(pending) > 1 else ""
            click.echo(f"gateway: warning: not ended yet: {pending[0]}{more}", err=True)
    if failed:
        return EXIT_FAILED
    return EXIT_PENDING if pending else 0


def _told_of_close(session: str, pending: dict[str, Any] | None, *, as_json: bool) -> None:
    if pending is None:
        shown = {"session": session, "state": "ended", "node": None, "detail": None}
        _told(shown, as_json=as_json, text=f"{plain(session)} closed")
    else:
        text = f"{plain(session)} closed at {plain(pending['node'])}, its end in the grid is pending"
        _told({**pending, "state": "pending"}, as_json=as_json, text=text)


@click.command(cls=SessionCommand)
@click.argument("session")
@click.option("--to", "node", metavar="NODE", help="Where to. [default: the node with the fewest sessions]")
@as_json_option
@api_client_options
def move(session: str, *, client: ApiClient, node: str | None, as_json: bool) -> None:
    """Move the client of SESSION to another node; the session goes on there."""
    found = client.ask("POST", "sessions", session, "move", body={} if node is None else {"node": node})
    text = f"{plain(session)} moves to {plain(found['node'])}, within seconds or not at all"
    _told(found, as_json=as_json, text=text)


@click.command(cls=SessionCommand)
@click.argument("session")
@click.argument("message")
@as_json_option
@api_client_options
def notice(session: str, message: str, *, client: ApiClient, as_json: bool) -> None:
    """Send a MESSAGE to the client of SESSION; one that is away gets it when it comes back to the same node."""
    found = client.ask("POST", "sessions", session, "notice", body={"message": message})
    text = f"message queued for {plain(session)}"
    if not found.get("connected", True):  # a node of an older version does not tell
        text += f", whose client is away: it gets the message if it comes back to {plain(found['node'])}"
    _told(found, as_json=as_json, text=text)


@click.command("set", cls=ValueCommand)
@click.argument("topic")
@click.argument("value", metavar="JSON")
@as_json_option
@api_client_options
def set_topic(topic: str, value: str, *, client: ApiClient, as_json: bool) -> None:
    """Publish the value JSON (- reads it from standard input) to TOPIC, once."""
    try:
        parsed = orjson.loads(sys.stdin.read() if value == "-" else value)
    except orjson.JSONDecodeError as error:
        raise click.UsageError(f"the value is not JSON ({error}); a text needs its own quotes: '\"open\"'") from None
    headers = {"Idempotency-Key": secrets.token_hex(16)}
    found = client.ask("PUT", "topics", topic, body={"value": parsed}, headers=headers)
    _told(found, as_json=as_json, text=f"{plain(topic)} version {found['version']} event {plain(found['event'])}")


@click.command()
@click.argument("topic")
@yes_option
@as_json_option
@api_client_options
def delete(topic: str, *, client: ApiClient, yes: bool, as_json: bool) -> None:
    """Remove TOPIC and its value."""
    confirm(f"Remove {plain(topic)} and its value?", yes=yes)
    found = client.ask("DELETE", "topics", topic)
    _told(found, as_json=as_json, text=f"{plain(topic)} removed, version {found['version']}")


@click.command(cls=SessionCommand)
@kind_argument
@click.argument("value")
@click.option("--reason", default="", metavar="TEXT", help="Why; shown to administrators.")
@click.option(
    "--for", "duration", metavar="TIME", help="How long: 30m, 2h, 7d. [default: until `gateway admin unblock`]"
)
@yes_option
@as_json_option
@api_client_options
def revoke(
    kind: str, value: str, *, client: ApiClient, reason: str, duration: str | None, yes: bool, as_json: bool
) -> None:
    """Block the session, principal or credential VALUE; its sessions end.

    All nodes that reach the grid follow within a second, the others as soon as they reach it again.
    """
    until = None if duration is None else time.time() + _seconds(duration)
    confirm(f"Block the {kind} {plain(value)}, and end its sessions?", yes=yes)
    body: dict[str, Any] = {"kind": kind, "value": value, "reason": reason}
    found = client.ask("POST", "revocations", body=body if until is None else body | {"until": until})
    end = "without an end" if found["until"] is None else f"until {moment(found['until'])}"
    _told(found, as_json=as_json, text=f"the {kind} {plain(value)} is blocked {end}; nodes follow within a second")


@click.command(cls=SessionCommand)
@kind_argument
@click.argument("value")
@api_client_options
def unblock(kind: str, value: str, *, client: ApiClient) -> None:
    """Unblock the session, principal or credential VALUE. Sessions that were ended stay ended."""
    client.ask("DELETE", "revocations", kind, value)
    click.echo(f"the {kind} {plain(value)} is unblocked; nodes follow within a second")


def _seconds(duration: str) -> float:
    kind = Seconds(1, 3650 * 86400.0)
    try:
        return kind.read(duration)
    except Unfit as unfit:
        raise click.UsageError(f"--for {unfit}; give {kind.accepts}") from None


def _number(things: tuple[str, ...], noun: str) -> str:
    return f"{noun} {plain(things[0])}" if len(things) == 1 else f"{len(things)} {noun}s"


def _told(found: dict[str, Any], *, as_json: bool, text: str) -> None:
    if as_json:
        print_json([found])
    else:
        click.echo(text)
