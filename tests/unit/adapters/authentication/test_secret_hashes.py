import hmac
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.adapters.authentication import HashParameters, SecretHash, hash_secret

QUICK = HashParameters(n=2, r=1, p=1)
SALT, HASH = "A" * 22, "A" * 43


# A character of UTF-8 other than NUL; surrogates are part of no text that arrives.
SECRETS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(SECRETS, st.text())
@example("", "\0")
@example("secret", "secret\0")
@settings(max_examples=50)
def test_a_hash_matches_its_secret_and_no_other(secret: str, other: str) -> None:
    hashed = SecretHash.parse(str(hash_secret(secret, QUICK)))

    assert hashed.matches(secret)
    assert hashed.matches(other) == (other == secret)


def test_the_same_secret_is_hashed_differently_each_time() -> None:
    assert hash_secret("secret", QUICK) != hash_secret("secret", QUICK)


def test_a_secret_with_a_nul_cannot_be_hashed() -> None:
    with pytest.raises(ValueError, match="must not contain the character NUL"):
        hash_secret("secret\0", QUICK)


def test_a_lone_surrogate_is_a_wrong_secret_and_no_error() -> None:
    assert not hash_secret("secret", QUICK).matches("\ud800")


def test_a_hash_does_not_show_itself_by_accident() -> None:
    assert str(hash_secret("secret", QUICK)).rpartition("$")[2] not in repr(hash_secret("secret", QUICK))


def test_defaults_are_as_slow_as_recommended() -> None:
    parameters = HashParameters()

    assert (parameters.n, parameters.r, parameters.p) == (16384, 8, 5)
    assert hash_secret("secret").matches("secret")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "form"),
        ("hunter2", "form"),
        (f"scrypt$n=3,r=8,p=1${SALT}${HASH}", "power of two"),
        (f"scrypt$n=0,r=8,p=1${SALT}${HASH}", "power of two"),
        (f"scrypt$n=16384,r=0,p=1${SALT}${HASH}", "r or p is 0"),
        (f"scrypt$n=536870912,r=8,p=1${SALT}${HASH}", "more memory or work"),
        (f"scrypt$n=16384,r=8,p=9999${SALT}${HASH}", "more memory or work"),
        (f"scrypt$n=16384,r=8,p=5${SALT}$AAAA", "too short"),
        (f"scrypt$n=16384,r=8,p=5$AAAA${HASH}", "too short"),
        (f"scrypt$n=16384,r=8,p=5${SALT}${HASH}AA", "base64"),
    ],
)
def test_a_bad_hash_is_refused_with_a_reason(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        SecretHash.parse(text)

    assert not text or text not in str(caught.value)


@given(st.text())
def test_arbitrary_text_raises_nothing_but_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        SecretHash.parse(text)


def test_parameters_that_cannot_be_used_make_no_hash() -> None:
    with pytest.raises(ValueError, match="power of two"):
        hash_secret("secret", HashParameters(n=5))


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole hashes, whatever of the secret is right; and by the function that is made for it."""
    hashed = hash_secret("wonderland", QUICK)
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr("gateway.adapters.authentication.secret_hashes.hmac", SimpleNamespace(compare_digest=compare))
    for secret in ("wonderland", "wonderlan", "x", ""):
        hashed.matches(secret)
    assert compared == [(32, 32)] * 4
