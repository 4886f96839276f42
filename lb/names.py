"""Names that topology, configuration, runtime socket and command line share.

Apart from the settings, so that the command line knows them without loading what checks settings.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

DEFAULT_CERTIFICATE: Final = "/etc/haproxy/gateway.pem"
"""Where `lb render --tls` looks for the certificate if nobody says otherwise."""

BACKEND: Final = "gateway"
"""Name of the backend that holds the nodes; the runtime socket addresses them as ``gateway/<node>``."""

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
"""Names of nodes: what is safe unquoted in HAProxy's configuration, in a URL query and in a cookie value."""

WORD_PATTERN: Final = re.compile(r"[A-Za-z0-9_./:@+-]{1,255}")
"""What is safe unquoted in HAProxy's configuration and in commands to it."""


class Stickiness(StrEnum):
    """How a client that comes back is sent to the node that still has its buffers."""

    HINT = "hint"
    """By ``?node=`` in the URL, which the node's welcome told the client."""
    COOKIE = "cookie"
    """By the hint if there is one, else by a cookie, for browsers that cannot keep the hint."""
    OFF = "off"
    """Not at all: every reconnection goes to the node with the fewest connections."""


class SameSite(StrEnum):
    """When a browser shows the cookie to the gateway; the names are those of the cookie attribute."""

    STRICT = "Strict"
    LAX = "Lax"
    NONE = "None"
