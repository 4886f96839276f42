"""Whatever strangers show as a token, or a callback answers, ends in an identity or one of the errors of the port."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.authentication import (
    Algorithm,
    ClaimRules,
    FileKeys,
    JwtAuthenticator,
    is_valid_principal,
    read_claims,
    read_jwks,
)
from gateway.adapters.authentication.callback import _read_answer
from gateway.adapters.authentication.principals import LATEST
from gateway.ports import Credentials, CredentialsRefused, Identity
from tests.support.issuers import AUDIENCE, ISSUER, NOW, claims, encode, jwk, jwks, token

RULES = ClaimRules(
    issuer=ISSUER, audiences=frozenset({AUDIENCE}), roles="realm_access.roles", properties={"team": "a.b"}
)
KEYS = read_jwks(jwks(jwk("ES256")))
GOOD = token("ES256")

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
numbers = st.sampled_from([0, -1, 1e308, -1e308, 10**400, 2**70, NOW * 1000, 253_402_300_800, True])
"""What is no time, or no number of seconds, and yet JSON."""
names = st.sampled_from([*claims(), "nbf", "a.b", "realm_access"])
parts = st.one_of(
    st.text(),
    st.binary().map(encode),
    st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "b64"]), json_values).map(
        lambda header: encode(json.dumps(header).encode())
    ),
    st.sampled_from(GOOD.split(".")),
)


def authenticator(file: Path) -> JwtAuthenticator:
    return JwtAuthenticator(
        FileKeys(file, lambda _: KEYS), algorithms=frozenset({Algorithm.ES256}), rules=RULES, now=lambda: NOW
    )


LONGEST_SENTENCE = 500
"""Characters of a refusal, and of an identity that is shown: nothing of what was sent is in it."""

JWT = authenticator(Path("never read"))


async def outcome(secret: str) -> Identity | CredentialsRefused | None:
    try:
        return await JWT.authenticate(Credentials(secret=secret))
    except CredentialsRefused as refused:
        return refused


async def test_the_token_gets_in() -> None:
    assert isinstance(await outcome(GOOD), Identity)


@given(secret=st.text() | st.lists(parts, min_size=3, max_size=3).map(".".join))
async def test_no_text_gets_in_but_the_token(secret: str) -> None:
    found = await outcome(secret)

    assert secret == GOOD or found is None or isinstance(found, CredentialsRefused)
    assert len(str(found)) < LONGEST_SENTENCE


@given(changes=st.dictionaries(names, json_values | numbers, max_size=3))
def test_any_claims_are_mapped_or_refused(changes: dict[str, Any]) -> None:
    try:
        identity = read_claims(claims() | changes, RULES, now=NOW)
    except CredentialsRefused:
        return
    assert identity.expires is None or NOW < identity.expires <= LATEST + RULES.leeway
    assert_of_the_right_types(identity)


def assert_of_the_right_types(identity: Identity) -> None:
    """As they go into the grid, into timers and to clients."""
    assert is_valid_principal(identity.principal)
    assert all(type(role) is str for role in identity.roles)
    assert all(isinstance(each, str) for pair in identity.properties.items() for each in pair)
    assert identity.expires is None or isinstance(identity.expires, float)
    assert identity.credential is None or identity.credential.isprintable()
    json.dumps([*identity.properties.values()]).encode()


@given(answer=st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_answer_of_a_callback_is_read_or_is_none(answer: bytes) -> None:
    try:
        identity, _ = _read_answer(answer, Credentials(principal="alice", secret="x"))
    except ValueError:
        return
    assert_of_the_right_types(identity)


FIELDS = ("principal", "roles", "properties", "expires", "credential", "remember")


@pytest.mark.promise("P20")
@given(answer=st.dictionaries(st.sampled_from(FIELDS), json_values | numbers, max_size=6))
def test_any_field_of_a_callbacks_answer_is_what_it_has_to_be_or_there_is_no_answer(answer: dict[str, Any]) -> None:
    try:
        identity, remember = _read_answer(json.dumps(answer).encode(), Credentials(principal="alice", secret="x"))
    except ValueError:
        return
    assert_of_the_right_types(identity)
    assert identity.expires is None or 0 <= identity.expires < LATEST
    assert remember is None or 0 <= remember < float("inf")
    for name in ("roles", "properties"):
        assert answer.get(name) is None or isinstance(answer[name], list | dict), "nothing else is taken for nothing"


@given(
    data=st.binary()
    | json_values.map(lambda value: json.dumps({"keys": [value, jwk("ES256") | {"x": value}]}).encode())
)
def test_any_set_of_keys_is_read_or_is_none(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_jwks(data)
