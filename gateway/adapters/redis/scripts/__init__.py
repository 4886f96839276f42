"""The Lua scripts, one atomic step of the grid each; every file says its keys, arguments, result and invariant.

Those that begin with ``#!lua flags=allow-oom`` run even when Redis is at its memory limit: they free memory, or keep
sessions and leases alive with the few bytes that takes. Only steps that store more for a client are refused then.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Final, TypeAlias

Argument: TypeAlias = str | bytes | int
"""What a command is made of."""

Command: TypeAlias = tuple[Argument, ...]
"""A Redis command with its arguments."""


_WHEN_FULL: Final = "#!lua flags=allow-oom"
"""The first line of a script that Redis runs at its memory limit."""


def _read(name: str) -> str:
    return resources.files(__name__).joinpath(f"{name}.lua").read_text(encoding="utf-8")


class Script:
    """One script.

    Args:
        name: of its file, without ``.lua``.
        keys: how many keys it takes, or takes of each partition that it is given.
        timed: whether it depends on the time of the grid: then ``clock.lua`` precedes it, and its first argument,
            behind the keys, is ``GridClock.argument``.
        begins: names of other files that are its beginning, which several scripts share, in order.
        when_full: whether it also runs at the memory limit, though its file does not say so: of one that others use
            to store more.

    Attributes:
        text: its source.
        sha: by which Redis knows it once it is loaded.
    """

    __slots__ = ("_head", "_keys", "name", "sha", "text")

    def __init__(
        self, name: str, *, keys: int, timed: bool = False, begins: tuple[str, ...] = (), when_full: bool = False
    ) -> None:
        self.name = name
        self.text = _read(name)
        before = [_read(each) for each in (("clock",) if timed else ()) + begins]
        first, _, rest = self.text.partition("\n")
        # What is before the first line break says how the whole is to be run, or nothing.
        head, rest = (first, rest) if first.startswith("#!") else ("", self.text)
        if when_full:
            head = _WHEN_FULL
        self.text = "\n".join([*([head] if head else []), *before, rest])
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        self._keys = keys
        self._head: Command = (b"EVALSHA", self.sha.encode(), keys)

    def __call__(self, *keys_and_arguments: Argument) -> Command:
        """Make the command that runs it: its keys first, then its arguments."""
        return self._head + keys_and_arguments

    def across(self, partitions: int, *keys_and_arguments: Argument, more: int = 0) -> Command:
        """Make the command that runs it on so many *partitions*: the keys of each, then all arguments.

        Args:
            partitions: how many.
            keys_and_arguments: see above.
            more: keys besides, as those of the logs of topics with history.
        """
        return (*self._head[:-1], self._keys * partitions + more, *keys_and_arguments)


def milliseconds(seconds: float) -> int:
    """Write a length of time as scripts take it: not below one, where 0 stands for none."""
    return max(1, round(seconds * 1000)) if seconds else 0


ADOPT: Final = Script("adopt", keys=5, timed=True)
ADOPTED: Final = Script("adopted", keys=1)
CARRIERS: Final = Script("carriers", keys=1, timed=True)
CARRIER_RELEASE: Final = Script("carrier_release", keys=1)
CARRIER_TAKE: Final = Script("carrier_take", keys=2, timed=True)
CLOCK_SET: Final = Script("clock_set", keys=2)
CURSOR_ADVANCE: Final = Script("cursor_advance", keys=2)
SEAL: Final = Script("seal", keys=1, begins=("foreign_ids",))
SEAL_SESSIONS: Final = Script("seal_sessions", keys=1)
DESTINATION_APPLY: Final = Script("destination_apply", keys=3, begins=("foreign_ids", "revisions", "destinations"))
DESTINATION_PUT: Final = Script("destination_put", keys=3, begins=("foreign_ids", "revisions", "destinations"))
DESTINATION_READ: Final = Script("destination_read", keys=3, begins=("foreign_ids", "revisions"))
DESTINATION_RESTORE: Final = Script("destination_restore", keys=3, begins=("foreign_ids", "revisions", "destinations"))
DURABLE_ADVANCE: Final = Script("durable_advance", keys=2, timed=True, begins=("durable",))
DURABLE_DUE: Final = Script("durable_due", keys=1, timed=True)
DURABLE_END: Final = Script("durable_end", keys=2, timed=True, begins=("durable",))
DURABLE_OPEN: Final = Script("durable_open", keys=4, timed=True, begins=("durable",))
DURABLE_RELEASE: Final = Script("durable_release", keys=3, timed=True, begins=("durable",))
DURABLE_REMOVE: Final = Script("durable_remove", keys=2, timed=True, begins=("durable",))
INTEREST_PUT: Final = Script("interest_put", keys=5, begins=("foreign_ids", "revisions"))
INTEREST_SWEEP: Final = Script("interest_sweep", keys=5, timed=True, begins=("foreign_ids", "revisions"))
_EXCHANGE: Final = ("foreign_ids", "told", "exchange")
EXCHANGE_ANSWER: Final = Script("exchange_answer", keys=14, timed=True, begins=(*_EXCHANGE, "queue_receipts"))
EXCHANGE_ASK: Final = Script("exchange_ask", keys=14, timed=True, begins=(*_EXCHANGE, "queue_receipts"))
EXCHANGE_FIRE: Final = Script("exchange_fire", keys=14, timed=True, begins=_EXCHANGE)
EXCHANGE_FORGET: Final = Script("exchange_forget", keys=14, timed=True, begins=_EXCHANGE)
EXCHANGE_HANDLE: Final = Script("exchange_handle", keys=14, timed=True, begins=(*_EXCHANGE, "queue_receipts"))
EXCHANGE_LEAVE: Final = Script("exchange_leave", keys=14, timed=True, begins=_EXCHANGE)
EXCHANGE_READ: Final = Script("exchange_read", keys=14, timed=True, begins=_EXCHANGE)
EXCHANGE_TAKE: Final = Script("exchange_take", keys=14, timed=True, begins=(*_EXCHANGE, "queue_receipts"))
HOOK_ADVANCE: Final = Script("hook_advance", keys=1)
HOOK_DROP: Final = Script("hook_drop", keys=1)
HOOK_FORGET: Final = Script("hook_forget", keys=2, timed=True)
HOOK_READ: Final = Script("hook_read", keys=2, begins=("foreign_ids",))
JOURNAL_APPEND: Final = Script("journal_append", keys=2, begins=("foreign_ids",))
LOG_RESTORE: Final = Script("log_restore", keys=4, begins=("logs",))
LOG_SWEEP: Final = Script("log_sweep", keys=4, timed=True, begins=("logs",))
NODE_BACKUP: Final = Script("node_backup", keys=2, timed=True, begins=("backups",))
NODE_BACKUP_OF: Final = Script("node_backup_of", keys=1, timed=True)
NODE_CLEAN: Final = Script("node_clean", keys=2, timed=True, begins=("takeovers",))
NODE_CLUSTER: Final = Script("node_cluster", keys=1)
NODE_FINISH: Final = Script("node_finish", keys=9, timed=True, begins=("backups", "takeovers"))
NODE_GRANT: Final = Script("node_grant", keys=4, timed=True)
NODE_JOIN: Final = Script("node_join", keys=7, timed=True, begins=("saved",))
NODE_LEAVE: Final = Script("node_leave", keys=8, timed=True, begins=("backups",))
NODE_LIST: Final = Script("node_list", keys=3, timed=True)
NODE_LOOK: Final = Script("node_look", keys=1, timed=True)
NODE_LOST: Final = Script("node_lost", keys=2, timed=True)
NODE_RENEW: Final = Script("node_renew", keys=8, timed=True, begins=("saved",))
NODE_REPORT: Final = Script("node_report", keys=2)
NODE_STAGE: Final = Script("node_stage", keys=1, timed=True, begins=("takeovers",))
NODE_TAKE_OVER: Final = Script("node_take_over", keys=5, timed=True, begins=("takeovers",))
NODE_TAKEOVERS: Final = Script("node_takeovers", keys=1, timed=True)
NODE_TELL: Final = Script("node_tell", keys=2, timed=True)
_PRESENCE: Final = ("sizes", "removals", "presence")
PRESENCE_END: Final = Script("presence_end", keys=10, timed=True, begins=(*_PRESENCE, "presence_leaving"))
PRESENCE_ENTER: Final = Script(
    "presence_enter", keys=12, timed=True, begins=(*_PRESENCE, "presence_listing", "presence_owner")
)
PRESENCE_KEEP: Final = Script("presence_keep", keys=6, timed=True, begins=("presence_owner",))
PRESENCE_LEAVE: Final = Script(
    "presence_leave", keys=12, timed=True, begins=(*_PRESENCE, "presence_leaving", "presence_owner")
)
PRESENCE_LIST: Final = Script("presence_list", keys=9, timed=True, begins=(*_PRESENCE, "presence_listing"))
PRESENCE_LIST_FULL: Final = Script(
    "presence_list", keys=9, timed=True, begins=(*_PRESENCE, "presence_listing"), when_full=True
)
PRESENCE_TELL: Final = Script("presence_tell", keys=9, timed=True, begins=_PRESENCE)
PRESENCE_TOLD: Final = Script("presence_told", keys=1)
PRESENCE_WATCH: Final = Script("presence_watch", keys=1, timed=True)
_QUEUE: Final = ("foreign_ids", "told", "queue")
QUEUE_ATTACH: Final = Script("queue_attach", keys=14, timed=True, begins=_QUEUE)
QUEUE_DEAD: Final = Script("queue_dead", keys=3)
QUEUE_DECLARE: Final = Script("queue_declare", keys=14, timed=True, begins=_QUEUE)
QUEUE_DUE: Final = Script("queue_due", keys=1, timed=True)
QUEUE_FEED: Final = Script("queue_feed", keys=12, timed=True, begins=_QUEUE)
QUEUE_FIRE: Final = Script("queue_fire", keys=12, timed=True, begins=_QUEUE)
QUEUE_LEAVE: Final = Script("queue_leave", keys=13, timed=True, begins=_QUEUE)
QUEUE_LOOK: Final = Script("queue_look", keys=7)
QUEUE_REMOVE: Final = Script("queue_remove", keys=12, timed=True, begins=_QUEUE)
QUEUE_REVIVE: Final = Script("queue_revive", keys=12, timed=True, begins=_QUEUE)
QUEUE_SEND: Final = Script("queue_send", keys=14, timed=True, begins=(*_QUEUE, "queue_receipts"))
QUEUE_SETTLE: Final = Script("queue_settle", keys=14, timed=True, begins=(*_QUEUE, "queue_receipts"))
REVOCATION_DROP: Final = Script("revocation_drop", keys=4, begins=("foreign_ids", "revisions"))
REVOCATION_PAGE: Final = Script("revocation_page", keys=4, begins=("foreign_ids", "revisions"))
REVOCATION_PUT: Final = Script("revocation_put", keys=4, begins=("foreign_ids", "revisions"))
SESSION_CHANGE: Final = Script("session_change", keys=3, begins=("session_absent", "selections"))
SESSION_KEEP: Final = Script("session_change", keys=3, begins=("session_absent", "selections"), when_full=True)
"""``SESSION_CHANGE`` of what an established session needs to go on: a proof of its token, new credentials."""
SESSION_CLAIM: Final = Script("session_claim", keys=5, timed=True, begins=("claim_refusal",))
SESSION_CLAIMABLE: Final = Script("session_claimable", keys=5, timed=True, begins=("claim_refusal",))
SESSION_CONFIRM: Final = Script("session_confirm", keys=2)
SESSION_CREATE: Final = Script("session_create", keys=5, timed=True, begins=("selections",))
SESSION_DISCONNECT: Final = Script("session_disconnect", keys=5, timed=True, begins=("session_absent",))
SESSION_DUE: Final = Script("session_due", keys=2, timed=True)
SESSION_END: Final = Script("session_end", keys=4, timed=True, begins=("wills",))
SESSION_EXECUTED: Final = Script("session_executed", keys=1)
SESSION_EXPIRE: Final = Script("session_expire", keys=3, timed=True, begins=("wills",))
SESSION_ORPHAN: Final = Script("session_orphan", keys=3, timed=True)
SESSION_PROLONG: Final = Script("session_prolong", keys=3, timed=True)
SESSION_OWNERS: Final = Script("session_owners", keys=1)
SESSION_PASS: Final = Script("session_pass", keys=5, timed=True, begins=("session_absent",))
SESSION_PURGE: Final = Script("session_purge", keys=8, timed=True)
SESSION_RESTORE: Final = Script("session_restore", keys=6, timed=True, begins=("selections",))
SESSION_SIZES: Final = Script("session_sizes", keys=1)
TOPIC_DUE: Final = Script("topic_due", keys=1, timed=True)
TOPIC_END: Final = Script("topic_end", keys=7, timed=True, begins=("sizes", "removals", "logs", "removal"))
TOPIC_FORGET: Final = Script("topic_forget", keys=3, timed=True)
TOPIC_POSITION: Final = Script("topic_position", keys=1)
TOPIC_PUBLISH: Final = Script("topic_publish", keys=5, begins=("sizes", "no_endings", "no_logs"))
TOPIC_PUBLISH_ENDING: Final = Script("topic_publish", keys=7, timed=True, begins=("sizes", "endings", "no_logs"))
"""``TOPIC_PUBLISH`` of values that end."""
TOPIC_RECORD: Final = Script("topic_publish", keys=5, begins=("sizes", "no_endings", "logs"))
"""``TOPIC_PUBLISH`` of topics with history; others shall not pay for the functions that it has besides."""
TOPIC_RECORD_ENDING: Final = Script("topic_publish", keys=7, timed=True, begins=("sizes", "endings", "logs"))
"""Both of these."""
TOPIC_REMOVE: Final = Script("topic_remove", keys=7, begins=("sizes", "removals", "logs", "removal"))
TOPIC_RESTORE: Final = Script("topic_restore", keys=6, begins=("sizes", "endings"))
_TRANSACTION: Final = ("session_absent", "transactions")
_PARTS: Final = ("sizes", "endings", "logs", *_QUEUE, "transaction_parts")
TRANSACTION_BEGIN: Final = Script("transaction_begin", keys=6, timed=True, begins=_TRANSACTION)
TRANSACTION_COMMIT: Final = Script("transaction_commit", keys=6, timed=True, begins=_TRANSACTION + _PARTS)
TRANSACTION_DECIDE: Final = Script("transaction_decide", keys=6, timed=True, begins=_TRANSACTION)
TRANSACTION_FINISH: Final = Script("transaction_finish", keys=1, timed=True, begins=_PARTS)
TRANSACTION_PREPARE: Final = Script("transaction_prepare", keys=1, timed=True, begins=_PARTS)
TRANSACTION_STAGE: Final = Script("transaction_stage", keys=6, timed=True, begins=_TRANSACTION)
TRANSACTION_TAKE: Final = Script("transaction_take", keys=6, timed=True, begins=_TRANSACTION)
_ZONES: Final = ("foreign_ids", "revisions", "zones")
_TAKEN: Final = ("sizes", "removals", "origins")
ZONE_DROP: Final = Script("zone_drop", keys=3, begins=_ZONES)
ZONE_ENTER: Final = Script("zone_enter", keys=3, begins=_ZONES)
ZONE_LEAVE: Final = Script("zone_leave", keys=3, begins=_ZONES)
ZONE_PUBLISH: Final = Script("zone_publish", keys=5, timed=True, begins=(*_TAKEN, "no_logs"))
ZONE_PUT: Final = Script("zone_put", keys=3, begins=_ZONES)
ZONE_READ: Final = Script("zone_read", keys=3, begins=("foreign_ids", "revisions"))
ZONE_RECORD: Final = Script("zone_publish", keys=5, timed=True, begins=(*_TAKEN, "logs"))
"""``ZONE_PUBLISH`` of topics with history."""
ZONE_STAMP: Final = Script("zone_stamp", keys=2, timed=True, begins=("origins",))
ZONE_TIMES: Final = Script("zone_times", keys=2, timed=True, begins=("origins",))

SCRIPTS: Final[tuple[Script, ...]] = tuple(each for each in list(globals().values()) if isinstance(each, Script))
"""All of them: each new connection loads them before anything else, so that no pipeline meets an unknown script."""
