"""JSON text to packets and back (protocol sections 2 to 5).

A message is one packet or an array of packets. Bodies of session packets are encoded without their leading brace and
number: a body is made once, however many sessions it goes to, and ``head`` makes the few bytes in front that differ.
"""

from typing import Final

from gateway.core.wire.codec.blame import BEGINNING_BYTES, excessive_request, unreadable_request
from gateway.core.wire.codec.decoding import decode_from_client, decode_from_server
from gateway.core.wire.codec.encoding import (
    apart,
    encode_history,
    encode_link,
    encode_notice,
    encode_reply,
    encode_request,
    encode_update,
    folding_mark,
    follow,
    head,
    is_snapshot,
    number,
)
from gateway.core.wire.codec.exchange_packets import encode_answered, encode_question
from gateway.core.wire.codec.fields import MAX_NUMBER
from gateway.core.wire.codec.queue_packets import encode_message
from gateway.core.wire.codec.salvage import Salvaged
from gateway.core.wire.codec.value_packets import encode_values
from gateway.core.wire.codec.values import MAX_NESTING, encode_value, json_text

SUBPROTOCOL: Final = "gateway.v1.json"
"""The WebSocket subprotocol; its version changes when an old client would misunderstand (protocol 1.1)."""

__all__ = [
    "BEGINNING_BYTES",
    "MAX_NESTING",
    "MAX_NUMBER",
    "SUBPROTOCOL",
    "Salvaged",
    "apart",
    "decode_from_client",
    "decode_from_server",
    "encode_answered",
    "encode_history",
    "encode_link",
    "encode_message",
    "encode_notice",
    "encode_question",
    "encode_reply",
    "encode_request",
    "encode_update",
    "encode_value",
    "encode_values",
    "excessive_request",
    "folding_mark",
    "follow",
    "head",
    "is_snapshot",
    "json_text",
    "number",
    "unreadable_request",
]
