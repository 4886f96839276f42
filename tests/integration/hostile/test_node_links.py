"""Strangers, liars and broken nodes at the port of links: each is refused, told of once, and costs a bounded share."""

from __future__ import annotations

import asyncio
import os
import random
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.adapters.acceptor import STRANGERS
from gateway.adapters.peers import link
from gateway.adapters.peers import links as adapter
from gateway.adapters.peers.frames import FRAME_BYTES, FrameType
from gateway.adapters.peers.link import FRAME_BURST, FRAME_RATE, IDLE_BURST, TURN_FRAMES
from gateway.adapters.peers.messages import MOST_UNFINISHED, answer_body, question_body, record_body
from gateway.adapters.tls import LinkTls
from gateway.catalogue import link_metrics, log_events
from gateway.core.types import Incarnation, NodeId, NodeRef
from gateway.ports.peers import AnswerStatus, Down, NoLink, PeerPlace, Record, Silent
from tests.contract.peer_harness import CLUSTER, HEARTBEAT, LIMITS, SILENCE, Member, StreamPeerHarness
from tests.support.certificates import Authority
from tests.support.clock import eventually
from tests.support.raw_peer import RawPeer, raw_peer
from tests.support.times import scaled

N1, N2 = (NodeRef(NodeId(name), Incarnation("first")) for name in ("n1", "n2"))
N2_OLD = NodeRef(NodeId("n2"), Incarnation("zero"))


@pytest.fixture
async def clear() -> AsyncIterator[StreamPeerHarness]:
    harness = StreamPeerHarness()
    yield harness
    await harness.close()


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[StreamPeerHarness]:
    harness = StreamPeerHarness(tmp_path)
    yield harness
    await harness.close()


async def alone(harness: StreamPeerHarness) -> Member:
    """Start n1, which knows of nobody."""
    n1 = await harness.node(N1)
    await harness.tell(n1)
    return n1


async def greeted(peer: RawPeer, n1: Member, **changed: object) -> None:
    """Have a link with n1."""
    peer.hello(**changed)
    await peer.heard(FrameType.HELLO)
    await eventually(lambda: n1.links.state(N2).up)


def refused(harness: StreamPeerHarness, reason: str) -> float:
    return harness.metrics[N1].count(link_metrics.LINKS_REFUSED, label=reason)


# --- Who one is -------------------------------------------------------------------------------------------------------


async def test_another_authority_is_refused_at_both_ends(secured: StreamPeerHarness, tmp_path: Path) -> None:
    n1 = await alone(secured)
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    certificate = other.issue("n2", "n2")
    liar = LinkTls("n2", certificate, key=None, ca=secured.authority.file)  # type: ignore[union-attr]
    async with raw_peer(n1.links.address, liar.dialing()) as peer:
        peer.hello()
        await peer.hung_up()
    await eventually(lambda: refused(secured, "tls") == 1)
    # And n1 does not take such a node for n2, either, should it be dialled.
    said = asyncio.Event()

    async def listen(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said.set()
        writer.close()

    server = await asyncio.start_server(
        listen, "127.0.0.1", 0, ssl=LinkTls("n2", certificate, key=None, ca=other.file).accepting()
    )
    port = server.sockets[0].getsockname()[1]
    n1.links.meet(CLUSTER, {N2: PeerPlace(f"127.0.0.1:{port}", 1.0)})
    await eventually(lambda: bool(secured.logs[N1].of(log_events.LINK_FAILED)))
    assert "CERTIFICATE_VERIFY_FAILED" in str(secured.logs[N1].of(log_events.LINK_FAILED)[0]["error"])
    assert not said.is_set()
    assert not n1.links.state(N2).up
    server.close()


async def test_a_certificate_of_another_node_is_refused(secured: StreamPeerHarness) -> None:
    n1 = await alone(secured)
    for _ in range(3):
        async with raw_peer(n1.links.address, secured.tls("n9").dialing()) as peer:  # type: ignore[union-attr]
            peer.hello()
            assert await peer.refusal() == "name"
            await peer.hung_up()
    told = secured.logs[N1].of(log_events.LINK_REFUSED)
    assert [(each["peer"], each["reason"]) for each in told] == [("n2", "name")]
    assert "n9" in str(told[0]["detail"])
    assert refused(secured, "name") == 3


async def test_a_certificate_may_name_its_node_by_a_uri(secured: StreamPeerHarness) -> None:
    assert secured.authority is not None
    n1 = await alone(secured)
    file = secured.authority.issue("by-uri", "gateway-0.example.com", "n2")
    async with raw_peer(n1.links.address, LinkTls("n2", file, key=None, ca=secured.authority.file).dialing()) as peer:
        await greeted(peer, n1)


async def test_without_a_certificate_nobody_gets_in(secured: StreamPeerHarness) -> None:
    n1 = await alone(secured)
    assert secured.authority is not None
    naked = secured.authority.trust()
    naked.check_hostname = False
    async with raw_peer(n1.links.address, naked) as peer:
        peer.hello()
        await peer.hung_up()
    async with raw_peer(n1.links.address) as peer:
        peer.hello()
        await peer.hung_up()
    await eventually(lambda: refused(secured, "tls") + refused(secured, "silent") == 2)
    assert not n1.taken


async def test_another_cluster_is_told_once_by_both(clear: StreamPeerHarness) -> None:
    n1, n2 = await clear.node(N1), await clear.node(N2)
    await clear.tell(n1, n2, cluster="one")
    await clear.tell(n2, n1, cluster="two")
    await eventually(lambda: refused(clear, "cluster") >= 3, message="n2 tries again and again")
    assert len(clear.logs[N1].of(log_events.LINK_REFUSED)) == 1
    failed = clear.logs[N2].of(log_events.LINK_FAILED)
    assert len(failed) == 1
    assert str(failed[0]["error"]).startswith("cluster: ")


async def test_a_former_run_is_refused(clear: StreamPeerHarness) -> None:
    n1 = await alone(clear)
    async with raw_peer(n1.links.address) as peer, raw_peer(n1.links.address) as former:
        await greeted(peer, n1)
        former.hello(incarnation="zero", started=0.5)
        assert await former.refusal() == "old_run"
        assert n1.links.state(N2).up
    # The clock of its machine may have been set back: the node table decides.
    n1.links.meet(CLUSTER, {N2_OLD: PeerPlace("", 0.5)})
    async with raw_peer(n1.links.address) as former:
        former.hello(incarnation="zero", started=0.5)
        await former.heard(FrameType.HELLO)


async def test_a_node_of_its_own_name_is_refused(clear: StreamPeerHarness) -> None:
    n1 = await alone(clear)
    async with raw_peer(n1.links.address) as peer:
        peer.hello(node="n1", incarnation="other")
        assert await peer.refusal() == "old_run"


async def test_versions_are_agreed_on(clear: StreamPeerHarness) -> None:
    n1 = await alone(clear)
    async with raw_peer(n1.links.address) as peer:
        peer.hello(protocols=[7, 8])
        assert await peer.refusal() == "protocol"
    async with raw_peer(n1.links.address) as peer:
        await greeted(peer, n1, protocols=[1, 2, 3], features=["later"], something="new")


async def test_before_the_grid_answered_nobody_gets_in(clear: StreamPeerHarness) -> None:
    n1 = await clear.node(N1)
    async with raw_peer(n1.links.address) as peer:
        peer.hello()
        assert await peer.refusal() == "not_ready"
    assert not clear.logs[N1].of(log_events.LINK_REFUSED)


async def test_clear_text_stays_on_its_machine(clear: StreamPeerHarness) -> None:
    n1 = await alone(clear)
    n1.links.meet(CLUSTER, {N2: PeerPlace("192.0.2.1:7", 1.0)})
    await eventually(lambda: bool(clear.logs[N1].of(log_events.LINK_FAILED)))
    assert "link_tls_certificate" in str(clear.logs[N1].of(log_events.LINK_FAILED)[0]["error"])


@pytest.mark.parametrize(
    "address",
    ["nowhere", "127.0.0.1:x", ":7", "127.0.0.1:99999", "127.0.0.1:-1", "n1..example.org:7", f"{'x' * 64}.org:7"],
)
async def test_an_address_that_is_none_is_told_of_and_dialled_again(clear: StreamPeerHarness, address: str) -> None:
    n1 = await alone(clear)
    n1.links.meet(CLUSTER, {N2: PeerPlace(address, 1.0)})
    await eventually(lambda: bool(clear.logs[N1].of(log_events.LINK_FAILED)))
    assert clear.logs[N1].of(log_events.LINK_FAILED)[0]["address"] == address
    assert not n1.links._dialers[N2]._task.done()  # type: ignore[attr-defined]


# --- What it costs ----------------------------------------------------------------------------------------------------


async def test_strangers_who_say_nothing_make_room(clear: StreamPeerHarness) -> None:
    n1 = await alone(clear)
    connections = [await asyncio.open_connection(*n1.links.address.rsplit(":", 1)) for _ in range(STRANGERS + 5)]
    await eventually(lambda: refused(clear, "crowded_out") >= 5)
    n2 = await clear.node(N2)
    await clear.introduce(n1, n2)
    await clear.linked(n1, n2)
    for _, writer in connections:
        writer.transport.abort()


async def test_strangers_who_say_nothing_are_hung_up(clear: StreamPeerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "GREETING_SECONDS", scaled(0.1))
    n1 = await alone(clear)
    async with raw_peer(n1.links.address) as peer:
        await peer.hung_up()
    assert refused(clear, "silent") == 1


async def test_garbage_in_place_of_a_hello_is_refused(clear: StreamPeerHarness) -> None:
    n1 = await alone(clear)
    chance = random.Random(7)
    for data in (
        b"GET / HTTP/1.1\r\nHost: n1\r\n\r\n",
        struct.pack(">IBBI", 5000, FrameType.HELLO, 1, 0),
        struct.pack(">IBBI", 8, FrameType.HELLO, 1, 0) + b"{}",
        struct.pack(">IBBI", 6, FrameType.BEAT, 1, 0),
        *(chance.randbytes(200) for _ in range(20)),
    ):
        async with raw_peer(n1.links.address) as peer:
            peer.writer.write(data)
            peer.writer.write_eof()
            await peer.hung_up()
    assert not n1.taken
    assert refused(clear, "malformed") >= 4


async def _keep_beating(peer: RawPeer) -> None:
    while not peer.writer.is_closing():
        peer.say(FrameType.BEAT)
        await asyncio.sleep(HEARTBEAT)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(struct.pack(">IBBI", FRAME_BYTES, FrameType.RECORD, 1, 0), id="a frame above the most"),
        pytest.param(struct.pack(">IBBI", 2**32 - 1, FrameType.RECORD, 1, 0), id="a huge frame"),
        pytest.param(os.urandom(1000), id="garbage"),
        pytest.param(struct.pack(">IBBI", 6, FrameType.HELLO, 1, 0), id="a second hello"),
        pytest.param(struct.pack(">IBBI", 6, FrameType.BEAT, 2, 0), id="another version"),
        pytest.param(struct.pack(">IBBI", 6, FrameType.RECORD, 1, 0), id="a record without a kind"),
        pytest.param(struct.pack(">IBBI", 8, FrameType.RECORD, 1, 1) + b"\1k", id="a record of another stream"),
        pytest.param(struct.pack(">IBBI", 6, FrameType.QUESTION, 1, 1), id="a question without a head"),
        pytest.param(struct.pack(">IBBI", 6, FrameType.ANSWER, 1, 1), id="an answer without a status"),
        pytest.param(struct.pack(">IBBI", 6, FrameType.BEAT, 1, 0) * int(2 * IDLE_BURST), id="nothing but beats"),
        pytest.param(
            struct.pack(">IBBI", 7, FrameType.ANSWER, 1, 9) * int(2 * IDLE_BURST) + bytes(int(2 * IDLE_BURST)),
            id="answers to nothing",
        ),
        pytest.param(
            b"".join(
                struct.pack(">IBBI", 7, FrameType.QUESTION | 0x80, 1, n) + b"x" for n in range(MOST_UNFINISHED + 1)
            ),
            id="many messages without an end",
        ),
    ],
)
async def test_whoever_breaks_the_protocol_is_hung_up(clear: StreamPeerHarness, said: bytes) -> None:
    n1 = await alone(clear)
    async with raw_peer(n1.links.address) as peer:
        await greeted(peer, n1)
        peer.writer.write(said)
        await peer.hung_up()
    await eventually(lambda: not n1.links.state(N2).up)
    down = clear.logs[N1].of(log_events.LINK_DOWN)
    assert len(down) == 1
    assert str(down[0]["why"]).startswith("it broke the protocol")
    assert clear.metrics[N1].count(link_metrics.LINKS_LOST) == 1


async def test_a_message_above_the_bound_is_not_held(clear: StreamPeerHarness) -> None:
    n1 = await alone(clear)
    async with raw_peer(n1.links.address) as peer:
        await greeted(peer, n1)
        said = 0
        while said <= 2 * LIMITS.message and not peer.reader.at_eof():
            peer.say(FrameType.RECORD, bytes(200_000), more=True)
            said += 200_000
            await asyncio.sleep(0)
        await peer.hung_up()
    assert not n1.records(Member(N2, 1.0, n1.links))


async def test_who_does_not_read_costs_no_more_than_its_queue(clear: StreamPeerHarness) -> None:
    n1 = await alone(clear)
    async with raw_peer(n1.links.address) as peer:
        await greeted(peer, n1)
        beats = asyncio.create_task(_keep_beating(peer))
        most = 0.0

        async def flood() -> None:
            nonlocal most
            while True:
                n1.links.send(N2, "log", bytes(50_000))
                most = max(most, clear.metrics[N1].gauge(link_metrics.LINK_QUEUED_BYTES))
                await asyncio.sleep(0)

        with pytest.raises(NoLink):
            await flood()
        assert most <= LIMITS.queue + 1024 * 1024
        assert not n1.links.state(N2).up
        assert "does not read" in str(clear.logs[N1].of(log_events.LINK_DOWN)[0]["why"])
        beats.cancel()


async def test_what_nobody_takes_is_not_read(clear: StreamPeerHarness) -> None:
    n1 = await clear.node(N1, takes=False)
    await clear.tell(n1)
    async with raw_peer(n1.links.address) as peer:
        await greeted(peer, n1)
        record = record_body("log", bytes(50_000))
        said = 0
        while said < 10_000_000 and peer.writer.transport.get_write_buffer_size() < 2_000_000:
            peer.say(FrameType.RECORD, record)
            said += len(record)
            await asyncio.sleep(0)
        read = clear.metrics[N1].gauge(link_metrics.LINK_BYTES, label="in")
        assert read < LIMITS.inbox + 1024 * 1024
        # It reads on as soon as somebody takes, and has not blamed the peer for its silence meanwhile.
        n1.take()
        await eventually(lambda: clear.metrics[N1].gauge(link_metrics.LINK_BYTES, label="in") > said)
        assert n1.links.state(N2).up


async def test_more_questions_than_are_borne_are_declined(clear: StreamPeerHarness) -> None:
    n1 = await alone(clear)
    async with raw_peer(n1.links.address) as peer:
        await greeted(peer, n1)
        for number in range(1, LIMITS.questions + 2):
            peer.say(FrameType.QUESTION, question_body("mute", b"", 3600), stream=number)
        answer = await peer.heard(FrameType.ANSWER)
        assert answer.stream == LIMITS.questions + 1
        assert answer.body[0] == AnswerStatus.BUSY


async def test_answers_that_come_too_late_are_no_offence(
    clear: StreamPeerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer was stopped for a while: it owes more answers than it may send frames that say nothing."""
    monkeypatch.setattr(link, "IDLE_BURST", 5.0)
    monkeypatch.setattr(link, "IDLE_RATE", 0.001)
    n1 = await alone(clear)
    async with raw_peer(n1.links.address) as peer:
        await greeted(peer, n1)
        given_up = 0
        for _ in range(3):
            asked = (n1.links.ask(N2, "mute", b"", within=scaled(0.02)) for _ in range(LIMITS.questions))
            found = await asyncio.gather(*asked, return_exceptions=True)
            given_up += sum(isinstance(each, Silent) for each in found)
        cancelled = asyncio.create_task(n1.links.ask(N2, "mute", b"", within=3600))
        streams = [(await peer.heard(FrameType.QUESTION)).stream for _ in range(given_up + 1)]
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert given_up > 5
        for stream in streams:
            peer.say(FrameType.ANSWER, answer_body(AnswerStatus.ANSWERED, b""), stream=stream)
        asked_again = asyncio.create_task(n1.links.ask(N2, "echo", b"", within=scaled(10.0)))
        stream = (await peer.heard(FrameType.QUESTION)).stream
        peer.say(FrameType.ANSWER, answer_body(AnswerStatus.ANSWERED, b"there"), stream=stream)
        assert await asked_again == b"there"
        # As many as were asked, and no more.
        for _ in range(10):
            peer.say(FrameType.ANSWER, answer_body(AnswerStatus.ANSWERED, b""), stream=stream)
        await peer.hung_up()
    await eventually(lambda: bool(clear.logs[N1].of(log_events.LINK_DOWN)))
    assert "say nothing" in str(clear.logs[N1].of(log_events.LINK_DOWN)[0]["why"])


async def test_to_ask_more_than_is_borne_is_no_offence(
    clear: StreamPeerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This node was stopped for a while: the peer has given up what it finds, and asks rightly."""
    monkeypatch.setattr(link, "IDLE_BURST", 5.0)
    monkeypatch.setattr(link, "IDLE_RATE", 0.001)
    n1 = await alone(clear)
    async with raw_peer(n1.links.address) as peer:
        await greeted(peer, n1)
        beyond = 20
        for number in range(1, LIMITS.questions + beyond + 1):
            peer.say(FrameType.QUESTION, question_body("mute", b"", 3600), stream=number)
        for _ in range(beyond):
            assert (await peer.heard(FrameType.ANSWER)).body[0] == AnswerStatus.BUSY
        assert n1.links.state(N2).up


async def test_who_asks_without_end_and_does_not_read_is_hung_up(clear: StreamPeerHarness) -> None:
    n1 = await alone(clear)
    async with raw_peer(n1.links.address) as peer:
        await greeted(peer, n1)
        most = 0.0
        for number in range(1, 60_000):
            # Large answers at first, until the queue of answers is full, and then endless small ones.
            size = 100_000 if number < 600 else 0
            peer.say(FrameType.QUESTION, question_body("size", b"%d" % size, 3600), stream=number)
            if number % LIMITS.questions:
                continue
            # Beside the questions it was told that the link is up.
            await eventually(lambda up_to=1 + number: len(n1.taken) >= up_to or not n1.links.state(N2).up)  # type: ignore[misc]
            most = max(most, clear.metrics[N1].gauge(link_metrics.LINK_QUEUED_BYTES))
            if not n1.links.state(N2).up:
                break
        await eventually(lambda: not n1.links.state(N2).up)
        assert most <= LIMITS.queue + 1024 * 1024
        assert "does not read" in str(clear.logs[N1].of(log_events.LINK_DOWN)[0]["why"])


async def test_nothing_comes_after_a_good_bye(clear: StreamPeerHarness) -> None:
    n1 = await alone(clear)
    async with raw_peer(n1.links.address) as peer:
        await greeted(peer, n1)
        peer.say(FrameType.RECORD, record_body("log", b"before"))
        peer.say(FrameType.BYE, b"n2 stops")
        peer.say(FrameType.RECORD, record_body("log", b"after"))
        peer.say(FrameType.QUESTION, question_body("mute", b"", 3600), stream=1)
        await peer.hung_up()
    await eventually(lambda: any(isinstance(each, Down) for each in n1.taken))
    assert isinstance(n1.taken[-1], Down)
    assert [each.body for each in n1.taken if isinstance(each, Record)] == [b"before"]


async def test_names_that_strangers_make_up_are_no_series_of_metrics(clear: StreamPeerHarness) -> None:
    n1 = await alone(clear)
    for number in range(20):
        async with raw_peer(n1.links.address) as peer:
            peer.hello(node=f"made-up-{number}")
            await peer.heard(FrameType.HELLO)
    assert clear.metrics[N1].watched(link_metrics.LINK_SILENCE_SECONDS) == set()
    n1.links.meet(CLUSTER, {N2: PeerPlace("127.0.0.1:1", 1.0)})
    assert clear.metrics[N1].watched(link_metrics.LINK_SILENCE_SECONDS) == {"n2"}


@pytest.mark.promise("P20")
async def test_a_flood_of_small_records_takes_few_in_a_turn_and_so_many_in_a_second(clear: StreamPeerHarness) -> None:
    n1 = await alone(clear)
    loop, frames, flood = asyncio.get_running_loop(), 0.0, 2 * FRAME_BURST
    async with raw_peer(n1.links.address) as peer:
        await greeted(peer, n1)
        start = loop.time()
        said = struct.pack(">IBBI", 8, FrameType.RECORD, 1, 0) + b"\1k"
        peer.writer.write(said * flood)
        most = 0.0
        while frames < flood:
            await asyncio.sleep(0)
            before, frames = frames, clear.metrics[N1].gauge(link_metrics.LINK_FRAMES, label="in")
            most = max(most, frames - before)
            assert frames <= FRAME_BURST + FRAME_RATE * (loop.time() - start) + 2 * TURN_FRAMES
        assert most <= 2 * TURN_FRAMES
        await eventually(lambda: len([each for each in n1.taken if isinstance(each, Record)]) == flood)
        assert n1.links.state(N2).up


async def test_a_half_open_connection_is_noticed(clear: StreamPeerHarness) -> None:
    n1 = await alone(clear)
    async with raw_peer(n1.links.address) as peer:
        await greeted(peer, n1)
        await eventually(lambda: n1.links.state(N2).silence > SILENCE / 2)
        assert n1.links.state(N2).up
        await peer.hung_up()
    await eventually(lambda: not n1.links.state(N2).up)
    assert "nothing was heard" in str(clear.logs[N1].of(log_events.LINK_DOWN)[0]["why"])


async def test_beats_are_sent_only_if_nothing_else_is(clear: StreamPeerHarness) -> None:
    n1 = await alone(clear)
    async with raw_peer(n1.links.address) as peer:
        await greeted(peer, n1)
        await peer.heard(FrameType.BEAT)
        peer.say(FrameType.BEAT)
        assert n1.links.state(N2).up

        async def chatter() -> None:
            while True:
                n1.links.send(N2, "log", b"x")
                await asyncio.sleep(HEARTBEAT / 10)

        talking = asyncio.create_task(chatter())
        await peer.heard(FrameType.RECORD)
        records = 0
        while records < 50:
            frame = await peer.frame()
            assert frame is not None
            assert frame.type is FrameType.RECORD
            records += 1
            peer.say(FrameType.BEAT)
        talking.cancel()


async def test_both_dial_at_once_and_one_connection_stays() -> None:
    harness = StreamPeerHarness(both_dial=True)
    try:
        n1, n2 = await harness.pair(N1, N2)
        for _ in range(10):
            harness.cut(n1, n2)
            await eventually(lambda: not n1.is_up(n2) and not n2.is_up(n1))
            await harness.mend(n1, n2)
            await harness.linked(n1, n2)
            await eventually(lambda: harness.connections(n1, n2) == 1, message="one connection stays")
            assert n1.is_up(n2)
            assert n2.is_up(n1)
        assert not any(isinstance(each, Down) and "protocol" in each.why for each in (*n1.taken, *n2.taken))
    finally:
        await harness.close()
