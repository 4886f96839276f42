"""What it means for an operator that a node cannot listen somewhere."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.settings import SETTINGS, Settings


class PortUnavailable(OSError):
    """A node cannot listen where it should; the text names the setting, says why, and what to do."""


@contextmanager
def bound(setting: str, settings: Settings) -> Iterator[None]:
    """Put into words that a port cannot be bound within the block.

    Args:
        setting: which one says where.
        settings: all of them.

    Raises:
        PortUnavailable: it cannot be bound. Other errors are left as they are.
    """
    flag = SETTINGS[setting].flag
    try:
        yield
    except socket.gaierror:
        why, remedy = "there is no host of that name", f"give an address of this machine by {flag}"
    except OSError as error:
        match error.errno:
            case errno.EADDRINUSE:
                why = "another program listens there, perhaps a node that still runs"
                remedy = f"stop it, or give another port by {flag}"
            case errno.EACCES:
                why = "this user may not listen there"
                remedy = f"give a port from 1024 on by {flag}, or let the service manager allow it"
            case errno.EADDRNOTAVAIL:
                why, remedy = "this machine has no such address", f"give one that it has by {flag}"
            case _:
                raise
    else:
        return
    shown = SETTINGS[setting].show(getattr(settings, setting))
    raise PortUnavailable(f"{setting} {shown}: {why}; {remedy}")
