"""For each alert, series under which it fires and series under which it does not, in promtool's notation.

``a+bxn`` is a, a+b, … for n more steps; ``a`` alone stands for the same value all the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

STEPS: Final = 20
"""How long every series is; alerts are looked at after the last of them."""

MINUTE: Final = 60
"""Seconds of a step, unless a case says otherwise."""

DAY: Final = 86400
"""Seconds. Time begins with 0 in these tests."""


@dataclass(frozen=True, slots=True)
class Case:
    """One alert.

    Attributes:
        fires: series, by which it fires at the end.
        quiet: sets of series by which it does not.
        labels: of the alert that fires, besides its name and severity.
        steps: how long the series are.
        step: seconds; shorter where a rule looks at the last minute only.
        more_fires: further sets of series by which it fires.
        more_labels: of the alert that fires by these, if they are others.
    """

    fires: dict[str, str]
    quiet: tuple[dict[str, str], ...]
    labels: dict[str, str] = field(default_factory=dict)
    steps: int = STEPS
    step: int = MINUTE
    more_fires: tuple[dict[str, str], ...] = ()
    more_labels: dict[str, str] | None = None


def still(value: float) -> str:
    """A value that stays."""
    return f"{value}+0x{STEPS}"


def grows(by: float) -> str:
    """A counter that grows by so much a step."""
    return f"0+{by}x{STEPS}"


def latency(histogram: str, seconds: float, **labels: str) -> dict[str, str]:
    """A histogram whose values are all just below *seconds*, one of its bounds; 600 a step."""
    text = "".join(f',{name}="{value}"' for name, value in labels.items())
    bounds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]
    return {
        f'{histogram}_bucket{{node="n1",le="{bound}"{text}}}': grows(600 if bound >= seconds else 0) for bound in bounds
    } | {f'{histogram}_bucket{{node="n1",le="+Inf"{text}}}': grows(600)}


def slow(histogram: str, bad: float, good: float, labels: dict[str, str] | None = None, **extra: str) -> Case:
    """An alert on the slow end of a histogram."""
    return Case(
        latency(histogram, bad, **extra), (latency(histogram, good, **extra),), labels or {"node": "n1", **extra}
    )


SESSIONS: Final = {'gateway_sessions{node="n1",state="connected"}': still(1000)}
NODES: Final = {
    'up{job="gateway",node="n1",instance="a"}': still(1),
    'up{job="gateway",node="n2",instance="b"}': still(1),
    'up{job="gateway",node="n3",instance="c"}': still(1),
}
GONE: Final = {
    'up{job="gateway",node="n1",instance="a"}': "1x10 stale",
    'up{job="gateway",node="n2",instance="b"}': "1x10 stale",
    'up{job="gateway",node="n3",instance="c"}': still(1),
}
"""Two of three pods are gone, and their targets with them."""

SERVERS: Final = {
    'haproxy_server_status{instance="h",proxy="gateway",server="n1",state="UP"}': "1x10 0x10",
    'haproxy_server_status{instance="h",proxy="gateway",server="n1",state="MAINT"}': "0x10 1x10",
    'haproxy_server_status{instance="h",proxy="gateway",server="n3",state="UP"}': still(1),
}
"""HAProxy finds no address of a pod that is gone, and says MAINT."""

NODE: Final = {"node": "n1"}
TARGET: Final = {"job": "gateway", "node": "n1", "instance": "a"}
BALANCER: Final = {"job": "haproxy", "instance": "h"}
HOOK: Final = {"hook": "crm"}
"""Labels of alerts about a hook."""

ENDPOINT: Final = {"job": "endpoint", "instance": "gateway.example:443"}
TRIED: Final = {
    'up{job="endpoint",instance="gateway.example:443"}': still(1),
    'probe_success{job="endpoint",instance="gateway.example:443"}': still(1),
}

CASES: Final[dict[str, Case]] = {
    "GatewayNodeDown": Case(
        {**NODES, 'up{job="gateway",node="n1",instance="a"}': "1x10 0x10"},
        (NODES, {**NODES, 'up{job="gateway",node="n1",instance="a"}': "1x10 0x2 1x8"}),
        TARGET,
    ),
    "GatewayNoSpareNode": Case(
        {
            **NODES,
            'up{job="gateway",node="n1",instance="a"}': still(0),
            'up{job="gateway",node="n2",instance="b"}': still(0),
        },
        (
            NODES,
            {'up{job="gateway",node="n1",instance="a"}': still(1)},
            # The only node is started anew at another address.
            {
                'up{job="gateway",node="n1",instance="a"}': "1x10 stale",
                'up{job="gateway",node="n1",instance="b"}': "_x9 1x11",
            },
            # Two of three pods are gone and are wanted no more: HAProxy knows one.
            {**GONE, 'haproxy_server_status{instance="h",proxy="gateway",server="n3",state="UP"}': still(1)},
        ),
        more_fires=(
            # On Kubernetes the targets of pods that are gone are gone, too.
            GONE,
            {**GONE, 'up{job="gateway",node="n3",instance="c"}': "1x12 stale"},
            {**GONE, **SERVERS},
        ),
    ),
    "GatewayNodeGone": Case(
        {**SERVERS, **GONE},
        (
            # It answers nobody: GatewayNodeDown.
            {**SERVERS, **NODES, 'up{job="gateway",node="n1",instance="a"}': "1x10 0x10"},
            # It comes back at another address, as in a roll-out.
            {
                **SERVERS,
                **NODES,
                'up{job="gateway",node="n1",instance="a"}': "1x10 stale",
                'up{job="gateway",node="n1",instance="d"}': "_x13 1x7",
                'up{job="gateway",node="n2",instance="b"}': still(1),
            },
            # HAProxy knows a node that has not been there yet, for when there are more.
            {'haproxy_server_status{instance="h",proxy="gateway",server="n4",state="UP"}': still(0), **NODES},
            # It was taken out of HAProxy's topology.
            {
                'haproxy_server_status{instance="h",proxy="gateway",server="n1",state="UP"}': "0x15 stale",
                'up{job="gateway",node="n1",instance="a"}': "1x10 stale",
            },
            # HAProxy reaches it: what is wrong is how Prometheus finds its targets.
            {
                'haproxy_server_status{instance="h",proxy="gateway",server="n1",state="UP"}': still(0),
                'haproxy_server_status{instance="h",proxy="gateway",server="n1",state="DRAIN"}': still(1),
                'up{job="gateway",node="n1",instance="a"}': "1x10 stale",
            },
        ),
        NODE,
    ),
    "GatewayDrainStuck": Case(
        {'gateway_draining{node="n1"}': "0x10 1x10"}, ({'gateway_draining{node="n1"}': "0x17 1x3"},), NODE
    ),
    "GatewayEventLoopLag": slow("gateway_event_loop_lag_seconds", 0.25, 0.025),
    "GatewayDeliverySlow": slow("gateway_delivery_seconds", 0.5, 0.1),
    "GatewayFilesRunningOut": Case(
        {
            'process_open_fds{job="gateway",node="n1"}': still(900),
            'process_max_fds{job="gateway",node="n1"}': still(1000),
        },
        (
            {
                'process_open_fds{job="gateway",node="n1"}': still(900),
                'process_max_fds{job="gateway",node="n1"}': still(65536),
            },
        ),
        {"job": "gateway", "node": "n1"},
    ),
    "GatewayMemoryShort": Case(
        {'gateway_memory_sheddings_total{node="n1"}': grows(1)},
        ({'gateway_memory_sheddings_total{node="n1"}': still(3)},),
        NODE,
    ),
    "GatewayCertificateExpiring": Case(
        {'gateway_certificate_expiry_timestamp_seconds{node="n1",port="clients"}': still(10 * DAY)},
        (
            {'gateway_certificate_expiry_timestamp_seconds{node="n1",port="clients"}': still(30 * DAY)},
            {'gateway_certificate_expiry_timestamp_seconds{node="n1",port="clients"}': still(0)},
        ),
        {"node": "n1", "port": "clients"},
    ),
    "GatewayBug": Case(
        {'gateway_events_total{node="n1",event="request_failed"}': "0x15 1x5"},
        (
            {'gateway_events_total{node="n1",event="request_failed"}': still(3)},
            {'gateway_events_total{node="n1",event="session_resumed"}': grows(5)},
        ),
        {"node": "n1", "event": "request_failed"},
    ),
    "GatewayMixedVersions": Case(
        {
            'gateway_build_info{node="n1",version="1.0"}': "1+0x20",
            'gateway_build_info{node="n2",version="1.1"}': "1+0x20",
        },
        (
            {
                'gateway_build_info{node="n1",version="1.0"}': "1+0x20",
                'gateway_build_info{node="n2",version="1.0"}': "1+0x20",
            },
            {
                'gateway_build_info{node="n1",version="1.0"}': "1+0x20",
                'gateway_build_info{node="n2",version="1.1"}': "_x15 1x5",
            },
        ),
        step=240,
    ),
    "GatewayReloadFailed": Case(
        {'gateway_events_total{node="n1",event="policy_kept"}': "0x15 1x5"},
        (
            {'gateway_events_total{node="n1",event="policy_kept"}': still(2)},
            {'gateway_events_total{node="n1",event="users_reloaded"}': "0x15 1x5"},
        ),
        {"node": "n1", "event": "policy_kept"},
    ),
    "GatewayIssuerKeysOld": Case(
        # A provider that does not answer is asked every five minutes.
        {'gateway_events_total{node="n1",event="issuer_keys_kept"}': "_x5 " + " ".join(f"{n}x4" for n in range(11))},
        (
            # It was away for a while.
            {'gateway_events_total{node="n1",event="issuer_keys_kept"}': "0x5 1x4 2x4 3x50"},
            {'gateway_events_total{node="n1",event="issuer_keys_kept"}': still(7)},
        ),
        NODE,
        steps=60,
    ),
    "GatewayLogLinesDropped": Case(
        {'gateway_log_lines_dropped_total{node="n1"}': "0x15 500x5"},
        ({'gateway_log_lines_dropped_total{node="n1"}': still(500)},),
        NODE,
    ),
    "GatewayJournalIncomplete": Case(
        {
            'gateway_journal_dropped_total{node="n1",reason="grid_unreachable"}': "0x15 500x5",
            'gateway_journal_dropped_total{node="n1",reason="stopped"}': still(0),
        },
        (
            {
                'gateway_journal_dropped_total{node="n1",reason="grid_unreachable"}': still(500),
                'gateway_journal_cut_total{node="n1",state="unread"}': grows(7),
            },
        ),
        {"reason": "grid_unreachable"},
    ),
    "GatewayJournalReaderBehind": Case(
        {'gateway_journal_cut_total{node="n1",state="unread"}': "0x15 7x5"},
        (
            {'gateway_journal_cut_total{node="n1",state="unread"}': still(7)},
            {'gateway_journal_cut_total{node="n1",state="unclaimed"}': grows(100)},
        ),
    ),
    "GatewayJournalUnread": Case(
        {'gateway_journal_cut_total{node="n1",state="unclaimed"}': grows(100)},
        (
            {'gateway_journal_cut_total{node="n1",state="unclaimed"}': still(100)},
            {'gateway_journal_cut_total{node="n1",state="unread"}': grows(100)},
        ),
    ),
    "GatewayHookBehind": Case(
        {'gateway_hook_behind_seconds{node="n1",hook="crm"}': still(700)},
        ({'gateway_hook_behind_seconds{node="n1",hook="crm"}': still(20)},),
        HOOK,
    ),
    "GatewayHookSuspended": Case(
        {'gateway_hook_suspended{node="n1",hook="crm"}': still(1)},
        ({'gateway_hook_suspended{node="n1",hook="crm"}': still(0)},),
        HOOK,
    ),
    "GatewayHookGap": Case(
        # The first gap of a hook that was added a while ago: nodes show 0 from then on.
        {'gateway_hook_gaps_total{node="n1",hook="crm"}': "_x10 0x5 1x5"},
        ({'gateway_hook_gaps_total{node="n1",hook="crm"}': still(4)},),
        HOOK,
    ),
    "GatewayEndpointUnreachable": Case(
        {**TRIED, 'probe_success{job="endpoint",instance="gateway.example:443"}': "1x15 0x5"},
        (TRIED, {'probe_success{job="other",instance="gateway.example:443"}': still(0)}),
        ENDPOINT,
    ),
    "GatewayEndpointCertificateExpiring": Case(
        {**TRIED, 'probe_ssl_earliest_cert_expiry{job="endpoint",instance="gateway.example:443"}': still(10 * DAY)},
        (
            {**TRIED, 'probe_ssl_earliest_cert_expiry{job="endpoint",instance="gateway.example:443"}': still(30 * DAY)},
            TRIED,
        ),
        ENDPOINT,
    ),
    "GatewayEndpointUnwatched": Case(
        {'up{job="endpoint",instance="gateway.example:443"}': "1x10 0x10"},
        (TRIED, {'up{job="endpoint",instance="gateway.example:443"}': "1x17 0x3"}),
        ENDPOINT,
    ),
    "GatewayIdentityUnreachable": Case(
        {'gateway_events_total{node="n1",event="authentication_unavailable"}': grows(2)},
        ({'gateway_events_total{node="n1",event="authentication_unavailable"}': still(9)},),
    ),
    "GatewayConnectionsRejected": Case(
        {'gateway_upgrades_refused_total{node="n1",reason="origin"}': grows(20)},
        (
            {'gateway_upgrades_refused_total{node="n1",reason="origin"}': grows(5)},
            {'gateway_upgrades_refused_total{node="n1",reason="unavailable"}': grows(200)},
        ),
        {"reason": "origin"},
    ),
    "GatewayAdminRefused": Case(
        {'gateway_admin_requests_total{node="n1",status="401"}': grows(5)},
        (
            {'gateway_admin_requests_total{node="n1",status="401"}': grows(1)},
            {'gateway_admin_requests_total{node="n1",status="200"}': grows(500)},
        ),
        NODE,
    ),
    "GatewayFailoverSurge": Case(
        {**SESSIONS, 'gateway_resumes_total{node="n1",outcome="failed_over"}': "0x16 300x4"},
        (
            {**SESSIONS, 'gateway_resumes_total{node="n1",outcome="failed_over"}': "0x16 50x4"},
            {**SESSIONS, 'gateway_resumes_total{node="n1",outcome="reattached"}': "0x16 300x4"},
            {
                **SESSIONS,
                'gateway_resumes_total{node="n1",outcome="failed_over"}': "0x16 300x4",
                'gateway_draining{node="n2"}': "0x15 1x2 _x3",
            },
        ),
    ),
    "GatewayReconnectStorm": Case(
        {
            **SESSIONS,
            'gateway_resumes_total{node="n1",outcome="reattached"}': grows(3000),
            'gateway_sessions_opened_total{node="n1"}': grows(60),
        },
        (
            {
                'gateway_sessions{node="n1",state="connected"}': still(100_000),
                'gateway_resumes_total{node="n1",outcome="reattached"}': grows(3000),
                'gateway_sessions_opened_total{node="n1"}': grows(60),
            },
            {
                'gateway_sessions{node="n1",state="connected"}': still(10),
                'gateway_resumes_total{node="n1",outcome="reattached"}': grows(60),
                'gateway_sessions_opened_total{node="n1"}': grows(60),
            },
        ),
        step=15,
    ),
    "GatewayAdmissionFull": Case(
        {
            'gateway_admissions_total{node="n1",result="rejected"}': grows(300),
            'gateway_admissions_total{node="n1",result="accepted"}': grows(300),
        },
        (
            {
                'gateway_admissions_total{node="n1",result="rejected"}': grows(300),
                'gateway_admissions_total{node="n1",result="accepted"}': grows(6000),
            },
            {
                'gateway_admissions_total{node="n1",result="rejected"}': "0x16 0+300x3 900",
                'gateway_admissions_total{node="n1",result="accepted"}': grows(300),
            },
        ),
    ),
    "GatewayVerificationsRefused": Case(
        {'gateway_verifications_refused_total{node="n1",reason="crowded"}': grows(10)},
        (
            {'gateway_verifications_refused_total{node="n1",reason="late"}': grows(1)},
            {'gateway_verifications_refused_total{node="n1",reason="hung_up"}': grows(2000)},
            {'gateway_verifications_refused_total{node="n1",reason="too_often"}': grows(2000)},
        ),
        NODE,
    ),
    "GatewayLimitsExceeded": Case(
        {'gateway_limits_exceeded_total{node="n1",limit="rate_node_packets"}': grows(20)},
        (
            {'gateway_limits_exceeded_total{node="n1",limit="rate_packets"}': grows(20)},
            {'gateway_limits_exceeded_total{node="n1",limit="claim_rate"}': grows(2000)},
            {'gateway_limits_exceeded_total{node="n1",limit="claims_at_once"}': grows(2000)},
        ),
        {"limit": "rate_node_packets"},
    ),
    "GatewayResumesSlow": Case(
        latency("gateway_resume_seconds", 2.5, outcome="failed_over"),
        (
            latency("gateway_resume_seconds", 0.25, outcome="failed_over"),
            latency("gateway_resume_seconds", 2.5, outcome="refused"),
        ),
        {"outcome": "failed_over"},
    ),
    "GatewayLossDeclared": Case(
        {'gateway_losses_declared_total{node="n1",kind="gap"}': "0x17 3x3"},
        ({'gateway_losses_declared_total{node="n1",kind="gap"}': still(7)},),
        {"kind": "gap"},
    ),
    "GatewayNotReplayed": Case(
        {
            'gateway_not_replayed_total{node="n1",reason="gap"}': grows(5),
            'gateway_not_replayed_total{node="n1",reason="unnamed"}': grows(500),
            'gateway_resumes_total{node="n1",outcome="failed_over"}': grows(20),
        },
        (
            # Of the many that failed over, a few had been away for too long.
            {
                'gateway_not_replayed_total{node="n1",reason="gap"}': grows(5),
                'gateway_resumes_total{node="n1",outcome="failed_over"}': grows(100),
            },
            # One client with some partitions.
            {
                'gateway_not_replayed_total{node="n1",reason="too_many"}': grows(1),
                'gateway_resumes_total{node="n1",outcome="failed_over"}': grows(0.1),
            },
            # What these reasons mean is told by other alerts, or harms nobody.
            {
                'gateway_not_replayed_total{node="n1",reason="generation"}': grows(50),
                'gateway_not_replayed_total{node="n1",reason="unnamed"}': grows(50),
                'gateway_resumes_total{node="n1",outcome="failed_over"}': grows(20),
            },
        ),
        {"reason": "gap"},
    ),
    "GatewayWillsRefused": Case(
        fires={'gateway_wills_total{node="n1",outcome="refused"}': grows(1)},
        quiet=({'gateway_wills_total{node="n1",outcome="published"}': grows(100)},),
    ),
    "GatewayQueueFull": Case(
        fires={'gateway_queue_sends_total{node="n1",result="full"}': grows(1)},
        quiet=({'gateway_queue_sends_total{node="n1",result="sent"}': grows(100)},),
    ),
    "GatewayDeadLetters": Case(
        fires={
            'gateway_queue_messages{node="n1",state="dead"}': "3+0x5 4+0x14",
            'gateway_queue_messages{node="n2",state="dead"}': still(1),
        },
        quiet=(
            {'gateway_queue_messages{node="n1",state="dead"}': still(3)},
            {'gateway_queue_messages{node="n1",state="dead"}': "9+0x9 2+0x10"},
            {'gateway_queue_messages{node="n1",state="ready"}': grows(1)},
            {  # another node looks after them now
                'gateway_queue_messages{node="n1",state="dead"}': "3+0x9 0+0x10",
                'gateway_queue_messages{node="n2",state="dead"}': "0+0x9 3+0x10",
            },
        ),
    ),
    "GatewayQueueUnattended": Case(
        fires={'gateway_queues_unattended{node="n1"}': still(2)},
        quiet=(
            {'gateway_queues_unattended{node="n1"}': "0+0x14 1+0x5"},
            {'gateway_queues_unattended{node="n1"}': still(0)},
        ),
    ),
    "GatewayQueueBehind": Case(
        fires={
            'gateway_queue_oldest_seconds{node="n1"}': still(1000),
            'gateway_queues_unattended{node="n1"}': still(0),
        },
        quiet=(
            {'gateway_queue_oldest_seconds{node="n1"}': still(800), 'gateway_queues_unattended{node="n1"}': still(0)},
            {'gateway_queue_oldest_seconds{node="n1"}': still(1000), 'gateway_queues_unattended{node="n1"}': still(1)},
        ),
    ),
    "GatewaySlowConsumers": Case(
        {'gateway_slow_closes_total{node="n1",code="4001"}': grows(2)},
        ({'gateway_slow_closes_total{node="n1",code="4001"}': grows(0.5)},),
        NODE,
    ),
    "GatewayTokensRefused": Case(
        {
            'gateway_resumes_total{node="n1",outcome="token_invalid"}': grows(5),
            'gateway_resumes_total{node="n1",outcome="reattached"}': grows(20),
        },
        (
            {
                'gateway_resumes_total{node="n1",outcome="token_invalid"}': grows(5),
                'gateway_resumes_total{node="n1",outcome="reattached"}': grows(1000),
            },
            {
                'gateway_resumes_total{node="n1",outcome="session_expired"}': grows(50),
                'gateway_resumes_total{node="n1",outcome="reattached"}': grows(20),
            },
        ),
    ),
    "GatewayLoginsRefused": Case(
        {
            'gateway_events_total{node="n1",event="authentication_refused"}': grows(10),
            'gateway_sessions_opened_total{node="n1"}': grows(10),
        },
        (
            {
                'gateway_events_total{node="n1",event="authentication_refused"}': grows(10),
                'gateway_sessions_opened_total{node="n1"}': grows(1000),
            },
        ),
    ),
    "GatewayGridUnreachable": Case(
        {'gateway_grid_up{node="n1"}': "1x10 0x10"}, ({'gateway_grid_up{node="n1"}': still(1)},), NODE
    ),
    "GatewayNodeDeaf": Case(
        {'gateway_grid_tail_silence_seconds{node="n1"}': grows(60), 'gateway_grid_up{node="n1"}': still(1)},
        (
            {'gateway_grid_tail_silence_seconds{node="n1"}': still(2), 'gateway_grid_up{node="n1"}': still(1)},
            {'gateway_grid_tail_silence_seconds{node="n1"}': grows(60), 'gateway_grid_up{node="n1"}': still(0)},
        ),
        NODE,
    ),
    "GatewayTailLag": slow("gateway_grid_tail_lag_seconds", 2.5, 0.25),
    "GatewayLinkDown": Case(
        {'gateway_links{node="n1",state="down"}': still(1), 'gateway_links{node="n1",state="up"}': still(1)},
        (
            {'gateway_links{node="n1",state="down"}': still(0), 'gateway_links{node="n1",state="up"}': still(2)},
            # A node that is started anew.
            {'gateway_links{node="n1",state="down"}': "0x10 1x1 0x9"},
        ),
        NODE,
    ),
    "GatewayLinksPartitioned": Case(
        {'gateway_suspects{node="n1"}': still(1)},
        (
            {'gateway_suspects{node="n1"}': still(0)},
            # A node that has died, until its lease has ended.
            {'gateway_suspects{node="n1"}': "0x10 1x0 0x9"},
        ),
        NODE,
    ),
    "GatewayTakeoverStuck": Case(
        {'gateway_takeovers_under_way{node="n1"}': still(1)},
        (
            {'gateway_takeovers_under_way{node="n1"}': still(0)},
            {'gateway_takeovers_under_way{node="n1"}': "0x10 1x0 0x9"},
        ),
        NODE,
    ),
    "GatewayBackupNotWhole": Case(
        {'gateway_mirror_sessions{node="n1",copied="false"}': still(3)},
        (
            {
                'gateway_mirror_sessions{node="n1",copied="false"}': still(0),
                'gateway_mirror_sessions{node="n1",copied="true"}': still(9),
            },
            # A backup that is being filled.
            {'gateway_mirror_sessions{node="n1",copied="false"}': "0x10 900x0 0x9"},
        ),
        NODE,
    ),
    "GatewayNodeNameTaken": Case(
        {'gateway_namesakes{node="n1",instance="10.0.0.1:9101"}': "0x10 1x10"},
        ({'gateway_namesakes{node="n1",instance="10.0.0.1:9101"}': still(0)},),
        {**NODE, "instance": "10.0.0.1:9101"},
    ),
    "GatewayNoMaster": Case(
        {'gateway_master{node="n1"}': "1x5 0x20", 'gateway_master{node="n2"}': still(0)},
        ({'gateway_master{node="n1"}': still(0), 'gateway_master{node="n2"}': still(1)},),
    ),
    "GatewayMasterFlaps": Case(
        {'gateway_master_changes_total{node="n1"}': "0x5 1+1x20"},
        ({'gateway_master_changes_total{node="n1"}': "0x5 1x5 2x10"},),
    ),
    "GatewayLeaseFlapping": Case(
        {'gateway_lease_lost_total{node="n1"}': "0x5 1x5 2x10"},
        ({'gateway_lease_lost_total{node="n1"}': "0x5 1x15"},),
        NODE,
    ),
    "GatewayGridRefusesWrites": Case(
        {'gateway_events_total{node="n1",event="grid_write_refused"}': "0x17 1x3"},
        ({'gateway_events_total{node="n1",event="grid_write_refused"}': still(4)},),
    ),
    "GatewayGridMemory": Case(
        {
            'gateway_grid_memory_bytes{node="n1",master="only"}': still(900),
            'gateway_grid_memory_limit_bytes{node="n1",master="only"}': still(1000),
        },
        (
            {
                'gateway_grid_memory_bytes{node="n1",master="only"}': still(500),
                'gateway_grid_memory_limit_bytes{node="n1",master="only"}': still(1000),
            },
            {
                'gateway_grid_memory_bytes{node="n1",master="only"}': still(900),
                'gateway_grid_memory_limit_bytes{node="n1",master="only"}': still(0),
            },
        ),
        {"master": "only"},
    ),
    "GatewayGridEvicts": Case(
        {'gateway_grid_evicted_keys_total{node="n1",master="only"}': "0x15 9x5"},
        ({'gateway_grid_evicted_keys_total{node="n1",master="only"}': still(9)},),
        {"master": "only"},
    ),
    "GatewayGridForeignData": Case(
        {'gateway_grid_foreign_data_total{node="n1"}': "0x15 9x5"},
        ({'gateway_grid_foreign_data_total{node="n1"}': still(9)},),
    ),
    "GatewayGridSlotHalfMoved": Case(
        {'gateway_grid_slots_half_moved{node="n1"}': "0x15 1x5"},
        ({'gateway_grid_slots_half_moved{node="n1"}': still(0)},),
    ),
    "GatewayGridClockStepped": Case(
        {'gateway_grid_clock_steps_total{node="n1"}': "0x10 1x10"},
        ({'gateway_grid_clock_steps_total{node="n1"}': still(1)},),
        {},
    ),
    "GatewayGridNotPersistent": Case(
        {'gateway_grid_persistence_ok{node="n1",master="only"}': "1x10 0x10"},
        ({'gateway_grid_persistence_ok{node="n1",master="only"}': still(1)},),
        {"master": "only"},
    ),
    "GatewayGridSlow": slow("gateway_grid_step_seconds", 0.5, 0.1),
    "GatewayBalancerDown": Case(
        {'up{job="haproxy",instance="h"}': "1x10 0x10"},
        (
            {'up{job="haproxy",instance="h"}': still(1)},
            # One pod takes the place of another one.
            {'up{job="haproxy",instance="h"}': "1x10 stale", 'up{job="haproxy",instance="i"}': "_x9 1x11"},
        ),
        BALANCER,
        more_fires=({'up{job="haproxy",instance="h"}': "1x10 stale", 'up{job="haproxy",instance="i"}': "1x12 stale"},),
        more_labels={},
    ),
    "GatewayBalancerHasNoNode": Case(
        {'haproxy_backend_active_servers{job="haproxy",instance="h",proxy="gateway"}': "3x10 0x10"},
        (
            {'haproxy_backend_active_servers{job="haproxy",instance="h",proxy="gateway"}': still(1)},
            {'haproxy_backend_active_servers{job="haproxy",instance="h",proxy="other"}': still(0)},
        ),
        {**BALANCER, "proxy": "gateway"},
    ),
    "GatewayNodeUnseenByBalancer": Case(
        {
            **NODES,
            'haproxy_server_status{job="haproxy",instance="h",proxy="gateway",server="n1",state="DOWN"}': still(1),
            'haproxy_server_status{job="haproxy",instance="h",proxy="gateway",server="n2",state="DOWN"}': still(0),
        },
        (
            {
                **NODES,
                'up{job="gateway",node="n1",instance="a"}': still(0),
                'haproxy_server_status{job="haproxy",instance="h",proxy="gateway",server="n1",state="DOWN"}': still(1),
            },
            {
                **NODES,
                'haproxy_server_status{job="haproxy",instance="h",proxy="gateway",server="n1",state="DOWN"}': still(0),
            },
        ),
        {**BALANCER, "proxy": "gateway", "server": "n1", "state": "DOWN", "node": "n1"},
    ),
    "GatewayBalancerFull": Case(
        {
            'haproxy_process_current_connections{job="haproxy",instance="h"}': still(900),
            'haproxy_process_max_connections{job="haproxy",instance="h"}': still(1000),
        },
        (
            {
                'haproxy_process_current_connections{job="haproxy",instance="h"}': still(500),
                'haproxy_process_max_connections{job="haproxy",instance="h"}': still(1000),
            },
        ),
        BALANCER,
    ),
}
