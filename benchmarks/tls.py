"""What TLS costs a node, or the HAProxy before it: ``python -m benchmarks.tls``.

Neither the generator nor the crowd speaks TLS. A HAProxy of their own speaks it for them, as browsers' libraries do for
browsers, and its CPU is not counted. The way is the same each time, and only where TLS ends differs:

```text
clients ──▶ HAProxy (theirs) ──▶ HAProxy (ours) ──▶ node
nowhere              clear text           clear text
haproxy                 TLS ══════════▶ ends   clear text
node                    TLS ══════════ passes ══════════▶ ends
```

In turn, like everything in ``benchmarks``: one of each, then the next round.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NoReturn

import click

from benchmarks.generator.driver import Load, build, drive
from benchmarks.placement import Placement
from benchmarks.processes import HOST, PinnedProcess, listens, scratch_folder
from benchmarks.progress import Silent
from benchmarks.storm.cluster import Cluster
from benchmarks.storm.crowd import all_topics, allow_descriptors, crowd_on
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.scenarios import HOME, PREPARING_AT_ONCE, publish_everything, warm_up
from benchmarks.systems.base import Endpoint, Role, SystemFailed, SystemUnavailable, WireProtocol
from benchmarks.systems.gateway import CONNECT_TARGET
from gateway.local.ports import free_port

PLACES: Final[Mapping[str, str]] = {"nowhere": "no TLS", "haproxy": "TLS at HAProxy", "node": "TLS at the node"}
"""Where TLS ends, and what it is called."""

NODE_CPU: Final = "node CPU / delivery, µs"
BALANCER_CPU: Final = "HAProxy CPU / delivery, µs"
NODE_OPENING: Final = "node CPU / connection, µs"
BALANCER_OPENING: Final = "HAProxy CPU / connection, µs"
NODE_MEMORY: Final = "node memory / connection, KiB"
BALANCER_MEMORY: Final = "HAProxy memory / connection, KiB"
FIGURES: Final = (NODE_CPU, BALANCER_CPU, NODE_OPENING, BALANCER_OPENING, NODE_MEMORY, BALANCER_MEMORY)

SUBSCRIBERS: Final = 500
RATE: Final = 20.0
"""Updates per second to each: 10,000 deliveries, with which the core that all but the node share is half idle."""
WARM_UP: Final = 1.0
QUIET_SECONDS: Final = 1.0
"""Until acknowledgements are read and what an arrival needed is given back."""
_DESCRIPTORS_PER_SESSION: Final = 5
"""One here and two in each HAProxy, which inherit the bound."""
_DESCRIPTORS: Final = 1_000
_CONNECTIONS: Final = 8_192
_MICRO: Final = 1e6
_KIB: Final = 1024

_CONFIGURATION: Final = """
global
    maxconn {connections}
    nbthread 1
    ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets
defaults
    mode tcp
    maxconn {connections}
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen entry
    bind {host}:{port} {bind}
    server next {host}:{target} {server}
"""
"""Of one HAProxy: what goes to its port comes out at another, with or without TLS on either side."""

TO_TLS: Final = "ssl verify none no-ssl-reuse"
"""For the clients' HAProxy: each client is one of its own, and none comes back with a session of TLS."""


class TlsCluster(Cluster):
    """A node that is reached through two HAProxy processes.

    Args:
        folder: for what is written.
        placement: cores.
        place: where TLS ends; one of ``PLACES``.
    """

    def __init__(self, folder: Path, placement: Placement, place: str) -> None:
        super().__init__(folder, placement)
        self._scratch = folder
        self._core = placement.others
        self._place = place
        self._front = 0

    def direct(self, node: str) -> tuple[str, int]:
        """Where clients connect; not to the node, which may speak TLS only."""
        return (HOST, self._front) if self._front else super().direct(node)

    @contextlib.contextmanager
    def reachable(self) -> Iterator[None]:
        """Run all of it for the length of the block."""
        certificate, key = certify(self._scratch)
        both = self._scratch / "both.pem"
        both.write_text(certificate.read_text() + key.read_text())
        settings = {"rate-packets": "0", "rate-bytes": "0", "log-level": "warning"}
        if self._place == "node":
            settings |= {"tls-certificate": str(certificate), "tls-key": str(key)}
        with self.start([HOME], settings, balancer=False), contextlib.ExitStack() as stack:
            ends_here = f"ssl crt {both}" if self._place == "haproxy" else ""
            ours, port = stack.enter_context(self._haproxy("ours", self.direct(HOME)[1], bind=ends_here))
            self.processes["haproxy"] = ours
            begins_there = "" if self._place == "nowhere" else TO_TLS
            _, self._front = stack.enter_context(self._haproxy("theirs", port, server=begins_there))
            yield

    @contextlib.contextmanager
    def _haproxy(
        self, name: str, target: int, *, bind: str = "", server: str = ""
    ) -> Iterator[tuple[PinnedProcess, int]]:
        port = free_port()
        file = self._scratch / f"{name}.cfg"
        file.write_text(
            _CONFIGURATION.format(
                host=HOST, port=port, target=target, bind=bind, server=server, connections=_CONNECTIONS
            )
        )
        program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/local/sbin:/usr/sbin:/sbin")
        if program is None:
            raise SystemUnavailable("haproxy is not installed")
        with PinnedProcess([program, "-db", "-f", file], core=self._core, folder=self._scratch) as process:
            process.wait_ready(lambda: listens(port))
            yield process, port


def certify(folder: Path) -> tuple[Path, Path]:
    """Make a certificate with an elliptic key, as the how-to recommends; returns its file and that of the key.

    Raises:
        SystemUnavailable: there is no openssl.
    """
    if shutil.which("openssl") is None:
        raise SystemUnavailable("openssl is not installed")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost")
    subprocess.run(
        ["openssl", "req", "-x509", *kind, "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    key.chmod(0o600)
    return certificate, key


def measure(place: str, placement: Placement, *, sessions: int, seconds: float) -> dict[str, float]:
    """Measure one place, with processes of its own.

    Args:
        place: one of ``PLACES``.
        placement: cores.
        sessions: idle ones, for what a connection costs.
        seconds: of deliveries.

    Returns:
        By the names of ``FIGURES``.

    Raises:
        SystemFailed: something did not come up, or what was delivered was not right.
    """
    with scratch_folder("tls") as folder:
        cluster = TlsCluster(folder, placement, place)
        with cluster.reachable():
            found = _connections(cluster, placement, sessions)
            cluster.wait_connected(HOME, 0)
            return found | _deliveries(cluster, placement, seconds, folder)


def _connections(cluster: TlsCluster, placement: Placement, sessions: int) -> dict[str, float]:
    with crowd_on(placement.others) as crowd:
        try:
            publish_everything(cluster, crowd, all_topics(sessions))
            warm_up(cluster, crowd, sessions, [HOME])
            crowd.idle(QUIET_SECONDS)
            before, resident = cluster.cpu([HOME]), _resident(cluster)
            crowd.add(sessions)
            crowd.arrive(cluster.direct(HOME), expected="created", at_once=PREPARING_AT_ONCE)
            after = cluster.cpu([HOME])
            crowd.settle()
            crowd.idle(QUIET_SECONDS)
            grown = _resident(cluster)
            crowd.bye(crowd.members)
        except StormFailed as failed:
            raise SystemFailed(str(failed)) from failed
    return {
        NODE_OPENING: (after[Role.SERVER] - before[Role.SERVER]) / sessions * _MICRO,
        BALANCER_OPENING: (after[Role.BALANCER] - before[Role.BALANCER]) / sessions * _MICRO,
        NODE_MEMORY: (grown[HOME] - resident[HOME]) / sessions / _KIB,
        BALANCER_MEMORY: (grown["haproxy"] - resident["haproxy"]) / sessions / _KIB,
    }


def _resident(cluster: TlsCluster) -> dict[str, int]:
    return {name: cluster.resident(name) for name in (HOME, "haproxy")}


def _deliveries(cluster: TlsCluster, placement: Placement, seconds: float, folder: Path) -> dict[str, float]:
    host, port = cluster.direct(HOME)
    processes = cluster.processes
    report = drive(
        build(folder / "generator"),
        Endpoint(WireProtocol.GATEWAY, host, port, CONNECT_TARGET, CONNECT_TARGET),
        Load(SUBSCRIBERS, rate=RATE, warm_up=WARM_UP, measure=seconds),
        topic="tls",
        core=placement.others,
        progress=Silent(),
        pids={Role.SERVER: [processes[HOME].pid], Role.BALANCER: [processes["haproxy"].pid]},
    )
    if report.failures or not report.delivered:
        raise SystemFailed("; ".join(report.sentences()) or "nothing was delivered")
    return {
        NODE_CPU: report.cpu_per_delivery(Role.SERVER) or 0.0,
        BALANCER_CPU: report.cpu_per_delivery(Role.BALANCER) or 0.0,
    }


def table(results: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Lay results out as a table in Markdown: median, and the least and most where there are several."""
    lines = [f"| | {' | '.join(PLACES[place] for place in results)} |", f"| --- |{' ---: |' * len(results)}"]
    for figure in FIGURES:
        cells = [_cell([each[figure] for each in runs]) for runs in results.values()]
        lines.append(f"| {figure} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{median(values):.1f} ({min(values):.1f} … {max(values):.1f})"


@click.command()
@click.option("--only", type=click.Choice(sorted(PLACES)), help="Measure one place, and not all.")
@click.option("--sessions", default=2_000, show_default=True, help="Idle connections.")
@click.option("--seconds", default=4.0, show_default=True, help="Length of the measured deliveries.")
@click.option("--runs", default=3, show_default=True, help="How often each; in turn.")
def main(only: str | None, sessions: int, seconds: float, runs: int) -> None:
    """Measure what TLS costs, and print a table."""
    signal.signal(signal.SIGTERM, _stop)
    allow_descriptors(sessions * _DESCRIPTORS_PER_SESSION + _DESCRIPTORS)
    placement = Placement.of_this_machine()
    results: dict[str, list[dict[str, float]]] = {place: [] for place in PLACES if only in {None, place}}
    try:
        for _ in range(runs):
            for place, found in results.items():
                found.append(measure(place, placement, sessions=sessions, seconds=seconds))
    except (SystemFailed, SystemUnavailable) as error:
        raise click.ClickException(str(error)) from error
    print(table(results))


def _stop(number: int, _frame: object) -> NoReturn:
    """Leave by an exception, so that everything that was started is stopped."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
