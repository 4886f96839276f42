"""The topics of the cluster, as administrators see, set and delete them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from gateway.core.types import EventId, TopicPath, Version
from gateway.ports.administration.pages import Page
from gateway.ports.administration.sessions import SessionView


class TopicView(NamedTuple):
    """A topic as an administrator sees it.

    Attributes:
        topic: its path; untrusted text.
        version: of its value.
        event: id of the publish that set it.
        size: bytes of the value's JSON text.
        value: JSON text; None if it was not asked for.
    """

    topic: TopicPath
    version: Version
    event: EventId
    size: int
    value: bytes | None


class TopicWritten(NamedTuple):
    """A topic was set or deleted.

    Attributes:
        topic: its path.
        version: of the new value, or of the removal.
        event: id of the publish.
        duplicate: True if an earlier call with the same key had done it; nothing was written now.
    """

    topic: TopicPath
    version: Version
    event: EventId
    duplicate: bool


class TopicAdministration(Protocol):
    """The topics of the cluster."""

    async def list(self, *, selector: str, cursor: str | None, limit: int, values: bool) -> Page[TopicView]:
        """List topics that a selector matches, page by page.

        A topic that exists from the first page to the last is in one of them at least.

        Args:
            selector: which topics.
            cursor: of the page before.
            limit: most topics of a page.
            values: whether their values are wanted.

        Raises:
            BadParameter: the selector or the cursor cannot be read.
            GridUnavailable: see the module.
        """

    async def find(self, topic: str) -> TopicView:
        """Tell a topic's value.

        Raises:
            BadParameter: this is no topic.
            NotThere: it has no value.
            GridUnavailable: see the module.
        """

    async def set(self, topic: str, value: bytes, *, key: str) -> TopicWritten:
        """Publish a value on behalf of the system, once however often it is asked for with the same *key*.

        Args:
            topic: which.
            value: compact JSON text.
            key: names the request, for an hour.

        Raises:
            BadParameter: this is no topic, or the value is too large.
            Forbidden: the topic is the gateway's own.
            GridUnavailable: ask again with the same key.
        """

    async def delete(self, topic: str) -> TopicWritten:
        """Remove a topic and its value; who selects it is told. A later publish makes it anew, with a higher version.

        Raises:
            BadParameter: this is no topic.
            NotThere: it has no value.
            Forbidden: the topic is the gateway's own.
            GridUnavailable: it may have been done.
        """

    async def subscribers(self, topic: str, *, cursor: str | None, limit: int) -> Page[SessionView]:
        """List the sessions that select a topic, whether or not it has a value; pages are those of sessions.

        Raises:
            BadParameter: this is no topic, or the cursor cannot be read.
            GridUnavailable: see the module.
        """
