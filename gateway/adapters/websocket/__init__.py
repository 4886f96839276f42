"""The client port: HTTP upgrades become WebSockets (protocol section 1)."""

from gateway.adapters.websocket.server import WebSocketServer

__all__ = ["WebSocketServer"]
