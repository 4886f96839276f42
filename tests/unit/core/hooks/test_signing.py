"""Signatures of requests, as the specification Standard Webhooks gives them."""

from __future__ import annotations

import pytest

from gateway.core.hooks.signing import is_signed, read_secret, sign

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"""The secret of the examples in the specification's reference libraries."""


def test_the_signature_of_the_specification() -> None:
    headers = sign(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', keys=[read_secret(SECRET)], now=1614265330.9
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_what_is_signed_with_two_keys_is_accepted_with_either() -> None:
    old, new = b"o" * 32, b"n" * 32
    headers = sign("msg_1", b"[]", keys=[new, old], now=1000)
    assert is_signed(headers, b"[]", key=old, now=1000)
    assert is_signed(headers, b"[]", key=new, now=1299)
    assert not is_signed(headers, b"[]", key=b"x" * 32, now=1000)


def test_what_was_changed_or_is_old_is_not() -> None:
    key = b"k" * 32
    headers = sign("msg_1", b"[]", keys=[key], now=1000)
    assert not is_signed(headers, b"[1]", key=key, now=1000)
    assert not is_signed({**headers, "webhook-id": "msg_2"}, b"[]", key=key, now=1000)
    assert not is_signed(headers, b"[]", key=key, now=1301)
    assert not is_signed({**headers, "webhook-timestamp": "1001"}, b"[]", key=key, now=1000)
    assert not is_signed({**headers, "webhook-timestamp": "soon"}, b"[]", key=key, now=1000)
    assert not is_signed({**headers, "webhook-signature": "v2,x ä"}, b"[]", key=key, now=1000)
    assert not is_signed({}, b"[]", key=key, now=1000)


@pytest.mark.parametrize(
    ("text", "why"),
    [("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "begin"), ("whsec_???", "base64"), ("whsec_YWJj", "3 bytes"), ("", "begin")],
)
def test_a_bad_secret_is_refused_without_being_repeated(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        read_secret(text)
    assert "MfKQ" not in str(refused.value)
    assert refused.value.__cause__ is None
