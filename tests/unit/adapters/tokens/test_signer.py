"""Promise P8, as far as a signer can keep it: every token that is not genuine is refused with its own reason."""

import hashlib
import string

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from itsdangerous import Signer
from itsdangerous.encoding import base64_decode, base64_encode

from gateway.adapters.tokens import (
    LONGEST_TOKEN,
    ItsdangerousTokenSigner,
    KeyState,
    key_id,
    read_unverified,
)
from gateway.core.types import GridGeneration, SessionId, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import TokenClaims, TokenRefused

pytestmark = pytest.mark.promise("P8")

OLD, CURRENT, NEXT = b"old-old-old-old-old", b"current-current-current", b"next-next-next-next"
NOW = 1_800_000_000.0
LIFE = 3600.0
LEEWAY = 5.0
SESSION = SessionId("KJh3x0ZQ2mW8sT5rVbYc1g")
GENERATION = TokenGeneration(3)

sessions = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=64).map(SessionId)
generations = st.integers(1, 2**53).map(TokenGeneration)


def signer(*keys: bytes, verify_only: tuple[bytes, ...] = ()) -> ItsdangerousTokenSigner:
    return ItsdangerousTokenSigner(keys or (CURRENT,), verify_only, life=LIFE, leeway=LEEWAY)


def refusal(token: str, by: ItsdangerousTokenSigner | None = None, now: float = NOW) -> ErrorCode:
    with pytest.raises(TokenRefused) as caught:
        (by or signer()).verify(token, now=now)
    return caught.value.reason


TOKEN = signer().sign(SESSION, GENERATION, now=NOW)


@given(sessions, generations, st.floats(0, 4e9))
def test_what_is_signed_is_read_again(session: SessionId, generation: TokenGeneration, now: float) -> None:
    claims = signer().verify(signer().sign(session, generation, now=now), now=now)

    assert (claims.session, claims.token_generation) == (session, generation)
    assert now + LIFE <= claims.expires < now + LIFE + 1


def test_a_token_is_short_and_safe_to_write_anywhere() -> None:
    assert len(TOKEN) < 120
    assert set(TOKEN) <= set(string.ascii_letters + string.digits + "-_.")


@given(st.text(max_size=2 * LONGEST_TOKEN))
def test_arbitrary_text_is_invalid_and_raises_nothing_else(text: str) -> None:
    assert refusal(text) is ErrorCode.TOKEN_INVALID


@given(
    st.text(string.ascii_letters + string.digits + "-_=+/. \n", max_size=200), st.sampled_from(["", ".", TOKEN[-44:]])
)
def test_text_that_looks_like_a_token_is_invalid(text: str, end: str) -> None:
    assert refusal(text + end) is ErrorCode.TOKEN_INVALID


@given(st.integers(0, len(TOKEN) - 1), st.sampled_from(string.ascii_letters + string.digits + "-_."))
def test_no_single_character_can_be_changed(position: int, character: str) -> None:
    changed = TOKEN[:position] + character + TOKEN[position + 1 :]
    if changed == TOKEN:
        return
    # A change may hit the key id, which is then one that nobody knows.
    assert refusal(changed) in {ErrorCode.TOKEN_INVALID, ErrorCode.TOKEN_KEY_RETIRED}


@pytest.mark.parametrize("decoration", ["{}=", " {}", "{}\n", "{}\x00", "{}é", "\ud800{}"])
def test_a_decorated_token_is_not_the_token(decoration: str) -> None:
    assert refusal(decoration.format(TOKEN)) is ErrorCode.TOKEN_INVALID


@pytest.mark.parametrize(
    "payload",
    [
        b"null",
        b"{}",
        b"[]",
        b'["s",1,2]',
        b'["s",true,1800000000,"x"]',
        b'["s",1,1e9,"x"]',
        b'[1,1,1800000000,"x"]',
        b'["s",1,1800000000,null]',
        b'["s",1,1800000000,"x",1]',
        b"[" * 300,
        b"\xff",
        b"",
    ],
)
def test_a_payload_of_another_shape_is_invalid_even_if_signed(payload: bytes) -> None:
    raw = base64_encode(payload)

    assert refusal(f"{raw.decode()}.{'A' * 43}") is ErrorCode.TOKEN_INVALID


def test_a_token_expires_after_its_life_and_the_leeway() -> None:
    expires = read_unverified(TOKEN).claims.expires

    assert signer().verify(TOKEN, now=expires + LEEWAY).session == SESSION
    assert refusal(TOKEN, now=expires + LEEWAY + 0.001) is ErrorCode.TOKEN_EXPIRED


@given(st.floats(0, 10**6))
def test_a_token_of_a_node_whose_clock_is_ahead_is_accepted(ahead: float) -> None:
    token = signer().sign(SESSION, GENERATION, now=NOW + ahead)

    assert signer().verify(token, now=NOW).token_generation == GENERATION


@pytest.mark.parametrize("grid", [0, 1, 7, 2**53 - 1])
def test_a_token_says_up_to_which_generation_of_the_grid_its_holder_was_told_of_losses(grid: int) -> None:
    one, other = signer(OLD), signer(OLD, CURRENT)
    token = one.sign(SESSION, GENERATION, now=NOW, grid_generation=GridGeneration(grid))

    for reader in (one, other):
        told = GridGeneration(grid)
        assert reader.verify(token, now=NOW) == TokenClaims(SESSION, GENERATION, NOW + LIFE, told, told)
    assert read_unverified(token).key == key_id(OLD), "the key is found by what stands before it"
    assert one.verify(one.sign(SESSION, GENERATION, now=NOW), now=NOW).grid_generation is None


@pytest.mark.parametrize(("told", "seen"), [(0, 1), (3, 4), (4, 21), (1, 2**53 - 1)])
def test_a_token_says_of_which_generation_its_holder_may_have_seen_something(told: int, seen: int) -> None:
    one, other = signer(OLD), signer(OLD, CURRENT)
    of_grid = GridGeneration(told), GridGeneration(seen)
    token = one.sign(SESSION, GENERATION, now=NOW, grid_generation=of_grid[0], seen_generation=of_grid[1])

    for reader in (one, other):
        assert reader.verify(token, now=NOW) == TokenClaims(SESSION, GENERATION, NOW + LIFE, *of_grid)
    assert read_unverified(token).key == key_id(OLD)


def test_a_token_whose_holder_knows_all_it_has_seen_is_no_longer_for_it() -> None:
    told = GridGeneration(3)
    short = signer().sign(SESSION, GENERATION, now=NOW, grid_generation=told)

    assert signer().sign(SESSION, GENERATION, now=NOW, grid_generation=told, seen_generation=told) == short


@pytest.mark.parametrize("seen", [3, 4])
def test_a_node_of_the_first_release_reads_the_tokens_of_this_one(seen: int) -> None:
    """While versions run side by side. It read exactly four fields, and did not look at the fourth."""
    token = signer().sign(
        SESSION, GENERATION, now=NOW, grid_generation=GridGeneration(3), seen_generation=GridGeneration(seen)
    )

    session, generation, expires, _ = orjson.loads(base64_decode(token.partition(".")[0]))
    assert (session, generation, expires) == (SESSION, GENERATION, NOW + LIFE)


@pytest.mark.parametrize(
    "grid", ["", "x", "-1", "1.5", "\u0663", "9" * 17, ":1", "1:", "1:x", "1:" + "9" * 17, "1:2:3"]
)
def test_what_is_no_generation_names_a_key_that_is_not_known(grid: str) -> None:
    payload = base64_encode(orjson.dumps([SESSION, GENERATION, int(NOW + LIFE), f"{key_id(CURRENT)}:{grid}"]))

    assert refusal(f"{payload.decode()}.{'A' * 43}") is ErrorCode.TOKEN_KEY_RETIRED


def test_the_newest_key_signs_and_all_verify() -> None:
    before, after = signer(OLD), signer(OLD, CURRENT)

    assert after.verify(before.sign(SESSION, GENERATION, now=NOW), now=NOW).session == SESSION
    assert read_unverified(after.sign(SESSION, GENERATION, now=NOW)).key == key_id(CURRENT)


def test_keys_are_rotated_in_three_steps_without_refusing_anybody() -> None:
    one, two, three = signer(CURRENT, verify_only=(NEXT,)), signer(CURRENT, NEXT), signer(NEXT)
    steps = [(signer(CURRENT), one), (one, two)]

    # While a step is rolled out, nodes of both sides issue tokens, and nodes of both sides must accept them.
    for before, after in steps:
        for issuer in (before, after):
            token = issuer.sign(SESSION, GENERATION, now=NOW)
            assert before.verify(token, now=NOW) == after.verify(token, now=NOW)
    assert three.verify(two.sign(SESSION, GENERATION, now=NOW), now=NOW).session == SESSION


def test_a_retired_key_is_told_from_a_forgery() -> None:
    retired = signer(OLD).sign(SESSION, GENERATION, now=NOW)
    payload, _, _ = retired.partition(".")
    forged = f"{payload}.{'A' * 43}"

    assert refusal(retired, signer(CURRENT)) is ErrorCode.TOKEN_KEY_RETIRED
    # A forger may claim a retired key; it is refused all the same, and learns nothing.
    assert refusal(forged, signer(CURRENT)) is ErrorCode.TOKEN_KEY_RETIRED
    assert refusal(forged, signer(OLD)) is ErrorCode.TOKEN_INVALID


def test_naming_another_configured_key_does_not_help() -> None:
    payload = base64_decode(TOKEN.partition(".")[0]).replace(key_id(CURRENT).encode(), key_id(OLD).encode())
    foreign = Signer(b"attacker-attacker", salt=b"gateway.session-token.v1").sign(base64_encode(payload)).decode()

    assert refusal(foreign, signer(OLD, CURRENT)) is ErrorCode.TOKEN_INVALID


def test_a_signature_made_for_another_purpose_is_invalid() -> None:
    payload = base64_decode(TOKEN.partition(".")[0])
    for salt in (b"another", b"gateway.session-token.v2"):
        other = Signer(CURRENT, salt=salt, key_derivation="hmac", digest_method=hashlib.sha256)
        assert refusal(other.sign(base64_encode(payload)).decode()) is ErrorCode.TOKEN_INVALID


def test_judge_says_what_the_keys_say() -> None:
    wrong = TOKEN[:-1] + ("A" if TOKEN[-1] != "A" else "Q")

    assert signer().judge(TOKEN, read_unverified(TOKEN)) is KeyState.VERIFIED
    assert signer(NEXT).judge(TOKEN, read_unverified(TOKEN)) is KeyState.RETIRED
    assert signer().judge(wrong[:-43] + "A" * 43, read_unverified(TOKEN)) is KeyState.WRONG


@pytest.mark.parametrize(
    ("keys", "verify_only"),
    [((), ()), ((), (OLD,)), ((b"short",), ()), ((OLD,), (b"short",)), ((OLD, OLD), ()), ((OLD,), (OLD,))],
)
def test_keys_that_cannot_be_used_are_refused_at_once(keys: tuple[bytes, ...], verify_only: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError, match="key"):
        ItsdangerousTokenSigner(keys, verify_only, life=LIFE)


def test_key_ids_tell_keys_apart_and_nothing_else() -> None:
    both = signer(OLD, CURRENT, verify_only=(NEXT,))

    assert both.key_ids == (key_id(NEXT), key_id(OLD), key_id(CURRENT))
    assert key_id(CURRENT) not in CURRENT.decode()
    assert CURRENT.decode() not in repr(both)


def test_a_session_id_that_does_not_fit_is_refused_when_signing() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        signer().sign(SessionId("x" * 1000), GENERATION, now=NOW)


def test_claims_are_what_the_port_promises() -> None:
    claims = signer().verify(TOKEN, now=NOW)

    assert claims == TokenClaims(SESSION, GENERATION, NOW + LIFE)
