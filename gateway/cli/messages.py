"""``gateway pub`` and ``gateway sub``: publish and subscribe by hand, through the ordinary client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from gateway.cli.arguments import ValueCommand
from gateway.core.client.urls import in_clear_text
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import parse_topic
from gateway.core.types import JsonValue
from gateway.core.wire.codes import Numbering
from gateway.core.wire.errors import GatewayError, InvalidSelector, InvalidTopic
from gateway.core.wire.publish_packet import FOR_EVER, LONGEST_TTL
from gateway.settings.client_options import client_options
from gateway.settings.errors import Unfit
from gateway.settings.quantities import Seconds

if TYPE_CHECKING:
    # Only for annotations: the other commands start faster without the client.
    from gateway.client import Session
    from gateway.core.client.types import Notice, Recovery, Update

DEFAULT_TIMEOUT: Final = 10.0
"""Seconds to connect, and to publish: recovering from the loss of a node takes less, and people wait no longer."""

_CLIENT: Final = client_options(
    principal="cli", timeout=DEFAULT_TIMEOUT, patience="How long to try to connect, and to wait for the answer."
)


@click.command(cls=ValueCommand)
@click.argument("topic")
@click.argument("value", metavar="JSON")
@_CLIENT
@click.option("--ttl", metavar="TIME", help="After how long the value ends, such as 30s; 0 for never.")
def pub(topic: str, value: str, *, urls: Sequence[str], principal: str, timeout: float, ttl: str | None) -> None:
    """Publish the value JSON (- reads it from standard input) to TOPIC, exactly once.

    Prints the topic's new version and the id of the event, once the grid has accepted it. A recovery meanwhile is
    printed on standard error. The principal's secret, if it needs one, is taken from GATEWAY_SECRET.
    """
    try:
        parsed = orjson.loads(sys.stdin.read() if value == "-" else value)
    except orjson.JSONDecodeError as error:
        raise click.UsageError(f"the value is not JSON ({error}); a text needs its own quotes: '\"open\"'") from None
    ttl_seconds = _time_to_live(ttl)
    _check(parse_topic, topic)
    asyncio.run(_publish(topic, parsed, ttl_seconds, urls=urls, principal=principal, seconds=timeout))


def _check(parse: Callable[[str], object], given: str) -> None:
    """Refuse what nobody could publish to or subscribe to, before anything is connected."""
    try:
        parse(given)
    except (InvalidTopic, InvalidSelector) as error:
        raise click.UsageError(str(error)) from None


def _time_to_live(given: str | None) -> float | None:
    if given is None:
        return None
    reader = Seconds(FOR_EVER, LONGEST_TTL)
    try:
        return reader.read(given)
    except Unfit as unfit:
        raise click.UsageError(f"--ttl {unfit}; give {reader.accepts}") from None


@click.command()
@click.argument("selector")
@_CLIENT
@click.option("--count", type=click.IntRange(min=1), metavar="NUMBER", help="End after this many updates.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, recoveries and notices among them.")
def sub(
    selector: str, *, urls: Sequence[str], principal: str, timeout: float, count: int | None, as_json: bool
) -> None:
    """Print the updates of all topics that SELECTOR matches, until Ctrl-C.

    `*` stands for one segment of a topic's path, `**` for any number: prices/*/bid, prices/** (quote them in a
    shell). Recoveries and notices are printed as they come, on standard error unless --json. The principal's secret, if
    it needs one, is taken from GATEWAY_SECRET.
    """
    _check(parse_selector, selector)
    printer = _Printer(as_json=as_json, count=count)
    asyncio.run(_subscribe(selector, printer, urls=urls, principal=principal, seconds=timeout))


async def _connect(urls: Sequence[str], principal: str, seconds: float) -> Session:
    # Imported here: see above.
    from gateway.client import ClearTextWarning, connect  # noqa: PLC0415

    if exposed := in_clear_text(urls):
        click.echo(f"gateway: warning: {exposed}", err=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClearTextWarning)
        secret = os.environ.get("GATEWAY_SECRET")
        # The client's own limit, because it knows what went wrong last.
        connecting = connect(urls, principal=principal, secret=secret, connect_timeout=seconds)
    return await connecting


async def _publish(
    topic: str, value: JsonValue, ttl: float | None, *, urls: Sequence[str], principal: str, seconds: float
) -> None:
    async with await _connect(urls, principal, seconds) as session:

        async def recoveries() -> None:
            async for recovery in session.recoveries():
                click.echo(_in_words(recovery), err=True)

        following = asyncio.create_task(recoveries())
        try:
            async with asyncio.timeout(seconds):
                receipt = await session.publish(topic, value, ttl=ttl)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        except TimeoutError:
            raise GatewayError(f"no answer after {seconds:g} s: the value may have been published or not") from None
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    click.echo(f"{topic} version {receipt.version} event {receipt.event_id}")


async def _subscribe(selector: str, printer: _Printer, *, urls: Sequence[str], principal: str, seconds: float) -> None:
    async with await _connect(urls, principal, seconds) as session:
        if not printer.as_json:
            click.echo(f"session {session.id} at {session.node}; Ctrl-C ends it", err=True)
        stream = await session.subscribe(selector)

        async def updates() -> None:
            async for update in stream:
                printer.update(update)
                if printer.done:
                    return

        async def recoveries() -> None:
            async for recovery in session.recoveries():
                printer.recovery(recovery)

        async def notices() -> None:
            async for notice in session.notices():
                printer.notice(notice)

        await _first_of(updates(), recoveries(), notices(), _interrupted())


async def _first_of(*jobs: Any) -> None:
    """Wait until one of *jobs* ends, end the others, and raise what it raised."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()


async def _interrupted() -> None:
    """Wait for Ctrl-C or SIGTERM: both are the ordinary end of watching."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Not every event loop has them; there, Ctrl-C raises in the main program.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, asked.set)
    await asked.wait()


def _in_words(recovery: Recovery) -> str:
    lost = "an unknown number of" if recovery.lost is None else recovery.lost
    return (
        f"-- {recovery.outcome} at {recovery.node} after {recovery.gap_seconds:.2f} s: "
        f"{recovery.resent} packets resent, {lost} lost"
    )


def _what_follows(recovery: Recovery) -> str:
    """Tell a subscriber what it gets in the place of what no buffer has any more."""
    if recovery.numbering is Numbering.KEPT:
        return ""
    if recovery.replayed:
        return ", every missed update follows"
    if recovery.not_replayed:
        return f", current values follow of topic partitions {', '.join(map(str, recovery.not_replayed))}"
    return ", current values follow"


class _Printer:
    """Writes updates and recoveries, for people or for programs.

    Args:
        as_json: for programs.
        count: updates after which it is done; None for never.
    """

    def __init__(self, *, as_json: bool, count: int | None) -> None:
        self.as_json = as_json
        self._left = count

    @property
    def done(self) -> bool:
        """Whether all updates that were asked for have been written."""
        return self._left == 0

    def update(self, update: Update) -> None:
        """Write one update."""
        if self.as_json:
            self._write_json("update", update, ("topic", "value", "version", "event_id", "snapshot", "folded"))
        else:
            note = f"version {update.version}" + ", snapshot" * update.snapshot
            if update.folded:
                note += f", in the place of {update.folded} more"
            click.echo(f"{update.topic} = {orjson.dumps(update.value).decode()}  ({note})")
        if self._left is not None:
            self._left -= 1

    def recovery(self, recovery: Recovery) -> None:
        """Write one recovery."""
        if self.as_json:
            names = ("outcome", "reason", "node", "gap_seconds", "resent", "lost", "replayed", "not_replayed")
            self._write_json("recovery", recovery, names)
        else:
            click.echo(f"{_in_words(recovery)}{_what_follows(recovery)}", err=True)

    def notice(self, notice: Notice) -> None:
        """Write what the server declared: for example that a right was withdrawn."""
        if self.as_json:
            names = ("code", "message", "withdrawn", "selections")
            self._write_json("notice", notice, tuple(name for name in names if hasattr(notice, name)))
        else:
            # Administrators may have written it; it shall not do anything to a terminal.
            message = notice.message if notice.message.isprintable() else repr(notice.message)
            click.echo(f"-- {notice.code}: {message}", err=True)

    @staticmethod
    def _write_json(kind: str, found: object, names: tuple[str, ...]) -> None:
        click.echo(orjson.dumps({"kind": kind, **{name: getattr(found, name) for name in names}}))
