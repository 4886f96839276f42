"""Service managers: systemd."""

from gateway.adapters.service_manager.systemd import Systemd

__all__ = ["Systemd"]
