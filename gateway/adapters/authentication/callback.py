"""Asking a service that the operator runs who a client is; how to write one is in ``docs/how-to/authenticate.md``.

```text
credentials ──► remembered? ──► asked already? ──► wait for a place ──► POST ──► 200 who it is
                    │                │                    │                      401 not mine   403 nobody
                    ▼                ▼                    ▼                      anything else, or too late:
                 identity       wait for it       too many: come again           cannot be told now
```
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from gateway.adapters.authentication.claims import LONGEST_CREDENTIAL
from gateway.adapters.authentication.principals import check_end, check_properties, check_roles, is_valid_principal
from gateway.adapters.authentication.secret_hashes import CredentialDigests
from gateway.adapters.authentication.strict_json import read_object
from gateway.adapters.fetcher import Fetcher, NoAnswer, place_of
from gateway.ports import AuthenticationUnavailable, Credentials, CredentialsRefused, Identity, VerificationPool

LARGEST_ANSWER: Final = 64 * 1024
"""Bytes of an answer: all roles and properties that a principal may have."""

LONGEST_SECRET: Final = 16 * 1024
"""Characters of a secret that is passed on: as of a JSON Web Token."""

LONGEST_REMEMBERED: Final = 86400.0 * 365
"""Seconds that an answer may ask to be remembered; what is configured is less."""

OK: Final = 200
NOT_MINE: Final = 401
REFUSED: Final = 403


class _Remembered(NamedTuple):
    """An answer that may be given again.

    Attributes:
        identity: that was answered.
        until: when to ask again, on the monotonic clock.
    """

    identity: Identity
    until: float


class CallbackAuthenticator:
    """Asks a callback; implements ``gateway.ports.Authenticator``.

    Fails closed: whatever is no clear yes is none. Clients that show the same credentials at the same time cost one
    question, and a yes is remembered for a while, so that a storm of them costs few. It is remembered under a keyed
    digest of the credentials; the key never leaves the process, and no secret is kept.

    Args:
        url: where to ask.
        verifications: the places for questions, which this authenticator has for itself: so many are asked at a time.
        timeout: seconds that a question may take.
        remember: seconds for which a yes is remembered; 0 for not at all.
        entries: how many of them.
        clock: seconds of a monotonic clock.
        now: seconds since 1970.
        bearer: proves to the callback that it is the gateway that asks; None for no proof.
        send_address: tell the callback the client's address, and remember each answer for that address only.
        ca_file: certificates that sign the host's; None for the system's trust store.
    """

    def __init__(
        self,
        url: str,
        verifications: VerificationPool,
        *,
        timeout: float,
        remember: float,
        entries: int,
        clock: Callable[[], float],
        now: Callable[[], float],
        bearer: str | None = None,
        send_address: bool = False,
        ca_file: Path | None = None,
    ) -> None:
        self._url = url
        self._timeout = timeout
        self._verifications = verifications
        self._remember = remember
        self._entries = entries
        self._clock = clock
        self._now = now
        self._headers = {"Content-Type": "application/json"}
        if bearer is not None:
            self._headers["Authorization"] = f"Bearer {bearer}"
        self._send_address = send_address
        self._ca_file = ca_file
        self._digests = CredentialDigests()
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()
        self._fetcher: Fetcher | None = None

    @property
    def place(self) -> str:
        """Where it asks, without what may be secret in the URL."""
        return place_of(self._url)

    async def start(self) -> None:
        """Make ready to ask."""
        self._fetcher = Fetcher(
            seconds=self._timeout,
            largest=LARGEST_ANSWER,
            connections=self._verifications.places,
            ca_file=self._ca_file,
        )

    def forget(self) -> None:
        """Remember no answer any more: the next client of each principal is asked for again."""
        self._remembered.clear()

    async def close(self) -> None:
        """Ask nothing more; what is still being asked fails."""
        if self._fetcher is not None:
            await self._fetcher.close()
            self._fetcher = None

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        """Tell who shows these credentials.

        Returns:
            Who it is; None if there is no secret that could be passed on.

        Raises:
            CredentialsRefused: the callback refuses them, for good (403) or as not its own (401).
            AuthenticationUnavailable: there was no clear answer in time.
            VerificationRefused: too many are asked about at the moment.
        """
        if credentials.secret is None or len(credentials.secret) > LONGEST_SECRET:
            return None
        digest = self._digest(credentials)
        known = self._remembered.get(digest)
        if known is not None and self._is_good(known):
            self._remembered.move_to_end(digest)
            return known.identity
        return await self._verifications.run(credentials, digest, lambda: self._ask(credentials, digest))

    def _is_good(self, known: _Remembered) -> bool:
        expires = known.identity.expires
        return self._clock() < known.until and (expires is None or self._now() < expires)

    def _digest(self, credentials: Credentials) -> bytes:
        address = credentials.address if self._send_address else ""
        return self._digests.of(credentials.principal, credentials.secret or "", address)

    # --- One question -------------------------------------------------------------------------------------------------

    async def _ask(self, credentials: Credentials, digest: bytes) -> Identity:
        question = {"principal": credentials.principal, "secret": credentials.secret}
        if self._send_address:
            question["address"] = credentials.address
        try:
            body = orjson.dumps(question)
        except TypeError:
            # Lone surrogates are no text, so nobody can be called that or have such a secret.
            raise CredentialsRefused("the credentials are no Unicode text") from None
        status, answer = await self._post(body)
        if status == NOT_MINE:
            raise CredentialsRefused(f"{self.place} does not know the credentials", final=False)
        if status == REFUSED:
            raise CredentialsRefused(f"{self.place} refuses the credentials")
        if status != OK:
            raise AuthenticationUnavailable(f"{self.place} answered with status {status}")
        try:
            identity, remember = _read_answer(answer, credentials)
        except ValueError as error:
            raise AuthenticationUnavailable(f"{self.place} answered what makes no sense: {error}") from None
        if identity.expires is not None and identity.expires <= self._now():
            raise CredentialsRefused(f"{self.place} says that the credentials have expired")
        self._keep(digest, identity, remember)
        return identity

    async def _post(self, body: bytes) -> tuple[int, bytes]:
        if self._fetcher is None:
            raise AuthenticationUnavailable(f"{self.place} is not asked before the node starts")
        try:
            return await self._fetcher.ask("POST", self._url, body=body, headers=self._headers)
        except NoAnswer as error:
            raise AuthenticationUnavailable(str(error)) from None

    def _keep(self, digest: bytes, identity: Identity, remember: float | None) -> None:
        seconds = self._remember if remember is None else min(remember, self._remember)
        if seconds <= 0:
            return
        self._remembered[digest] = _Remembered(identity, self._clock() + seconds)
        self._remembered.move_to_end(digest)
        while len(self._remembered) > self._entries:
            self._remembered.popitem(last=False)


def _read_answer(answer: bytes, credentials: Credentials) -> tuple[Identity, float | None]:
    """Read a yes.

    Returns:
        Who it is, and for how many seconds that may be remembered at most; None for no limit of the callback's.

    Raises:
        ValueError: it is not one; the message repeats nothing of it.
    """
    fields = read_object(answer)
    principal = fields.get("principal", credentials.principal)
    if not isinstance(principal, str) or not is_valid_principal(principal):
        raise ValueError("'principal' is missing, or is no valid name")
    roles, properties, credential = (fields.get(name) for name in ("roles", "properties", "credential"))
    # Only null stands for nothing: whoever answers an empty text where an array belongs may have meant anything.
    roles = [] if roles is None else roles
    properties = {} if properties is None else properties
    if not isinstance(roles, list) or not all(isinstance(each, str) for each in roles):
        raise ValueError("'roles' is not an array of texts")
    if not isinstance(properties, dict) or not all(isinstance(each, str) for each in properties.values()):
        raise ValueError("'properties' is not an object of texts")
    if credential is not None and not (
        isinstance(credential, str) and 0 < len(credential) <= LONGEST_CREDENTIAL and credential.isprintable()
    ):
        raise ValueError(f"'credential' is not a text of 1 to {LONGEST_CREDENTIAL} visible characters")
    identity = Identity(
        principal=principal,
        roles=check_roles(roles),
        properties=check_properties(properties),
        expires=None if fields.get("expires") is None else check_end(fields["expires"], "'expires'"),
        credential=credential,
    )
    return identity, _remember(fields.get("remember"))


def _remember(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError("'remember' is not a number of seconds")
    # A whole number of any length is one, and more than a float may hold.
    return float(min(value, LONGEST_REMEMBERED))
