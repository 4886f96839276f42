"""The cases of alerts on the grid; see ``rule_notation``."""

from __future__ import annotations

from typing import Final

from tests.deploy.rule_notation import NODE, Case, grows, slow, still

CASES: Final[dict[str, Case]] = {
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
}
