"""Requests and answers, streams over HTTP, and what nodes publish when something ends."""

from __future__ import annotations

from typing import Final

from scripts.dashboards.model import Dashboard, Panel, Query, Section, Unit
from scripts.dashboards.parts import CLUSTER, figure, rate, spread

_UNANSWERED: Final = f'outcome!~"answered|failed", {CLUSTER}'
_NOT_PUT: Final = f'result=~"no_handler|busy|full", {CLUSTER}'

REQUESTS: Final = Dashboard(
    name="requests",
    title="Gateway: requests and streams",
    meaning="Who asks and who answers, streams over HTTP, values that end, and last wills.",
    sections=(
        Section(
            "Now",
            (
                figure(
                    "Requests",
                    "Requests that clients made, whatever came of them.",
                    f"sum(rate(gateway_questions_total{{{CLUSTER}}}[$__rate_interval]))",
                    unit=Unit.PER_SECOND,
                ),
                figure(
                    "Open",
                    "Requests of which the client was not told the end.",
                    f"sum(gateway_questions_open{{{CLUSTER}}})",
                ),
                figure(
                    "Handlers",
                    "Handlers whose clients are there; a session counts for each of its selectors.",
                    f"sum(gateway_handlers{{{CLUSTER}}})",
                ),
                figure(
                    "Not taken",
                    "Requests that were put to no handler: nobody handles the path, all who do are busy, or there was "
                    "no room.",
                    f"sum(rate(gateway_questions_total{{{_NOT_PUT}}}[$__rate_interval]))",
                    unit=Unit.PER_SECOND,
                ),
                figure(
                    "Unanswered",
                    "Requests that were put to a handler, or waited for one, and ended without an answer.",
                    f"sum(rate(gateway_questions_ended_total{{{_UNANSWERED}}}[$__rate_interval]))",
                    unit=Unit.PER_SECOND,
                ),
                figure(
                    "Streams",
                    "Streams over HTTP that are open.",
                    f"sum(gateway_streams{{{CLUSTER}}})",
                ),
            ),
        ),
        Section(
            "Requests and answers",
            (
                Panel(
                    title="Asked",
                    meaning="Requests by what came of them at first: put to a handler, asked again after a recovery, "
                    "or refused.",
                    queries=(Query(rate("gateway_questions_total", by="result"), "{{result}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    title="Ended",
                    meaning="Requests by their end. Failed is said by handlers; timed_out, handler_lost and "
                    "answer_lost are requests that nobody answered.",
                    queries=(Query(rate("gateway_questions_ended_total", by="outcome"), "{{outcome}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    title="Time to the answer",
                    meaning="From a request to its answer, of those that were answered; the handlers' work is most of "
                    "it.",
                    queries=spread("gateway_question_seconds"),
                    unit=Unit.SECONDS,
                    empty="nobody asks",
                ),
                Panel(
                    title="Sent to handlers, and answered",
                    meaning="Requests that nodes sent to handlers, again after a recovery; answers of handlers, by "
                    "whether they came in time.",
                    queries=(
                        Query(
                            f"sum(rate(gateway_questions_delivered_total{{{CLUSTER}}}[$__rate_interval]))",
                            "sent to handlers",
                        ),
                        Query(rate("gateway_answers_total", by="result"), "answers: {{result}}"),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Open requests by node",
                    meaning="Requests asked through a node of which the client was not told the end. If they grow "
                    "while as many are asked, handlers are slow.",
                    queries=(Query(f"sum by (node) (gateway_questions_open{{{CLUSTER}}})", "{{node}}"),),
                    stacked=True,
                ),
                Panel(
                    title="Handlers by node",
                    meaning="Handlers by the node at which their sessions are.",
                    queries=(Query(f"sum by (node) (gateway_handlers{{{CLUSTER}}})", "{{node}}"),),
                    stacked=True,
                ),
            ),
        ),
        Section(
            "Streams over HTTP",
            (
                Panel(
                    title="Open streams by node",
                    meaning="Streams that readers hold open.",
                    queries=(Query(f"sum by (node) (gateway_streams{{{CLUSTER}}})", "{{node}}"),),
                    stacked=True,
                ),
                Panel(
                    title="Values read by calls",
                    meaning="Page by page, of all topics that selectors match (GET /v1/values).",
                    queries=(Query(rate("gateway_call_values_total"), "values"),),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Opened",
                    meaning="By how they began: fresh, replayed (all that was missed followed), or with a gap "
                    "(current values in place of some of it).",
                    queries=(Query(rate("gateway_streams_opened_total", by="outcome"), "{{outcome}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    title="Ended",
                    meaning="By why: most readers leave by themselves. Slow ones took less than came; internal is a "
                    "bug.",
                    queries=(Query(rate("gateway_streams_ended_total", by="reason"), "{{reason}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                ),
            ),
        ),
        Section(
            "What ends",
            (
                Panel(
                    title="Values that ended",
                    meaning="Values whose time to live was over, by the node that has put a removal in their place.",
                    queries=(Query(rate("gateway_values_ended_total"), "{{node}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    title="Members of trees",
                    meaning="Sessions that are present in trees of topics, each once in each tree, by node.",
                    queries=(Query(f"sum by (node) (gateway_presence_members{{{CLUSTER}}})", "{{node}}"),),
                    stacked=True,
                ),
                Panel(
                    title="Members that come and go",
                    meaning="Unlisted: they are counted only, as there are more than the tree lists, or no room.",
                    queries=(Query(rate("gateway_presence_changes_total", by="change"), "{{change}}"),),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Last wills",
                    meaning="Wills of sessions that have ended. Refused: the policy does not allow it any more, there "
                    "was no room, or it could not be read; will_refused in the log names session and topic.",
                    queries=(Query(rate("gateway_wills_total", by="outcome"), "{{outcome}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                ),
            ),
        ),
    ),
)
