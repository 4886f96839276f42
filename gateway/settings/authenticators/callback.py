"""What a file says that ``auth`` names as ``http:FILE``: which service is asked, and how."""

# ruff: noqa: RUF009 - the calls in the defaults make dataclass fields

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.settings.authenticators.files import Address, check_address, read_file
from gateway.settings.declaration import optional, setting
from gateway.settings.errors import ConfigurationError, Problem
from gateway.settings.kinds import Switch
from gateway.settings.places import File
from gateway.settings.quantities import Seconds, Whole

_DAY: Final = 86400.0


@dataclass(frozen=True, kw_only=True)
class CallbackSettings:
    """`auth = "http:FILE"` sends the credentials of a client to a service that you run, which decides."""

    url: str | None = optional(
        Address(),
        "Where each request is posted.",
        absent="refuse to start",
        reason="There is no default.",
    )
    timeout: float = setting(
        Seconds(0.05, 30),
        3.0,
        "How long a request may take; then the client is asked to try again. It waits for its turn for half as long "
        "at most, and never longer than 2 s.",
        reason="Both together are shorter than the 5 s that clients wait for a welcome.",
    )
    concurrency: int = setting(
        Whole("requests", 1, 1000),
        32,
        "Requests that are sent at the same time. Others wait in a queue that is fair between addresses and between "
        "principals.",
        reason="At 10 ms a request, 3,200 clients a second; and no more than small services can serve.",
    )
    remember: float = setting(
        Seconds(0, _DAY),
        60.0,
        "How long an acceptance is remembered, so that a client that returns with the same credentials costs no "
        "request; 0 for not at all. The callback may ask for less.",
        reason="A storm of reconnects is over by then, and a withdrawn account is refused a minute later.",
    )
    entries: int = setting(
        Whole("answers", 1, 1_000_000),
        100_000,
        "Answers that are remembered; the oldest are forgotten first.",
        reason="Some 50 MB at most, for more clients than a node has.",
    )
    bearer_file: Path | None = optional(
        File(),
        "File with a secret that is sent along as `Authorization: Bearer …`, so that the callback can authenticate the "
        "gateway.",
        absent="nothing is sent",
        reason="Not needed where only the gateway can reach the callback.",
    )
    send_address: bool = setting(
        Switch(),
        False,
        "Send the address of the client to the callback, too. Answers are then remembered for that address alone.",
        reason="Addresses are personal data, and most callbacks do not need them.",
    )
    ca_file: Path | None = optional(
        File(),
        "File with certificates in PEM that sign the certificate of url's host.",
        absent="the system's trust store",
        reason="Needed only for a private certificate authority.",
    )


def read_callback_settings(file: Path, *, dev: bool = False) -> CallbackSettings:
    """Read a file that ``auth`` names as ``http:FILE``; see ``read_jwt_settings``.

    Raises:
        ConfigurationError: with everything that is wrong.
    """
    found = read_file(file, CallbackSettings)
    problems = [*check_address(file, "url", found.url, dev=dev)]
    if found.url is None:
        problems.append(Problem(f"{file}: url", "there is no url", f"give {Address().accepts}"))
    if problems:
        raise ConfigurationError(problems)
    return found
