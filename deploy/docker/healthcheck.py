# ruff: noqa: INP001 - a script of the image, in no package
"""Ask the node of this container whether it is alive, by TLS if its admin port speaks it; exit code 0 if it is.

Alive, not ready: a node whose grid is unreachable must not be restarted, as sessions are restored from its memory.
"""

import os
import ssl
import sys
from http.client import HTTPException
from urllib.error import URLError
from urllib.request import urlopen

SECONDS = 2
"""Less than the time-out of HEALTHCHECK in the Dockerfile."""


def main() -> int:
    """Ask, and say on standard error what was wrong."""
    port = os.environ.get("GATEWAY_ADMIN", "0.0.0.0:9101").rpartition(":")[2]
    # Without the variable, a configuration file may still name a certificate.
    schemes = ["https"] if os.environ.get("GATEWAY_ADMIN_TLS_CERTIFICATE") else ["http", "https"]
    failure = "no answer"
    for scheme in schemes:
        try:
            # Its own port, within the container: the certificate is for other names.
            with urlopen(  # noqa: S310 - http or https
                f"{scheme}://127.0.0.1:{port}/healthz",
                timeout=SECONDS,
                context=ssl._create_unverified_context() if scheme == "https" else None,  # noqa: S323, SLF001 - as said
            ):
                return 0
        except (OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            if isinstance(reason, ssl.SSLError) and "CERTIFICATE_REQUIRED" in str(reason):
                # We have none to show (`admin_tls_client_ca`); who refuses us for that is alive.
                return 0
            failure = repr(reason)
            if isinstance(reason, TimeoutError):
                # It hangs, whatever it speaks.
                break
    print(failure, file=sys.stderr)  # noqa: T201 - `docker inspect` shows it
    return 1


if __name__ == "__main__":
    sys.exit(main())
