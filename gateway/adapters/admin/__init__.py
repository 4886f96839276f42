"""The admin port: liveness, readiness and metrics."""

from gateway.adapters.admin.server import AdminServer

__all__ = ["AdminServer"]
