"""Which hosts are this machine: what is sent to them in clear text, nobody else can read."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Tell whether what is sent to a host stays on this machine; False for names that would have to be looked up."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
