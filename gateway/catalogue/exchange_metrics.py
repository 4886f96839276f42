"""Metrics of questions and answers; see ``metrics``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.metric import LATENCY_BUCKETS, Kind, Metric

QUESTIONS_ASKED = Metric(
    "gateway_questions_total",
    Kind.COUNTER,
    "Questions that clients asked through this node: put to a handler, asked again after a recovery, refused because "
    "nobody handles them, because all who do are busy, for lack of room, or for another reason.",
    "result",
    ("put", "duplicate", "no_handler", "busy", "full", "refused"),
)
QUESTIONS_ENDED = Metric(
    "gateway_questions_ended_total",
    Kind.COUNTER,
    "Questions asked through this node of which the client was told the end: an answer, that the handler failed, that "
    "the time was over, that the handler's session ended, or that the grid lost the question or its answer.",
    "outcome",
    ("answered", "failed", "timed_out", "handler_lost", "answer_lost"),
)
QUESTION_SECONDS = Metric(
    "gateway_question_seconds",
    Kind.HISTOGRAM,
    "Seconds from a question asked through this node to its answer, of those that were answered.",
    buckets=LATENCY_BUCKETS,
)
QUESTIONS_DELIVERED = Metric(
    "gateway_questions_delivered_total",
    Kind.COUNTER,
    "Questions that this node has sent to handlers; one that is sent again after a recovery counts again.",
)
ANSWERS_GIVEN = Metric(
    "gateway_answers_total",
    Kind.COUNTER,
    "Answers of handlers at this node: accepted, or too late.",
    "result",
    ("accepted", "over"),
)
QUESTIONS_OPEN = Metric(
    "gateway_questions_open",
    Kind.GAUGE,
    "Questions asked through this node of which the client was not told the end.",
)
HANDLERS = Metric(
    "gateway_handlers",
    Kind.GAUGE,
    "Handlers of questions at this node whose clients are there: a session counts for each of its selectors.",
)
