"""Client connections, from their first message to their end (protocol section 4)."""

from gateway.app.connections.connections import Connections

__all__ = ["Connections"]
