"""The generated pages, by name, and the parts of them that no other module makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gateway.catalogue.log_event import Level
from gateway.catalogue.log_events import LOG_EVENTS
from gateway.catalogue.metric import LATENCY_BUCKETS, Kind, Metric
from gateway.catalogue.metrics import EVENTS, METRICS
from gateway.core.hooks.hook import MOST_HOOKS
from gateway.core.wire.codes import AT_ONCE_RANGE, CLOSE_CODES, ERRORS, LATER_RANGE, NEVER_RANGE, Reconnect
from gateway.settings import AUTHENTICATOR_FILES, GROUPS, OTHER_VARIABLES
from gateway.settings.declaration import Setting, declared_in
from gateway.settings.hooks import HookSettings
from scripts.reference.admin_api import admin_api_page
from scripts.reference.authentication import AUTHENTICATION_GROUPS, AUTHENTICATION_INTRODUCTION
from scripts.reference.budgets import INTRODUCTION as BUDGETS_INTRODUCTION
from scripts.reference.budgets import budgets_table
from scripts.reference.fixed_budgets import INTRODUCTION as FIXED_BUDGETS_INTRODUCTION
from scripts.reference.fixed_budgets import fixed_budgets_table
from scripts.reference.journal import journal_page
from scripts.reference.markdown import code, page, table


def configuration_page() -> str:
    """The page about settings."""
    blocks = [_CONFIGURATION_INTRODUCTION]
    for group in GROUPS:
        blocks += [f"## {group.title}", group.introduction, _settings_table(group.settings)]
    blocks += ["## Hooks", _HOOKS_INTRODUCTION, _settings_table(declared_in(HookSettings, "hooks"))]
    blocks += ["## What one client can take of a node", BUDGETS_INTRODUCTION, budgets_table()]
    blocks += ["### What no setting says", FIXED_BUDGETS_INTRODUCTION, fixed_budgets_table()]
    blocks += [
        "## Variables that are no settings",
        table(("Variable", "Meaning"), ((code(name), f"{meaning}.") for name, meaning in OTHER_VARIABLES.items())),
    ]
    return page("Configuration", *blocks)


def _settings_table(settings: Sequence[Setting]) -> str:
    rows = []
    for each in settings:
        prose = each.default is None or each.default == () or each.declared.default_text
        rows.append(
            (
                code(each.name),
                each.shown_default if prose else code(each.shown_default),
                each.declared.kind.domain,
                f"{each.declared.meaning}<br>*{each.declared.reason}*",
            )
        )
    return table(_CONFIGURATION_HEADINGS, rows)


def authentication_page() -> str:
    """The page about the files that authenticators are set up by."""
    blocks = [AUTHENTICATION_INTRODUCTION]
    for name, group, settings in AUTHENTICATOR_FILES:
        blocks += [f"## {name}", AUTHENTICATION_GROUPS[group.__name__], _settings_table(settings)]
    return page("Authentication", *blocks)


_HOOKS_INTRODUCTION: Final = f"""\
The setting `hooks` names a TOML file with a section `[[hook]]` for each receiver of events, {MOST_HOOKS} at most; see
[Send events to other systems](../how-to/send-events-to-other-systems.md). These are its keys. Relative paths start from
the folder of that file."""

_CONFIGURATION_HEADINGS: Final = ("Setting", "Default", "Values", "Meaning, and *why this default*")

_CONFIGURATION_INTRODUCTION: Final = """\
Every setting has one name, used in three places:

| place | how | example |
| --- | --- | --- |
| TOML file | as it is | `grid_timeout = 1.5` |
| environment | `GATEWAY_`, in capitals | `GATEWAY_GRID_TIMEOUT=1500ms` |
| command line | `--`, with dashes | `--grid-timeout 1.5` |

A flag wins over a variable, a variable over the file, the file over the default. The file is the one that `--config`
or `GATEWAY_CONFIG` names; there is no other place where one is looked for. Token keys have no flags, because command
lines can be seen by everybody on a machine.

- Durations are seconds, or a text with a unit: `"250ms"`, `"90s"`, `"5m"`, `"24h"`, `"7d"`.
- Amounts of memory are bytes, or a text with a unit: `"64KiB"`, `"8MiB"`.
- Lists are arrays in TOML, and separated by commas elsewhere.
- An empty variable counts as not set. `none` takes back what a lower layer gave to a setting that needs no value.
- Relative paths in the file start from the file's folder, others from the working directory.

Nothing is guessed: an unknown key, a variable `GATEWAY_…` that is no setting, or a value that does not fit stops the
node before it starts, and the message names the place, the value (never a secret's) and what to do. `gateway
check-config` does all of that without starting, and shows where each value came from.

```toml
# /etc/gateway/gateway.toml
listen = "0.0.0.0:8101"
admin = "10.0.0.5:9101"
grid = "redis://10.0.0.9:6379/0"
auth = "static:users"
token_keys_file = "token-keys"
origins = ["https://app.example.com"]
trusted_proxies = ["10.0.0.2"]
```"""


def metrics_page() -> str:
    """The page about metrics."""
    rows = ((code(each.name), each.kind.value, _label(each), each.meaning) for each in METRICS)
    special = [each for each in METRICS if each.kind is Kind.HISTOGRAM and each.buckets != LATENCY_BUCKETS]
    return page(
        "Metrics",
        _METRICS_INTRODUCTION,
        table(("Metric", "Kind", "Label: values", "Meaning"), rows),
        "## Buckets",
        f"Histograms of seconds have the upper bounds {_numbers(LATENCY_BUCKETS)}. The others:",
        table(("Metric", "Upper bounds"), ((code(each.name), _numbers(each.buckets)) for each in special)),
        "## What to watch",
        table(("Question", "Expression"), ((question, code(query)) for question, query in WATCH)),
    )


_METRICS_INTRODUCTION: Final = """\
`GET /metrics` on the admin port, in the text format of Prometheus. No label ever holds a session, a principal or a
client's address, and none a topic, except first segments that the setting `metrics_topics` names; so the number of
series is bounded by this page and the configuration. A label value followed by `…` is known beforehand, and others may
appear; one that is not expected at all is counted as `other`. Prometheus's usual `process_…` and `python_…` metrics are
there too. The `master` of a Redis is its address, or `only` if the grid is a single one; every node reports the figures
of all masters. How to have them collected, shown and watched:
[Watch a cluster with Prometheus and Grafana](../how-to/watch-with-prometheus.md)."""

_QUANTILE: Final = "histogram_quantile(0.99, sum by (le) (rate({}_bucket[5m])))"

_REPLAYED: Final = 'sum(rate(gateway_failovers_total{{replayed{}"{}"}}[5m]))'

WATCH: Final[tuple[tuple[str, str], ...]] = (
    ("Is a storm of reconnects going on?", "sum(rate(gateway_resumes_total[1m]))"),
    (
        "Which part of the resumes found no buffers?",
        'sum(rate(gateway_resumes_total{outcome="failed_over"}[5m])) / sum(rate(gateway_resumes_total[5m]))',
    ),
    (
        "Which part of the clients that failed over was sent all that it had missed?",
        _REPLAYED.format("=", "true") + " / " + _REPLAYED.format("!=", "nothing"),
    ),
    ("How long do failovers wait for the grid? (p99)", _QUANTILE.format("gateway_claim_seconds")),
    ("How late do updates arrive at the nodes?", _QUANTILE.format("gateway_grid_tail_lag_seconds")),
    ("Which nodes cannot reach the grid?", "gateway_grid_up == 0"),
    ("Is a node's event loop overloaded?", _QUANTILE.format("gateway_event_loop_lag_seconds")),
    ("Do clients read too slowly?", "sum by (code) (rate(gateway_slow_closes_total[5m]))"),
    ("Did nodes lose their lease (pauses, overload)?", "increase(gateway_lease_lost_total[1h]) > 0"),
)
"""Questions operators ask, with expressions for Prometheus; a test checks that their metrics exist."""


def _label(metric: Metric) -> str:
    if metric.label is None:
        return ""
    if metric is EVENTS:
        return f"{code(EVENTS.label or '')}: every event of [Logs](logs.md)"
    values = ", ".join(code(value) for value in metric.values)
    more = "…" if metric.open else ""
    return f"{code(metric.label)}: {values}{' ' if values and more else ''}{more}"


def _numbers(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)


def logs_page() -> str:
    """The page about log events."""
    rows = ((code(each.name), _level(each.level), _fields(each.fields), each.meaning) for each in LOG_EVENTS)
    return page("Logs", _LOGS_INTRODUCTION, table(("Event", "Level", "Fields", "Meaning"), rows))


_LOGS_INTRODUCTION: Final = """\
Events go to standard output, one a line: readable on a terminal, JSON otherwise (`log_format`), from `log_level` on.
Each line has `time` (RFC 3339, UTC), `level`, `node`, `event` (a name of the table below; it never changes its meaning)
and the event's own fields. Events that report a bug of the gateway carry the traceback in `exception` as well.

```json
{"time":"2026-01-31T12:00:00.123456Z","level":"info","node":"n1","event":"session_resumed","session":"…","outcome":"failed_over","reason":"other_node","replayed":true,"previous":"n2:5f0c"}
```

No field ever holds a token, a secret or the value of a topic. As a second line of defence, whatever looks like one is
masked as `[redacted]`, wherever it stands. Writing never delays clients: if the reader of the log is too slow, lines
are dropped, and `log_lines_dropped` says how many."""


def _level(level: Level) -> str:
    return f"**{level.name.lower()}**" if level >= Level.WARNING else level.name.lower()


def _fields(fields: Sequence[str]) -> str:
    return ", ".join(code(name) for name in fields)


def close_codes_page() -> str:
    """The page about close codes and error codes."""
    ranges = [
        (f"{codes.start} to {codes.stop - 1}", f"{reconnect.value}.")
        for codes, reconnect in (
            (AT_ONCE_RANGE, Reconnect.AT_ONCE),
            (LATER_RANGE, Reconnect.LATER),
            (NEVER_RANGE, Reconnect.NEVER),
        )
    ]
    closes = ((str(each.code), code(each.name), _RETURN[each.reconnect], each.meaning) for each in CLOSE_CODES)
    errors = ((code(each.code.value), "yes" if each.retryable else "no", each.meaning) for each in ERRORS.values())
    return page(
        "Close codes and error codes",
        "## Close codes",
        "The range of the code decides what a client does after a close, so that a client that does not know a code "
        "still does the right thing (protocol section 8).",
        table(("Codes", "The client shall"), ranges),
        "Of the codes of the WebSocket standard, those that say *done* or *you erred* (1000, 1002, 1003, 1007 to 1010) "
        "mean *do not come back with this session*; all others, and a connection that ended without a code, are a lost "
        "transport: resume at once. A lost transport never ends a session.",
        table(("Code", "Name", "Come back", "Meaning"), closes),
        "## Error codes",
        "They stand in replies and in error packets. *Retryable* says that the same request, sent again later, can "
        "succeed.",
        table(("Code", "Retryable", "Meaning"), errors),
    )


_RETURN: Final = {Reconnect.AT_ONCE: "at once", Reconnect.LATER: "later", Reconnect.NEVER: "never"}


PAGES: Final[dict[str, Callable[[], str]]] = {
    "admin-api.md": admin_api_page,
    "authentication.md": authentication_page,
    "close-codes.md": close_codes_page,
    "configuration.md": configuration_page,
    "journal.md": journal_page,
    "logs.md": logs_page,
    "metrics.md": metrics_page,
}
"""The pages by file name."""


def write_pages(folder: Path) -> None:
    """Write all pages into *folder*."""
    for name, make in PAGES.items():
        (folder / name).write_text(make(), "utf-8")
