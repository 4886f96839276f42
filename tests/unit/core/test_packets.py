from __future__ import annotations

import dataclasses

import pytest

from gateway.core.types import Attempt, Incarnation, NodeId, NodeRef, PacketId, SessionId
from gateway.core.wire import (
    durable_packets,
    exchange_packets,
    packets,
    queue_packets,
    topology_packets,
    transaction_packets,
    value_packets,
)
from gateway.core.wire.codes import Numbering, Outcome
from gateway.core.wire.packets import Backoff, Hello, Limits, NoticeCode, Ping, Resume, Welcome

SECRET = "s3cr3t"

WELCOME = Welcome(
    session=SessionId("s"),
    principal="alice",
    node=NodeId("n1"),
    token=SECRET,
    outcome=Outcome.CREATED,
    numbering=Numbering.RESTARTED,
    window=60.0,
    ping_interval=10.0,
    ping_timeout=30.0,
    replicated=True,
    limits=Limits(message_bytes=1, value_bytes=1, requests=1, selections=1, resend_packets=1, resend_bytes=1),
    backoff=Backoff(initial=1.0, maximum=2.0, stable_after=3.0),
    properties={},
)


@pytest.mark.promise("P8")
@pytest.mark.parametrize(
    "packet",
    [
        Hello(principal="alice", secret=SECRET),
        Resume(token=SECRET, attempt=Attempt(1), received=PacketId(0), oldest=PacketId(1)),
        Ping(SECRET),
        WELCOME,
    ],
    ids=lambda packet: type(packet).__name__,
)
def test_no_packet_shows_a_secret(packet: object) -> None:
    """P8: whatever is logged of a packet, its token and secret are not."""
    assert SECRET not in repr(packet)
    assert SECRET not in str(packet)


def test_packets_are_values() -> None:
    """That nobody changes one is the type checker's matter; see ``gateway.core.immutable``."""
    kinds = [each for each in vars(packets).values() if isinstance(each, type) and dataclasses.is_dataclass(each)]
    assert len(kinds) >= 15
    for kind in kinds:
        parameters = kind.__dataclass_params__  # type: ignore[attr-defined]
        assert parameters.eq, kind
        assert kind.__hash__ is not None, kind
        assert hasattr(kind, "__slots__"), kind


def test_every_packet_is_of_one_of_the_two_families() -> None:
    kinds = {
        each
        for module in (packets, queue_packets, durable_packets, exchange_packets, topology_packets, transaction_packets)
        for each in vars(module).values()
        if isinstance(each, type)
        and dataclasses.is_dataclass(each)
        and each not in {Limits, Backoff, packets.HistoryPart, value_packets.ValuesPart, durable_packets.DurablePlace}
        and each not in {topology_packets.Cluster, topology_packets.ListedNode}
    }
    bodies = set(packets.SessionBody.__args__)
    links = set(packets.LinkPacket.__args__)
    assert bodies | links == kinds
    assert not bodies & links


def test_notice_codes_are_stable_names() -> None:
    assert {code.value for code in NoticeCode} == {
        "grid_lost_writes",
        "slowed_down",
        "values_reread",
        "credentials_expiring",
        "administrator",
        "permissions_withdrawn",
        "withheld",
        "snapshots_complete",
        "unmirrored",
    }


def test_the_reference_of_a_node_is_read_back() -> None:
    reference = NodeRef(NodeId("eu:n1"), Incarnation("abc"))
    assert str(reference) == "eu:n1:abc"
    assert NodeRef.parse(str(reference)) == reference
    for text in ("n1", ":abc", ""):
        with pytest.raises(ValueError, match="not of the form"):
            NodeRef.parse(text)
