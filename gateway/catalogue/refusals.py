"""Why the client port refuses connections: the values of two labels, so that each kind of abuse can be counted."""

from __future__ import annotations

from enum import StrEnum


class UpgradeRefusal(StrEnum):
    """Why a connection did not become a WebSocket."""

    TLS = "tls"
    """The TLS handshake failed: no TLS at all, an old version, no cipher in common, no good client certificate."""
    SILENT = "silent"
    """Nothing was asked in time; nothing was answered."""
    GONE = "gone"
    """It ended before its request was complete: a probe, a scan, a client that gave up."""
    CROWDED_OUT = "crowded_out"
    """Too many connections had not completed their request; this was the oldest of the address that had the most."""
    SLOW = "slow"
    """The request began and was not complete in time."""
    MALFORMED = "malformed"
    """What came is no HTTP/1.1 request."""
    HEAD_TOO_LONG = "head_too_long"
    """The head of the request is longer than allowed."""
    HTTP_VERSION = "http_version"
    """Another version of HTTP."""
    AMBIGUOUS = "ambiguous"
    """No Host, or a header twice that a request has once: a proxy may have understood something else."""
    BODY = "body"
    """The request has a body, or says how long one would be: what is left of it could be taken for a request."""
    PATH = "path"
    """Another path."""
    METHOD = "method"
    """Another method than GET."""
    NO_UPGRADE = "no_upgrade"
    """The request asks for no WebSocket."""
    WEBSOCKET_VERSION = "websocket_version"
    """Another version of the WebSocket protocol."""
    WEBSOCKET_KEY = "websocket_key"
    """No good Sec-WebSocket-Key."""
    SUBPROTOCOL = "subprotocol"
    """The subprotocol is not offered."""
    ORIGIN = "origin"
    """A page of an origin that is not allowed."""
    SECRET_IN_URL = "secret_in_url"  # noqa: S105 - the name of a label
    """A token or a secret in the URL."""
    LIMIT = "limit"
    """A limit of its address or of the node, or a storm; gateway_limits_exceeded_total tells which."""
    UNAVAILABLE = "unavailable"
    """The node takes no connections: it drains or is not ready."""


class FrameRule(StrEnum):
    """The rule of RFC 6455, or of this node, that the client of a WebSocket broke, and was closed for."""

    UNMASKED = "unmasked"
    """A frame without a mask."""
    RESERVED_BITS = "reserved_bits"
    """Bits of an extension, such as those of a compressed message; none is agreed on."""
    LENGTH = "length"
    """A length that takes more bytes than it needs."""
    OPCODE = "opcode"
    """An opcode that nobody has defined."""
    CONTROL = "control"
    """A control frame that is too long or not whole."""
    ORDER = "order"
    """A message within another, or a continuation of none."""
    TOO_BIG = "too_big"
    """A message above the limit."""
    NOT_UTF_8 = "not_utf_8"
    """Text that is not UTF-8."""
    BINARY = "binary"
    """A binary message."""
    CLOSE = "close"
    """A close frame with a code that nobody may send."""
    FLOOD = "flood"
    """Frames that make no message, for longer and faster than they are borne: pings, pongs, fragments, single bytes."""


class AdminRefusal(StrEnum):
    """Why a connection to the admin port, of somebody without a token, was closed."""

    SILENT = "silent"
    """No request came in time, or not all of its head, or the handshake of TLS was not finished."""
    SLOW = "slow"
    """The answer was not taken in time, or the body of a request did not come."""
    TOO_MUCH = "too_much"
    """The head of a request or its body is too long, or more came over a WebSocket than a hello; or too many records of
    TLS that say nothing, as changes of keys, without a request."""
    CROWDED_OUT = "crowded_out"
    """All places were taken, or all bytes that may be held; it had been idle for longest, or had them for longest."""
