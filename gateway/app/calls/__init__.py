"""Calls of back ends by HTTP: requests without a session (docs: reference/client-api.md)."""

from gateway.app.calls.calls import NodeCalls

__all__ = ["NodeCalls"]
