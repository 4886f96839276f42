"""Tokens signed with itsdangerous: HMAC-SHA256, keys that can be rotated, the end of life inside.

A token is ``<payload>.<signature>``, both base64 without padding. The payload is a JSON array, because names of fields
would cost bytes in every token: ``[session, generation, expiry, "<key id>:<told>:<seen>"]``.

Three decisions that are not obvious:

* **The end of life is in the payload**, in whole seconds since 1970, and not a time of signing. A token of a node whose
  clock is ahead is therefore never "from the future", and a changed ``token_life`` does not touch tokens already out.
* **The key id is in the payload** although the signature decides alone. It tells a token of a retired key from a
  forgery, so that the client gets the right reason (protocol section 4.2). A forger can choose it and gains a
  different refusal, nothing else.
* **Two generations of the grid stand behind the key id**, up to which the holder has been told of lost writes, and of
  which it may have seen something. They differ while a notice is under way; where they are the same, one stands for
  both. They are missing in tokens of the first release. The nodes of that release read exactly four fields, and nothing
  of the fourth in a token of the newest key: so they accept the tokens of this one while versions run side by side.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import orjson
from itsdangerous import BadData, Signer
from itsdangerous.encoding import base64_decode, base64_encode
from itsdangerous.signer import SigningAlgorithm

from gateway.catalogue import log_events as events
from gateway.core.types import GridGeneration, SessionId, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import EventLog, TokenClaims, TokenRefused
from gateway.settings import ConfigurationError, Settings, reread_keys

LEAST_KEY_BYTES: Final = 16
"""Bytes of a key: 128 bits cannot be guessed, provided that they are random."""

LONGEST_TOKEN: Final = 512
"""Characters; ours have about 110. Longer texts are refused before any work is done for them."""

KEY_ID_CHARACTERS: Final = 8
"""48 bits: enough to tell keys apart, far too little to test guesses of a key against."""

_SALT: Final = b"gateway.session-token.v1"
"""Keeps these signatures apart from any other that is made with the same keys."""

_KEY_ID_LABEL: Final = b"gateway.session-token.key-id.v1"

_SIGNATURE_CHARACTERS: Final = 43
"""SHA-256 in base64 without padding."""

_FORM: Final = re.compile(rf"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{{{_SIGNATURE_CHARACTERS}}})", re.ASCII)

_PAYLOAD_FIELDS: Final = 4

_BEFORE_GRID: Final = ":"
"""Between the key id, which is base64, and each generation of the grid."""

_GRID_DIGITS: Final = 16
"""Digits of a generation at most: below 2^53, as of all numbers."""


class KeyState(Enum):
    """What the configured keys say of a token's signature."""

    VERIFIED = "verified"
    WRONG = "wrong"
    """The key that the token names is configured, and did not make this signature."""
    RETIRED = "retired"
    """The key that the token names is not configured."""


@dataclass(frozen=True, slots=True)
class ReadToken:
    """What a token says of itself, believed or not.

    Attributes:
        claims: session, generation and end of life.
        key: id of the key that it says it was signed with; not secret.
    """

    claims: TokenClaims
    key: str


def key_id(key: bytes) -> str:
    """Name a key without telling it: the start of an HMAC of a fixed label under the key."""
    return base64_encode(hmac.digest(key, _KEY_ID_LABEL, hashlib.sha256)).decode("ascii")[:KEY_ID_CHARACTERS]


def read_unverified(token: str) -> ReadToken:
    """Read what *token* says without asking whether it is genuine.

    Raises:
        TokenRefused: TOKEN_INVALID, if it has not the form of a token.
    """
    # fullmatch on at most LONGEST_TOKEN characters; non-ASCII and lone surrogates end here.
    match = _FORM.fullmatch(token) if len(token) <= LONGEST_TOKEN else None
    if match is None:
        raise TokenRefused(ErrorCode.TOKEN_INVALID)
    payload, signature = match.groups()
    try:
        # base64 has spare bits at the end: without this check, several texts would be the same token.
        canonical = all(base64_encode(base64_decode(part)).decode("ascii") == part for part in (payload, signature))
        fields = orjson.loads(base64_decode(payload))
    except (BadData, orjson.JSONDecodeError):
        raise TokenRefused(ErrorCode.TOKEN_INVALID) from None
    read = _fields(fields) if canonical else None
    if read is None:
        raise TokenRefused(ErrorCode.TOKEN_INVALID)
    return read


def _fields(fields: object) -> ReadToken | None:
    if not isinstance(fields, list) or len(fields) != _PAYLOAD_FIELDS:
        return None
    session, generation, expires, key = fields
    # type() and not isinstance(): true is no generation.
    if type(session) is not str or type(generation) is not int or type(expires) is not int or type(key) is not str:
        return None
    name, told, seen = _key_and_grid(key)
    return ReadToken(TokenClaims(SessionId(session), TokenGeneration(generation), float(expires), told, seen), name)


def _key_and_grid(field: str) -> tuple[str, GridGeneration | None, GridGeneration | None]:
    """Read the fourth field; what is no generation belongs to the name of a key, which is then not known."""
    key, _, grid = field.partition(_BEFORE_GRID)
    told, differ, seen = grid.partition(_BEFORE_GRID)
    if not _is_generation(told) or (differ and not _is_generation(seen)):
        return field, None, None
    known = GridGeneration(int(told))
    return key, known, GridGeneration(int(seen)) if differ else known


def _is_generation(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _GRID_DIGITS


class ItsdangerousTokenSigner:
    """Signs with the newest key and verifies with all; implements ``gateway.ports.TokenSigner``.

    About 4 µs to sign or to verify a token of the newest key; holds no state but the keys, which may be changed while
    it is in use.
    """

    def __init__(
        self, keys: Sequence[bytes], verify_only: Sequence[bytes] = (), *, life: float, leeway: float = 0.0
    ) -> None:
        """Take the keys.

        Args:
            keys: newest last; the last one signs.
            verify_only: keys that verify and never sign.
            life: of a new token, in seconds.
            leeway: how far the clocks of nodes may differ, in seconds.

        Raises:
            ValueError: no key that signs, a key that is too short, or the same key twice.
        """
        self._life = life
        self._leeway = leeway
        self.use(keys, verify_only)

    def use(self, keys: Sequence[bytes], verify_only: Sequence[bytes] = ()) -> None:
        """Go on with these keys in place of the ones before, from the next token on.

        Args:
            keys: newest last; the last one signs.
            verify_only: keys that verify and never sign.

        Raises:
            ValueError: as for the constructor; the keys before stay.
        """
        everyone = [*verify_only, *keys]
        if not keys:
            raise ValueError("there is no key to sign tokens with")
        if any(len(key) < LEAST_KEY_BYTES for key in everyone):
            raise ValueError(f"a token key is shorter than {LEAST_KEY_BYTES} bytes")
        if len(set(everyone)) != len(everyone):
            raise ValueError("a token key is given twice")
        self._key_id = key_id(keys[-1])
        self._by_key_id = {key_id(key): _signer(key) for key in everyone}
        self._signing = self._by_key_id[self._key_id]

    def __repr__(self) -> str:
        return f"<ItsdangerousTokenSigner signing with {self._key_id}, verifying with {len(self._by_key_id)} keys>"

    @property
    def key_ids(self) -> tuple[str, ...]:
        """Ids of all keys that verify, the signing one last; not secret."""
        return (*(key for key in self._by_key_id if key != self._key_id), self._key_id)

    def sign(
        self,
        session: SessionId,
        token_generation: TokenGeneration,
        *,
        now: float,
        grid_generation: GridGeneration | None = None,
        seen_generation: GridGeneration | None = None,
    ) -> str:
        """Make a token that lives from *now* (seconds since 1970) for the configured life.

        Args:
            session: whose it is.
            token_generation: which of the session's tokens.
            now: seconds since 1970.
            grid_generation: of the grid, up to which its holder has been told of lost writes; None to say nothing.
            seen_generation: newest of which its holder may have seen anything; None if it is *grid_generation*.

        Raises:
            ValueError: the session's id is too long for a token.
        """
        # Rounded up: a token never lives shorter than was promised.
        key = self._key_id
        if grid_generation is not None:
            key += f"{_BEFORE_GRID}{grid_generation}"
            if seen_generation is not None and seen_generation != grid_generation:
                key += f"{_BEFORE_GRID}{seen_generation}"
        payload = orjson.dumps([session, token_generation, math.ceil(now + self._life), key])
        token = self._signing.sign(base64_encode(payload)).decode("ascii")
        if len(token) > LONGEST_TOKEN:
            raise ValueError(f"a session id of {len(session)} characters does not fit into a token")
        return token

    def verify(self, token: str, *, now: float) -> TokenClaims:
        """Read a token.

        Args:
            token: any text.
            now: seconds since 1970.

        Raises:
            TokenRefused: TOKEN_INVALID, TOKEN_EXPIRED or TOKEN_KEY_RETIRED; nothing else, whatever the text is.
        """
        claims = self._read_newest(token)
        if claims is None:
            claims = self._read_other(token)
        if now > claims.expires + self._leeway:
            raise TokenRefused(ErrorCode.TOKEN_EXPIRED)
        return claims

    def _read_newest(self, token: str) -> TokenClaims | None:
        """Read a token that the newest key has signed, as nearly all are; None if it has not."""
        if len(token) > LONGEST_TOKEN or not token.isascii():
            return None
        payload, _, signature = token.rpartition(".")
        if not hmac.compare_digest(self._signing.get_signature(payload), signature.encode()):
            return None
        # It is ours, to the letter: what it holds need not be looked at any closer.
        session, generation, expires, key = orjson.loads(base64_decode(payload))
        _, told, seen = _key_and_grid(key)
        return TokenClaims(session, generation, float(expires), told, seen)

    def _read_other(self, token: str) -> TokenClaims:
        read = read_unverified(token)
        state = self.judge(token, read)
        if state is KeyState.RETIRED:
            raise TokenRefused(ErrorCode.TOKEN_KEY_RETIRED)
        if state is KeyState.WRONG:
            raise TokenRefused(ErrorCode.TOKEN_INVALID)
        return read.claims

    def judge(self, token: str, read: ReadToken) -> KeyState:
        """Tell whether the signature of *token* is genuine.

        Args:
            token: a text of which ``read_unverified`` made *read*.
            read: what it says; only its key id is used, to pick the key.
        """
        signer = self._by_key_id.get(read.key)
        if signer is None:
            return KeyState.RETIRED
        # Compared in constant time by itsdangerous.
        return KeyState.VERIFIED if signer.validate(token) else KeyState.WRONG


class _HmacSha256(SigningAlgorithm):
    """As itsdangerous' own, with the work that depends on the key alone done once.

    Args:
        key: that signs.
    """

    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod="sha256")

    def get_signature(self, key: bytes, value: bytes) -> bytes:  # noqa: ARG002 - it is known already
        """Sign *value*."""
        signing = self._keyed.copy()
        signing.update(value)
        return signing.digest()


def _signer(key: bytes) -> Signer:
    derived = Signer(key, salt=_SALT, key_derivation="hmac", digest_method=hashlib.sha256).derive_key()
    return Signer(derived, key_derivation="none", algorithm=_HmacSha256(derived))


class FollowedKeys:
    """The signer of a node, and the files its keys come from.

    Args:
        settings: with the keys as they were read at the start.
        log: where it is told what came of reading them again.

    Attributes:
        signer: signs and verifies with them.
    """

    def __init__(self, settings: Settings, log: EventLog) -> None:
        self._settings = settings
        self._log = log
        self.signer = ItsdangerousTokenSigner(
            [key.reveal().encode() for key in settings.token_keys],
            [key.reveal().encode() for key in settings.token_verify_keys],
            life=settings.token_life,
            leeway=settings.token_leeway,
        )

    def reload(self) -> None:
        """Read the files again, if there are any; with one that is bad, nothing changes.

        A token of a key that is not there any more is refused from now on; nobody who is connected notices.
        """
        if self._settings.token_keys_file is None and self._settings.token_verify_keys_file is None:
            return
        try:
            signing, verifying = reread_keys(self._settings)
        except ConfigurationError as error:
            self._log.emit(events.KEYS_KEPT, error=str(error))
            return
        self.signer.use([key.reveal().encode() for key in signing], [key.reveal().encode() for key in verifying])
        *others, newest = self.signer.key_ids
        self._log.emit(events.KEYS_RELOADED, signs=newest, verifies=others)
