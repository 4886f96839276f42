"""The command ``lb``: render the configuration, look at the nodes, tell HAProxy what is wanted of them.

Exit status: 0 done; 1 HAProxy could not be asked or said no, or a file could not be written; 2 the command or the
topology is wrong.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import click

from lb.errors import InvalidTopology, LoadBalancerError
from lb.names import DEFAULT_CERTIFICATE, SameSite, Stickiness
from lb.runtime import NodeStatus, RuntimeSocket, Wanted

if TYPE_CHECKING:
    # Only for annotations: what checks topologies takes longer to load than help takes to be read.
    from lb.topology import Topology

_CONFIG_MODE: Final = 0o644
"""The configuration holds no secrets, and HAProxy may run as another user."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Failure(click.ClickException):
    """HAProxy could not be asked or said no, or a file could not be written: a message, and no stack trace."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        """Write each line of the message to standard error, with the program's name before it."""
        for line in self.message.splitlines():
            click.echo(f"lb: {line}", file=file, err=file is None)


class _Misuse(_Failure):
    """The command or the topology is wrong."""

    exit_code = 2


@contextmanager
def _explained() -> Iterator[None]:
    """Turn the errors that ``lb`` raises on purpose into messages and exit codes."""
    try:
        yield
    except InvalidTopology as error:
        raise _Misuse(str(error)) from error
    except LoadBalancerError as error:
        raise _Failure(str(error)) from error


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="session-gateway", prog_name="lb")
def main() -> None:
    """HAProxy in front of the gateway: render its configuration, see and steer its nodes."""


_topology_option = click.option(
    "-t", "--topology", "file", type=click.Path(path_type=Path), help="TOML file that describes the cluster."
)


def _runtime_options(command: _Command) -> _Command:
    command = click.option("--json", "as_json", is_flag=True, help="Write JSON.")(command)
    command = _topology_option(command)
    return click.option(
        "-s",
        "--socket",
        envvar="LB_SOCKET",
        help="Runtime socket of HAProxy: a path, or HOST:PORT. Default: what the topology says.",
    )(command)


@main.command("render")
@_topology_option
@click.option(
    "-n", "--node", "nodes", multiple=True, metavar="NAME=HOST:CLIENT,ADMIN,AGENT", help="A node; repeat for each."
)
@click.option("-b", "--bind", "binds", multiple=True, metavar="HOST:PORT", help="Where clients connect to; repeatable.")
@click.option("-s", "--socket", metavar="PATH", help="Where HAProxy puts its runtime socket.")
@click.option("--stickiness", type=click.Choice([choice.value for choice in Stickiness]))
@click.option(
    "--tls", is_flag=True, help=f"Clients speak TLS; the certificate is {DEFAULT_CERTIFICATE} if none is named."
)
@click.option("--certificate", metavar="FILE", help="Certificate and key in PEM; turns TLS on.")
@click.option("--http2/--no-http2", default=None, help="With TLS, whether HTTP/2 is offered.")
@click.option("--hsts", type=int, metavar="SECONDS", help="With TLS, how long browsers shall use nothing else.")
@click.option("--nodes-ca", metavar="FILE", help="Authority of the nodes' certificates; turns TLS to the nodes on.")
@click.option("--nodes-certificate", metavar="FILE", help="Certificate and key in PEM that HAProxy shows to nodes.")
@click.option("--nodes-admin-tls", is_flag=True, default=None, help="The nodes' admin ports speak TLS too.")
@click.option("--same-site", type=click.Choice([choice.value for choice in SameSite]), help="Of the cookie.")
@click.option("--statistics", metavar="HOST:PORT", help='Where /metrics and /stats are; "" for nowhere.')
@click.option("--log", metavar="TARGET", help="stdout, stderr, a syslog socket, or HOST:PORT.")
@click.option("--ping-interval", type=float, metavar="SECONDS", help="Between two pings of a node to a client.")
@click.option("-o", "--output", type=click.Path(path_type=Path, allow_dash=True), help="File to write; '-' for stdout.")
def render_command(
    *,
    file: Path | None,
    nodes: Sequence[str],
    binds: Sequence[str],
    socket: str | None,
    stickiness: str | None,
    tls: bool,
    certificate: str | None,
    http2: bool | None,
    hsts: int | None,
    nodes_ca: str | None,
    nodes_certificate: str | None,
    nodes_admin_tls: bool | None,
    same_site: str | None,
    statistics: str | None,
    log: str | None,
    ping_interval: float | None,
    output: Path | None,
) -> None:
    """Write haproxy.cfg.

    Without options: three nodes on this machine. Options override what the topology file says.
    """
    from lb.render import render  # noqa: PLC0415 - see above
    from lb.topology import parse_node  # noqa: PLC0415

    with _explained():
        flags: dict[str, Any] = {
            "nodes": [parse_node(text) for text in nodes] or None,
            "runtime_socket": socket,
            "stickiness": stickiness,
            "log": log,
            "ping_interval": ping_interval,
            "frontend": {
                "bind": list(binds) or None,
                "certificate": certificate,
                "http2": http2,
                "hsts": hsts,
                "same_site": same_site,
            },
            "nodes_tls": {"ca": nodes_ca, "certificate": nodes_certificate, "admin": nodes_admin_tls},
            "statistics": {"bind": statistics},
        }
        text = render(
            _topology(file, flags, fallback={"frontend": {"certificate": DEFAULT_CERTIFICATE}} if tls else {})
        )
    if output is None or output == Path("-"):
        click.echo(text, nl=False)
    else:
        _write(output, text)


@main.command()
@_runtime_options
def show(*, socket: str | None, file: Path | None, as_json: bool) -> None:
    """Show the nodes as HAProxy sees them."""
    with _explained():
        nodes = _runtime(socket, file).nodes()
    if as_json:
        click.echo(json.dumps([_plain(status) for status in nodes], indent=2))
    else:
        _print_table(nodes)


@main.command("renew-certificate")
@_topology_option
@click.option(
    "-s",
    "--socket",
    envvar="LB_SOCKET",
    help="Runtime socket of HAProxy: a path, or HOST:PORT. Default: what the topology says.",
)
@click.option("--certificate", metavar="FILE", help="Its file, as in haproxy.cfg. Default: what the topology says.")
def renew_certificate(*, file: Path | None, socket: str | None, certificate: str | None) -> None:
    """Have HAProxy serve the certificate that its file holds now.

    Nobody is disconnected, and nothing is reloaded. If the file is no good, HAProxy keeps what it has.
    """
    with _explained():
        name = certificate or _topology(file, {}).frontend.certificate
        if name is None:
            raise _Misuse("the topology has no certificate; give --topology or --certificate")
        try:
            pem = Path(name).read_text(encoding="ascii")
        except OSError as error:
            raise _Failure(f"cannot read {name}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise _Failure(f"{name} is not in PEM") from error
        _runtime(socket, file).replace_certificate(name, pem)
    click.echo(f"{name}: in force for connections that begin from now on")


def _steering(wanted: Wanted, summary: str, effect: str) -> None:
    """Add the command that tells HAProxy that *wanted* is wanted of a node."""

    @main.command(wanted.value, help=summary)
    @click.argument("node")
    @_runtime_options
    def steer(*, node: str, socket: str | None, file: Path | None, as_json: bool) -> None:
        with _explained():
            runtime = _runtime(socket, file)
            runtime.set_wanted(node, wanted)
            status = runtime.node(node)
        if as_json:
            click.echo(json.dumps(_plain(status), indent=2))
        else:
            click.echo(f"{node}: {effect}; {_count(status.sessions)} now, takes {status.takes}")


_steering(
    Wanted.DRAIN,
    "Send no new sessions to NODE. Connected ones stay, and clients that name the node still reach it. "
    "HAProxy forgets it when it is reloaded.",
    "drained",
)
_steering(Wanted.READY, "Serve through NODE again, after drain or maint.", "ready")
_steering(
    Wanted.MAINT,
    "Send nothing to NODE and cut its connections. Its clients resume elsewhere. "
    "HAProxy forgets it when it is reloaded.",
    "in maintenance",
)


def _topology(
    file: Path | None, flags: dict[str, Any], *, fallback: Mapping[str, Any] = MappingProxyType({})
) -> Topology:
    """Read the topology.

    Args:
        file: where it is described; None for the default.
        flags: override what is there.
        fallback: what holds where neither says anything.
    """
    from lb.topology import COMMAND_LINE, build, load  # noqa: PLC0415 - see above

    given = _without_nothing(flags)
    settings: dict[str, Any] = {}
    for layer in (fallback, load(file) if file else {}, given):
        for name, value in layer.items():
            section = settings.get(name)
            # A section that is no table is left for validation to complain about.
            settings[name] = section | value if isinstance(value, dict) and isinstance(section, dict) else value
    source = " + ".join(([str(file)] if file else []) + ([COMMAND_LINE] if given or not file else []))
    return build(settings, source=source)


def _without_nothing(flags: dict[str, Any]) -> dict[str, Any]:
    """Leave out what was not given."""
    inner = {name: _without_nothing(value) if isinstance(value, dict) else value for name, value in flags.items()}
    return {name: value for name, value in inner.items() if value not in (None, {})}


def _runtime(socket: str | None, file: Path | None) -> RuntimeSocket:
    return RuntimeSocket(socket or _topology(file, {}).runtime_socket)


def _write(path: Path, text: str) -> None:
    """Replace a file in one step, so that HAProxy never reads half a configuration."""
    draft: Path | None = None
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            draft = Path(file.name)
            file.write(text)
        draft.chmod(_CONFIG_MODE)
        draft.replace(path)
    except OSError as error:
        if draft is not None:
            draft.unlink(missing_ok=True)
        raise _Failure(f"cannot write {path}: {error.strerror}") from error


def _plain(status: NodeStatus) -> dict[str, Any]:
    return asdict(status) | {"takes": status.takes}


def _print_table(nodes: Iterable[NodeStatus]) -> None:
    head = ("NODE", "ADDRESS", "ALIVE", "READY", "WANTED", "TAKES", "SESSIONS", "SINCE", "CHECK")
    rows = [head] + [
        (
            status.node,
            status.address,
            "yes" if status.alive else "-" if status.wanted is Wanted.MAINT else "NO",
            "yes" if status.ready else "no",
            status.wanted,
            status.takes,
            str(status.sessions),
            _duration(status.status_seconds),
            f"{status.check.status} {status.check.text}".strip() or "-",
        )
        for status in nodes
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _count(sessions: int) -> str:
    return "1 connection" if sessions == 1 else f"{sessions} connections"


def _duration(seconds: int) -> str:
    """Write seconds with the largest unit that leaves a whole number of at least one."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
