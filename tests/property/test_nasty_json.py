"""What cannot be passed on does harm to its own packet alone, wherever it stands in a message (protocol 2.6)."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final, NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.wire.codec import MAX_NESTING, Salvaged, decode_from_client, decode_from_server
from gateway.core.wire.codec.fields import Unfit
from gateway.core.wire.codec.salvage import salvage
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import Malformed, Packet, SessionPacket

PLAIN: Final = st.text(st.characters(codec="utf-8"), max_size=8)
LONE: Final = st.builds("{}{}{}".format, PLAIN, st.characters(categories=["Cs"]), PLAIN)
"""Texts that no strict parser takes. Two halves that make a whole do not come together here: there is one alone."""

BEYOND: Final = st.sampled_from(["1E400", "-1e309", "1" * 310, "-" + "9" * 400, "1.5e999", "2E+308"])
GOOD_NUMBERS: Final = st.sampled_from(["1", "-0", "1e308", "1E-400", "18446744073709551615", "9" * 30, "-1.50", "0.1"])


class Field(NamedTuple):
    """A field of a request, as it is written.

    Attributes:
        text: JSON, or nearly.
        is_good: whether it can be passed on.
    """

    text: str
    is_good: bool


def written(text: str) -> str:
    """Write a text as JavaScript does: halves of pairs as escapes."""
    return json.dumps(text)


def nested(levels: int, inner: str, *, objects: bool) -> str:
    return '{"a":' * levels + inner + "}" * levels if objects else "[" * levels + inner + "]" * levels


def levels(text: str) -> int:
    """Count the arrays and objects within each other in a text whose strings hold no brackets."""
    most = depth = 0
    for each in text:
        depth += (each in "[{") - (each in "]}")
        most = max(most, depth)
    return most


good_texts = st.builds(Field, PLAIN.map(written), st.just(True))
bad_texts = st.builds(Field, LONE.map(written), st.just(False))
texts = good_texts | bad_texts
scalars = (
    st.builds(Field, st.sampled_from(["null", "true"]) | GOOD_NUMBERS, st.just(True))
    | st.builds(Field, BEYOND, st.just(False))
    | st.sampled_from([Field('""', True), Field('"\\ud83d\\ude00"', True), Field('"\\ud83d"', False)])
)


def wrapped(inner: Field, depth: int, objects: bool) -> Field:
    text = nested(depth, inner.text, objects=objects)
    return Field(text, inner.is_good and levels(text) <= MAX_NESTING)


DEPTHS: Final = st.sampled_from([0, 1, 2, 127, 128, 129, 254, 255, 1022, 1023, 1024, 1025, 3000])
values = st.builds(wrapped, scalars, DEPTHS, st.booleans())


class Request(NamedTuple):
    """A request, as it is written.

    Attributes:
        text: without its braces and its number.
        code: of the reply that refuses it; None if it is good.
    """

    text: str
    code: ErrorCode | None


def publish(topic: Field, value: Field, unknown: Field) -> Request:
    # The value is looked at first; one of the two is told.
    code = ErrorCode.BAD_VALUE if not value.is_good else None if topic.is_good else ErrorCode.BAD_TOPIC
    return Request(f'"type":"publish","topic":{topic.text},"x":{unknown.text},"value":{value.text}', code)


def one_text(kind: str, name: str, code: ErrorCode) -> st.SearchStrategy[Request]:
    return texts.map(lambda field: Request(f'"type":"{kind}","{name}":{field.text}', None if field.is_good else code))


def properties(name: Field, value: Field) -> Request:
    good = name.is_good and value.is_good
    return Request(
        f'"type":"properties","set":{{{name.text}:{value.text}}}', None if good else ErrorCode.BAD_PROPERTIES
    )


requests = st.one_of(
    st.builds(publish, texts, values, values),
    one_text("subscribe", "selector", ErrorCode.BAD_SELECTOR),
    one_text("unsubscribe", "selector", ErrorCode.BAD_SELECTOR),
    one_text("authenticate", "secret", ErrorCode.BAD_REQUEST),
    st.builds(properties, texts, texts),
)


def alone(request: Request, number: int) -> str:
    return f'{{{request.text},"id":{number},"request":{number}}}'


def verdict(packet: Packet) -> ErrorCode | None:
    assert isinstance(packet, SessionPacket)
    return packet.body.code if isinstance(packet.body, Malformed) else None


@given(st.lists(requests, min_size=1, max_size=6))
def test_each_packet_of_a_message_is_judged_as_if_it_were_alone(asked: list[Request]) -> None:
    texts = [alone(request, number) for number, request in enumerate(asked, 1)]

    together = decode_from_client(f"[{','.join(texts)}]")

    assert [verdict(packet) for packet in together] == [request.code for request in asked]
    assert together == [packet for text in texts for packet in decode_from_client(text)]
    assert [packet.id for packet in together] == list(range(1, len(asked) + 1))  # type: ignore[union-attr]


@given(st.lists(requests, min_size=1, max_size=4), st.sampled_from(["tru", "NaN", "Infinity", "01", '"\\x"', "{]", ""]))
def test_what_is_no_json_breaks_the_protocol_whatever_stands_beside_it(asked: list[Request], rubbish: str) -> None:
    texts = [alone(request, number) for number, request in enumerate(asked, 1)]

    with pytest.raises(RemoteProtocolError, match="not JSON"):
        decode_from_client(f"[{','.join(texts)},{rubbish}]")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PLAIN, inner, max_size=4),
    max_leaves=20,
)


@given(json_values, st.booleans())
def test_what_the_strict_parser_reads_is_read_alike(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    try:
        expected = orjson.loads(text)
    except orjson.JSONDecodeError:
        return  # a whole number beyond all doubles

    assert repr(salvage(text)) == repr(expected)


@given(st.text(alphabet='[]{}",:1\\ "NIa', max_size=80), st.integers(0, 1200))
def test_brackets_without_sense_raise_nothing_else(soup: str, depth: int) -> None:
    for text in (soup, "[" * depth + soup, "[" * depth + soup + "]" * depth):
        for decode in (decode_from_client, decode_from_server):
            with suppress(RemoteProtocolError):
                decode(text)


@given(values, st.sampled_from(["token", "attempt", "received", "oldest", "secret", "away", "supports"]))
def test_a_link_packet_is_refused_by_the_name_of_the_field(value: Field, name: str) -> None:
    good = {"token": '"t"', "attempt": "1", "received": "0", "oldest": "1"}
    fields = good | {name: value.text}
    text = "{" + ",".join(f'"{each}":{content}' for each, content in fields.items()) + ',"type":"resume"}'
    if not value.is_good and name not in {"away", "supports"}:
        with pytest.raises(RemoteProtocolError, match=f"'{name}'") as refused:
            decode_from_client(text)
        assert refused.value.code is ErrorCode.PROTOCOL_ERROR
    else:
        with suppress(RemoteProtocolError):
            decode_from_client(text)


def test_a_message_that_takes_long_to_read_says_so() -> None:
    plain = decode_from_client('{"type":"ack","received":1}')
    hard = decode_from_client('{"type":"ack","received":1,"x":"\\ud83d' + "x" * 6400 + '"}')

    assert plain == hard
    assert not isinstance(plain, Salvaged)
    assert isinstance(hard, Salvaged)
    assert hard.effort >= 100


def test_what_is_cut_out_is_marked_and_nothing_else() -> None:
    deep = nested(2000, "1", objects=False)

    content = salvage(f'{{"deep":{deep},"flat":[1,2.5,"Infinity [["],"wide":[{deep},{deep}]}}')

    assert isinstance(content, dict)
    assert content["flat"] == [1, 2.5, "Infinity [["]
    assert isinstance(content["deep"], Unfit)
    assert isinstance(content["wide"], Unfit)
