"""Attacks are what they say: their bytes are frames, their requests are requests, and each has a name of its own."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import jwt
import pytest
from websockets.frames import Opcode

from benchmarks.cases.base import OURS
from benchmarks.catalogue import cases_by_default, cases_by_name
from benchmarks.hostile.attack import Needs
from benchmarks.hostile.attacks import (
    admin,
    connections,
    frames,
    hashing,
    origins,
    requests,
    selectors,
    tls,
    tokens,
)
from benchmarks.hostile.attacks.content import HANDED_OVER, HandOver, Messages
from benchmarks.hostile.attacks.frames import BYTE, EMPTY, OPENING, Flood, fragment, in_fragments
from benchmarks.hostile.attacks.requests import Requests, long_selector
from benchmarks.hostile.case import Hostile
from benchmarks.hostile.catalogue import ATTACKS, GROUP_OF, GROUPS
from benchmarks.hostile.target import BALANCER, OTHER_ATTACKERS, Entry, Target
from benchmarks.hostile.tokens import AUDIENCE, issue, with_wrong_signature
from benchmarks.runner import Plan
from gateway.adapters.websocket.upgrade_request import HEAD_BYTES
from gateway.core.topics.selectors import parse_selector
from gateway.core.wire.errors import InvalidSelector
from gateway.settings import LimitSettings

LIMITS = LimitSettings()
CLIENT_PACKETS = {
    *("hello", "resume", "ack", "ping", "pong", "bye", "error"),
    *("subscribe", "unsubscribe", "publish", "properties", "authenticate"),
}
"""Types of packets that clients send (protocol 3)."""
FLOODS = [each for each in ATTACKS.values() if isinstance(each, Flood)]
REQUESTS = [each for each in ATTACKS.values() if isinstance(each, Requests)]


def unmasked(frames_: bytes) -> list[tuple[bool, int, bytes]]:
    """Read a client's frames: whether it is the last of its message, opcode, content."""
    found, at = [], 0
    while at < len(frames_):
        first, size = frames_[at], frames_[at + 1]
        assert size & 0x80, "a client masks"
        size &= 0x7F
        at += 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size = int.from_bytes(frames_[at : at + width], "big")
            at += width
        mask, content = frames_[at : at + 4], frames_[at + 4 : at + 4 + size]
        assert len(content) == size
        found.append((bool(first & 0x80), first & 0x0F, bytes(b ^ mask[n % 4] for n, b in enumerate(content))))
        at += 4 + size
    return found


def test_every_attack_has_a_name_a_sentence_and_a_place() -> None:
    assert len(ATTACKS) == sum(map(len, GROUPS.values())), "a name stands for one attack"
    for name, attack in ATTACKS.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert attack.name == name
        assert attack.about
        assert not attack.about.endswith(".")
        assert attack.counts
        assert GROUP_OF[name] in GROUPS


def test_the_case_has_all_of_them_and_runs_only_when_it_is_named() -> None:
    assert tuple(cases_by_name()["hostile"].contestants) == tuple(ATTACKS)
    assert "hostile" not in cases_by_default()


def test_some_rows_can_be_chosen() -> None:
    plan = Plan(cases=[], systems=[], rows=("acks", "pongs"))

    assert plan.contestants_of(Hostile(), {}) == ["pongs", "acks"]
    assert plan.contestants_of(cases_by_name()["cross_node"](), {}) == [OURS], "other cases have other rows"
    assert Plan(cases=[], systems=[], left_out=frozenset({OURS})).contestants_of(Hostile(), {}) == []


def test_needs_are_told_in_words() -> None:
    assert Needs().words() == ""
    assert Needs(redis_part=1 / 16).words() == "Redis and the bytes of partitions 6.2% of what is shipped"
    assert Needs(descriptors=1024, descriptors_hard=True).words() == "at most 1,024 descriptors for good"
    assert Needs(exempt=True).words() == "no limits of an address"
    assert Needs(users=True, descriptors=1024).words() == "users with secrets, at most 1,024 descriptors"


def test_a_token_with_a_wrong_signature_is_one_token_more_each_time(tmp_path: Path) -> None:
    _, tokens = issue(tmp_path, ["mallory"])
    (public,) = tmp_path.glob("*.pem")
    good = tokens["mallory"]
    assert jwt.decode(good, public.read_text(), algorithms=["RS256"], audience=AUDIENCE)["sub"] == "mallory"
    wrong = {with_wrong_signature(good, number) for number in range(50)}
    assert len(wrong) == 50
    for each in wrong:
        assert len(each) == len(good)
        with pytest.raises(jwt.InvalidSignatureError):
            jwt.decode(each, public.read_text(), algorithms=["RS256"], audience=AUDIENCE)


def test_a_small_run_has_fewer_connections_and_never_none() -> None:
    target = Target(port=1, admin=2, secrets={}, scale=0.1)

    assert (target.scaled(600), target.scaled(1)) == (60, 1)


@pytest.mark.parametrize("flood", FLOODS, ids=lambda each: each.name)
def test_what_floods_is_whole_frames(flood: Flood) -> None:
    found = unmasked(flood.before + flood.piece)
    assert len(flood.piece) * max(1, flood.ends) < 1024**2

    assert found
    for last, opcode, content in found:
        assert opcode in set(Opcode)
        assert len(content) <= LIMITS.limit_message_bytes
        if opcode in {8, 9, 10}:
            assert last
            assert len(content) <= 125
        elif last and opcode == 1 and flood.name not in {"too-deep-json", "too-deep-json-many"}:
            json.loads(content)


def test_fragments_are_one_message() -> None:
    (first, *between, last) = unmasked(in_fragments(b'{"a":1}'))

    assert first == (False, 1, b"{")
    assert all(not end and opcode == 0 and len(content) == 1 for end, opcode, content in between)
    assert last == (True, 0, b"}")
    assert unmasked(OPENING + BYTE + EMPTY) == [(False, 1, b" "), (False, 0, b" "), (False, 0, b"")]
    assert unmasked(fragment(b"x", last=True)) == [(True, 0, b"x")]


def test_frames_that_are_borne_stay_within_what_is_borne() -> None:
    for name in ("borne-pongs", "borne-pings", "borne-fragments"):
        flood = ATTACKS[name]
        assert isinstance(flood, Flood)
        found = unmasked(flood.piece)
        assert sum(not content for _, _, content in found) == 1000
        assert found[-1][0], "each turn ends with a message"


@pytest.mark.parametrize("attack", REQUESTS, ids=lambda each: each.name)
def test_requests_are_requests_and_fit_into_a_message(attack: Requests) -> None:
    kinds = {"subscribe", "unsubscribe", "publish", "properties", "authenticate"}
    for number in (1, 10_000_000):
        text = f'{{"id":{number},"received":{number},"request":{number},{attack.fields(number)}}}'
        assert len(text) <= LIMITS.limit_message_bytes
        packet = json.loads(text)
        assert packet["type"] in kinds
        if "selector" in packet:
            parse_selector(packet["selector"])
        for each in packet.get("keep", ()):
            parse_selector(each)
        value = re.search(r'"value":(.*)}$', text)
        assert value is None or len(value[1]) <= LIMITS.limit_value_bytes


@pytest.mark.parametrize("name", ["handed-over", "resubmitted"])
def test_what_is_handed_over_is_made_once_for_all_sessions(name: str) -> None:
    attack = ATTACKS[name]
    assert isinstance(attack, HandOver)
    messages = Messages(attack.fields)

    found = [messages.of(number) for number in (1, 2, HANDED_OVER)]
    for number, made in zip((1, 2, HANDED_OVER), found, strict=True):
        ((last, opcode, content),) = unmasked(made)
        packet = json.loads(content)
        assert (last, opcode) == (True, 1)
        assert (packet["id"], packet["request"], packet["type"]) == (number, number, "publish")
        assert packet.get("resubmitted", False) is (name == "resubmitted")
        assert len(content) <= LIMITS.limit_message_bytes
        assert 32_000 < len(packet["value"]) <= LIMITS.limit_value_bytes
    assert all(messages.of(number) is made for number, made in zip((1, 2, HANDED_OVER), found, strict=True))
    assert LIMITS.limit_requests >= HANDED_OVER


def test_long_selectors_differ_and_are_as_long_as_they_may_be() -> None:
    found = {str(parse_selector(long_selector(number))) for number in range(1000)}

    assert len(found) == 1000
    assert all(800 <= len(each) <= 1024 for each in found)


def test_candidates_for_the_worst_selector_are_selectors() -> None:
    for _, each in zip(range(selectors._SEARCH_CANDIDATES), selectors.candidates(), strict=False):
        try:
            parse_selector(each.replace(selectors._MARK, "n1"))
        except InvalidSelector as error:
            pytest.fail(f"{each}: {error}")


def test_a_canned_hello_is_a_record_with_a_handshake() -> None:
    hello = tls.canned_hello()

    assert hello[0] == 22
    assert len(hello) > 200
    assert int.from_bytes(hello[3:5], "big") == len(hello) - 5


def test_all_kinds_of_requests_and_frames_have_a_row() -> None:
    asked = {json.loads(f"{{{each.fields(1)}}}")["type"] for each in REQUESTS}

    assert asked == {"subscribe", "unsubscribe", "publish", "properties", "authenticate"}
    for greeted in (False, True):
        sent = [each for each in frames.ATTACKS if each.greeted is greeted]
        assert {opcode for each in sent for _, opcode, _ in unmasked(each.before + each.piece)} >= {0, 1, 2, 8}
    assert {opcode for each in frames.ATTACKS for _, opcode, _ in unmasked(each.before + each.piece)} == set(Opcode)
    assert {each.connections for each in requests.ATTACKS} == {1, requests.SEVERAL}


def test_every_packet_that_a_client_may_send_has_a_row() -> None:
    """Those of other attacks than floods are named: what they send is made while they run."""
    flooded = {
        packet["type"]
        for each in frames.ATTACKS
        for last, opcode, content in unmasked(each.piece)
        if last and opcode == 1 and not content.startswith(b"[[")
        for packet in (json.loads(content) if content.startswith(b"[") else [json.loads(content)])
    }
    made = {"hello": "hellos-gone", "resume": "resumes", "bye": "byes"}
    asked = {json.loads(f"{{{each.fields(1)}}}")["type"] for each in REQUESTS}

    assert set(made.values()) <= ATTACKS.keys()
    assert flooded & CLIENT_PACKETS | set(made) | asked == CLIENT_PACKETS


def test_every_port_and_every_origin_has_rows() -> None:
    """P20 is promised with the defaults, wherever an attacker comes from."""
    attacks = ATTACKS.values()

    assert {each.entry for each in attacks} == set(Entry)
    assert {len(each.addresses) for each in attacks} == {1, 1 + len(OTHER_ATTACKERS)}
    exempt = [each for each in attacks if each.needs.exempt]
    assert all(each.addresses == (BALANCER,) for each in exempt)
    assert {GROUP_OF[each.name.removesuffix("-local")] for each in exempt} >= {
        module.TITLE for module in (frames, hashing, tokens, connections, tls, admin)
    }
    assert {(each.needs.descriptors, each.needs.descriptors_hard) for each in connections.ATTACKS} == {
        (None, False),
        (1024, False),
        (1024, True),
    }
    assert any(isinstance(each, admin.Held) and each.agent for each in attacks)
    assert any(isinstance(each, admin.Asked) and each.token == admin.VIEWER for each in attacks)


def test_the_same_attack_from_elsewhere_differs_in_that_alone() -> None:
    for each in origins.ATTACKS:
        name, _, suffix = each.name.rpartition("-")
        same = ATTACKS[name]
        assert suffix in {"local", "addresses", "balanced", "console"}
        assert type(each) is type(same)
        assert each.needs == dataclasses.replace(same.needs, exempt=suffix == "local")


def test_a_forged_token_is_as_long_as_a_genuine_one_and_another() -> None:
    for genuine in ("AAAA.BBBB.CCCC", "x" * 200):
        assert len(tokens.forged(genuine)) == len(genuine)
        assert tokens.forged(genuine) != genuine


@pytest.mark.parametrize("name", ["http-404", "http-405", "http-long-heads"])
def test_plain_requests_are_what_they_say(name: str) -> None:
    attack = ATTACKS[name]
    assert isinstance(attack, connections.PlainRequests)
    line = attack.said.split(b"\r\n")[0]

    assert line.endswith(b" HTTP/1.1")
    assert line.startswith(b"POST " if name == "http-405" else b"GET ")
    assert (b" /v1/connect " in line) is (name != "http-404")
    assert (b"\r\n\r\n" in attack.said) is (name != "http-long-heads")
    assert (len(attack.said) > HEAD_BYTES) is (name == "http-long-heads")
