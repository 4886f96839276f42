"""The users with least privilege that the how-to gives to nodes and to the pipeline, for servers of tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "how-to" / "restrict-redis.md"

USER: Final = "gateway"
PASSWORD: Final = "least-privilege"

PIPELINE: Final = "pipeline"

_TEXT: Final = PAGE.read_text("utf-8")
_RULES: Final = re.findall(r"(?m)^ACL SETUSER gateway (.+)$", _TEXT)
_PIPELINE_RULES: Final = re.findall(r"(?m)^ACL SETUSER pipeline (.+)$", _TEXT)


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


def pipeline_rules() -> str:
    """Return what the page gives the pipeline at Redis."""
    rules: str = _PIPELINE_RULES[0]
    return rules


def pipeline_arguments(prefix: str) -> tuple[str, ...]:
    """Return what makes a redis-server know the user of the pipeline, for keys that begin with *prefix*."""
    rules = pipeline_rules().replace("PASSWORD", PASSWORD).replace("~gateway:", f"~{prefix}:")
    return ("--user", PIPELINE, *rules.split())


def pipeline_sentinel_line() -> str:
    """Return the line of a Sentinel's configuration that makes it know the user of the pipeline."""
    return f"user {PIPELINE} {_PIPELINE_RULES[1].replace('PASSWORD', PASSWORD)}"


def as_user(url: str, user: str = USER) -> str:
    """Return the URL of a grid with the credentials of the users."""
    url = url.replace("://", f"://{user}:{PASSWORD}@", 1)
    if "sentinel" in url.partition("://")[0]:
        url += f"?sentinel_username={user}&sentinel_password={PASSWORD}"
    return url
