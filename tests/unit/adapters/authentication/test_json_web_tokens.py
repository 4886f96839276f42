"""Tokens of an identity provider: all algorithms, and what attackers do with them (RFC 8725)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest

from gateway.adapters.authentication import (
    Algorithm,
    ClaimRules,
    FileKeys,
    JwtAuthenticator,
    KeySet,
    read_jwks_file,
    read_pem_file,
    read_secret_file,
)
from gateway.adapters.authentication.key_sets import VerificationKey
from gateway.ports import Credentials, CredentialsRefused, Identity
from tests.support.issuers import (
    AUDIENCE,
    ISSUER,
    NOW,
    SECRET,
    claims,
    encode,
    jwk,
    jwks,
    public_pem,
    signed,
    token,
)

RULES = ClaimRules(
    issuer=ISSUER,
    audiences=frozenset({AUDIENCE, "other"}),
    leeway=30.0,
    roles="realm_access.roles",
    properties={"team": "team"},
)
ALICE = Identity(
    principal="alice",
    roles=frozenset({"trader", "auditor"}),
    properties={"team": "fx"},
    expires=NOW + 330,
    credential="token-1",
)

Make = Callable[..., JwtAuthenticator]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make an authenticator for the RSA keys 1 and 2, unless told otherwise."""

    def made(
        content: bytes | None = None,
        read: Callable[[Path], KeySet] = read_jwks_file,
        algorithm: str = "RS256",
        *more: str,
        token_type: str | None = None,
    ) -> JwtAuthenticator:
        file = tmp_path / "keys"
        file.write_bytes(jwks(jwk("RS256"), jwk("RS256", 2)) if content is None else content)
        return JwtAuthenticator(
            FileKeys(file, read),
            algorithms=frozenset(map(Algorithm, (algorithm, *more))),
            rules=RULES,
            now=lambda: NOW,
            token_type=token_type,
        )

    return made


async def ask(authenticator: JwtAuthenticator, secret: str | None, principal: str = "") -> Identity | None:
    return await authenticator.authenticate(Credentials(principal=principal, secret=secret))


async def refusal(authenticator: JwtAuthenticator, secret: str, principal: str = "") -> CredentialsRefused:
    with pytest.raises(CredentialsRefused) as caught:
        await ask(authenticator, secret, principal)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 200
    return caught.value


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("form", ["pem", "jwks"])
async def test_every_algorithm_with_two_keys_from_either_kind_of_file(make: Make, algorithm: str, form: str) -> None:
    content, read = (public_pem(algorithm), read_pem_file) if form == "pem" else (jwks(jwk(algorithm)), read_jwks_file)
    authenticator = make(content, read, algorithm)

    assert await ask(authenticator, token(algorithm)) == ALICE
    assert "signature is wrong" in str(await refusal(authenticator, token(algorithm, 2, headers={"kid": None})))


async def test_hs256_with_a_secret_file(make: Make) -> None:
    authenticator = make(SECRET.encode() + b"\n", read_secret_file, "HS256")

    assert await ask(authenticator, token("HS256")) == ALICE
    forged = jwt.encode(claims(), "another secret that is also long enough", "HS256")
    assert "signature is wrong" in str(await refusal(authenticator, forged))


async def test_all_kinds_of_keys_in_one_set(make: Make) -> None:
    names = ("RS256", "ES256", "EdDSA")
    authenticator = make(jwks(*map(jwk, names)), read_jwks_file, *names)

    for name in names:
        assert await ask(authenticator, token(name)) == ALICE


async def test_a_principal_that_is_named_must_be_the_tokens(make: Make) -> None:
    authenticator = make()

    assert await ask(authenticator, token(), "alice") == ALICE
    assert "another principal" in str(await refusal(authenticator, token(), "mallory"))


@pytest.mark.parametrize(
    "secret",
    [None, "", "hunter2", "a.b", "a.b.c.d", "eyJ.eyJ.x", "..", ".a.", "ä.b.c", "x" * 70_000, encode(b"{}") + ".e30.x"],
)
async def test_what_does_not_look_like_a_token_is_left_to_others(make: Make, secret: str | None) -> None:
    assert await ask(make(), secret) is None


# --- Attacks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["none", "None", "NONE", "nOnE", "", "RS384", "rs256", "HS256", "PS256", 7, None, ["RS256"]]
)
async def test_the_token_does_not_choose_its_algorithm(make: Make, name: object) -> None:
    body = encode(json.dumps(claims()).encode())
    for signature in ("", token().rpartition(".")[2]):
        forged = f"{encode(json.dumps({'alg': name, 'typ': 'JWT', 'kid': 'RS256-1'}).encode())}.{body}.{signature}"
        assert "algorithm that is not accepted" in str(await refusal(make(), forged))


async def test_a_public_key_is_never_a_secret(make: Make) -> None:
    """The classic confusion: an HS256 token whose secret is the published key."""
    pem = public_pem("RS256")
    header, body = encode(b'{"alg":"HS256","typ":"JWT"}'), encode(json.dumps(claims()).encode())
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(f"{header}.{body}".encode(), pem)
    forged = f"{header}.{body}.{encode(signature)}"

    assert "algorithm that is not accepted" in str(await refusal(make(pem, read_pem_file), forged))
    # Even an authenticator that were told to take both finds no key for it: keys know what they are for.
    assert "does not have" in str(await refusal(make(pem, read_pem_file, "RS256", "HS256"), forged))


async def test_a_key_is_not_used_with_an_algorithm_of_another_family(make: Make) -> None:
    authenticator = make(jwks(jwk("RS256"), jwk("ES256")), read_jwks_file, "RS256", "ES256")

    crossed = token("ES256", headers={"kid": "RS256-1"})
    assert "does not have" in str(await refusal(authenticator, crossed))


@pytest.mark.parametrize(
    "key_id",
    ["../../../../dev/null", "/etc/passwd", "RS256-1\x00", "' OR 1=1 --", "http://evil.example/keys", "%2e%2e/"],
)
async def test_a_key_id_is_only_ever_compared(make: Make, key_id: str) -> None:
    assert "does not have" in str(await refusal(make(), token(headers={"kid": key_id})))


@pytest.mark.parametrize("key_id", [7, ["a"], {"a": 1}, True, "x" * 300])
async def test_a_key_id_is_a_short_text(make: Make, key_id: object) -> None:
    header = json.dumps({"alg": "RS256", "kid": key_id}).encode()
    forged = signed(header, json.dumps(claims()).encode())

    assert "kid is not a short text" in str(await refusal(make(), forged))


@pytest.mark.parametrize(
    "fields",
    [
        {"jwk": jwk("RS256", 3)},
        {"jku": "http://127.0.0.1:1/keys"},
        {"x5u": "http://127.0.0.1:1/certificate"},
        {"x5c": ["MIIB"]},
    ],
)
async def test_keys_that_a_token_brings_along_are_not_looked_at(make: Make, fields: dict[str, Any]) -> None:
    header = json.dumps({"alg": "RS256", "kid": "RS256-1"} | fields).encode()
    forged = signed(header, json.dumps(claims()).encode(), number=3)

    assert "signature is wrong" in str(await refusal(make(), forged))


@pytest.mark.parametrize("fields", [{"crit": ["b64"], "b64": False}, {"crit": []}, {"crit": ["exp"]}])
async def test_extensions_that_must_be_understood_are_refused(make: Make, fields: dict[str, Any]) -> None:
    header = json.dumps({"alg": "RS256", "kid": "RS256-1"} | fields).encode()

    assert "extensions" in str(await refusal(make(), signed(header, json.dumps(claims()).encode())))


GOOD = json.dumps(claims())[1:-1].encode()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"7",
        b"{",
        b"\xff\xfe",
        b"{" + GOOD + b',"sub":"mallory"}',
        b'{"realm_access":{"roles":[],"roles":["admin"]},' + GOOD + b"}",
        b"{" + GOOD + b',"x":NaN}',
        b"{" + GOOD + b',"x":' + b"[" * 40 + b"]" * 40 + b"}",
        b"{" + GOOD + b',"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b"{" + GOOD + b',"x":1' + b"0" * 5000 + b"}",
    ],
    ids=range(11),
)
async def test_a_payload_that_two_readers_could_read_differently_is_refused(make: Make, payload: bytes) -> None:
    """Signed by the issuer, and still: names that occur twice, no JSON, what nests without end."""
    forged = signed(b'{"alg":"RS256","kid":"RS256-1"}', payload)

    assert str(await refusal(make(), forged)) == "the token's payload is malformed"


async def test_a_header_with_a_name_twice_is_no_token(make: Make) -> None:
    forged = signed(b'{"alg":"none","alg":"RS256","kid":"RS256-1"}', json.dumps(claims()).encode())

    assert await ask(make(), forged) is None


async def test_any_changed_character_breaks_the_token(make: Make) -> None:
    good = token()
    authenticator = make()
    head, body, signature = good.split(".")

    for broken in (
        f"{head}.{encode(json.dumps(claims(sub='mallory')).encode())}.{signature}",
        f"{head}.{body}.{signature[:-4]}AAAA",
        f"{head}.{body}.",
        f"{head}.{body}.{signature}=",
        f"{head}.{body}.!!!!",
    ):
        assert "signature is wrong" in str(await refusal(authenticator, broken))


async def test_a_huge_token_costs_no_verification(make: Make) -> None:
    assert await ask(make(), token(padding="x" * 20_000)) is None


async def test_a_token_without_a_key_id_tries_a_few_keys_and_no_more(make: Make) -> None:
    keys = [jwk("ES256", number) for number in range(1, 7)]
    authenticator = make(jwks(*keys), read_jwks_file, "ES256")

    assert await ask(authenticator, token("ES256", 4, headers={"kid": None})) == ALICE
    assert "signature is wrong" in str(await refusal(authenticator, token("ES256", 5, headers={"kid": None})))


async def test_the_type_is_checked_where_it_is_configured(make: Make) -> None:
    authenticator = make(token_type="at+jwt")

    assert await ask(authenticator, token(headers={"typ": "application/AT+JWT"})) == ALICE
    for other in ("JWT", None, "at"):
        assert "another type" in str(await refusal(authenticator, token(headers={"typ": other})))


# --- Claims -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exp": NOW - 30}, "has expired"),
        ({"exp": NOW - 1e6}, "has expired"),
        ({"exp": None}, "no exp"),
        ({"exp": "tomorrow"}, "exp is not a number"),
        ({"exp": True}, "exp is not a number"),
        ({"exp": 1e308}, "exp is not a time: seconds since 1970 are meant"),
        ({"exp": NOW * 1000}, "exp is not a time: seconds since 1970 are meant"),
        ({"team": 2**70}, "a number of more than 64 bits"),
        ({"nbf": NOW + 31}, "nbf lies in the future"),
        ({"nbf": "x"}, "nbf is not a number"),
        ({"iat": NOW + 31}, "iat lies in the future"),
        ({"aud": "somebody-else"}, "another audience"),
        ({"aud": ["somebody-else", "gatewa"]}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"aud": None}, "names no audience"),
        ({"aud": {"gateway": 1}}, "names no audience"),
        ({"aud": ["gateway", 7]}, "names no audience"),
        ({"iss": "https://id.example.com/realms/trading/"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"iss": [ISSUER]}, "another issuer"),
        ({"sub": None}, "sub is missing"),
        ({"sub": 7}, "sub is missing"),
        ({"sub": "al\nice"}, "sub is missing or is no valid name"),
        ({"sub": "x" * 129}, "is no valid name"),
        ({"realm_access": {"roles": "a,b"}}, "cannot be mapped: a role has"),
        ({"realm_access": {"roles": [7]}}, "neither an array of texts nor a text"),
        ({"realm_access": {"roles": {"a": 1}}}, "neither an array of texts nor a text"),
        ({"realm_access": {"roles": [f"r{number}" for number in range(65)]}}, "65 roles"),
        ({"team": "x" * 1025}, "the value of 'team'"),
        ({"jti": ""}, "jti is not a text"),
        ({"jti": 7}, "jti is not a text"),
        ({"jti": "x" * 129}, "jti is not a text"),
    ],
)
async def test_bad_claims_are_refused_with_one_sentence(make: Make, changes: dict[str, Any], message: str) -> None:
    header, body = b'{"alg":"RS256","kid":"RS256-1"}', json.dumps(claims(**changes)).encode()

    assert message in str(await refusal(make(), signed(header, body)))


@pytest.mark.parametrize("exp", [b"1e999", b"1" + b"0" * 400])
async def test_times_beyond_all_numbers_are_refused(make: Make, exp: bytes) -> None:
    body = json.dumps(claims(exp=None)).encode()[:-1] + b',"exp":' + exp + b"}"

    assert "is not a time" in str(await refusal(make(), signed(b'{"alg":"RS256","kid":"RS256-1"}', body)))


@pytest.mark.parametrize(
    ("changes", "identity"),
    [
        ({"exp": NOW - 29}, {"expires": NOW + 1}),
        ({"nbf": NOW + 30, "iat": NOW + 30}, {}),
        ({"nbf": NOW - 5, "iat": None}, {}),
        ({"aud": ["x", "other"]}, {}),
        ({"jti": None}, {"credential": None}),
        ({"realm_access": None}, {"roles": frozenset()}),
        ({"realm_access": {"roles": "read write"}}, {"roles": frozenset({"read", "write"})}),
        ({"team": None}, {"properties": {}}),
        ({"team": 7}, {"properties": {"team": "7"}}),
        ({"team": ["fx", "rates"]}, {"properties": {"team": '["fx","rates"]'}}),
    ],
)
async def test_claims_are_mapped(make: Make, changes: dict[str, Any], identity: dict[str, Any]) -> None:
    expected = {
        name: getattr(ALICE, name) for name in ("principal", "roles", "properties", "expires", "credential")
    } | identity

    assert await ask(make(), token(**changes)) == Identity(**expected)


async def test_whether_another_authenticator_may_be_asked(make: Make) -> None:
    """A token of another issuer or for another audience may be somebody else's matter; a bad one of ours is not."""
    authenticator = make()

    for foreign in (token(iss="https://other.example"), token(aud="somebody-else"), token("ES256")):
        assert not (await refusal(authenticator, foreign)).final
    for bad in (token(exp=NOW - 100), token("RS256", 3, headers={"kid": "RS256-1"}), token(sub=None)):
        assert (await refusal(authenticator, bad)).final


async def test_reload_takes_new_keys_and_keeps_the_old_ones_if_the_file_is_bad(make: Make, tmp_path: Path) -> None:
    authenticator = make(jwks(jwk("RS256")))
    file = tmp_path / "keys"

    file.write_bytes(b"nonsense")
    with pytest.raises(Exception, match="keys: it is not JSON"):
        authenticator.keys.reload()
    assert await ask(authenticator, token()) == ALICE

    file.write_bytes(jwks(jwk("RS256", 2)))
    authenticator.keys.reload()
    assert await ask(authenticator, token("RS256", 2)) == ALICE
    assert "does not have" in str(await refusal(authenticator, token()))


def test_nothing_of_a_key_is_shown() -> None:
    assert SECRET not in repr(VerificationKey(Algorithm.HS256, None, SECRET.encode()))
