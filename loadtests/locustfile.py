"""What locust loads: users, shape, options, and the verdict that decides the exit code.

`python -m loadtests` starts locust with this file. By hand: `locust -f loadtests/locustfile.py --help`.
"""

from __future__ import annotations

import math
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from locust import User, events
from locust import log as locust_log
from locust import stats as locust_stats
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.runners import WorkerRunner

from loadtests.call_users import CallerUser
from loadtests.cluster import LocalCluster
from loadtests.figures import Measured, figures
from loadtests.greenlets import spawn
from loadtests.progress import Progress
from loadtests.queue_users import ConsumerUser, ReaderUser, SenderUser
from loadtests.recorder import Recorder, request_counts
from loadtests.request_users import AskerUser, HandlerUser
from loadtests.scenarios import CUT_MESSAGE, FREE, SCENARIOS, SPAWN_RATE, Play, Sabotage, ScenarioShape, Stage
from loadtests.slo import InvalidThresholds, Outcome, Threshold, Verdict, judge, load
from loadtests.users import FlappingUser, PublisherUser, SubscriberUser
from loadtests.verdict import as_html, make_console, put_into_report, show, write_json

__all__ = [
    "AskerUser",
    "CallerUser",
    "ConsumerUser",
    "FlappingUser",
    "HandlerUser",
    "PublisherUser",
    "ReaderUser",
    "ScenarioShape",
    "SenderUser",
    "SubscriberUser",
]

DEFAULT_SUBSCRIBERS: Final = 200
DEFAULT_PUBLISHERS: Final = 5
DECLARED_USERS: Final[Mapping[str, tuple[type[User], int, str]]] = {
    "senders": (SenderUser, 2, "send to a queue"),
    "consumers": (ConsumerUser, 3, "consume from it"),
    "readers": (ReaderUser, 2, "read every event that is published"),
    "callers": (CallerUser, 2, "publish and send by HTTP, without a session"),
    "askers": (AskerUser, 2, "ask requests of handlers"),
    "handlers": (HandlerUser, 2, "handle them"),
}
"""Users that the local stack has something declared for, or that need others of them: how many, and what they do."""
DEFAULT_SECONDS: Final = 50.0
"""With the start of the stack and of locust, about a minute."""
LEAST_SECONDS: Final = 0.1
LEAST_RATE: Final = 0.001
AS_THE_SCENARIO_SAYS: Final = -1
SLO_FILE: Final = Path(__file__).with_name("slo.toml")
JUDGED_FREELY: Final = "steady"
"""The scenario whose thresholds the web page shows while there is none."""
EXIT_CODES: Final = {Outcome.MET: 0, Outcome.MISSED: 1, Outcome.INVALID: 3}
EXIT_NOT_BEGUN: Final = 2
CHART_SECONDS: Final = 2
"""From one point of the charts to the next."""


def at_least(kind: type[int | float], least: float) -> Callable[[str], float]:
    """Make a type of options: numbers that are not less."""

    def read(text: str) -> float:
        number = kind(text)
        if not least <= number < math.inf:
            raise ArgumentTypeError(f"{text} is not a number from {least:g} on")
        return number

    # What is no number at all is called by this name.
    read.__name__ = kind.__name__
    return read


def add_options(parser: LocustArgumentParser) -> None:
    """Add the options of these load tests to locust's own."""
    parser.add_argument("--scenario", choices=[*SCENARIOS, FREE], default="steady", help="what happens during the run")
    parser.add_argument(
        "--subscribers", type=at_least(int, 0), default=DEFAULT_SUBSCRIBERS, help="sessions that listen"
    )
    parser.add_argument("--publishers", type=at_least(int, 0), default=DEFAULT_PUBLISHERS, help="sessions that publish")
    for name, (_, number, what) in DECLARED_USERS.items():
        parser.add_argument(
            f"--{name}",
            type=at_least(int, AS_THE_SCENARIO_SAYS),
            default=AS_THE_SCENARIO_SAYS,
            help=f"users that {what}; -1: {number} with the local stack, else none, as nothing is declared there",
        )
    parser.add_argument(
        "--flapping",
        type=at_least(int, AS_THE_SCENARIO_SAYS),
        default=AS_THE_SCENARIO_SAYS,
        help="sessions on a bad network; -1: the scenario's own",
    )
    for name, kind, least, default, what in (
        ("publish-rate", float, LEAST_RATE, PublisherUser.rate, "publishes per second of each"),
        ("value-bytes", int, 0, PublisherUser.value_bytes, "size of a published value"),
        ("cut-every", float, LEAST_SECONDS, FlappingUser.cut_every, "mean seconds between two cuts"),
        ("seconds", float, LEAST_SECONDS, DEFAULT_SECONDS, "length of the run"),
    ):
        parser.add_argument(f"--{name}", type=at_least(kind, least), default=default, help=what)
    # Not as paths: the leading process sends all options to the workers, and paths do not travel.
    parser.add_argument("--slo", default=str(SLO_FILE), help="file of thresholds", include_in_web_ui=False)
    parser.add_argument("--stack", default=None, help="run folder of `make up`", include_in_web_ui=False)
    parser.add_argument("--verdict", default=None, help="JSON file to write", include_in_web_ui=False)
    parser.add_argument(
        "--sabotage",
        choices=[each.value for each in Sabotage],
        default=Sabotage.NONE.value,
        help="break a node on purpose, to see that the thresholds notice",
    )


class LoadTest:
    """One process of locust, from its start to its end.

    Args:
        environment: of locust.
        thresholds: to judge by.
    """

    def __init__(self, environment: Environment, thresholds: tuple[Threshold, ...]) -> None:
        self._environment = environment
        self._options: Any = environment.parsed_options
        self._thresholds = thresholds
        self._recorder = Recorder(environment)
        self._leads = not isinstance(environment.runner, WorkerRunner)
        self._console = make_console()
        self._progress = Progress(environment, self._recorder, self._console)
        self._play: Play | None = None
        self._verdict: Verdict | None = None
        self._began = False
        self._declared: dict[str, int] = {}

    def listen(self) -> None:
        """Take part in what locust does."""
        runner = self._environment.runner
        hooks: Any = self._environment.events
        if runner is None:
            raise AssertionError("locust makes the runner before it fires init")
        self._choose_users()
        hooks.test_start.add_listener(self._start)
        hooks.test_stopping.add_listener(lambda **_: self._recorder.stop())
        hooks.test_stop.add_listener(self._stop)
        hooks.report_to_master.add_listener(lambda data, **_: self._recorder.report(data))
        hooks.worker_report.add_listener(lambda client_id, data, **_: self._recorder.reported(client_id, data))
        runner.register_message(CUT_MESSAGE, lambda **_: self._recorder.cut_all())
        spawn(self._recorder.keep_time)
        if self._leads:
            hooks.quitting.add_listener(self._judge)
            hooks.quit.add_listener(self._show)
            spawn(self._progress.run)
            self._serve_verdict()

    def _choose_users(self) -> None:
        options, environment = self._options, self._environment
        scenario = SCENARIOS.get(options.scenario)
        flapping = options.flapping
        if flapping < 0:
            flapping = 0 if scenario is None else scenario.flapping
        PublisherUser.rate, PublisherUser.value_bytes = options.publish_rate, options.value_bytes
        FlappingUser.cut_every = options.cut_every
        SenderUser.rate, SenderUser.value_bytes = options.publish_rate, options.value_bytes
        CallerUser.rate, CallerUser.value_bytes = options.publish_rate, options.value_bytes
        AskerUser.rate, AskerUser.value_bytes = options.publish_rate, options.value_bytes
        self._declared = {
            name: self._number(getattr(options, name), usual) for name, (_, usual, _) in DECLARED_USERS.items()
        }
        fixed: dict[type[User], int] = {
            PublisherUser: options.publishers,
            FlappingUser: flapping,
            **{kind: self._declared[name] for name, (kind, _, _) in DECLARED_USERS.items()},
        }
        for kind, number in fixed.items():
            kind.fixed_count = number
            # With a fixed count of 0 locust would go by the weight.
            if number == 0 and kind in environment.user_classes:
                environment.user_classes.remove(kind)
        self._total = options.subscribers + sum(fixed.values())
        if scenario is None:
            environment.shape_class = None
            # What the form of the web page begins with.
            options.num_users = options.num_users or self._total
            options.spawn_rate = options.spawn_rate or SPAWN_RATE
        elif isinstance(environment.shape_class, ScenarioShape):
            environment.shape_class.begin = self._begin_play

    def _number(self, wanted: int, usual: int) -> int:
        """Tell how many users there are of a kind for which something has to be declared."""
        if wanted >= 0:
            return wanted
        return usual if self._options.stack is not None else 0

    # --- The test -----------------------------------------------------------------------------------------------------

    def _start(self, **_: object) -> None:
        self._recorder.begin()
        self._verdict = None
        self._began = True
        self._progress.begin()

    def _begin_play(self) -> Play:
        options, runner = self._options, self._environment.runner
        if runner is None:
            raise AssertionError("shapes are played by a runner")
        stage = Stage(
            total=self._total,
            duration=options.seconds,
            cluster=None if options.stack is None else LocalCluster(Path(options.stack)),
            arrived=lambda: runner.user_count,
            cut_all=lambda: runner.send_message(CUT_MESSAGE),
            say=self._progress.say,
        )
        self._play = Play(SCENARIOS[options.scenario], stage, Sabotage(options.sabotage))
        return self._play

    def _stop(self, **_: object) -> None:
        if self._play is not None:
            self._play.end()
        if isinstance(self._environment.shape_class, ScenarioShape):
            self._environment.shape_class.play = None

    def _measure(self) -> dict[str, float | None]:
        runner, options = self._environment.runner, self._options
        stage = None if self._play is None else self._play.stage
        errors = 0 if runner is None else sum(each["count"] for each in runner.exceptions.values())
        return figures(
            Measured(
                requests=request_counts(self._environment.stats),
                tally=self._recorder.total(),
                rate=options.publish_rate,
                publishers=options.publishers + self._declared["callers"],
                user_errors=errors + bool(locust_log.unhandled_greenlet_exception),
                script_errors=0 if stage is None else len(stage.errors),
                deployed=0 if stage is None else stage.deployed,
                left_behind=0 if stage is None else stage.left_behind,
            )
        )

    def _judged(self) -> Verdict:
        return judge(self._options.scenario, self._thresholds, self._measure(), self._declared)

    def _judge(self, **_: object) -> None:
        self._stop()
        if not self._began:
            return
        verdict = self._verdict = self._judged()
        self._environment.process_exit_code = EXIT_CODES[verdict.outcome]
        report = self._options.html_file and Path(self._options.html_file)
        if report and report.exists():
            put_into_report(verdict, report)
        if self._options.verdict is not None:
            file = Path(self._options.verdict)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(verdict, file)

    def _show(self, **_: object) -> None:
        if self._verdict is not None:
            show(self._verdict, self._console)

    def _serve_verdict(self) -> None:
        """Add a page to locust's: the thresholds and what has been measured so far."""
        page = self._environment.web_ui
        if page is not None and page.app is not None:
            page.app.add_url_rule("/slo", "slo", lambda: as_html(self._judged()))


def begin(environment: Environment, **_: object) -> None:
    """Read the thresholds before anything runs, and take part from now on."""
    options: Any = environment.parsed_options
    scenario = JUDGED_FREELY if options.scenario == FREE else options.scenario
    try:
        thresholds = load(Path(options.slo), scenario)
    except InvalidThresholds as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_NOT_BEGUN)
    LoadTest(environment, thresholds).listen()


# The charts show what objectives are about, and often enough for a run of a minute.
locust_stats.PERCENTILES_TO_CHART = [0.5, 0.99]
locust_stats.HISTORY_STATS_INTERVAL_SEC = CHART_SECONDS

_hooks: Any = events
_hooks.init_command_line_parser.add_listener(add_options)
_hooks.init.add_listener(begin)
