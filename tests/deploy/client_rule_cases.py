"""The cases of alerts on clients: who is let in, sessions that come back, and queues; see ``rule_notation``."""

from __future__ import annotations

from typing import Final

from tests.deploy.rule_notation import NODE, Case, grows, latency, still

SESSIONS: Final = {'gateway_sessions{node="n1",state="connected"}': still(1000)}

CASES: Final[dict[str, Case]] = {
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
}
