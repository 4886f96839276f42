"""The cases of alerts on zones, requests and streams; see ``rule_notation``."""

from __future__ import annotations

from typing import Final

from tests.deploy.rule_notation import NODE, Case, grows, still

ANSWERED: Final = 'gateway_questions_ended_total{node="n1",outcome="answered"}'
TIMED_OUT: Final = 'gateway_questions_ended_total{node="n1",outcome="timed_out"}'
FAILED: Final = 'gateway_questions_ended_total{node="n1",outcome="failed"}'
PUT: Final = 'gateway_questions_total{node="n1",result="put"}'
NO_HANDLER: Final = 'gateway_questions_total{node="n1",result="no_handler"}'
REFUSED: Final = 'gateway_questions_total{node="n1",result="refused"}'

WANTED: Final = 'gateway_zone_links_wanted{node="n1"}'
WANTED_BY_ANOTHER: Final = 'gateway_zone_links_wanted{node="n2"}'
OUT: Final = 'gateway_zone_links{node="n1",direction="out"}'
OUT_OF_ANOTHER: Final = 'gateway_zone_links{node="n2",direction="out"}'
IN: Final = 'gateway_zone_links{node="n1",direction="in"}'
MEMBERS: Final = 'gateway_zone_members{node="n1"}'
BEHIND: Final = 'gateway_zone_events_behind{node="n1"}'
CLOCKS: Final = 'gateway_zone_clock_difference_seconds{node="n1"}'


def refused(reason: str) -> str:
    """The counter of links that were refused for a reason."""
    return f'gateway_zone_links_refused_total{{node="n1",reason="{reason}"}}'


def stopped(reason: str) -> str:
    """The counter of events that went no further for a reason."""
    return f'gateway_zone_events_stopped_total{{node="n1",reason="{reason}"}}'


def not_applied(reason: str) -> str:
    """The counter of events that changed nothing for a reason."""
    return f'gateway_zone_events_not_applied_total{{node="n1",reason="{reason}"}}'


CASES: Final[dict[str, Case]] = {
    "GatewayStreamsSlow": Case(
        {'gateway_streams_ended_total{node="n1",reason="slow"}': grows(2)},
        (
            {'gateway_streams_ended_total{node="n1",reason="slow"}': grows(0.5)},
            {'gateway_streams_ended_total{node="n1",reason="left"}': grows(100)},
        ),
        NODE,
    ),
    "GatewayRequestsUnanswered": Case(
        {TIMED_OUT: grows(5), ANSWERED: grows(20)},
        (
            # A few of very many.
            {TIMED_OUT: grows(5), ANSWERED: grows(1000)},
            # One client whose only request is not answered.
            {TIMED_OUT: grows(1)},
            # The handler was there, and said why.
            {FAILED: grows(50), ANSWERED: grows(20)},
            # It is over.
            {TIMED_OUT: "0+50x5 250+0x15", ANSWERED: grows(20)},
        ),
        {"outcome": "timed_out"},
    ),
    "GatewayRequestsNotTaken": Case(
        {NO_HANDLER: grows(5), PUT: grows(20)},
        (
            {NO_HANDLER: grows(5), PUT: grows(1000)},
            {NO_HANDLER: grows(1)},
            {REFUSED: grows(50), PUT: grows(20)},
            {NO_HANDLER: "0+50x5 250+0x15", PUT: grows(20)},
        ),
        {"result": "no_handler"},
    ),
    "GatewayZoneLinkDown": Case(
        {WANTED: still(2), OUT: still(1), WANTED_BY_ANOTHER: still(1), OUT_OF_ANOTHER: still(1), IN: still(5)},
        (
            {WANTED: still(2), OUT: still(2), IN: still(0)},
            # It broke and came back.
            {WANTED: still(1), OUT: "1x14 0 1x5"},
            # Another node took it over: the two were asked at different moments.
            {WANTED: "1x17 0x3", OUT: "1x18 0x2", WANTED_BY_ANOTHER: "0x17 1x3", OUT_OF_ANOTHER: "0x18 1x2"},
            # The cluster has left the zone.
            {WANTED: "1x10 0x10", OUT: "0x20"},
            # Somebody else has a link to this cluster, and it has none to others.
            {WANTED: still(0), OUT: still(0), IN: still(1)},
        ),
    ),
    "GatewayZoneNotCarried": Case(
        {MEMBERS: still(2), WANTED: still(0), WANTED_BY_ANOTHER: still(0)},
        (
            {MEMBERS: still(2), WANTED: still(0), WANTED_BY_ANOTHER: still(1)},
            {MEMBERS: still(1), WANTED: still(0)},
            {MEMBERS: still(0), WANTED: still(0)},
            # The carrier has died; another node takes the link over.
            {MEMBERS: still(2), WANTED: "1x14 0 1x5"},
        ),
    ),
    "GatewayZoneBehind": Case(
        {BEHIND: "0x10 6000+0x10", 'gateway_zone_events_behind{node="n2"}': still(0)},
        (
            {BEHIND: still(4000)},
            # A burst that was caught up with.
            {BEHIND: "0x12 9000 0x7"},
            # Two links, neither of which is far behind.
            {BEHIND: still(3000), 'gateway_zone_events_behind{node="n2"}': still(3000)},
        ),
    ),
    "GatewayZoneGap": Case(
        {'gateway_zone_gaps_total{node="n1"}': "0x15 1x5"},
        ({'gateway_zone_gaps_total{node="n1"}': still(3)},),
    ),
    "GatewayZoneLinksRefused": Case(
        {refused("certificate"): grows(2)},
        (
            {refused("certificate"): grows(0.5)},
            {refused("stopped"): grows(50), refused("stale"): grows(50)},
            {refused("busy"): grows(50), refused("crowded"): grows(50)},
        ),
        {"reason": "certificate"},
    ),
    "GatewayZoneEventsNotTaken": Case(
        {not_applied("not_created"): "0x15 3x5", not_applied("duplicate"): grows(100)},
        (
            {not_applied("not_created"): still(3), stopped("invalid"): still(3)},
            {not_applied("duplicate"): grows(100), not_applied("older"): grows(100)},
            {stopped("hop"): grows(100), stopped("loop"): grows(100), stopped("policy"): grows(100)},
        ),
        {"reason": "not_created"},
    ),
    "GatewayZoneClocksDiffer": Case(
        {CLOCKS: still(3), 'gateway_zone_clock_difference_seconds{node="n2"}': still(0)},
        (
            {CLOCKS: still(0.3)},
            # What came late once.
            {CLOCKS: "0x10 9x2 0x8"},
        ),
    ),
}
