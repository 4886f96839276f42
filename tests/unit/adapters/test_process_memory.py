"""What Linux says of the memory of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gateway.adapters.process_memory import LinuxMemory
from tests.support.times import scaled

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1024**2


def files(folder: Path, *, group: str = "/", total: int = 4096) -> tuple[Path, Path]:
    """Write what a kernel would show of a process with 1000 pages, 400 of them resident."""
    proc, groups = folder / "proc", folder / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "statm").write_text("1000 400 30 20 0 10 0\n")
    (proc / "self" / "cgroup").write_text(f"4:memory:/old\n0::{group}\n")
    (proc / "meminfo").write_text(f"MemTotal:       {total} kB\nMemFree: 1 kB\n")
    (groups / group.strip("/")).mkdir(parents=True)
    return proc, groups


def test_a_container_is_bounded_by_its_control_group_at_any_time(tmp_path: Path) -> None:
    proc, groups = files(tmp_path, total=64 * 1024)
    bound = groups / "memory.max"
    bound.write_text("max\n")
    memory = LinuxMemory(proc=proc, control_groups=groups)
    assert memory.look() == (400 * PAGE, 64 * MIB), "of the machine"
    bound.write_text("8388608\n")
    assert memory.look() == (400 * PAGE, 8 * MIB)


def test_the_nearest_bound_of_nested_groups_counts(tmp_path: Path) -> None:
    proc, groups = files(tmp_path, group="/kubepods/pod7/node", total=1024 * 1024)
    (groups / "kubepods" / "pod7" / "node" / "memory.max").write_text("max\n")
    (groups / "kubepods" / "pod7" / "memory.max").write_text(f"{16 * MIB}\n")
    (groups / "kubepods" / "memory.max").write_text(f"{512 * MIB}\n")
    assert LinuxMemory(proc=proc, control_groups=groups).look() == (400 * PAGE, 16 * MIB)


def test_the_operator_has_the_last_word(tmp_path: Path) -> None:
    proc, groups = files(tmp_path)
    assert LinuxMemory(MIB, proc=proc, control_groups=groups).look() == (400 * PAGE, MIB)


def test_where_nothing_is_told_nothing_is_known(tmp_path: Path) -> None:
    memory = LinuxMemory(proc=tmp_path, control_groups=tmp_path)
    assert memory.look() == (0, 0)
    memory.release()


def test_the_addresses_of_a_process_are_bounded_by_its_limit() -> None:
    script = """
import resource
from gateway.adapters.process_memory import LinuxMemory
memory = LinuxMemory()
before = memory.look()
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20), -1))
used, most = memory.look()
assert most == size + (1 << 20), (used, most)
assert used > 0.9 * most
assert before.used < before.most
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=scaled(60))
