"""What a node reports: its log, its metrics, its traces, its journal."""

# ruff: noqa: RUF009 - the calls in the defaults make dataclass fields

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gateway.settings.declaration import optional, setting
from gateway.settings.kinds import OneOf, Several, Switch, Word
from gateway.settings.places import File
from gateway.settings.quantities import Whole
from gateway.settings.values import LogFormat, LogLevel, PrincipalNames


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """What is written to standard output."""

    log_format: LogFormat = setting(
        OneOf(LogFormat),
        LogFormat.AUTO,
        "console for people, json for machines, auto for console on a terminal and JSON otherwise.",
        reason="Right in both places.",
    )
    log_level: LogLevel = setting(
        OneOf(LogLevel),
        LogLevel.INFO,
        "The lowest level of the events that are written.",
        reason="Sessions that open, resume and end are logged; single packets never are.",
    )


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """What a node reports as numbers and spans; see [Watch a cluster](../how-to/watch-with-prometheus.md)."""

    metrics_topics: tuple[str, ...] = setting(
        Several(Word(r"[A-Za-z0-9_.:$-]{1,63}", "up to 63 letters, digits and any of _ . : $ -"), "first segments"),
        (),
        "First segments of topics whose updates are counted separately; all others are counted together.",
        reason="Each is a series of every node. They are named here, and not taken from the traffic, because "
        "otherwise every publisher could create any number of series.",
        absent="updates are not counted by topic",
    )
    traces: bool = setting(
        Switch(),
        False,
        "Send OpenTelemetry spans of connects, resumes, claims and publishes. Needs the extra otel. The usual "
        "OTEL_… variables of OpenTelemetry say where they go, and how many.",
        reason="It needs a receiver.",
    )


@dataclass(frozen=True, kw_only=True)
class JournalSettings:
    """The [session journal](journal.md): what happened to which session, kept in the grid until it is read."""

    journal: bool = setting(
        Switch(),
        False,
        "Write the session journal to the grid.",
        reason="It holds who was connected when, which is personal data: switch it on if you need and read it.",
    )
    journal_length: int = setting(
        Whole("entries", 100, 10_000_000),
        10_000,
        "Entries that each of the 16 streams of the journal keeps in the grid, whether they were read or not. An entry "
        "holds the events of one node in half a second, 64 KiB at most. The same on all nodes.",
        reason="A few hours of an ordinary day, in some hundred MB; a reader of the journal needs minutes of it.",
    )
    hooks: Path | None = optional(
        File(),
        "File that says who gets which events of the journal by HTTP: "
        "[Send events to other systems](../how-to/send-events-to-other-systems.md). Read again on SIGHUP. Needs the "
        "journal. The same on all nodes.",
        absent="nobody gets events",
        reason="Only you know who needs them.",
    )
    journal_principals: PrincipalNames = setting(
        OneOf(PrincipalNames),
        PrincipalNames.PLAIN,
        "How the journal names principals: plain as they are, or hashed as HMAC-SHA256 with a key.",
        reason="After an incident people ask who was affected. Where names are not allowed, hashes show how many were.",
    )
    journal_principals_key_file: Path | None = optional(
        File(),
        "File with the key for hashed principals, one line; `openssl rand -hex 32` makes one. The same on all nodes, "
        "and unchanged for as long as the sessions of a principal shall be recognised as its own.",
        absent="none; hashed refuses to start without it",
        reason="Without a key, anybody who knows the names could compute their hashes.",
    )
