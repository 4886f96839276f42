"""Subscribe and unsubscribe: how a session's list of selections changes (protocol 6.3, 6.5)."""

from __future__ import annotations

from gateway.app.authorisation import Authorisation
from gateway.app.context import Context
from gateway.app.delivery import Delivery
from gateway.app.persistence import Persistence
from gateway.app.session import Session
from gateway.core.errors import InvalidSelector
from gateway.core.packets import Reply, Subscribe, Unsubscribe
from gateway.core.selections import MOST_KEPT, Entry, Selections
from gateway.core.selectors import Selector, parse_selector
from gateway.ports import SessionChanges


class Selecting:
    """Changes what sessions select.

    Args:
        context: of the node.
        persistence: where the change is written ahead (P4).
        delivery: where it takes effect.
        authorisation: judges it.
    """

    def __init__(
        self, context: Context, persistence: Persistence, delivery: Delivery, authorisation: Authorisation
    ) -> None:
        self._limits = context.limits
        self._journal = context.journal
        self._persistence = persistence
        self._delivery = delivery
        self._authorisation = authorisation

    async def select(self, session: Session, request: Subscribe | Unsubscribe) -> None:
        """Execute a request, and answer it.

        Raises:
            RequestRefused: the selector is none, is not allowed, or is one too many.
            Fenced, SessionGone: the session is not this node's any more.
            GridUnavailable: it may have been executed; asking again does no harm.
        """
        selector = parse_selector(request.selector)
        kept = _kept(request)
        async with session.selecting:
            wanted = self._wanted(session, request, selector, kept)
            changes = wanted != session.selections
            while True:
                before, permissions = session.selections, session.permissions
                await self._delivery.prepare(session, wanted)
                if wanted != before:
                    await self._persistence.change(session, SessionChanges(selections=wanted.to_wire()))
                if session.selections == before and session.permissions is permissions:
                    break
                # Something may have been withdrawn meanwhile, and what is written may be more than is allowed.
                self._authorisation.record(session)
                wanted = self._wanted(session, request, selector, kept)
            self._delivery.select(session, wanted)
            self._limits.recount(session)
            if changes:
                sign = "+" if isinstance(request, Subscribe) else "-"
                self._journal.selections_changed(session, [sign + selector.text, *map(str, kept)])
            session.reply(Reply(request=request.request))
            if isinstance(request, Subscribe):
                await self._delivery.send_snapshot(session, selector)

    def _wanted(
        self, session: Session, request: Subscribe | Unsubscribe, selector: Selector, kept: list[Entry]
    ) -> Selections:
        """Tell what the session's list will be.

        Raises:
            RequestRefused: it may not be.
        """
        if isinstance(request, Subscribe):
            self._authorisation.check_select(session, selector)
            wanted = session.selections.select(selector)
        else:
            wanted = session.selections.deselect(selector)
            # Nothing needs a permission to stay, but what may not be selected any more must not come back this way.
            for entry in self._authorisation.allowed(session, Selections(kept)):
                wanted = wanted.select(entry.selector)
        self._limits.check_selections(session, len(wanted))
        return wanted


def _kept(request: Subscribe | Unsubscribe) -> list[Entry]:
    """Read what an unsubscribe leaves selected.

    Raises:
        InvalidSelector: one is none, or there are too many.
    """
    keep = request.keep if isinstance(request, Unsubscribe) else ()
    if len(keep) > MOST_KEPT:
        raise InvalidSelector(f"an unsubscribe keeps at most {MOST_KEPT} selectors, not {len(keep)}")
    return [Entry(selects=True, selector=parse_selector(each)) for each in keep]
