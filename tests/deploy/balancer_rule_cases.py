"""The cases of alerts on the endpoint and the balancer; see ``rule_notation``."""

from __future__ import annotations

from typing import Final

from tests.deploy.rule_notation import DAY, NODES, Case, still

BALANCER: Final = {"job": "haproxy", "instance": "h"}

ENDPOINT: Final = {"job": "endpoint", "instance": "gateway.example:443"}

TRIED: Final = {
    'up{job="endpoint",instance="gateway.example:443"}': still(1),
    'probe_success{job="endpoint",instance="gateway.example:443"}': still(1),
}

CASES: Final[dict[str, Case]] = {
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
