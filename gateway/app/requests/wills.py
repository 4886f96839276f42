"""Last wills: what a session asks to be published when it ends (protocol section 19)."""

from __future__ import annotations

from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.requests.publish import too_large, topic_to_publish
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.session import Session
from gateway.core.wire.codec.will_packets import write_wills
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Reply
from gateway.core.wire.will_packets import MOST_WILL_BYTES, WILLS_PROPERTY, SetWills
from gateway.ports import SessionChanges


class WillSetting:
    """Sets the wills of sessions. They are executed by ``gateway.app.cluster.last_wills``.

    Args:
        context: of the node.
        store: where sessions are changed.
        authorisation: judges what they would publish.
    """

    def __init__(self, context: Context, store: FencedStore, authorisation: Authorisation) -> None:
        self._limits = context.limits
        self._largest = context.parameters.limits.value_bytes
        self._store = store
        self._authorisation = authorisation

    async def execute(self, session: Session, request: SetWills) -> None:
        """Set the wills of a session, and reply.

        Raises:
            RequestRefused: they cannot be published, by the rules or the policy of now; those of before stay.
            Outdated, SessionLost, GridUnavailable, GridRefused: see ``fencing``.
        """
        for each in request.wills:
            if len(each.value) > self._largest:
                raise too_large(each, self._largest)
            topic = topic_to_publish(each.topic)
            if not session.permissions.publishes_all:
                self._authorisation.check_publish(session, topic)
        text = write_wills(request.wills).decode()
        size = len(text.encode())
        if size > MOST_WILL_BYTES:
            raise RequestRefused(
                f"the wills have {size} bytes together; {MOST_WILL_BYTES} are allowed", code=ErrorCode.VALUE_TOO_LARGE
            )
        properties = dict(session.properties)
        properties.pop(WILLS_PROPERTY, None)
        if request.wills:
            properties[WILLS_PROPERTY] = text
        self._limits.check_properties(session, properties)
        try:
            await self._store.change(session, SessionChanges(properties=properties))
            session.properties = properties
        finally:
            self._limits.recount(session)
        session.reply(Reply(request=request.request))
