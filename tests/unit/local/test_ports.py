"""Port plans do not overlap, and say who is in the way."""

from __future__ import annotations

import socket

import pytest

from gateway.local.ports import BLOCK, LOOPBACK, MAXIMUM_NODES, PortPlan, PortsTaken, free_port


def test_all_ports_of_the_largest_stack_lie_in_its_block_once() -> None:
    ports = PortPlan.from_base(18_000, MAXIMUM_NODES).all()

    assert len(set(ports)) == len(ports) == 5 + 5 * MAXIMUM_NODES
    assert set(ports) <= set(range(18_000, 18_000 + BLOCK))


def test_names_of_nodes_and_parts() -> None:
    plan = PortPlan.from_base(18_000, 3)

    assert list(plan.nodes) == ["n1", "n2", "n3"]
    assert (plan.entry, plan.balancer_metrics, plan.grid, plan.prometheus) == (18_000, 18_001, 18_002, 18_003)
    assert plan.demo_page == 18_004
    assert plan.nodes["n2"].listen == 18_021


@pytest.mark.parametrize(("base", "nodes"), [(18_000, 0), (18_000, MAXIMUM_NODES + 1), (0, 3), (65_500, 3)])
def test_impossible_plans_are_refused(base: int, nodes: int) -> None:
    with pytest.raises(ValueError, match=r"nodes|base"):
        PortPlan.from_base(base, nodes)


def test_a_taken_port_is_named_with_a_remedy() -> None:
    plan = PortPlan.free(2)
    with socket.create_server(("127.0.0.1", plan.nodes["n2"].admin)):
        assert plan.taken() == (plan.base + 22,)
        with pytest.raises(PortsTaken, match=rf"port {plan.base + 22} of 127\.0\.0\.1.*PORT_BASE={plan.base + BLOCK}"):
            plan.require_free()
    plan.require_free()


def test_a_free_port_can_be_had_and_is_given_to_nobody_else() -> None:
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((LOOPBACK, port))

    with socket.create_server((LOOPBACK, port)):
        socket.create_connection((LOOPBACK, port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port))


def test_a_free_block_is_kept_for_its_stack() -> None:
    plan = PortPlan.free(2)
    plan.require_free()
    for port in plan.all():
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((LOOPBACK, port))
