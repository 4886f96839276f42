"""Publishes values through the Python client, each only if it is not there already."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.client import Session, Update, connect
from pipeline.errors import PipelineError
from pipeline.publish.topics import MARK, ROOT, Value

AT_ONCE: Final = 500
"""Publishes that wait for their answers together: some messages full, and no queue of the client overflows."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to publish, and as whom.

    Attributes:
        urls: of nodes or load balancers, tried in turn.
        principal: who publishes; it must be allowed to publish and to select ``ops/**``.
        secret: of the principal, if it needs one.
        timeout: seconds that connecting, and each step after that, may take.
    """

    urls: Sequence[str]
    principal: str
    secret: str | None
    timeout: float

    def __repr__(self) -> str:
        return f"Target({list(self.urls)}, {self.principal!r})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was published.

    Attributes:
        published: topics whose value was another one.
        unchanged: topics that had the value already.
        withdrawn: topics whose value is nothing now, because no row stands for them any more.
    """

    published: int
    unchanged: int
    withdrawn: int


async def publish(values: Mapping[str, Value], mark: Mapping[str, object], target: Target) -> Outcome:
    """Bring the topics below ``ops`` to what they should be.

    To do it again changes nothing: values are compared with those that are there, and only what differs is published.
    A crash in between leaves some topics new and some old; the next run brings the rest. Each single publish is in the
    grid exactly once (P5).

    Args:
        values: by topic.
        mark: the value of ``ops/published``, which is published when all others are in the grid.
        target: where.

    Raises:
        PipelineError: it could not be done; the message says why, and what to do.
    """
    try:
        async with asyncio.timeout(target.timeout):
            session = await connect(list(target.urls), principal=target.principal, secret=target.secret)
    except TimeoutError:
        where = ", ".join(target.urls)
        raise PipelineError(f"no session after {target.timeout:g} s at {where}; is a node running there?") from None
    async with session:
        try:
            async with asyncio.timeout(target.timeout):
                known = await _known(session)
        except TimeoutError:
            raise PipelineError(
                f"the values below {ROOT}/ did not arrive in {target.timeout:g} s; "
                f"may {target.principal!r} select {ROOT}/**, and publish there?"
            ) from None
        texts = {topic: orjson.dumps(value, option=orjson.OPT_SORT_KEYS) for topic, value in values.items()}
        changed = {topic: values[topic] for topic, text in texts.items() if known.get(topic) != text}
        gone = [topic for topic, text in known.items() if topic not in texts and topic != MARK and text != _NOTHING]
        await _all(session, {**changed, **dict.fromkeys(gone)}, target)
        await _all(session, {MARK: dict(mark)}, target)
    return Outcome(len(changed), len(texts) - len(changed), len(gone))


_NOTHING: Final = b"null"


async def _known(session: Session) -> dict[str, bytes]:
    """Find out what is there already.

    The snapshots of a subscribe come before those of the next one (protocol 6.3). So once a topic is known to have a
    value, it is subscribed to by itself: when that snapshot comes, all others have come. Should the session fail over
    meanwhile, a value may be missed here and published again, which changes nothing for whoever reads it.
    """
    known: dict[str, bytes] = {}

    def learn(update: Update) -> None:
        if update.topic != probe:
            known[update.topic] = orjson.dumps(update.value, option=orjson.OPT_SORT_KEYS)

    probe, nonce = f"{ROOT}/publishers", session.id
    stream = await session.subscribe(f"{ROOT}/**", queue_size=1_000_000)
    asked = asyncio.create_task(session.publish(probe, nonce))
    try:
        async for update in stream:
            if update.topic == probe and update.value == nonce:
                break
            learn(update)
        await asked
    finally:
        asked.cancel()
    async for update in await session.subscribe(f"{probe}/**"):
        if update.snapshot:
            break
    for _ in range(stream.waiting):
        learn(await anext(stream))
    await session.unsubscribe(f"{ROOT}/**")
    return known


async def _all(session: Session, values: Mapping[str, object], target: Target) -> None:
    waiting = list(values.items())
    for first in range(0, len(waiting), AT_ONCE):
        try:
            async with asyncio.timeout(target.timeout):
                await asyncio.gather(
                    *(session.publish(topic, value) for topic, value in waiting[first : first + AT_ONCE])
                )
        except TimeoutError:
            raise PipelineError(
                f"no answer to a publish in {target.timeout:g} s; run it again: what was published stays as it is"
            ) from None
