"""Keys that are read again while the node runs."""

from __future__ import annotations

from gateway.adapters.tokens.signer import ItsdangerousTokenSigner
from gateway.catalogue import log_events as events
from gateway.ports import EventLog
from gateway.settings import ConfigurationError, Settings, reread_keys


class FollowedKeys:
    """The signer of a node, and the files its keys come from.

    Args:
        settings: with the keys as they were read at the start.
        log: where it is told what came of reading them again.

    Attributes:
        signer: signs and verifies with them.
    """

    def __init__(self, settings: Settings, log: EventLog) -> None:
        self._settings = settings
        self._log = log
        self.signer = ItsdangerousTokenSigner(
            [key.reveal().encode() for key in settings.token_keys],
            [key.reveal().encode() for key in settings.token_verify_keys],
            life=settings.token_life,
            leeway=settings.token_leeway,
        )

    def reload(self) -> None:
        """Read the files again, if there are any; with one that is bad, nothing changes.

        A token of a key that is not there any more is refused from now on; nobody who is connected notices.
        """
        if self._settings.token_keys_file is None and self._settings.token_verify_keys_file is None:
            return
        try:
            signing, verifying = reread_keys(self._settings)
        except ConfigurationError as error:
            self._log.emit(events.KEYS_KEPT, error=str(error))
            return
        self.signer.use([key.reveal().encode() for key in signing], [key.reveal().encode() for key in verifying])
        *others, newest = self.signer.key_ids
        self._log.emit(events.KEYS_RELOADED, signs=newest, verifies=others)
