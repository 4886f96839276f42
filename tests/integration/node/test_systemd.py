"""A node under a real systemd: started when it says so, restarted when it hangs, stopped by a drain.

A user's instance of systemd runs in a mount namespace of its own, where it has a /run to itself. It can do all that the
unit of ``deploy`` says about the life of a node; what the unit says about confinement takes systemd as process 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.promtool import ROOT
from tests.support.times import scaled

UNIT: Final = ROOT / "deploy" / "systemd" / "gateway@.service"
SYSTEMD: Final = Path("/lib/systemd/systemd")
LIFE: Final = (
    "Type",
    "NotifyAccess",
    "ExecReload",
    "KillMode",
    "KillSignal",
    "TimeoutStopSec",
    "TimeoutStartSec",
    "Restart",
    "RestartPreventExitStatus",
)
"""What is taken over from the unit as it stands."""
WATCHDOG: Final = 3
"""Seconds; the unit's own thirty are too long to wait for."""

UNABLE: Final = 77
"""How the story ends where systemd does not get as far as running units, as without control groups."""

STORY: Final = """\
set -eu
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/user
chmod 700 /run/user
export XDG_RUNTIME_DIR=/run/user
{systemd} --user >"$HOME/systemd.log" 2>&1 &
manager=$!
trap 'kill $manager || true; wait $manager || true' EXIT
tell() {{ echo "$1=$(systemctl --user show --property "$1" --value gateway@n1)"; }}
until systemctl --user is-system-running >/dev/null 2>&1; do kill -0 $manager || exit {unable}; done
systemctl --user start gateway@n1
tell ActiveState
until tell StatusText | grep --quiet "sessions; ready"; do :; done
tell StatusText
systemctl --user reload gateway@n1
echo reloaded
before=$(systemctl --user show --property MainPID --value gateway@n1)
kill -STOP "$before"
until [ "$(systemctl --user show --property NRestarts --value gateway@n1)" = 1 ]; do kill -0 $manager; done
until [ "$(systemctl --user show --property ActiveState --value gateway@n1)" = active ]; do kill -0 $manager; done
tell NRestarts
systemctl --user stop gateway@n1
tell Result
tell ExecMainStatus
"""


def permitted() -> bool:
    """Whether this process may make a mount namespace with a file system of its own in it."""
    if not SYSTEMD.exists() or os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    tried = ["unshare", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "tmpfs", "/run"]
    return subprocess.run(tried, capture_output=True, check=False, timeout=scaled(10)).returncode == 0


def test_systemd_runs_a_node_as_the_unit_says(tmp_path: Path) -> None:
    if not permitted():
        pytest.skip("systemd can not be run here")
    shipped = UNIT.read_text("utf-8")
    life = [line for line in shipped.splitlines() if line.partition("=")[0] in LIFE]
    assert len(life) == len(LIFE)
    units = tmp_path / ".config" / "systemd" / "user"
    units.mkdir(parents=True)
    serve = re.search(r"^ExecStart=\S+ (serve) --config \S+ (--node %i)$", shipped, re.MULTILINE)
    assert serve is not None
    (units / "gateway@.service").write_text(
        "\n".join(
            [
                "[Service]",
                *life,
                f"WatchdogSec={WATCHDOG}",
                "RestartSec=0",
                f"Environment=PYTHONPATH={ROOT} GATEWAY_LISTEN=127.0.0.1:0 GATEWAY_ADMIN=127.0.0.1:0",
                f"ExecStart={sys.executable} -m gateway {serve[1]} --dev --auth anonymous {serve[2]}",
            ]
        )
    )
    story = STORY.format(systemd=SYSTEMD, unable=UNABLE)
    told = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "bash", "-c", story],
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(60),
    )
    if told.returncode == UNABLE:
        pytest.skip("systemd can not run units here")
    assert told.returncode == 0, f"{told.stdout}\n{told.stderr}\n{(tmp_path / 'systemd.log').read_text()}"
    assert told.stdout.splitlines() == [
        "ActiveState=active",
        "StatusText=0 sessions; ready",
        "reloaded",
        "NRestarts=1",
        "Result=success",
        "ExecMainStatus=0",
    ]
