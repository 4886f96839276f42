"""The ports of a node that speak TLS: reloaded together, their certificates watched."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from gateway.adapters.tls.certificates import CertificateError, ServerTls
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.ports import EventLog, Metrics


class TlsPorts:
    """The ports that speak TLS.

    Args:
        ports: by name; the names are those of the metric's label.
        metrics: where it can be read when their certificates expire.
        log: where it is told what a reload has done.
    """

    def __init__(self, ports: Mapping[str, ServerTls], *, metrics: Metrics, log: EventLog) -> None:
        self._ports = dict(ports)
        self._log = log
        for name, tls in self._ports.items():
            metrics.watch(catalogue.CERTIFICATE_EXPIRY, lambda tls=tls: tls.expires, label=name)  # type: ignore[misc]

    def get(self, name: str) -> ServerTls | None:
        """Return what a port needs to speak TLS; None if it speaks none."""
        return self._ports.get(name)

    def reload(self) -> None:
        """Read all files again. Bad ones are told of in the log, and their port keeps what it had."""
        for name, tls in self._ports.items():
            try:
                tls.reload()
            except CertificateError as error:
                self._log.emit(events.CERTIFICATE_KEPT, port=name, error=str(error))
            else:
                expires = datetime.fromtimestamp(tls.expires, UTC).isoformat()
                self._log.emit(events.CERTIFICATE_RELOADED, port=name, expires=expires)
