"""``gateway keys zone``: makes the certificates by which clusters know each other."""

from __future__ import annotations

import time
from pathlib import Path

import click
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from gateway.adapters.link_authority import CA_DAYS, NODE_DAYS, ZONES, make_certificates


@click.command("zone")
@click.argument("clusters", metavar="CLUSTER...", nargs=-1, required=True)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("zone-certificates"),
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
    help="How long the certificates of clusters are valid.",
)
def zone(clusters: tuple[str, ...], folder: Path, days: int) -> None:
    """Make a certificate for the links of each CLUSTER to others, and an authority that signs them.

    All nodes of a cluster may share one. An authority that the folder has already is used again, so that further
    clusters can be added. No file is ever overwritten; private ones are readable by you alone. Prints the files that
    were made; on standard error the fingerprints, by which clusters pin each other.
    """
    made = make_certificates(folder, clusters, now=time.time(), days=days, kind=ZONES)
    if made.is_ca_new:
        click.echo(made.ca)
        click.echo(made.ca_key)
    for _, certificate, key in made.nodes:
        click.echo(certificate)
        click.echo(key)
    for name, certificate, key in made.nodes:
        shown = x509.load_pem_x509_certificates(certificate.read_bytes())[0].fingerprint(hashes.SHA256()).hex()
        click.echo(
            f"bring {made.ca.name}, {certificate.name} and {key.name} to the nodes of {name}, and start them with "
            f"--zone-listen HOST:PORT --zone-tls-ca {made.ca.name} --zone-tls-certificate {certificate.name} "
            f"--zone-tls-key {key.name}; its fingerprint is {shown}",
            err=True,
        )
    click.echo(
        f"keep {made.ca_key.name} where no node is: whoever has it can knock at every cluster. The certificates expire "
        f"on {made.expires:%Y-%m-%d}",
        err=True,
    )
