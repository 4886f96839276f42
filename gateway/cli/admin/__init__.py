"""``gateway admin``: shows and steers a cluster through the admin API of any of its nodes."""

from __future__ import annotations

from typing import Final

import click

from gateway.lazy_commands import LazyCommand, LazyGroup

_CHANGES: Final = "gateway.cli.admin.changes"
_LISTS: Final = "gateway.cli.admin.lists"

_COMMANDS: Final = {
    "nodes": LazyCommand(_LISTS, "nodes", "List the nodes of the cluster, or show NODE."),
    "takeovers": LazyCommand(_LISTS, "takeovers", "List the takeovers of failed nodes."),
    "master": LazyCommand(_LISTS, "master", "Show which node is the master of the cluster."),
    "sessions": LazyCommand(_LISTS, "sessions", "List the sessions of all nodes, or show SESSION with its buffers."),
    "topics": LazyCommand(_LISTS, "topics", "List topics, or show TOPIC with its value."),
    "history": LazyCommand(_LISTS, "history", "List the events that are kept of TOPIC, the oldest first."),
    "subscribers": LazyCommand(_LISTS, "subscribers", "List the sessions with a subscription that matches TOPIC."),
    "revocations": LazyCommand(
        _LISTS, "revocations", "List the sessions, principals and credentials that are blocked."
    ),
    "configuration": LazyCommand(
        _LISTS, "configuration", "Show the configuration of the node at --url; secrets are masked."
    ),
    "access": LazyCommand(_LISTS, "access", "Show the owner of the token, and what it permits at this moment."),
    "destination": LazyCommand(
        "gateway.cli.admin.destinations",
        "destination",
        "See and say what paths are: plain values, or topics whose history is kept.",
    ),
    "queue": LazyCommand("gateway.cli.admin.queues", "queue", "See queues, and put dead letters back or drop them."),
    "durable": LazyCommand("gateway.cli.admin.durables", "durable", "See durable subscriptions, and remove them."),
    "hooks": LazyCommand("gateway.cli.admin.hooks", "hooks", "See event hooks, and try a receiver at once."),
    "zone": LazyCommand("gateway.cli.admin.zones", "zone", "See and change in which zone this cluster is."),
    "join": LazyCommand(
        "gateway.cli.admin.zones", "joins", "See and change static joins with clusters of other zones."
    ),
    "drain": LazyCommand(_CHANGES, "drain", "Move all clients of NODE to other nodes; NODE keeps running."),
    "undrain": LazyCommand(_CHANGES, "undrain", "End the drain of NODE: it accepts sessions again."),
    "close": LazyCommand(_CHANGES, "close", "End SESSION for good; its client cannot resume it."),
    "move": LazyCommand(_CHANGES, "move", "Move the client of SESSION to another node; the session goes on there."),
    "rebalance": LazyCommand(
        "gateway.cli.admin.rebalance",
        "rebalance",
        "Move clients from nodes with many sessions to nodes with few, as after nodes were added or restarted.",
    ),
    "notice": LazyCommand(
        _CHANGES,
        "notice",
        "Send a MESSAGE to the client of SESSION; one that is away gets it when it comes back to the same node.",
    ),
    "set": LazyCommand(
        _CHANGES, "set_topic", "Publish the value JSON (- reads it from standard input) to TOPIC, once."
    ),
    "delete": LazyCommand(_CHANGES, "delete", "Remove TOPIC and its value."),
    "revoke": LazyCommand(_CHANGES, "revoke", "Block the session, principal or credential VALUE; its sessions end."),
    "unblock": LazyCommand(_CHANGES, "unblock", "Unblock the session, principal or credential VALUE."),
    "token": LazyCommand("gateway.cli.admin.tokens", "token", "Make tokens of administrators."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def admin() -> None:
    """Look at a cluster and steer it, through any of its nodes.

    The token is taken from GATEWAY_ADMIN_TOKEN, or from the file that --token-file or GATEWAY_ADMIN_TOKEN_FILE names,
    never from the command line. `gateway admin token create` makes one.
    """
