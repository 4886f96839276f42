"""Nothing that a cluster tells its clients ever leads one of them from TLS to clear text (P19)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.client.endings import Ending
from gateway.core.client.reconnect_plan import NextAttempt, ReconnectPlan
from gateway.core.client.urls import check_urls
from gateway.core.topology import is_secure, list_of
from gateway.core.types import NodeId
from gateway.core.wire import codec
from gateway.core.wire.packets import Backoff
from gateway.core.wire.topology_packets import Cluster, ListedNode, Topology

pytestmark = pytest.mark.promise("P19")

SCHEMES = st.sampled_from(["ws", "wss", "http", "https", "WS", "Wss", "ftp", "", "javascript", "wss ", "ws\t"])
HOSTS = st.sampled_from(
    ["a", "b", "c.example:8443", "user:secret@d", "[::1]:1", "[", "", "e:99999", "wss://f", "ws%3a"]
)
URLS = st.one_of(
    st.builds("{}://{}".format, SCHEMES, HOSTS),
    st.builds("{}://{}/v1/connect?node=n9#part".format, SCHEMES, HOSTS),
    st.text(max_size=20),
)
NODES = st.sampled_from([NodeId(f"n{number}") for number in range(1, 5)])
TABLES = st.dictionaries(NODES, st.lists(URLS, max_size=3))
LISTS = st.builds(
    Cluster,
    st.just("r"),
    st.lists(st.builds(ListedNode, NODES, st.lists(URLS, max_size=3).map(tuple)), max_size=5).map(tuple),
)

CONFIGURED = st.sampled_from(["ws", "wss"]).flatmap(
    lambda scheme: st.lists(
        st.sampled_from([f"{scheme}://{host}" for host in "abcx"]), min_size=1, max_size=3, unique=True
    )
)
ENDINGS = st.builds(
    Ending,
    message=st.just("over"),
    code=st.sampled_from([None, 4000, 4004, 4007, 4101]),
    planned=st.booleans(),
    node=st.none() | NODES,
    hung=st.booleans(),
)
STEPS = st.lists(st.tuples(st.booleans(), LISTS | st.none(), LISTS, ENDINGS), max_size=12)
"""Whether an attempt succeeds, what its welcome lists, what is pushed later, and how it ends."""

BACKOFF = Backoff(initial=0.1, maximum=1.0, stable_after=1.0)


@given(TABLES)
def test_whoever_comes_by_tls_is_told_of_no_place_without(nodes: dict[NodeId, list[str]]) -> None:
    told = list_of(nodes, secure=True)
    assert all(is_secure(url) for each in told.nodes for url in each.urls)
    assert {url for each in told.nodes for url in each.urls} == {
        url for urls in nodes.values() for url in urls if is_secure(url)
    }, "and of every one with it"


@given(CONFIGURED, STEPS)
def test_no_list_and_no_hint_changes_how_safe_a_client_is(
    configured: list[str], steps: list[tuple[bool, Cluster | None, Cluster, Ending]]
) -> None:
    """Nor to the better: from there the next attempt at a URL that was given would lead back."""
    plan = ReconnectPlan(check_urls(configured), connect_timeout=1e9, window=None, now=0.0)
    now = 0.0
    for succeeds, welcomed, pushed, ending in steps:
        following = plan.next(now, 0.5)
        assert isinstance(following, NextAttempt)
        assert is_secure(following.url) is is_secure(configured[0])
        assert following.url.startswith(("ws://", "wss://"))
        assert plan.urls[: len(configured)] == check_urls(configured), "what was given is never forgotten"
        if succeeds:
            plan.connected(node="n1", cluster=welcomed, window=1e9, backoff=BACKOFF, now=now)
            plan.listed(pushed)
            plan.lost(ending, now)
        else:
            plan.failed(ending, now)


@given(LISTS)
def test_a_list_is_read_as_it_was_written(cluster: Cluster) -> None:
    [read] = codec.decode_from_server(codec.encode_link(Topology(cluster)))
    assert read == Topology(cluster)
