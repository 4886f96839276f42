"""The page about the session journal, made of its schema."""

from __future__ import annotations

from typing import Final

from gateway.app.journal.buffer import BATCH_BYTES
from gateway.app.journal.recorder import BUFFER_BYTES, BUFFER_EVENTS
from gateway.app.journal.traffic import ROOTS_TOLD
from gateway.app.journal.writer import GATHER
from gateway.catalogue.journal_metrics import JOURNAL_DROPPED
from gateway.core.journal import ENVELOPE, EVENT_TYPES, FIELDS, JOURNAL_PARTITIONS, VERSION, Field
from gateway.core.journal.events import NAMES_TOLD
from scripts.reference.markdown import code, page, table

_INTRODUCTION: Final = f"""Version {VERSION} of what nodes write to the grid about sessions and about themselves,
if the setting `journal` is on. The pipeline reads it: [Pipeline](pipeline.md). No token, no secret and no value of a
topic or a property is ever in it. The sessions of administrators' consoles and the topics below `$gateway` are left
out."""

_STREAMS: Final = f"""`P:{{jN}}:journal` for N from 0 to {JOURNAL_PARTITIONS - 1}, where `P` is the setting
`grid_prefix`. What happens to a session is all in one stream, in order; so is what happens to a node. Each entry has
three fields: `events`, JSON, one event a line, {BATCH_BYTES // 1024} KiB at most; `count`, how many; and `total`, how
many the stream has had up to and with these. Its id is
`<generation of the grid>-<sequence>` and never stands for another entry, also after the grid was rolled back. The hash
`P:{{jN}}:journal-state` beside it says which `incarnation` of the stream it is, another one when the grid had lost it,
and up to which id the reader has `committed`. A node writes about every {GATHER:g} s, and a batch exactly once, however
often it has to try."""

_REASONS: Final = ", ".join(map(code, JOURNAL_DROPPED.values))

_MISSING: Final = f"""Events are recorded as they happen and written a moment later, so a node that is killed loses
those of its last {GATHER:g} s. The numbers in the ids of one incarnation have no hole; a missing number is
an event that was dropped. That happens when the grid takes none for so long that {BUFFER_EVENTS:,} events or
{BUFFER_BYTES // (1024 * 1024)} MiB wait; the first ones are kept, the later ones are dropped and counted, and
`events_dropped` reports it as soon as there is room, with one of the reasons {_REASONS}. What the cap of the streams
(`journal_length`) cuts before the reader had it is counted in the grid as `lost`, and while there never was a reader as
`unclaimed`."""


def journal_page() -> str:
    """The page about the session journal."""
    fields = ((code(each.name), each.kind.value, _meaning(each)) for each in FIELDS.values())
    events = (
        (code(each.name), each.meaning, ", ".join(code(name) for name in each.fields) or "none")
        for each in EVENT_TYPES.values()
    )
    return page(
        "Session journal",
        _INTRODUCTION,
        "## Events",
        f"Every record has the fields {', '.join(code(each.name) for each in ENVELOPE)}; `session` and `epoch` only "
        "where there is one. Any other field is left out when it has no value. Of names, the first "
        f"{NAMES_TOLD} are recorded; of roots, the {ROOTS_TOLD} busiest.",
        table(("Event", "Meaning", "Further fields"), events),
        "## Fields",
        table(("Field", "Kind", "Meaning"), fields),
        "## Streams",
        _STREAMS,
        "## What may be missing",
        _MISSING,
    )


def _meaning(declared: Field) -> str:
    return declared.meaning if declared.since == 1 else f"{declared.meaning} Since version {declared.since}."
