"""Connections between clusters over TCP and mutual TLS: implements ``gateway.ports.zone_links.ZoneLinks``.

Messages are parted by their lengths, and nothing else is added to them: ``length u32 │ message``, big-endian.
"""

from gateway.adapters.zone_links.links import StreamZoneLinks, ZoneContexts

__all__ = ["StreamZoneLinks", "ZoneContexts"]
