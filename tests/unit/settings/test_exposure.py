"""What goes to other hosts in clear text is told; what stays on the machine, or is encrypted, is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.settings import HostPort, Settings
from gateway.settings.exposure import has_password, in_clear_text

EVERYWHERE = HostPort("0.0.0.0", 8101)
ADMIN = HostPort("10.0.0.5", 9101)
FILE = Path("file")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, []),
        ({"listen": HostPort("127.0.0.1", 1), "admin": HostPort("::1", 2), "grid": "redis://localhost/0"}, []),
        ({"listen": EVERYWHERE}, ["clients of other hosts"]),
        ({"listen": EVERYWHERE, "tls_certificate": FILE}, []),
        ({"listen": EVERYWHERE, "trusted_proxies": ("10.0.0.2",)}, []),
        ({"admin": ADMIN}, []),
        ({"admin": ADMIN, "admin_tokens_file": FILE}, ["administrators of other hosts"]),
        ({"admin": ADMIN, "admin_tokens_file": FILE, "admin_tls_certificate": FILE}, []),
        ({"grid": "redis://gateway:hidden@10.0.0.9:6379/0"}, ["go to 10.0.0.9 in clear text"]),
        ({"grid": "rediss://gateway:hidden@10.0.0.9:6379/0"}, []),
        ({"grid": "unix:///run/redis.sock"}, []),
        ({"grid": "redis+cluster://10.0.0.1,10.0.0.2"}, ["go to 10.0.0.1, 10.0.0.2 in clear text"]),
        ({"grid": "rediss+cluster://10.0.0.1"}, []),
        ({"grid": "rediss+sentinel://10.0.0.1/main"}, []),
        ({"grid": "rediss+sentinel://10.0.0.1/main?sentinel_tls=no"}, ["go to 10.0.0.1 in clear text"]),
    ],
)
def test_what_others_can_read_on_the_way_is_told(settings: dict[str, Any], said: list[str]) -> None:
    told = list(in_clear_text(Settings(**settings)))

    assert len(told) == len(said)
    for sentence, part in zip(told, said, strict=True):
        assert part in sentence
        assert "hidden" not in sentence
        assert "(give " in sentence, "what to do"


@pytest.mark.parametrize(
    ("url", "has"),
    [
        ("redis://u:p@h/0", True),
        ("redis://:p@h", True),
        ("redis://u@h", False),
        ("redis://h:6379/0", False),
        ("redis://h/0?password=p", True),
        ("redis+sentinel://h/m?sentinel_password=p", True),
        ("unix:///a@b:c", False),
    ],
)
def test_a_password_in_a_url_is_found(url: str, has: bool) -> None:
    assert has_password(url) is has
