"""Topics in the order of their texts, in which those that a selector can match are neighbours."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from gateway.core.topics.selectors import Selector, literal_prefix, matches
from gateway.core.topics.topics import SEPARATOR
from gateway.core.topics.work import Work, steps_to_compare
from gateway.core.types import TopicPath

_BEHIND_SEPARATOR = chr(ord(SEPARATOR) + 1)


def matched(ordered: Sequence[str], pattern: Selector, work: Work) -> Iterator[str]:
    """Find the topics that a selector matches, looking only at those that begin as it does.

    Args:
        ordered: topics, sorted.
        pattern: a selector with wildcards.
        work: to be counted; for each topic that is looked at as much as it has segments.

    Raises:
        WorkSpent: there may be more.
    """
    prefix = literal_prefix(pattern)
    first, last = 0, len(ordered)
    if prefix:
        at = bisect_left(ordered, prefix)
        if at < last and ordered[at] == prefix:
            work.take(steps_to_compare(1 + prefix.count(SEPARATOR)))
            if matches(pattern, TopicPath(prefix)):
                yield prefix
        first = bisect_left(ordered, prefix + SEPARATOR)
        last = bisect_left(ordered, prefix + _BEHIND_SEPARATOR)
    for number in range(first, last):
        topic = ordered[number]
        work.take(steps_to_compare(1 + topic.count(SEPARATOR)))
        if matches(pattern, TopicPath(topic)):
            yield topic
