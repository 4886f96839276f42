"""What a node reads again while it runs, at SIGHUP; a file that cannot be read changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.adapters.admin import AdminTokens, TokensFileError
from gateway.adapters.policy import PolicyFileError, read_policy
from gateway.adapters.tls import TlsPorts
from gateway.adapters.tokens import FollowedKeys
from gateway.app.node import Node
from gateway.authenticators import Authentication
from gateway.catalogue import log_events as events
from gateway.ports import EventLog


class FileReloader:
    """Reads people, keys, certificates and rights again.

    Args:
        node: whose sessions are judged again.
        authentication: who clients are.
        keys: of session tokens.
        tls: certificates of all ports.
        admin_tokens: of administrators, if there are any.
        policy: the file that says who may do what, if there is one.
        log: told what was read, and what was not.
    """

    def __init__(
        self,
        node: Node,
        *,
        authentication: Authentication,
        keys: FollowedKeys,
        tls: TlsPorts,
        admin_tokens: AdminTokens | None,
        policy: Path | None,
        log: EventLog,
    ) -> None:
        self._node = node
        self._authentication = authentication
        self._keys = keys
        self._tls = tls
        self._admin_tokens = admin_tokens
        self._policy = policy
        self._log = log
        self._policy_reader = asyncio.Lock()
        self._reloads: set[asyncio.Task[None]] = set()

    def reload(self) -> None:
        """Read everything again; the policy follows a moment later."""
        self._tls.reload()
        self._keys.reload()
        self._authentication.reload()
        if self._admin_tokens is not None:
            self._reload_admin_tokens(self._admin_tokens)
        self._node.review()
        if self._policy is None:
            self.tell_undefined_roles()
        else:
            task = asyncio.create_task(self._reload_policy(self._policy), name="reload-policy")
            self._reloads.add(task)
            task.add_done_callback(self._reloads.discard)

    def tell_undefined_roles(self) -> None:
        """Warn of administrators' roles that the policy in force does not define, and that are not built in."""
        if self._admin_tokens is not None:
            undefined = self._admin_tokens.undefined_roles(self._node.authorisation.policy.roles)
            for role, tokens in undefined.items():
                self._log.emit(events.ADMIN_ROLE_UNDEFINED, role=role, tokens=list(tokens))

    def close(self) -> None:
        """Give up what is being read."""
        for reload in self._reloads:
            reload.cancel()

    def _reload_admin_tokens(self, tokens: AdminTokens) -> None:
        try:
            count = tokens.reload()
        except TokensFileError as error:
            self._log.emit(events.ADMINS_KEPT, error=str(error))
        else:
            self._log.emit(events.ADMINS_RELOADED, tokens=count)

    async def _reload_policy(self, file: Path) -> None:
        """Read the policy again, in a thread: a long one takes longer than clients should wait."""
        async with self._policy_reader:  # the file that is read last is the one in force at the end
            try:
                policy = await asyncio.to_thread(read_policy, file)
            except PolicyFileError as error:
                self._log.emit(events.POLICY_KEPT, error=str(error))
            else:
                self._node.authorisation.reload(policy)
                # It says what administrators may do, too.
                self._node.enforcement.review()
            self.tell_undefined_roles()
