"""What a node tells about itself on its admin port: liveness, readiness and metrics."""

from __future__ import annotations

from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

_TIMEOUT: Final = aiohttp.ClientTimeout(total=2.0)
"""Seconds for one answer on the loopback; a node that takes longer is paused or overloaded, and is asked again."""
_METRICS_TIMEOUT: Final = aiohttp.ClientTimeout(total=20.0)
"""The same for metrics, which are read once: on two cores with a load average of 20, some took more than 2 seconds."""
_OK: Final = 200
UNREACHABLE: Final = (aiohttp.ClientError, TimeoutError, OSError)
"""What ``read_metrics`` raises if nobody answers, not in time, or not with 200."""


async def answers_ok(url: str) -> bool:
    """Tell whether a GET is answered with 200; False too if nobody answers."""
    try:
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as http, http.get(url) as response:
            return response.status == _OK
    except UNREACHABLE:
        return False


async def read_metrics(url: str) -> dict[str, float]:
    """Read metrics in the Prometheus format.

    Args:
        url: such as ``http://127.0.0.1:9101/metrics``.

    Returns:
        Values by sample, labels written as Prometheus does: ``gateway_sessions{state="connected"}``.

    Raises:
        ClientError, TimeoutError, OSError: see ``UNREACHABLE``.
    """
    async with (
        aiohttp.ClientSession(timeout=_METRICS_TIMEOUT, raise_for_status=True) as http,
        http.get(url) as response,
    ):
        text = await response.text()
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            values[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return values
