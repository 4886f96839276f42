"""What a node tells of itself: its log, its metrics, its traces."""

# ruff: noqa: RUF009 - the calls in the defaults make dataclass fields

from __future__ import annotations

from dataclasses import dataclass

from gateway.settings.declaration import setting
from gateway.settings.kinds import OneOf, Several, Switch, Word
from gateway.settings.values import LogFormat, LogLevel


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
        "The least severe events that are written.",
        reason="Sessions that open, come back and end are told; single packets never are.",
    )


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """What a node tells of itself; how to have it shown: [Watch a cluster](../how-to/watch-with-prometheus.md)."""

    metrics_topics: tuple[str, ...] = setting(
        Several(Word(r"[A-Za-z0-9_.:$-]{1,63}", "up to 63 letters, digits and any of _ . : $ -"), "first segments"),
        (),
        "First segments of topics whose updates are counted apart; all others are counted together.",
        reason="Each is a series of every node. They are named here, and not taken from the traffic, because otherwise "
        "whoever may publish could make as many as he likes.",
        absent="updates are not counted by topic",
    )
    traces: bool = setting(
        Switch(),
        False,
        "Send OpenTelemetry spans of connects, resumes, claims and publishes. Needs the extra otel; where they go, and "
        "how many, is said by the OTEL_… variables of every OpenTelemetry program.",
        reason="Somebody has to be there to receive them.",
    )
