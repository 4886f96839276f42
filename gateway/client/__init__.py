"""The Python client: a session at a gateway that outlives its connections.

```python
from gateway.client import connect

async with connect("ws://127.0.0.1:8100", principal="alice") as session:
    stream = await session.subscribe("prices/**")
    async for update in stream:
        print(update.topic, update.value)
```

It reconnects by itself, and every recovery says what it preserved: ``Session.recoveries``.
"""

from gateway.client.consumers import Ack, Message, MessageConsumer
from gateway.client.durable_streams import DurableStream
from gateway.client.exchanges import Handling, Request
from gateway.client.history_streams import HistoryStream
from gateway.client.presence import Member, Presence, PresenceEvent
from gateway.client.session import Connecting, Session, connect
from gateway.client.streams import UpdateStream
from gateway.client.transactions import Transaction
from gateway.client.wills import Will
from gateway.core.client.errors import (
    AnswerLost,
    ClearTextWarning,
    ConnectFailed,
    DurableInUse,
    Forbidden,
    GatewayError,
    HandlerFailed,
    HandlerLost,
    HandlersBusy,
    InvalidPosition,
    InvalidProperties,
    InvalidSelector,
    InvalidTopic,
    InvalidValue,
    NoHandler,
    NoSuchDurable,
    NoSuchQueue,
    NoSuchTransaction,
    NotHeld,
    PositionGone,
    QueueFull,
    RequestFailed,
    RequestRefused,
    RequestTimedOut,
    SessionClosed,
    SessionEnded,
    SessionExpired,
    SessionFailed,
    SessionRefused,
    StreamOverflow,
    TooManySelections,
    Unauthenticated,
    ValueTooLarge,
)
from gateway.core.client.types import (
    CurrentValue,
    Notice,
    Receipt,
    Recovery,
    SelectionsWithdrawn,
    SendReceipt,
    SessionState,
    Update,
    ValuesPage,
    ValuesReread,
)

__all__ = [
    "Ack",
    "AnswerLost",
    "ClearTextWarning",
    "ConnectFailed",
    "Connecting",
    "CurrentValue",
    "DurableInUse",
    "DurableStream",
    "Forbidden",
    "GatewayError",
    "HandlerFailed",
    "HandlerLost",
    "HandlersBusy",
    "Handling",
    "HistoryStream",
    "InvalidPosition",
    "InvalidProperties",
    "InvalidSelector",
    "InvalidTopic",
    "InvalidValue",
    "Member",
    "Message",
    "MessageConsumer",
    "NoHandler",
    "NoSuchDurable",
    "NoSuchQueue",
    "NoSuchTransaction",
    "NotHeld",
    "Notice",
    "PositionGone",
    "Presence",
    "PresenceEvent",
    "QueueFull",
    "Receipt",
    "Recovery",
    "Request",
    "RequestFailed",
    "RequestRefused",
    "RequestTimedOut",
    "SelectionsWithdrawn",
    "SendReceipt",
    "Session",
    "SessionClosed",
    "SessionEnded",
    "SessionExpired",
    "SessionFailed",
    "SessionRefused",
    "SessionState",
    "StreamOverflow",
    "TooManySelections",
    "Transaction",
    "Unauthenticated",
    "Update",
    "UpdateStream",
    "ValueTooLarge",
    "ValuesPage",
    "ValuesReread",
    "Will",
    "connect",
]
