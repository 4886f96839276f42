"""What the blackbox exporter finds out at HAProxy's endpoint, by the configuration that ``deploy/prometheus`` ships."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from gateway.local.processes import ProgramMissing, find_program
from tests.deploy.promtool import PROMETHEUS, promtool
from tests.support.certificates import Authority
from tests.support.haproxy import FAST, LOOPBACK, free_ports, running_haproxy, wait_until
from tests.support.lb_standins import StandIns
from tests.support.times import scaled

pytestmark = pytest.mark.haproxy

LIFE: Final = timedelta(days=10)
"""Of the certificate."""

ROUNDING: Final = 60.0
"""Seconds by which two clocks' ideas of a certificate's end may differ here: trustme and the test read one each."""

Probe = Callable[[str, str], dict[str, float]]


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=scaled(10)) as answer:
        return str(answer.read().decode())


def _exporter() -> str:
    """Find the program, by the name that its authors gave it or by Debian's; skips the test, but fails it under CI."""
    with suppress(ProgramMissing):
        return find_program("blackbox_exporter")
    try:
        return find_program("prometheus-blackbox-exporter")
    except ProgramMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(f"{missing}; CI must not skip tests", pytrace=False)
        pytest.skip(str(missing))


@contextmanager
def running_exporter(authority: Authority) -> Iterator[Probe]:
    """Run the exporter, which trusts *authority*; yields what probes an address by a module and reads the metrics."""
    program = _exporter()
    (port,) = free_ports(1)
    url = f"http://{LOOPBACK}:{port}"
    command = [program, f"--config.file={PROMETHEUS / 'blackbox.yml'}", f"--web.listen-address={LOOPBACK}:{port}"]
    # Go's name for the system's trust store.
    environment = {**os.environ, "SSL_CERT_FILE": str(authority.file)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)

    def answers() -> bool:
        try:
            return "Healthy" in _read(f"{url}/-/healthy")
        except urllib.error.URLError:
            return False

    def probe(module: str, target: str) -> dict[str, float]:
        text = _read(f"{url}/probe?{urllib.parse.urlencode({'module': module, 'target': target})}")
        return {name: float(value) for name, value in re.findall(r"^(probe_\w+) (\S+)$", text, re.MULTILINE)}

    try:
        wait_until(answers, what="the exporter answers")
        yield probe
    finally:
        process.kill()
        process.wait()


def test_the_endpoint_is_tried_and_the_end_of_its_certificate_is_reported(authority: Authority) -> None:
    certificate = str(authority.issue("endpoint", life=LIFE))
    before = datetime.now(UTC)
    with (
        running_exporter(authority) as probe,
        StandIns() as behind,
        running_haproxy(behind.nodes, {**FAST, "frontend": {"certificate": certificate}}) as haproxy,
    ):
        told = probe("tls", f"{LOOPBACK}:{haproxy.port}")
        assert told["probe_success"] == 1
        assert abs(told["probe_ssl_earliest_cert_expiry"] - (before + LIFE).timestamp()) < ROUNDING
        assert probe("tcp", f"{LOOPBACK}:{haproxy.port}")["probe_success"] == 1
        assert "clients" not in haproxy.log(), "what is tried four times a minute fills no log"
        authority.issue("endpoint", life=timedelta(days=-1))
        haproxy.reload()
        wait_until(
            lambda: probe("tls", f"{LOOPBACK}:{haproxy.port}")["probe_success"] == 0,
            what="an expired certificate counts as unreachable",
        )


def test_prometheus_asks_the_exporter_for_each_address_by_its_module() -> None:
    found = promtool("check", "service-discovery", "--timeout=1s", str(PROMETHEUS / "prometheus.yml"), "endpoint")
    assert found.returncode == 0, found.stderr
    (target,) = json.loads(found.stdout[: found.stdout.rindex("]") + 1])
    asked = {name: value for name, value in target["labels"].items() if not name.startswith("__scrape")}
    assert asked == {
        "__address__": "blackbox:9115",
        "__scheme__": "http",
        "__metrics_path__": "/probe",
        "__param_module": "tcp",
        "__param_target": "haproxy:8080",
        "instance": "haproxy:8080",
        "job": "endpoint",
    }
