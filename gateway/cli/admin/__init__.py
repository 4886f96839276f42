"""``gateway admin``: shows and steers a cluster through the admin API of any of its nodes."""

from __future__ import annotations

import click

from gateway.cli.admin.changes import close, delete, drain, move, notice, revoke, set_topic, unblock, undrain
from gateway.cli.admin.lists import access, configuration, nodes, revocations, sessions, subscribers, topics
from gateway.cli.admin.tokens import token


@click.group()
def admin() -> None:
    """Look at a cluster and steer it, through any of its nodes.

    The token is taken from GATEWAY_ADMIN_TOKEN, or from the file that --token-file or GATEWAY_ADMIN_TOKEN_FILE names,
    never from the command line. `gateway admin token create` makes one.
    """


for _command in (
    *(nodes, sessions, topics, subscribers, revocations, configuration, access),
    *(drain, undrain, close, move, notice, set_topic, delete, revoke, unblock),
    token,
):
    admin.add_command(_command)
