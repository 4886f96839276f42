"""Sessions: list, look at, close, move, tell."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from gateway.adapters.admin.access import Action
from gateway.adapters.admin.models import sessions as models
from gateway.adapters.admin.operations import Call, Operation
from gateway.adapters.admin.problems import Kind
from gateway.core.types import SessionId
from gateway.ports.administration import Administration, CloseResult, Page, SessionView


async def _list(administration: Administration, call: Call) -> models.SessionPage:
    query: models.SessionQuery = call.query
    page = await administration.sessions.list(filter_text=query.filter, cursor=query.cursor, limit=query.limit)
    return session_page(page)


async def _find(administration: Administration, call: Call) -> models.SessionDetail:
    return models.SessionDetail.model_validate(await administration.sessions.find(SessionId(call.path.session)))


async def _in_grid(administration: Administration, call: Call, why: str) -> models.SessionDetail:
    session = SessionId(call.path.session)
    return models.SessionDetail.model_validate(await administration.sessions.in_grid(session, note=why))


async def _close(administration: Administration, call: Call) -> models.PendingClose | None:
    session, node = SessionId(call.path.session), administration.node
    if await administration.sessions.close(session) is CloseResult.ENDED:
        return None
    detail = (
        f"{node} has closed the session and its client, but the grid is unreachable and still holds the session. "
        f"{node} ends it there as soon as the grid answers. Until then another node that reaches the grid may take the "
        f"client in again, and if {node} stops first, the session survives. Ask again: once it has ended, there is no "
        "such session"
    )
    return models.PendingClose(session=session, node=node, detail=detail)


async def _close_in_grid(administration: Administration, call: Call, _why: str) -> None:
    await administration.sessions.close_in_grid(SessionId(call.path.session))


async def _move(administration: Administration, call: Call) -> models.Moving:
    body: models.Move = call.body
    session = call.path.session
    return models.Moving(session=session, node=await administration.sessions.move(SessionId(session), body.node))


async def _notify(administration: Administration, call: Call) -> models.NoticeQueued:
    body: models.Notice = call.body
    session = SessionId(call.path.session)
    queued = await administration.sessions.notify(session, body.message)
    return models.NoticeQueued(session=session, node=queued.node, connected=queued.connected)


def session_page(page: Page[SessionView]) -> models.SessionPage:
    """Show a page of sessions."""
    return models.SessionPage(items=[models.Session.model_validate(each) for each in page.items], cursor=page.cursor)


_TAG: Final = "Sessions"

OPERATIONS: Final = (
    Operation(
        name="listSessions",
        method="GET",
        path="/v1/sessions",
        tag=_TAG,
        summary="List sessions, of all nodes",
        description="A session that exists from the first page to the last is in exactly one of them.",
        action=Action.SESSIONS_READ,
        handle=_list,
        result=models.SessionPage,
        query_model=models.SessionQuery,
    ),
    Operation(
        name="getSession",
        method="GET",
        path="/v1/sessions/{session}",
        tag=_TAG,
        summary="Show one session, with its buffers and queue",
        action=Action.SESSIONS_READ,
        handle=_find,
        fallback=_in_grid,
        result=models.SessionDetail,
        path_model=models.SessionPath,
        problems=(Kind.SESSION_UNKNOWN,),
    ),
    Operation(
        name="closeSession",
        method="DELETE",
        path="/v1/sessions/{session}",
        tag=_TAG,
        summary="End a session",
        description="Nothing of it is kept; its client is closed with 4205 and cannot resume it. To keep a principal "
        "out, revoke it. While the grid is unreachable, the client is closed all the same, and 202 says that the end "
        "in the grid is still to come; asked again, there is no such session once it has come. If the session's node "
        "is unreachable, the session ends in the grid, and the node closes the client when it hears of that.",
        action=Action.SESSIONS_CLOSE,
        handle=_close,
        fallback=_close_in_grid,
        result=None,
        status=HTTPStatus.NO_CONTENT,
        pending=models.PendingClose,
        path_model=models.SessionPath,
        problems=(Kind.SESSION_UNKNOWN, Kind.CONFLICT),
    ),
    Operation(
        name="moveSession",
        method="POST",
        path="/v1/sessions/{session}/move",
        tag=_TAG,
        summary="Move the client of a session to another node",
        description="As in a drain: the session is handed over there, and its client misses nothing; if the nodes have "
        "no link, requests under way are finished first, and it fails over. The answer comes at once; `node` of the "
        "session shows where its client is.",
        action=Action.SESSIONS_MOVE,
        handle=_move,
        result=models.Moving,
        status=HTTPStatus.ACCEPTED,
        path_model=models.SessionPath,
        body_model=models.Move,
        body_needed=False,
        problems=(Kind.SESSION_UNKNOWN, Kind.NODE_UNKNOWN, Kind.CONFLICT, Kind.OWNER_UNREACHABLE),
    ),
    Operation(
        name="notifySession",
        method="POST",
        path="/v1/sessions/{session}/notice",
        tag=_TAG,
        summary="Send a notice to a session's client",
        description="It arrives as a notice with the code `administrator`; at a client that is disconnected now, when "
        "it comes back to the same node.",
        action=Action.SESSIONS_NOTIFY,
        handle=_notify,
        result=models.NoticeQueued,
        status=HTTPStatus.ACCEPTED,
        path_model=models.SessionPath,
        body_model=models.Notice,
        problems=(Kind.SESSION_UNKNOWN, Kind.CONFLICT, Kind.OWNER_UNREACHABLE),
    ),
)
