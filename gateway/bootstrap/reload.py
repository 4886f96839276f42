"""What a node reads again while it runs, at SIGHUP; a file that cannot be read changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path

from gateway.adapters.admin import AdminTokens, TokensFileError
from gateway.adapters.destination_file import DestinationFileError, read_destinations
from gateway.adapters.policy import PolicyFileError, read_policy
from gateway.adapters.tls import TlsPorts
from gateway.adapters.tokens import FollowedKeys
from gateway.app.node import Node
from gateway.authenticators import Authentication
from gateway.catalogue import hook_log_events, policy_log_events
from gateway.catalogue import log_events as events
from gateway.core.hooks.hook import Hook
from gateway.ports import EventLog, TooManyDestinations
from gateway.settings.errors import ConfigurationError
from gateway.settings.hooks import HookReader


class FileReloader:
    """Reads people, keys, certificates and rights again.

    Args:
        node: whose sessions are judged again.
        authentication: who clients are.
        keys: of session tokens.
        tls: certificates of all ports.
        admin_tokens: of administrators, if there are any.
        policy: the file that says who may do what, if there is one.
        destinations: the file that says what paths are, if there is one.
        hooks: reads the file that says who gets events by HTTP, if there is one.
        log: told what was read, and what was not.

    Raises:
        DestinationFileError: the file of destinations cannot be used, so that the node had better not start.
        ConfigurationError: likewise of the file of hooks.
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
        destinations: Path | None,
        hooks: HookReader | None,
        log: EventLog,
    ) -> None:
        self._node = node
        self._authentication = authentication
        self._keys = keys
        self._tls = tls
        self._admin_tokens = admin_tokens
        self._policy = policy
        if destinations is not None:
            read_destinations(destinations)
        self._destinations = destinations
        self._hooks = hooks
        self._log = log
        if hooks is not None:
            self._apply_hooks(hooks())
        self._policy_reader = asyncio.Lock()
        self._destination_reader = asyncio.Lock()
        self._hook_reader = asyncio.Lock()
        self._reloads: set[asyncio.Task[None]] = set()

    def reload(self) -> None:
        """Read everything again; policy and destinations follow a moment later."""
        self._tls.reload()
        self._keys.reload()
        self._authentication.reload()
        if self._admin_tokens is not None:
            self._reload_admin_tokens(self._admin_tokens)
        self._node.review()
        if self._policy is None:
            self.tell_undefined_roles()
        else:
            self._begin(self._reload_policy(self._policy), "reload-policy")
        self.apply_destinations()
        if self._hooks is not None:
            self._begin(self._reload_hooks(self._hooks), "reload-hooks")

    def apply_destinations(self) -> None:
        """Read the file of destinations, if there is one, and have the grid hold what it says as soon as it can."""
        if self._destinations is not None:
            self._begin(self._apply_destinations(self._destinations), "apply-destinations")

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

    def _begin(self, reading: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(reading, name=name)
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

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
                self._log.emit(policy_log_events.POLICY_KEPT, error=str(error))
            else:
                self._node.authorisation.reload(policy)
                # It says what administrators may do, too.
                self._node.enforcement.review()
            self.tell_undefined_roles()

    async def _reload_hooks(self, read: HookReader) -> None:
        """Read the hooks again, in a thread as the policy."""
        async with self._hook_reader:  # the file that is read last is the one in force at the end
            try:
                hooks = await asyncio.to_thread(read.__call__)
            except ConfigurationError as error:
                self._log.emit(hook_log_events.HOOKS_KEPT, error=str(error))
            else:
                self._apply_hooks(hooks)

    def _apply_hooks(self, hooks: Sequence[Hook]) -> None:
        if self._node.hooks is not None:
            self._node.hooks.apply(hooks)
            self._log.emit(hook_log_events.HOOKS_APPLIED, hooks=[each.name for each in hooks])

    async def _apply_destinations(self, file: Path) -> None:
        """Read the destinations, in a thread as the policy."""
        async with self._destination_reader:  # the file that is read last is the one that is applied at the end
            try:
                said = await asyncio.to_thread(read_destinations, file)
                applied = await self._node.destinations.apply_file(said)
            except (DestinationFileError, TooManyDestinations) as error:
                self._log.emit(events.DESTINATIONS_KEPT, error=str(error))
            else:
                self._log.emit(
                    events.DESTINATIONS_APPLIED,
                    destinations=len(said),
                    written=applied.written,
                    removed=applied.removed,
                )
