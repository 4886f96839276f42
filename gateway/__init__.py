"""A WebSocket gateway whose sessions outlive their socket, their node and the deploy."""

__version__ = "0.1.0"
