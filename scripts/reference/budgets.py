"""What one client can take of a node, as a table that is made from the defaults of the settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.settings import SETTINGS, LimitSettings, SharedLimitSettings
from gateway.settings.declaration import Setting, declared_in
from gateway.settings.quantities import Bytes
from scripts.reference.markdown import code, table

NO_LIMIT: Final = "no limit"
"""What 0 means for every one of them."""

_NO_BUDGETS: Final = frozenset({"limit_exempt"})
"""Stand among the budgets and are none."""

_SHARED: Final = (
    ("_address_", "one address"),
    ("_principal_", "one principal"),
    ("_node_", "all clients of a node"),
    ("_partition_", "all clients of the cluster"),
)
"""By what the name of a setting holds: who shares the budget. All others are those of one session."""

_OF_THE_NODE: Final = frozenset({"limit_connections", "limit_disconnected", "limit_disconnected_bytes", "memory_limit"})
"""Shared by all clients of a node, though the name does not say so."""

_SESSION: Final = "one session and its connection"

_ORDER: Final = (_SESSION, *(whose for _, whose in _SHARED))

_BEFORE: Final = ("handshake_timeout", "window_maximum", "admission_rate", "claims_at_once", "claim_rate")
"""Durations and rates under other names that bound what clients take, at the end of the table."""

_TIMES: Final = "handshakes and time"

_MEMORY: Final = "one session that makes the most of all of it"

_BUFFERS: Final = (
    "Bytes of its buffers in sum: a message that is being received, all requests that await their reply, the resend "
    "buffers of both directions, and what waits for a slow client. What the objects around them take comes on top."
)

INTRODUCTION: Final = """\
By default, all of these hold at the same time. The tables of the
[threat model](../explanation/threat-model.md#what-one-client-can-take-of-a-node) show what is left of a node for other
clients when one uses all of it. They are for clients elsewhere: programs on a node's own machine are not limited
by address (`limit_exempt`)."""


def whose(setting: Setting) -> str:
    """Tell who shares a budget."""
    if setting.name in _OF_THE_NODE:
        return _ORDER[3]
    return next((them for part, them in _SHARED if part in setting.name), _SESSION)


def budgets() -> Sequence[Setting]:
    """List the settings that are budgets, those of one session first."""
    limits = (*declared_in(LimitSettings, ""), *declared_in(SharedLimitSettings, ""))
    found = [each for each in limits if each.name not in _NO_BUDGETS]
    return sorted(found, key=lambda each: _ORDER.index(whose(each)))


def largest_buffers() -> int:
    """Sum up the bytes of all buffers that one session may fill with the defaults."""
    sizes = LimitSettings()
    return (
        sizes.limit_message_bytes + sizes.limit_request_bytes + 2 * sizes.limit_resend_bytes + sizes.limit_outbox_bytes
    )


def budgets_table() -> str:
    """Write the table."""
    rows = []
    last = ""
    for each in budgets():
        owner = whose(each)
        rows.append((owner if owner != last else "", _amount(each), code(each.name), each.declared.meaning))
        last = owner
    for each in map(SETTINGS.__getitem__, _BEFORE):
        owner = _TIMES if each.name == _BEFORE[0] else ""
        rows.append((owner, _amount(each), code(each.name), each.declared.meaning))
    rows.append((_MEMORY, Bytes().show(largest_buffers()), "", _BUFFERS))
    return table(("What may be taken by", "By default", "Setting", "Of what"), rows)


def _amount(setting: Setting) -> str:
    """Write a default with its unit."""
    if setting.default is None:
        return setting.shown_default
    if not setting.default:
        return NO_LIMIT
    shown, unit = setting.shown_default, setting.declared.kind.unit
    # Durations and amounts of memory name their unit themselves.
    return shown if not shown.replace(".", "").isdecimal() else f"{_separated(shown)} {unit}"


def _separated(number: str) -> str:
    return f"{float(number):,.10g}"
