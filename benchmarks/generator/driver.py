"""Compiles the generator and runs it against a system."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Final

from benchmarks.progress import Progress
from benchmarks.systems.base import Endpoint, Role, SystemUnavailable

SOURCES: Final = Path(__file__).parent

COMPILER_OPTIONS: Final = ("-std=gnu11", "-D_GNU_SOURCE", "-O2")
"""Without warnings, which differ from compiler to compiler; a test asks for all of them."""

WRONG_USE: Final = 2
"""Exit code of a generator that could not do what it was asked for; 0 and 1 come with a report."""

MICROSECOND: Final = 1e-6

NANOSECONDS_PER_MICROSECOND: Final = 1_000

GENERATOR: Final = "generator"
"""Key of the generator's own CPU in ``Report.cpu``, beside the roles of the system."""

_LAST_LINES: Final = 5
"""Lines of its progress that an error quotes."""


class GeneratorFailed(Exception):
    """The generator was used wrongly, or ended without a report."""


@dataclass(frozen=True)
class Load:
    """What the generator has to do.

    Attributes:
        subscribers: connections that each receive one topic.
        topics: subscriber *i* has topic *i* modulo this.
        publishers: connections that publish; topic *i* is published by *i* modulo this, so each topic stays in order.
        rate: updates per second over all topics, by a schedule that does not wait; None to publish as fast as the
            window lets it.
        window: updates that may be under way, which is published but not answered or not received by all.
        size: bytes of a value.
        warm_up: seconds before the measured window.
        measure: seconds of the measured window.
        patience: seconds without any progress after which the run is given up as failed.
        updates: to publish in all, after which the window ends early; None for as many as fit into it.
    """

    subscribers: int
    topics: int = 1
    publishers: int = 1
    rate: float | None = None
    window: int = 64
    size: int = 100
    warm_up: float = 1.0
    measure: float = 4.0
    patience: float = 10.0
    updates: int | None = None


@dataclass(frozen=True)
class Latency:
    """A distribution, in microseconds; of updates that were scheduled in the measured window."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    largest: float

    @classmethod
    def of(cls, report: Mapping[str, float]) -> Latency:
        """Take one from the generator's report, which is in nanoseconds."""
        scaled = {name: value / NANOSECONDS_PER_MICROSECOND for name, value in report.items() if name != "count"}
        return cls(count=int(report["count"]), **scaled)


@dataclass(frozen=True)
class Report:
    """What the generator saw.

    Attributes:
        seconds: length of the measured window.
        delivered: checked deliveries in it.
        published: updates in it.
        reads: calls of ``recv()`` in it; deliveries per read tell how much the server joined.
        cpu: seconds of CPU in it by role, and of the ``generator`` itself.
        largest_lag: microseconds by which the publisher was late at most; tells whether it kept its schedule.
        delivery: from the time on the schedule until a subscriber had it.
        answer: from the time on the schedule until the publish was answered.
        failures: how often which check failed; empty if all was right.
        examples: the first few, as sentences.
        raw: all of it, for the JSON.
    """

    seconds: float
    delivered: int
    published: int
    reads: int
    cpu: Mapping[str, float]
    largest_lag: float
    delivery: Latency
    answer: Latency
    failures: Mapping[str, int]
    examples: Sequence[str]
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def deliveries_per_second(self) -> float:
        """All subscribers together."""
        return self.delivered / self.seconds

    @property
    def updates_per_second(self) -> float:
        """Published."""
        return self.published / self.seconds

    def cpu_per_delivery(self, role: str) -> float | None:
        """Tell the microseconds of CPU of *role* for each delivery; None without deliveries or without that role."""
        if not self.delivered or role not in self.cpu:
            return None
        return self.cpu[role] / self.delivered / MICROSECOND

    @property
    def system_cpu(self) -> float:
        """Seconds of CPU of all processes that the system needs, which is of all roles but the generator."""
        return sum(seconds for role, seconds in self.cpu.items() if role != GENERATOR)

    @property
    def system_cpu_per_delivery(self) -> float | None:
        """Microseconds of CPU of all processes of the system for each delivery; None without deliveries."""
        return self.system_cpu / self.delivered / MICROSECOND if self.delivered else None

    def utilisation(self, role: str) -> float:
        """Tell how busy *role* was, in percent of one core."""
        return 100 * self.cpu.get(role, 0.0) / self.seconds

    def sentences(self) -> list[str]:
        """Tell what failed, the counts first."""
        counts = [f"{count:,} x {kind}" for kind, count in self.failures.items()]
        return [", ".join(counts), *self.examples] if counts else []

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Report:
        """Take it from the generator's JSON."""
        return cls(
            seconds=raw["seconds"],
            delivered=raw["delivered"],
            published=raw["published"],
            reads=raw["reads"],
            cpu=raw["cpu"],
            largest_lag=raw["largest_lag"] / NANOSECONDS_PER_MICROSECOND,
            delivery=Latency.of(raw["delivery_ns"]),
            answer=Latency.of(raw["answer_ns"]),
            failures=raw["failures"],
            examples=raw["failure_examples"],
            raw=raw,
        )


def compiler() -> str:
    """Find a C compiler.

    Raises:
        SystemUnavailable: there is none.
    """
    for each in ("cc", "gcc", "clang"):
        found = shutil.which(each)
        if found is not None:
            return found
    raise SystemUnavailable("a C compiler is needed: apt-get install gcc libc6-dev")


def build(folder: Path) -> Path:
    """Compile the generator into *folder*, unless the same sources were compiled there before.

    Returns:
        The program.

    Raises:
        SystemUnavailable: there is no compiler.
        GeneratorFailed: it does not compile; with what the compiler said.
    """
    sources = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:16]
    program = folder / f"generator-{digest}"
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    # Under another name first: several tests may compile at the same time.
    unfinished = folder / f"{program.name}.{os.urandom(4).hex()}"
    outcome = subprocess.run(
        [compiler(), *COMPILER_OPTIONS, "-o", unfinished, *(each for each in sources if each.suffix == ".c")],
        capture_output=True,
        text=True,
        check=False,
    )
    if outcome.returncode != 0:
        raise GeneratorFailed(f"the generator does not compile:\n{outcome.stderr}")
    unfinished.rename(program)
    return program


def arguments(endpoint: Endpoint, load: Load, topic: str, pids: Mapping[Role, Sequence[int]]) -> list[str]:
    """Write the generator's options.

    Raises:
        GeneratorFailed: it speaks nothing that this system does.
    """
    if endpoint.protocol is None:
        raise GeneratorFailed(f"the generator does not speak with what listens on port {endpoint.port}")
    options = {
        "protocol": endpoint.protocol,
        "host": endpoint.host,
        "port": endpoint.port,
        "subscribe": endpoint.subscribe_target,
        "publish": endpoint.publish_target,
        "http": int(endpoint.publish_by_http),
        "topic": topic,
        "subscribers": load.subscribers,
        "topics": load.topics,
        "publishers": load.publishers,
        "rate": load.rate or 0,
        "window": load.window,
        "size": load.size,
        "warm_up": load.warm_up,
        "measure": load.measure,
        "patience": load.patience,
        "updates": load.updates or 0,
    }
    watched = [f"watch={role}:{pid}" for role, each in pids.items() for pid in each]
    return [*(f"{name}={value}" for name, value in options.items()), *watched]


def drive(
    program: Path,
    endpoint: Endpoint,
    load: Load,
    *,
    topic: str,
    core: int | None,
    progress: Progress,
    pids: Mapping[Role, Sequence[int]] | None = None,
) -> Report:
    """Run the generator once.

    Args:
        program: from ``build``.
        endpoint: of the system.
        load: what to do.
        topic: name of the topic, or the beginning of the topics' names; not used before on this system, or its old
            value would arrive as a snapshot.
        core: to bind the generator to; None not to.
        progress: is told what the generator does.
        pids: processes whose CPU is read at both ends of the measured window.

    Raises:
        GeneratorFailed: it ended without a report.
    """
    bound = [] if core is None else ["taskset", "--cpu-list", str(core)]
    command = [*bound, str(program), *arguments(endpoint, load, topic, pids or {})]
    last: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        reader = Thread(target=_pass_on, args=(process, progress, last), daemon=True)
        reader.start()
        try:
            assert process.stdout is not None  # noqa: S101 - asked for above
            output = process.stdout.read()
            code = process.wait()
        finally:
            process.kill()
        reader.join()
    if code not in {0, 1}:
        raise GeneratorFailed(f"the generator ended with {code}: {' / '.join(last)}")
    report = Report.of(json.loads(output))
    if bool(report.failures) != bool(code):
        raise GeneratorFailed(f"the generator ended with {code} but reported {dict(report.failures)}")
    return report


def _pass_on(process: subprocess.Popen[str], progress: Progress, last: deque[str]) -> None:
    """Hand the lines of its standard error on."""
    assert process.stderr is not None  # noqa: S101 - a pipe was asked for
    for line in process.stderr:
        last.append(line.strip())
        progress.say(line.strip())
