"""Certificates for tests: real ones, of an authority that is made for the run and trusted by nobody else."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import trustme

LOOPBACK: Final = ("127.0.0.1", "localhost")
"""Whom certificates are for, unless a test says otherwise."""


class Authority:
    """An authority, and the files of those it vouches for.

    Args:
        folder: where files are written.

    Attributes:
        file: its certificate in PEM.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ca = trustme.CA(organization_name="tests", key_type=trustme.KeyType.ECDSA)
        self.file = folder / "authority.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def issue(
        self,
        name: str,
        *identities: str,
        life: timedelta = timedelta(days=1),
        key_type: trustme.KeyType = trustme.KeyType.ECDSA,
    ) -> Path:
        """Write key and certificate into one file and return it; the same name replaces it.

        Args:
            name: of the file, without its ending.
            identities: names and addresses the certificate is for; by default this machine's.
            life: until it expires; negative if it has done so.
            key_type: an elliptic curve, or RSA.
        """
        expires = datetime.now(UTC) + life
        issued = self._ca.issue_cert(*(identities or LOOPBACK), not_after=expires, key_type=key_type)
        path = self._folder / f"{name}.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path

    def trust(self, certificate: Path | None = None) -> ssl.SSLContext:
        """Make what a client needs to trust this authority.

        Args:
            certificate: the client's own, with its key; None to have none.
        """
        context = ssl.create_default_context(cafile=str(self.file))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context
