"""How refusals are said by HTTP."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.ports import CallRefused

_STATUS: Final = {
    ErrorCode.FORBIDDEN: HTTPStatus.FORBIDDEN,
    ErrorCode.NO_SUCH_QUEUE: HTTPStatus.NOT_FOUND,
    ErrorCode.TOO_MANY_SELECTIONS: HTTPStatus.TOO_MANY_REQUESTS,
    ErrorCode.QUEUE_FULL: HTTPStatus.INSUFFICIENT_STORAGE,
    ErrorCode.VALUE_TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ErrorCode.TOO_MANY_TOPICS: HTTPStatus.INSUFFICIENT_STORAGE,
    ErrorCode.TOO_MANY_BYTES: HTTPStatus.INSUFFICIENT_STORAGE,
    ErrorCode.GRID_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Of refusals; all others are 400."""


def refused(error: RequestRefused) -> CallRefused:
    """Say by HTTP why a request is refused."""
    return CallRefused(_STATUS.get(error.code, HTTPStatus.BAD_REQUEST), error.code, str(error))
