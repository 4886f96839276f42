"""The tree of errors of the core.

```text
GatewayError
├── LocalProtocolError      our own code used a machine in a state where that makes no sense: a bug on this side
├── RemoteProtocolError     the peer broke the protocol; carries the close code and the error code to answer with
├── InvalidExport           bytes are no exported session, or are damaged
│   └── UnknownExportVersion
└── RequestRefused          one request cannot be done; carries the error code for its reply; harms nothing else
    ├── InvalidTopic
    ├── InvalidSelector
    ├── InvalidProperties
    └── InvalidValue
```

The errors of the grid and of authentication stand beside their ports in ``gateway.ports``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.core.types import RequestNumber
from gateway.core.wire.codes import PROTOCOL_ERROR, CloseCode, ErrorCode

if TYPE_CHECKING:
    from gateway.core.wire.packets import Packet


class GatewayError(Exception):
    """Base of every error this project raises on purpose."""


class InvalidExport(GatewayError):
    """Bytes from which a session was to be restored are no export of one, or are truncated or altered."""


class UnknownExportVersion(InvalidExport):
    """An exported session was written by a release whose form this one does not know."""


class LocalProtocolError(GatewayError):
    """Our own side asked a state machine for something its state does not allow; always a bug here, never bad input."""


class RemoteProtocolError(GatewayError):
    """The peer sent something the protocol does not allow.

    Attributes:
        close: the close code that ends the connection; the session is kept.
        code: the error code of the packet that says why.
        request: the one request that is to blame, or None (protocol 4.8.1).
        before: packets of the same message that came before what was wrong; they count.
    """

    def __init__(
        self,
        message: str,
        *,
        close: CloseCode = PROTOCOL_ERROR,
        code: ErrorCode = ErrorCode.PROTOCOL_ERROR,
        request: RequestNumber | None = None,
    ) -> None:
        super().__init__(message)
        self.close = close
        self.code = code
        self.request = request
        self.before: list[Packet] = []


class RequestRefused(GatewayError):
    """One request cannot be done; its reply says why and everything else goes on.

    Attributes:
        code: the error code of the reply.
    """

    code: ErrorCode = ErrorCode.BAD_REQUEST

    def __init__(self, message: str, *, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class InvalidTopic(RequestRefused):
    """A topic path breaks the rules of protocol section 6."""

    code = ErrorCode.BAD_TOPIC


class InvalidSelector(RequestRefused):
    """A selector breaks the rules of protocol section 6."""

    code = ErrorCode.BAD_SELECTOR


class InvalidProperties(RequestRefused):
    """Properties are not strings by name within the bounds of protocol 9.3, or their names are the server's."""

    code = ErrorCode.BAD_PROPERTIES


class InvalidValue(RequestRefused, ValueError):
    """A value is no JSON that can be passed on (protocol 2.6.1)."""

    code = ErrorCode.BAD_VALUE
