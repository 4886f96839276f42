"""The cases of alerts on nodes, the journal and hooks; see ``rule_notation``."""

from __future__ import annotations

from typing import Final

from tests.deploy.rule_notation import DAY, NODE, NODES, Case, grows, slow, still

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

TARGET: Final = {"job": "gateway", "node": "n1", "instance": "a"}

HOOK: Final = {"hook": "crm"}
"""Labels of alerts about a hook."""

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
}
