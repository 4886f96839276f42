"""Nothing that nodes measure goes unseen: an alert speaks of it, or a panel shows it, or it is said here why not."""

from __future__ import annotations

import re
from typing import Any, Final

from gateway.catalogue.log_event import Level
from gateway.catalogue.log_events import LOG_EVENTS
from gateway.catalogue.metric import Kind
from gateway.catalogue.metrics import METRICS
from scripts.dashboards.__main__ import DASHBOARDS
from tests.deploy.promtool import selectors
from tests.deploy.test_rules import ALERTS, RULES

UNSEEN: Final = {
    "gateway_admin_connections": "a crowd makes gateway_admin_connections_refused_total, which has a panel",
    "gateway_destinations": "what people have described is no trouble; the console and the command line list it",
    "gateway_grid_clock_shift_seconds": "how far the clock was set; GatewayGridClockStepped asks for it in its runbook",
    "gateway_master_known": "one node that knows none is behind the others, or the grid is away, which has alerts",
    "gateway_followers_moved_total": "clients go where they asked to be; GatewayMasterFlaps tells of too many changes",
    "gateway_followers_redirected_total": "as before",
    "gateway_reading_deferred_total": "turns are shared as they should; GatewayEventLoopLag asks for it in its runbook",
    "gateway_suspicions_total": "those that last make GatewayLinksPartitioned, whose runbook asks for it",
    "gateway_suspicions_cleared_total": "as before",
    "gateway_limited_accounts": "how many addresses and principals are counted is no trouble in itself; the runbook of "
    "GatewayLimitsExceeded asks for it",
}
"""Metrics that no rule and no panel asks for, each with the reason."""

ONLY_SHOWN: Final = {
    "gateway_forbidden_total": "what clients may not do is refused as it should be; a wrong policy shows in the panel",
    "gateway_selections_withdrawn_total": "a policy was changed on purpose",
    "gateway_frame_violations_total": "a client's bug, which harms nobody else; many raise GatewayConnectionsRejected",
    "gateway_fenced_writes_total": "the protection works; GatewayNodeDown and GatewayLeaseFlapping tell of the cause",
    "gateway_takeovers_total": "the node that is gone makes GatewayNodeDown, its clients GatewayFailoverSurge",
    "gateway_grid_positions_lost_total": "clients that lost something by it make GatewayLossDeclared",
    "gateway_conflated_updates_total": "as promised to slow clients; those that stay slow make GatewaySlowConsumers",
    "gateway_blocked_sessions": "as before",
    "gateway_reading_slowed_total": "floods of one client, which is closed in the end; others notice nothing",
    "gateway_rate_limited_seconds_total": "what is slowed down often makes GatewayLimitsExceeded",
    "gateway_admin_connections_refused_total": "no token at the admin port; harmless while they get no further, and "
    "who asks without a token makes GatewayAdminRefused",
    "gateway_links_refused_total": "a node that is refused makes GatewayLinkDown; strangers get no further",
    "gateway_links_lost_total": "a link that does not come back makes GatewayLinkDown",
    "gateway_zone_links_lost_total": "a link that does not come back makes GatewayZoneLinkDown",
    "gateway_hook_behind_events": "events that nobody wants are among them; those that wait make GatewayHookBehind",
    "gateway_history_gaps_total": "readers were away for longer than the history is kept, and are told so",
    "gateway_mirror_lag_seconds": "no client waits for a backup; one that is too slow is filled anew",
    "gateway_mirror_copies_lost_total": "broken ones make GatewayBug; without room, clients fail over",
    "gateway_link_silence_seconds": "a link that stays silent is broken within seconds, and is dialled again",
    "gateway_grid_clock_spread_seconds": "leases are kept by the clock of one master each; a spread shortens windows",
}
"""Metrics that tell of trouble and have a panel but no alert, each with the reason."""

TROUBLE: Final = re.compile(
    r"refused|lost|dropped|evicted|exceeded|violation|forbidden|withdrawn|fenced|slow|blocked|conflated|limited_seconds"
    r"|lag|silence|expiry|_up$|persistence|takeovers|spread|losses|gaps|behind|stopped|not_applied|difference"
)
"""What the names of metrics have in them that tell of trouble."""


BY_A_METRIC: Final = {
    "grid_foreign_data": "gateway_grid_foreign_data_total",
    "grid_unreachable": "gateway_grid_up",
    "grid_slot_half_moved": "gateway_grid_slots_half_moved",
    "memory_ran_short": "gateway_memory_sheddings_total",
    "log_lines_dropped": "gateway_log_lines_dropped_total",
    "connections_not_accepted": "process_open_fds",
    "node_name_taken": "gateway_namesakes",
    "zone_gap": "gateway_zone_gaps_total",
}
"""Errors in the log that a metric tells as well, which has the alert."""


SHOWN_BEFORE: Final = {
    "gateway_hook_gaps_total": "0 for every hook in the file (tests/unit/app/test_hooks.py)",
    "gateway_grid_evicted_keys_total": "read of each master, which tells 0 itself",
}
"""Counters with labels that the catalogue does not list, of whose growth alerts speak: why they begin with 0."""


def names_of(expressions: list[str]) -> set[str]:
    """List the metrics of nodes that expressions ask for, also by way of recording rules."""
    recorded = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
    found: set[str] = set()
    for expression in expressions:
        for each in selectors(expression):
            if each.metric in recorded:
                found |= names_of([recorded[each.metric]])
            found.add(re.sub(r"_(bucket|sum|count)$", "", each.metric))
    return found


ALERTED: Final = names_of([rule["expr"] for rule in ALERTS.values()])
SHOWN: Final = names_of(
    [query.expression for board in DASHBOARDS for panel in board.panels() for query in panel.queries]
)
ALL: Final = {metric.name for metric in METRICS}


def test_every_metric_is_asked_for() -> None:
    assert UNSEEN.keys() == ALL - ALERTED - SHOWN, "give it an alert or a panel, or say here why it has none"


def test_whatever_tells_of_trouble_warns_somebody() -> None:
    trouble = {name for name in ALL if TROUBLE.search(name)}
    assert trouble - ALERTED - UNSEEN.keys() == ONLY_SHOWN.keys(), "give it an alert, or say here why a panel will do"


def test_a_counter_that_an_alert_wants_to_see_growing_is_there_before_it_grows() -> None:
    """``increase`` of a series that begins with 1 is 0. Series that the catalogue lists begin with 0."""
    unlisted = {each.name for each in METRICS if each.kind is Kind.COUNTER and each.open and not each.values}
    alerted = unlisted & ALERTED
    assert alerted == SHOWN_BEFORE.keys(), "have it begin with 0, and say here how"


def test_reasons_name_alerts_that_there_are() -> None:
    named = {each for reason in (*UNSEEN.values(), *ONLY_SHOWN.values()) for each in re.findall(r"Gateway\w+", reason)}
    assert named
    assert named <= ALERTS.keys()


def warned_by(rule: dict[str, Any]) -> set[str]:
    """List the log events of whose counts an alert speaks."""
    return {
        event.name
        for selector in selectors(rule["expr"])
        if selector.metric == "gateway_events_total"
        for label, operator, value in selector.matchers
        if label == "event" and operator in {"=", "=~"}
        for event in LOG_EVENTS
        if re.fullmatch(value, event.name)
    }


def test_every_bug_that_is_logged_warns_somebody() -> None:
    assert {event.name for event in LOG_EVENTS if event.bug} <= warned_by(ALERTS["GatewayBug"])


def test_whatever_was_not_read_again_warns_somebody() -> None:
    kept = {event.name for event in LOG_EVENTS if event.name.endswith("_kept")}
    assert kept == warned_by(ALERTS["GatewayReloadFailed"]) | {"issuer_keys_kept"}
    assert warned_by(ALERTS["GatewayIssuerKeysOld"]) == {"issuer_keys_kept"}


def test_every_error_that_is_logged_warns_somebody() -> None:
    errors = {event.name for event in LOG_EVENTS if event.level is Level.ERROR}
    warned = set[str]().union(*map(warned_by, ALERTS.values()))
    assert errors - warned == BY_A_METRIC.keys()
    assert set(BY_A_METRIC.values()) <= ALERTED
