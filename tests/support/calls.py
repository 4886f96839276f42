"""A client port that has no calls."""

from __future__ import annotations

from http import HTTPStatus

from gateway.ports import AdmittedCall, Call, CallRefused


class NoCalls:
    """Refuses every call; see ``gateway.ports.Calls``."""

    async def admit(self, call: Call) -> AdmittedCall:
        """Refuse it."""
        raise CallRefused(HTTPStatus.NOT_FOUND, "no_such_page", f"nothing is called here, not {call.path} either")
