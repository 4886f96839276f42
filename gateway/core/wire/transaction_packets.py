"""Packets about transactions, as values (protocol section 16); see ``packets`` for all others."""

from __future__ import annotations

from typing import Final, TypeAlias

from gateway.core.immutable import immutable
from gateway.core.types import RequestNumber
from gateway.core.wire.publish_packet import Publish
from gateway.core.wire.queue_packets import Send, Settle

TRANSACTIONS: Final = "transactions"
"""The word with which a server says that it knows transactions (protocol 16)."""


@immutable
class Begin:
    """Begin a transaction, whose name is the number of this request.

    Attributes:
        request: the request's number.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    resubmitted: bool = False


@immutable
class Stage:
    """Add to a transaction what its commit shall do.

    Attributes:
        request: the request's number.
        transaction: which.
        operation: what to do; its own number and mark mean nothing.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    transaction: RequestNumber
    operation: Publish | Send | Settle
    resubmitted: bool = False


@immutable
class Commit:
    """Execute all of a transaction, or nothing of it (P16).

    Attributes:
        request: the request's number.
        transaction: which.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    transaction: RequestNumber
    resubmitted: bool = False


@immutable
class Rollback:
    """Forget a transaction.

    Attributes:
        request: the request's number.
        transaction: which.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    transaction: RequestNumber
    resubmitted: bool = False


TransactionRequest: TypeAlias = Begin | Stage | Commit | Rollback
"""What clients ask of transactions."""
