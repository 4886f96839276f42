"""Where the keys of an issuer come from: a file that is read again on request, or a URL asked in the background.

```text
start ──► ask ──► keys ──(refresh)──► ask ──► newer keys
           │        │                  └─fails──► the keys before stay in force, ask again soon
           │        └─(a key id nobody knows)──► ask now, but not more often than COOLDOWN
           └─fails──► no keys: nobody can be told apart, and the client is asked to come again
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from gateway.adapters.authentication.key_sets import (
    LARGEST_FILE,
    Algorithm,
    KeysError,
    KeySet,
    VerificationKey,
    read_jwks,
)
from gateway.adapters.fetcher import Fetcher, NoAnswer, give_up, place_of
from gateway.catalogue import log_events as events
from gateway.ports import AuthenticationUnavailable, EventLog

COOLDOWN: Final = 10.0
"""Seconds between two questions that unknown key ids cause: whoever makes such ids up must not make the gateway a
weapon against the identity provider; and after a rotation nobody waits longer."""

RETRY_INITIAL: Final = 1.0
"""Seconds until a failed question is asked again; doubles with each failure in a row."""

RETRY_MOST: Final = 300.0
"""Seconds that a failed question is asked again after at the latest, however seldom keys are fetched otherwise."""

HTTP_OK: Final = 200


class KeySource(Protocol):
    """Finds the keys that may have signed a token."""

    async def find(self, algorithm: Algorithm, key_id: str | None) -> Sequence[VerificationKey]:
        """List them, the most likely first; none if nobody has such a key.

        Raises:
            AuthenticationUnavailable: it cannot be told now.
        """

    async def start(self) -> None:
        """Begin to fetch, where keys are fetched; does not wait for them."""

    def reload(self) -> None:
        """Read the keys again. Blocks while it reads a file, and waits for nothing else.

        Raises:
            KeysError: they cannot be used; those that were read before stay in force.
        """

    async def close(self) -> None:
        """Stop what ``start`` began."""


class FileKeys:
    """Keys from a file; implements ``KeySource``.

    Args:
        file: with the keys.
        read: one of the readers of ``key_sets``.

    Raises:
        KeysError: it cannot be used.
    """

    def __init__(self, file: Path, read: Callable[[Path], KeySet]) -> None:
        self._file = file
        self._read = read
        self._keys = read(file)

    async def find(self, algorithm: Algorithm, key_id: str | None) -> Sequence[VerificationKey]:
        """See ``KeySource``."""
        return self._keys.candidates(algorithm, key_id)

    async def start(self) -> None:
        """See ``KeySource``; there is nothing to fetch."""

    def reload(self) -> None:
        """See ``KeySource``."""
        self._keys = self._read(self._file)

    async def close(self) -> None:
        """See ``KeySource``; there is nothing to stop."""


class UrlKeys:
    """A JWK set at a URL; implements ``KeySource``. See the module for how it is kept fresh.

    Args:
        url: of the set.
        refresh: seconds between two questions.
        timeout: seconds that one may take.
        log: where changes and failures are told.
        clock: seconds of a monotonic clock.
        ca_file: certificates that sign the host's; None for the system's trust store.
    """

    def __init__(
        self,
        url: str,
        *,
        refresh: float,
        timeout: float,
        log: EventLog,
        clock: Callable[[], float],
        ca_file: Path | None = None,
    ) -> None:
        self._url = url
        self._refresh = refresh
        self._timeout = timeout
        self._log = log
        self._clock = clock
        self._ca_file = ca_file
        self._fetcher: Fetcher | None = None
        self._keys: KeySet | None = None
        self._failed = False
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._loop_task: asyncio.Task[None] | None = None
        self._again = asyncio.Event()

    async def find(self, algorithm: Algorithm, key_id: str | None) -> Sequence[VerificationKey]:
        """See ``KeySource``; waits for the set to be fetched if it does not know the key id, and may."""
        found = self._known(algorithm, key_id)
        if found:
            return found
        if self._asking is None and self._clock() - self._asked_at < COOLDOWN:
            # Just fetched: perhaps the provider rotates at this moment, so that a refusal for good would be wrong.
            raise AuthenticationUnavailable(f"{place_of(self._url)} has just been asked and has no such key yet")
        await asyncio.shield(self._ask())
        found = self._known(algorithm, key_id)
        if not found and (self._failed or self._keys is None):
            raise AuthenticationUnavailable(f"{place_of(self._url)} gives no keys now")
        return found

    def _known(self, algorithm: Algorithm, key_id: str | None) -> Sequence[VerificationKey]:
        return () if self._keys is None else self._keys.candidates(algorithm, key_id)

    async def start(self) -> None:
        """See ``KeySource``."""
        self._fetcher = Fetcher(seconds=self._timeout, largest=LARGEST_FILE, connections=1, ca_file=self._ca_file)
        self._loop_task = asyncio.create_task(self._keep_fresh(), name="jwks-refresh")

    def reload(self) -> None:
        """See ``KeySource``; the set is fetched in the background, and the one before stays in force until then."""
        self._again.set()

    async def close(self) -> None:
        """See ``KeySource``."""
        await give_up(task for task in (self._loop_task, self._asking) if task is not None)
        if self._fetcher is not None:
            await self._fetcher.close()
            self._fetcher = None

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _keep_fresh(self) -> None:
        retry = RETRY_INITIAL
        while True:
            self._again.clear()
            await asyncio.shield(self._ask())
            retry = min(2 * retry, self._refresh, 2 * RETRY_MOST) if self._failed else RETRY_INITIAL
            with suppress(TimeoutError):
                async with asyncio.timeout(retry / 2 if self._failed else self._refresh):
                    await self._again.wait()

    def _ask(self) -> asyncio.Task[None]:
        """Fetch the set, once for all who wait for it."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._fetch(), name="jwks-fetch")
            self._asking.add_done_callback(self._asked)
        return self._asking

    def _asked(self, _task: asyncio.Task[None]) -> None:
        self._asking = None

    async def _fetch(self) -> None:
        before = self._keys
        try:
            if self._fetcher is None:
                raise NoAnswer(f"{place_of(self._url)} is not asked before the node starts")
            status, body = await self._fetcher.ask("GET", self._url)
            if status != HTTP_OK:
                raise NoAnswer(f"{place_of(self._url)} answered with status {status}")
            self._keys = await asyncio.to_thread(_read, self._url, body)
        except (NoAnswer, KeysError) as error:
            self._failed = True
            self._log.emit(events.ISSUER_KEYS_KEPT, error=str(error))
        else:
            self._failed = False
            if before is None or {each.id for each in before} != {each.id for each in self._keys}:
                self._log.emit(events.ISSUER_KEYS_FETCHED, url=place_of(self._url), keys=len(self._keys))
        finally:
            self._asked_at = self._clock()


def _read(url: str, body: bytes) -> KeySet:
    try:
        return read_jwks(body)
    except ValueError as error:
        raise KeysError(f"{place_of(url)}: {error}") from None
