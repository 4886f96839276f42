"""What a session leaves: publishes that the gateway makes when it ends. A part of ``Session``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.client.arguments import text_of, ttl_of
from gateway.client.supervisor import Supervisor
from gateway.core.client.errors import InvalidTopic, ValueTooLarge
from gateway.core.client.request_table import UNNUMBERED, encode_within
from gateway.core.topics.topics import parse_topic
from gateway.core.wire import will_packets as wire
from gateway.core.wire.codec import json_text
from gateway.core.wire.will_packets import MOST_WILLS, UNASKED, EndKind


@dataclass(frozen=True, slots=True)
class Will:
    """A publish that the gateway makes when the session ends.

    Attributes:
        topic: the path to publish to, such as ``status/alice``.
        value: as of ``Session.publish``.
        when: for which ends: ``closed`` by this client, ``expired`` as it did not come back in time, ``removed`` by an
            administrator or a revocation. By default the last two.
        ttl: as of ``Session.publish``, from the end of the session on.
    """

    topic: str
    value: object
    when: Iterable[EndKind | str] = UNASKED
    ttl: float | None = None


class WillCalls:
    """The methods of a session that are about its wills."""

    _supervisor: Supervisor

    async def set_wills(self, *wills: Will, timeout: float | None = None) -> None:  # noqa: ASYNC109 - public
        """Have the gateway publish something when this session ends, in the place of what was set before.

        It is published once, whoever ends the session, also if its node has died. It is judged by what the principal
        may do when it is set, and again when it is published.

        Args:
            wills: 8 at most, published in this order; none to leave nothing.
            timeout: seconds; None for the session's default.

        Raises:
            ValueError: ``when`` names none or an unknown end, ``ttl`` is no such time, or there are too many wills.
            InvalidTopic, ValueTooLarge, InvalidValue, Forbidden, RequestRefused, RequestTimedOut, SessionEnded: as for
                ``publish``; the wills of before stay.
        """
        if len(wills) > MOST_WILLS:
            raise ValueError(f"a session has {MOST_WILLS} wills at most, not {len(wills)}")
        ask = wire.SetWills(UNNUMBERED, tuple(map(_written, wills)))
        limits = self._supervisor.welcome.limits
        for each in ask.wills:
            if len(each.value) > limits.value_bytes:
                most = limits.value_bytes
                raise ValueTooLarge(f"the value of a will has {len(each.value)} bytes of JSON; the node accepts {most}")
        encode_within(ask, limits.message_bytes)
        await self._supervisor.request(ask, timeout)


def _written(will: Will) -> wire.Will:
    named = {EndKind(each) for each in ([will.when] if isinstance(will.when, str) else will.when)}
    if not named:
        raise ValueError("a will is for one kind of end at least")
    topic = parse_topic(text_of("topic", will.topic, InvalidTopic))
    return wire.Will(topic, json_text(will.value), tuple(each for each in EndKind if each in named), ttl_of(will.ttl))
