"""What administrators can see and do (the admin API). See ``gateway.ports`` for the rules that hold for all.

Everything here may wait for the grid, for no more than its time limit, and raises ``GridUnavailable`` then; what fails
for a reason of its own raises a ``Refused``, whose sentence is meant for the administrator.
"""

from gateway.ports.administration.everything import Administration, SettingView
from gateway.ports.administration.nodes import NodeAdministration, NodeState, NodeView
from gateway.ports.administration.pages import Page
from gateway.ports.administration.refusals import BadParameter, Conflict, Forbidden, HeldElsewhere, NotThere, Refused
from gateway.ports.administration.revocations import RevocationAdministration
from gateway.ports.administration.sessions import LiveSession, SessionAdministration, SessionView
from gateway.ports.administration.topics import TopicAdministration, TopicView, TopicWritten

__all__ = [
    "Administration",
    "BadParameter",
    "Conflict",
    "Forbidden",
    "HeldElsewhere",
    "LiveSession",
    "NodeAdministration",
    "NodeState",
    "NodeView",
    "NotThere",
    "Page",
    "Refused",
    "RevocationAdministration",
    "SessionAdministration",
    "SessionView",
    "SettingView",
    "TopicAdministration",
    "TopicView",
    "TopicWritten",
]
