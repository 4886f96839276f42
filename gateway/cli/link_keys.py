"""``gateway keys link``: makes the certificates by which the nodes of a cluster know each other."""

from __future__ import annotations

import time
from pathlib import Path

import click

from gateway.adapters.link_authority import CA_DAYS, NODE_DAYS, make_certificates


@click.command("link")
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("link-certificates"),
    show_default=True,
    metavar="FOLDER",
    help="Where the files are, and are written.",
)
@click.option(
    "--days",
    type=click.IntRange(1, CA_DAYS),
    default=NODE_DAYS,
    show_default=True,
    metavar="NUMBER",
    help="How long the certificates of nodes are valid.",
)
def link(nodes: tuple[str, ...], folder: Path, days: int) -> None:
    """Make a certificate for the links of each NODE, and an authority that signs them.

    An authority that the folder has already is used again, so that further nodes can be added. No file is ever
    overwritten; private ones are readable by you alone. Prints the files that were made.
    """
    made = make_certificates(folder, nodes, now=time.time(), days=days)
    if made.is_ca_new:
        click.echo(made.ca)
        click.echo(made.ca_key)
    for _, certificate, key in made.nodes:
        click.echo(certificate)
        click.echo(key)
    for name, certificate, key in made.nodes:
        click.echo(
            f"bring {made.ca.name}, {certificate.name} and {key.name} to the machine of {name}, and start its node "
            f"with --link HOST:PORT --link-tls-ca {made.ca.name} --link-tls-certificate {certificate.name} "
            f"--link-tls-key {key.name}; a node that has links already reads them again on SIGHUP",
            err=True,
        )
    click.echo(
        f"keep {made.ca_key.name} where no node is: whoever has it can be any node. The certificates expire on "
        f"{made.expires:%Y-%m-%d}",
        err=True,
    )
