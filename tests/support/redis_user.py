"""The users with least privilege that the how-to gives to nodes, for servers of tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "how-to" / "restrict-redis.md"

USER: Final = "gateway"
PASSWORD: Final = "least-privilege"

_RULES: Final = re.findall(r"(?m)^ACL SETUSER gateway (.+)$", PAGE.read_text("utf-8"))


def node_rules() -> str:
    """Return what the page gives the user of nodes at Redis."""
    rules: str = _RULES[0]
    return rules


def sentinel_rules() -> str:
    """Return what the page gives the user of nodes at a Sentinel."""
    rules: str = _RULES[1]
    return rules


def node_arguments() -> tuple[str, ...]:
    """Return what makes a redis-server know the user of nodes; prefixes of tests take the place of the default one."""
    rules = node_rules().replace("PASSWORD", PASSWORD).replace("~gateway:*", "~test-*:*")
    return ("--user", USER, *rules.split())


def sentinel_line() -> str:
    """Return the line of a Sentinel's configuration that makes it know the user of nodes."""
    return f"user {USER} {sentinel_rules().replace('PASSWORD', PASSWORD)}"


def as_user(url: str) -> str:
    """Return the URL of a grid with the credentials of the users."""
    url = url.replace("://", f"://{USER}:{PASSWORD}@", 1)
    if "sentinel" in url.partition("://")[0]:
        url += f"?sentinel_username={USER}&sentinel_password={PASSWORD}"
    return url
