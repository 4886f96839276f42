"""What nodes say when they meet: who they are, or that there will be no link."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

import orjson

from gateway.adapters.peers.frames import FIRST_VERSION, FrameError, FrameType, encode
from gateway.catalogue.refusals import LinkRefusal
from gateway.core.types import Incarnation, NodeId, NodeRef
from gateway.ports.peers import NODE_URI

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""Of a node, as in the setting ``node``."""
_INCARNATION: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
_CLUSTER: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

MOST_WORDS: Final = 64
"""Versions and features that a hello may name."""

LARGEST_TIME: Final = 2**53
"""Seconds since 1970; far beyond any clock, and exact in every JSON."""

DETAIL_CHARACTERS: Final = 200
"""Of what a peer says that is shown to people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Who a node is.

    Attributes:
        cluster: id of its cluster.
        node: its name and which run of it.
        started: when that run started, in seconds since 1970 by its own clock.
        protocols: versions of the protocol that it speaks.
        features: what it can do beyond; words.
    """

    cluster: str
    node: NodeRef
    started: float
    protocols: frozenset[int]
    features: frozenset[str] = frozenset()

    def encode(self) -> bytes:
        """Write it as a frame."""
        body = {
            "cluster": self.cluster,
            "node": self.node.node,
            "incarnation": self.node.incarnation,
            "started": self.started,
            "protocols": sorted(self.protocols),
            "features": sorted(self.features),
        }
        return encode(FrameType.HELLO, 0, orjson.dumps(body), version=FIRST_VERSION)

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read what ``encode`` wrote; fields that are not known are ignored, for later versions.

        Raises:
            FrameError: it is no hello.
        """
        told = _object(body)
        started = told.get("started")
        if isinstance(started, bool) or not isinstance(started, (int, float)) or not 0 <= started <= LARGEST_TIME:
            raise FrameError("a hello whose 'started' is no time")
        protocols, features = told.get("protocols"), told.get("features", [])
        if not isinstance(protocols, list) or not all(type(each) is int for each in protocols[:MOST_WORDS]):
            raise FrameError("a hello whose 'protocols' are no numbers")
        if not isinstance(features, list):
            raise FrameError("a hello whose 'features' are no words")
        node = NodeRef(NodeId(_word(told, "node", _NAME)), Incarnation(_word(told, "incarnation", _INCARNATION)))
        return cls(
            cluster=_word(told, "cluster", _CLUSTER),
            node=node,
            started=float(started),
            protocols=frozenset(protocols[:MOST_WORDS]),
            features=frozenset(
                each for each in features[:MOST_WORDS] if isinstance(each, str) and _WORD.fullmatch(each)
            ),
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """That there will be no link.

    Attributes:
        reason: why.
        detail: more of it, for people.
    """

    reason: LinkRefusal
    detail: str = ""

    def encode(self) -> bytes:
        """Write it as a frame."""
        body = {"reason": self.reason.value, "detail": self.detail}
        return encode(FrameType.REFUSE, 0, orjson.dumps(body), version=FIRST_VERSION)

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read what ``encode`` wrote; a reason of a later version counts as one that is not known.

        Raises:
            FrameError: it is no refusal.
        """
        told = _object(body)
        reason, detail = told.get("reason"), told.get("detail")
        detail = shown(detail) if isinstance(detail, str) else ""
        try:
            return cls(LinkRefusal(str(reason)), detail)
        except ValueError:
            return cls(LinkRefusal.MALFORMED, f"{shown(str(reason))}: {detail}")


def names_of(certificate: Any) -> frozenset[str]:
    """List the nodes that a certificate is for.

    Args:
        certificate: as ``ssl.SSLObject.getpeercert`` tells it; verified already.
    """
    names = set()
    for kind, value in (certificate or {}).get("subjectAltName", ()):
        if kind == "DNS":
            names.add(value)
        elif kind == "URI" and value.startswith(NODE_URI):
            names.add(value.removeprefix(NODE_URI))
    return frozenset(names)


def agreed(ours: Iterable[int], theirs: Iterable[int]) -> int | None:
    """Choose the version of the protocol that both speak; None if there is none."""
    return max(set(ours) & set(theirs), default=None)


def shown(text: str) -> str:
    """Make what a peer says fit for a log."""
    return "".join(each if each.isprintable() else "?" for each in text[:DETAIL_CHARACTERS])


def _object(body: bytes) -> dict[str, Any]:
    try:
        told = orjson.loads(body)
    except ValueError:
        raise FrameError("a greeting that is no JSON") from None
    if not isinstance(told, dict):
        raise FrameError("a greeting that is no JSON object")
    return told


def _word(told: dict[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = told.get(name)
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise FrameError(f"a hello whose {name!r} is missing or is none")
    return value
