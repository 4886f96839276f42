"""Sessions as administrators see them."""

from __future__ import annotations

from dataclasses import replace

from gateway.app.session.session import Session
from gateway.core.types import SessionId
from gateway.ports import SessionRecord
from gateway.ports.administration import LiveSession, NotThere, SessionView


def in_list(record: SessionRecord) -> SessionView:
    """Show a session in a list."""
    return SessionView(
        session=record.id,
        principal=record.principal,
        node=record.owner.node,
        incarnation=record.owner.incarnation,
        connected=record.connected,
        properties=record.properties,
        window=record.window,
        epoch=record.epoch,
    )


def alone(record: SessionRecord, *, live: LiveSession | None = None, note: str | None = None) -> SessionView:
    """Show a session by itself, with everything."""
    return replace(in_list(record), selections=record.selections, live=live, note=note)


def live(session: Session) -> LiveSession:
    """Show what is in this node's memory of a session."""
    machine = session.machine
    return LiveSession(
        address=None if session.link is None else session.link.address,
        link=machine.state.value,
        received=machine.received,
        numbered=machine.last_numbered,
        resend_packets=machine.unacknowledged,
        resend_bytes=machine.resend_bytes,
        waiting_packets=machine.waiting,
        waiting_bytes=machine.waiting_bytes,
        requests=len(session.lane),
        moving=session.moving,
        throttled=session.paused,
    )


def nobody_knows(session: SessionId) -> NotThere:
    """Make the refusal of a session that is nowhere."""
    return NotThere(
        "session", f"nobody knows a session {session[:64]!r}: it was closed, its window ended, or never was"
    )
