"""The settings of a topology: their names, types, defaults, units and reasons, declared once.

The reasons become comments in the rendered ``haproxy.cfg`` and rows of ``docs/reference/lb.md``. Rules that involve
more than one setting are in ``lb.topology``.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt

from lb.errors import Problem
from lb.names import NAME_PATTERN, WORD_PATTERN, SameSite

HSTS_SECONDS_MAX: Final = 63_072_000
"""Two years: what browsers want of sites that they know without having been there, and more than anybody needs."""

_HOST_PATTERN: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252})|[0-9A-Fa-f:.]{2,45}")
_PORT_MAX: Final = 65535

SOCKET_PATH_BYTES_MAX: Final = 85
"""Longest path of the runtime socket, in bytes: the kernel takes 107, and HAProxy appends ``.<pid>.tmp`` while it binds
and needs the same room again for ``.bak`` names on a reload."""


class Trouble(ValueError):
    """Values that a validator turned down, with what to do. Empty keys and values are filled in by who knows them."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def _refused(complaint: str, remedy: str) -> Trouble:
    return Trouble(Problem("", "", complaint, remedy))


def _endpoint(text: object) -> object:
    """Check HOST:PORT; the host may be ``*``, a name, an IPv4 address or an IPv6 address in brackets."""
    remedy = "give it as HOST:PORT, for example 127.0.0.1:8080, [::1]:8080 or *:8080"
    if not isinstance(text, str):
        raise _refused("is not an address", remedy)
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not (bare == "*" or _HOST_PATTERN.fullmatch(bare)) or (":" in bare and bare == host):
        raise _refused("is not an address", remedy)
    if not port.isascii() or not port.isdecimal() or not 1 <= int(port) <= _PORT_MAX:
        raise _refused("has no valid port", f"end it with a port from 1 to {_PORT_MAX}")
    return text


def _name(text: object) -> object:
    if not isinstance(text, str) or not NAME_PATTERN.fullmatch(text):
        raise _refused(
            "is not a name",
            "use 1 to 32 letters, digits, '.', '_' or '-', beginning with a letter or digit; it must be the node's id",
        )
    return text


def _host(text: object) -> object:
    if not isinstance(text, str) or not _HOST_PATTERN.fullmatch(text):
        raise _refused("is not a host", "give a host name, an IPv4 address, or an IPv6 address without brackets")
    return text


def _word(text: object) -> object:
    if not isinstance(text, str) or not WORD_PATTERN.fullmatch(text):
        raise _refused(
            "cannot be written into haproxy.cfg",
            "use only letters, digits and the characters _ . / : @ + - in it, without spaces",
        )
    return text


def _socket_path(text: object) -> object:
    _word(text)
    if len(str(text).encode()) > SOCKET_PATH_BYTES_MAX:
        raise _refused("is too long for a unix socket", f"choose one of at most {SOCKET_PATH_BYTES_MAX} bytes")
    return text


def _port(number: object) -> object:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= _PORT_MAX:
        raise _refused("is not a port", f"give a whole number from 1 to {_PORT_MAX}")
    return number


def _seconds(number: object) -> object:
    # HAProxy's timers end at 24.8 days and start at 1 ms.
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0.001 <= number <= 24 * 86_400:  # noqa: PLR2004
        raise _refused("is not a time", "give seconds as a number from 0.001 to 2073600, for example 0.5")
    return number


Name = Annotated[str, BeforeValidator(_name)]
Host = Annotated[str, BeforeValidator(_host)]
Port = Annotated[int, BeforeValidator(_port)]
Endpoint = Annotated[str, BeforeValidator(_endpoint)]
OptionalEndpoint = Annotated[str | None, BeforeValidator(lambda text: _endpoint(text) if text else None)]
Word = Annotated[str, BeforeValidator(_word)]
SocketPath = Annotated[str, BeforeValidator(_socket_path)]
Seconds = Annotated[float, BeforeValidator(_seconds)]


class Section(BaseModel):
    """Immutable; a key that is not known is an error, because it is a setting that would silently not apply."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Node(Section):
    """One gateway node, as HAProxy sees it."""

    name: Name = Field(description="The node's id, which is also its route hint (`gateway serve --node`).")
    host: Host = Field(
        default="127.0.0.1",
        description="Where the node is; names are resolved once, when HAProxy starts, unless `resolve` is true.",
    )
    client_port: Port = Field(description="Port for clients (`gateway serve --listen`).")
    admin_port: Port = Field(description="Port that answers `/healthz` (`gateway serve --admin`).")
    agent_port: Port = Field(description="Port of the node's agent, which tells whether it wants new sessions.")
    tls_name: Host | None = Field(
        default=None,
        description="Name for which the node's certificate must be, if HAProxy speaks TLS with the nodes; without it "
        "that of `host`, which must be a name then.",
    )


class Frontend(Section):
    """Where clients come in."""

    bind: tuple[Endpoint, ...] = Field(
        default=("127.0.0.1:8080",), description="Addresses clients connect to, each HOST:PORT; `*` is any host."
    )
    certificate: Word | None = Field(
        default=None,
        description="File with certificate chain and private key (PEM), or a directory of such files; "
        "with it clients must use TLS (`wss://`), without it there is none.",
    )
    http2: StrictBool = Field(
        default=True,
        description="With TLS, offer HTTP/2 as well. Browsers that have spoken it with this address open WebSockets "
        "inside that connection (RFC 8441): fewer connections and handshakes, but a lost packet holds up all pages of "
        "a browser, not one. Other clients go on with HTTP/1.1.",
    )
    hsts: StrictInt | None = Field(
        default=None,
        ge=0,
        le=HSTS_SECONDS_MAX,
        description="With TLS, seconds for which browsers shall use nothing but TLS with this host name, whatever the "
        "port (Strict-Transport-Security). Set it if nothing else under that name is served without; 31536000 is a "
        "year, 0 takes it back.",
    )
    connection_rate: StrictInt | None = Field(
        default=None,
        ge=1,
        description="Connections that are accepted in a second; more wait in the kernel, which holds up to "
        "`net.core.somaxconn`. A crowd that returns in the same moment keeps HAProxy busy for some 0.15 ms each, "
        "through which the updates of all others have to wait. As many as this may come together, so that half "
        "of what all nodes admit (`admission_rate`) is a good value for one thread; without it there is no limit.",
    )
    accept_proxy: StrictBool = Field(
        default=False,
        description="True if another proxy stands before HAProxy and tells client addresses by the PROXY protocol; "
        "then nobody else may reach the bind addresses.",
    )
    cookie: Name = Field(default="GATEWAY_NODE", description="Name of the cookie, when `stickiness` is `cookie`.")
    same_site: SameSite = Field(
        default=SameSite.STRICT,
        description="When browsers send the cookie: `Strict` serves pages of the gateway's own site; `None` is needed "
        "for pages of other sites and needs TLS.",
    )


class NodesTls(Section):
    """TLS between HAProxy and the nodes, where the network between them is not to be trusted."""

    ca: Word | None = Field(
        default=None,
        description="File with the authority that signed the nodes' certificates (PEM). With it HAProxy speaks TLS "
        "with the nodes' client ports, and serves nobody through a node whose certificate is not good "
        "(`tls_certificate` of the nodes).",
    )
    certificate: Word | None = Field(
        default=None,
        description="File with HAProxy's own certificate and key (PEM), for nodes that ask for one (`tls_client_ca` of "
        "the nodes).",
    )
    admin: StrictBool = Field(
        default=False,
        description="True if the nodes' admin ports speak TLS too (`admin_tls_certificate`); health checks do so then.",
    )


class Timeouts(Section):
    """How long HAProxy waits, in seconds."""

    http_request: Seconds = Field(
        default=10,
        description="A client has this long to send its request headers, so that slow ones cannot pile up. Three "
        "packets lost in a row, as on mobile networks, take 7 s.",
    )
    connect: Seconds = Field(
        default=0.5,
        description="A node's kernel answers within milliseconds in a data centre; past this, another node is tried.",
    )
    server: Seconds = Field(
        default=2,
        description="A node has this long to answer the upgrade; then it counts as hung and another node is tried. "
        "Ends with the upgrade, then `tunnel` applies.",
    )
    client: Seconds = Field(
        default=10, description="Idle time on the client's side before the upgrade; waiting for a node does not count."
    )
    tunnel: Seconds = Field(
        default=90,
        description="Silence in both directions that ends an upgraded connection. Nodes ping several times within it "
        "(`ping_interval`), so a healthy connection is never silent this long; what is left are lost machines.",
    )
    client_fin: Seconds = Field(default=5, description="A client that was sent the end has this long to confirm it.")
    server_fin: Seconds = Field(
        default=2,
        description="A node that was sent the end has this long to confirm it. Also how long the second and later "
        "tries of an upgrade wait for an answer, because HAProxy has sent the end to the first node by then; so it is "
        "no longer than `server`.",
    )
    hard_stop_after: Seconds = Field(
        default=60,
        description="After a reload the old process keeps its connections this long, then cuts them (clients resume). "
        "Without a limit it lives as long as its longest connection, deaf to `lb drain`.",
    )


class Checks(Section):
    """How HAProxy learns how a node is doing."""

    interval: Seconds = Field(default=1, description="Seconds between two health checks of a node.")
    timeout: Seconds = Field(default=1, description="Seconds a node has to answer a health check.")
    fall: StrictInt = Field(
        default=3,
        ge=1,
        le=100,
        description="Failed checks in a row that make a node DOWN. DOWN cuts all its connections at once, so a busy "
        "event loop must not be mistaken for a hung one; a dead node is left at once without any check.",
    )
    rise: StrictInt = Field(
        default=1,
        ge=1,
        le=100,
        description="Good checks in a row that make a DOWN node UP again. One is enough: whether the node wants "
        "sessions is for its agent to say.",
    )
    agent_interval: Seconds = Field(
        default=0.5,
        description="Seconds between two questions to a node's agent: how soon a draining node is spared.",
    )


class Statistics(Section):
    """Where operators and Prometheus look."""

    bind: OptionalEndpoint = Field(
        default="127.0.0.1:8404",
        description='Address of `/metrics` (Prometheus) and `/stats` (a page); "" for none. Not public.',
    )


class Process(Section):
    """The HAProxy process."""

    user: Name | None = Field(default=None, description="User to become after binding; needs a start as root.")
    group: Name | None = Field(default=None, description="Group to become after binding; needs a start as root.")
    connections: StrictInt | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Most connections at a time; about 33 kB of memory each. Without it HAProxy derives it from the "
        "limit of open files (`ulimit -n`).",
    )
