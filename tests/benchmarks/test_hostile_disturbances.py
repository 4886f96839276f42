"""When a measurement says little, because somebody had not the CPU for it; told for each by itself."""

from __future__ import annotations

import dataclasses
import socket
from typing import Any

import pytest

from benchmarks.hostile.account import Account
from benchmarks.hostile.disturbances import disturbances
from benchmarks.hostile.socket_queues import UNDER_WAY, Queues, queues_in, socket_queues
from benchmarks.hostile.verdict import Phase, busy_share, seen
from benchmarks.hostile.watch import Sight
from tests.benchmarks.hostile_data import CALM, NOTHING, measured


@pytest.mark.parametrize(
    ("waited", "kept_busy", "doubtful"), [(0.86, 1.0, False), (0.86, 0.5, True), (0.4, 0.0, False), (1.0, 0.9, False)]
)
def test_an_attacker_that_waits_is_weak_only_if_it_did_not_keep_the_node_busy(
    waited: float, kept_busy: float, doubtful: bool
) -> None:
    measurement = dataclasses.replace(measured(), attacker_waited=waited, kept_busy=kept_busy)

    assert bool(disturbances(measurement)) is doubtful


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        ({"late": 0.03}, "the machine was busy: the witness was 30 ms late for its own schedule in the"),
        ({"unobserved": 0.7}, "the machine was busy: nobody looked at the node for 0.7 s of the"),
    ],
)
def test_who_measures_must_have_had_a_cpu_in_both_phases(harm: dict[str, Any], sentence: str) -> None:
    quiet = dataclasses.replace(measured(), quiet=dataclasses.replace(CALM, **harm))

    assert disturbances(measured(**harm)) == [f"{sentence} attack"]
    assert disturbances(quiet) == [f"{sentence} quiet phase"]


def test_a_node_that_waits_for_its_core_under_attack_is_told() -> None:
    assert disturbances(dataclasses.replace(measured(), node_waited_attacked=0.05)) == []
    assert disturbances(dataclasses.replace(measured(), node_waited_attacked=0.3)) == [
        "the machine was busy: the node waited for its core for 30% of the attack"
    ]


def test_how_late_the_witness_was_and_when_nobody_looked_is_of_the_phase() -> None:
    account = Account(late=[(1.0, 9.0), (11.0, 0.002), (12.0, 0.004)])
    sight = Sight(resident=[(1.0, 9), (9.0, 9), (10.5, 5), (10.6, 5), (11.0, 5), (15.5, 7), (40.0, 7)])

    found = seen(Phase(10.0, 15.0), account, sight, (NOTHING, NOTHING), 0.5)

    assert found.late == 0.004
    assert found.unobserved == 4.5


def test_what_kept_the_node_busy_is_a_share_of_the_connections_in_all_looks_of_the_attack() -> None:
    sight = Sight(kept_busy=[(9.0, 60, 60), (10.0, 60, 30), (11.0, 20, 20), (12.0, 0, 0), (16.0, 60, 0)])

    assert busy_share(sight, Phase(10.0, 15.0)) == 50 / 80
    assert busy_share(Sight(), Phase(10.0, 15.0)) == 0


def test_the_kernels_table_tells_what_waits_to_be_read() -> None:
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
    lines = [
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000002 00:00000000 00000000     0        0 1 1",
        "   1: 0100007F:1F90 0200007F:C001 01 00000000:00000100 00:00000000 00000000     0        0 2 1",
        "   2: 0100007F:1F90 0200007F:C002 08 00000000:00000000 00:00000000 00000000     0        0 3 1",
        "   3: 0100007F:1F90 0300007F:C003 01 00000000:00000009 00:00000000 00000000     0        0 4 1",
        "   4: 0100007F:1F91 0200007F:C004 01 00000003:00000007 00:00000000 00000000     0        0 5 1",
        "   5: 0200007F:C001 0100007F:1F90 01 00000005:00000006 00:00000000 00000000     0        0 6 1",
    ]

    assert queues_in([head, *lines], {8080}, {"127.0.0.2"}) == [Queues(256, 0), Queues(0, 0)]
    assert queues_in([head, *lines], {8080, 8081}, {"127.0.0.2"}) == [Queues(256, 0), Queues(0, 0), Queues(7, 3)]


@pytest.mark.parametrize(
    ("unread", "unsent", "busy"),
    [(1, 0, True), (0, 0, False), (1, UNDER_WAY, True), (1, UNDER_WAY + 1, False), (0, UNDER_WAY + 1, False)],
)
def test_a_node_that_waits_for_a_peer_to_read_is_not_kept_busy_by_what_it_has_not_read(
    unread: int, unsent: int, busy: bool
) -> None:
    assert Queues(unread, unsent).keeps_busy is busy


def test_the_table_is_the_kernels_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.bind(("127.0.0.2", 0))
        client.connect(server.getsockname())
        client.sendall(b"unread")
        accepted, _ = server.accept()
        with accepted:
            accepted.recv(1, socket.MSG_PEEK)  # until it has come
            port = server.getsockname()[1]

            assert socket_queues({port}, {"127.0.0.2"}) == [Queues(unread=6, unsent=0)]
            assert socket_queues({port}, {"127.0.0.3"}) == []
