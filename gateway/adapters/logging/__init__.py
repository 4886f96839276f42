"""Structured logs: every event from the catalogue, readable on a terminal, JSON otherwise."""

from gateway.adapters.logging.event_log import StructuredEventLog
from gateway.adapters.logging.line_writer import LineWriter
from gateway.adapters.logging.redaction import redact, redact_fields
from gateway.adapters.logging.standard_library import capture_standard_library

__all__ = [
    "LineWriter",
    "StructuredEventLog",
    "capture_standard_library",
    "redact",
    "redact_fields",
]
