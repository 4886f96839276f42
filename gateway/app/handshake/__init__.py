"""Hello and resume: how a connection gets its session (protocol 4.1 to 4.3, the recovery ladder)."""

from gateway.app.handshake.authorities import Authorities
from gateway.app.handshake.handshake import Handshake
from gateway.app.handshake.hello import MAX_CLIENT_TYPE

__all__ = ["MAX_CLIENT_TYPE", "Authorities", "Handshake"]
