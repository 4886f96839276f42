"""Renders ``haproxy.cfg`` from a topology. The same topology always gives the same text, to the byte."""

from __future__ import annotations

import textwrap
from typing import Final

import jinja2
from pydantic import BaseModel

from lb.names import BACKEND
from lb.topology import Topology

CONNECT_PATH: Final = "/v1/connect"
"""Where clients open their WebSockets (protocol section 1)."""

PUBLISH_PATH: Final = "/v1/publish"
"""Where back ends publish."""

SEND_PATH: Final = "/v1/send"
"""Where back ends send to queues."""

STREAM_PATH: Final = "/v1/stream"
"""Where topics are followed as server-sent events."""

LIST_PATH: Final = "/v1/values"
"""Where back ends read the values of all topics that selectors match."""

VALUES_PATH: Final = "/v1/values/"
"""Before the topics whose values back ends read."""
HISTORY_PATH: Final = "/v1/history/"
"""Before the selectors of topics whose history back ends read."""

HEALTH_PATH: Final = "/healthz"
"""Where a node's admin port tells that it is alive. Not ``/readyz``: a node that is not ready keeps its clients."""

HINT_PARAMETER: Final = "node"
"""Query parameter that carries the route hint."""

BACKUP_PARAMETER: Final = "backup"
"""That which carries the second one: the node that has a copy of the session."""

NODE_WEIGHT: Final = 100
"""Weight of each node. The agent's percentages are taken of it, and a percentage of 1 would be rounded to nothing."""

CONNECT_RETRIES: Final = 3
"""Further tries of an upgrade that a node did not answer, refused with 503, or dropped; each at another node."""

_COMMENT_WIDTH: Final = 116
"""Columns of the rendered file's comments."""


def render(topology: Topology) -> str:
    """Write the configuration of HAProxy 2.6 or newer for *topology*, with the reason of every line not obvious."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lb"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - not HTML; the topology admits only characters that are harmless here
    )
    environment.filters |= {"time": _time, "host": _host}
    return environment.get_template("haproxy.cfg.j2").render(
        topology=topology,
        because=_because,
        backend=BACKEND,
        connect_path=CONNECT_PATH,
        publish_path=PUBLISH_PATH,
        send_path=SEND_PATH,
        stream_path=STREAM_PATH,
        list_path=LIST_PATH,
        values_path=VALUES_PATH,
        history_path=HISTORY_PATH,
        health_path=HEALTH_PATH,
        hint=HINT_PARAMETER,
        backup_hint=BACKUP_PARAMETER,
        weight=NODE_WEIGHT,
        retries=CONNECT_RETRIES,
        log=_log_target(topology.log),
    )


def _because(section: BaseModel, setting: str) -> str:
    """Write the declared reason of a setting as indented comment lines."""
    description = type(section).model_fields[setting].description or ""
    lines = textwrap.wrap(
        description.replace("`", "'"), _COMMENT_WIDTH, initial_indent="    # ", subsequent_indent="    # "
    )
    return "\n".join(lines)


def _time(seconds: float) -> str:
    """Write seconds with HAProxy's units, never as a bare number, whose unit nobody remembers."""
    milliseconds = round(seconds * 1000)
    return f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"


def _host(host: str) -> str:
    """Write a host so that a port can follow."""
    return f"[{host}]" if ":" in host else host


def _log_target(target: str) -> str:
    """Write the log target with the format that fits it: a stream wants bare lines, syslog wants its own header."""
    return f"{target} format raw" if target in {"stdout", "stderr"} else target
