"""What a request between clients costs, beside request and reply of NATS: ``python -m benchmarks.request_rate``.

One client asks, many requests at a time and then one after the other, and four answer. What is told is the CPU time of
all server processes for a request with its answer, which the clients do not change, and requests a second of the whole,
which they do. NATS is spoken to over TCP and in its own protocol, the gateway over WebSocket.

```text
asker ──▶ the least busy of four handlers (NATS: one of a queue group, by chance) ──▶ answer ──▶ asker
```

NATS keeps nothing of a request. What the gateway takes more is its record in Redis, by which a request is executed once
and its answer found again, whichever node or connection dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil

import click

from benchmarks.destinations.jetstream import NatsConnection
from benchmarks.destinations.rates import VALUE, Meter, Rate, url_of
from benchmarks.measure import process_cpu
from benchmarks.placement import Placement
from benchmarks.processes import PinnedProcess, listens, scratch_folder
from benchmarks.systems.base import Running, StartOptions, SystemFailed
from benchmarks.systems.gateway import GatewayNode
from benchmarks.systems.nats import PROGRAM
from gateway.client import Request, Session, connect
from gateway.local.ports import free_port

HANDLERS = 4
UNDER_WAY = 32
"""Requests that are asked at a time: half of what a session may have under way, and no more than handlers take."""

REQUESTS = 8_000
ONE_BY_ONE = 1_000
PATH = "quotes/bench"
GROUP = "handlers"
SUBJECT = "quotes.bench"


async def answer(request: Request) -> object:
    """Answer with what was asked."""
    return request.value


async def measure_gateway(running: Running, requests: int) -> list[tuple[str, Rate]]:
    """Ask handlers of the gateway."""
    url, meter = url_of(running), Meter(running)
    async with contextlib.AsyncExitStack() as stack:
        handlers: list[Session] = []
        for number in range(HANDLERS):
            handlers.append(await stack.enter_async_context(connect(url, f"handler-{number}")))
            await handlers[-1].handle("quotes/**", answer)
        asker = await stack.enter_async_context(connect(url, "asker"))
        await asker.request(PATH, VALUE)
        since = meter.read()
        for start in range(0, requests, UNDER_WAY):
            count = min(UNDER_WAY, requests - start)
            answers = await asyncio.gather(*(asker.request(PATH, VALUE) for _ in range(count)))
            if any(each != VALUE for each in answers):
                raise SystemFailed("a request had another answer")
        rates = [(f"gateway, {UNDER_WAY} at a time", meter.rate(requests, since))]
        since = meter.read()
        for _ in range(ONE_BY_ONE):
            await asker.request(PATH, VALUE)
        return [*rates, ("gateway, one after the other", meter.rate(ONE_BY_ONE, since))]


async def measure_nats(port: int, pid: int, requests: int) -> list[tuple[str, Rate]]:
    """Ask members of a queue group of NATS."""
    content, loop = json.dumps(VALUE).encode(), asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack:
        for number in range(HANDLERS):
            handler = await stack.enter_async_context(NatsConnection.opened(port, f"handler{number}"))

            def reply(_: str, inbox: str, asked: bytes, handler: NatsConnection = handler) -> None:
                handler.publish(inbox, asked)

            handler.subscribe(SUBJECT, reply, GROUP)
            await handler.flush()
        asker = await stack.enter_async_context(NatsConnection.opened(port, "asker"))
        await asker.ask(SUBJECT, content)
        rates: list[tuple[str, Rate]] = []
        for what, count, at_a_time in (
            (f"NATS, {UNDER_WAY} at a time", requests, UNDER_WAY),
            ("NATS, one after the other", ONE_BY_ONE, 1),
        ):
            began, cpu = loop.time(), process_cpu(pid)
            for _ in range(0, count, at_a_time):
                answers = await asyncio.gather(*(asker.ask(SUBJECT, content) for _ in range(at_a_time)))
                if any(each != content for each in answers):
                    raise SystemFailed("a request had another answer")
            rates.append((what, Rate(count, loop.time() - began, process_cpu(pid) - cpu, 0.0)))
        return rates


@click.command()
@click.option("--requests", default=REQUESTS, show_default=True, help="How many are asked, many at a time.")
def main(requests: int) -> None:
    """Measure what a request and its answer cost, beside NATS if nats-server is installed."""
    placement = Placement.of_this_machine()
    with GatewayNode().running(placement, StartOptions()) as running:
        rates = asyncio.run(measure_gateway(running, requests))
    program = shutil.which(PROGRAM)
    if program is None:
        click.echo(f"without NATS, as {PROGRAM} is not installed; on Debian: apt-get install {PROGRAM}", err=True)
    else:
        port = free_port()
        with scratch_folder(PROGRAM) as store:
            command = (program, "-a", "127.0.0.1", "-p", str(port))
            with PinnedProcess(command, core=placement.server, folder=store) as process:
                process.wait_ready(lambda: listens(port))
                (pid,) = process.pids()
                rates += asyncio.run(measure_nats(port, pid, requests))
    click.echo(
        "| | requests a second, all on this machine | a second of a core of the server | server, µs | Redis, µs |"
    )
    click.echo("| --- | --: | --: | --: | --: |")
    for what, rate in rates:
        click.echo(
            f"| {what} | {rate.per_second:,.0f} | {rate.per_core:,.0f} | {rate.server_microseconds:.1f} "
            f"| {rate.redis_microseconds:.1f} |"
        )


if __name__ == "__main__":
    main()
