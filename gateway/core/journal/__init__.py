"""The session journal: which events there are, what they carry, and how they are written.

The journal answers what people ask after an incident: who was connected to the node that died, how long was each
away, on which rung did it come back, what was lost. It is the one description of events that the gateway, which
writes them, and the pipeline, which reads them, share; the page ``docs/reference/journal.md`` is made of it.

It holds no token, no secret and no value of a topic or a property (P8).
"""

from gateway.core.journal.encoding import (
    JOURNAL_PARTITIONS,
    REQUIRED,
    VERSION,
    BadRecord,
    Record,
    event_id,
    is_of_kind,
    journal_partition,
    read_event_id,
    read_records,
    record,
    write_records,
)
from gateway.core.journal.events import EVENT_TYPES, EventType, JournalEvent, Stamp, event_type
from gateway.core.journal.fields import ENVELOPE, FIELDS, Field, FieldKind

__all__ = [
    "ENVELOPE",
    "EVENT_TYPES",
    "FIELDS",
    "JOURNAL_PARTITIONS",
    "REQUIRED",
    "VERSION",
    "BadRecord",
    "EventType",
    "Field",
    "FieldKind",
    "JournalEvent",
    "Record",
    "Stamp",
    "event_id",
    "event_type",
    "is_of_kind",
    "journal_partition",
    "read_event_id",
    "read_records",
    "record",
    "write_records",
]
