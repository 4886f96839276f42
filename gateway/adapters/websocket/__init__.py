"""The client port: HTTP upgrades become WebSockets (protocol section 1)."""

from gateway.adapters.websocket.server import ClientInterface, WebSocketServer

__all__ = ["ClientInterface", "WebSocketServer"]
