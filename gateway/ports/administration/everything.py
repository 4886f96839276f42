"""All that administrators can see and do, in one value."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.ports.administration.nodes import NodeAdministration
from gateway.ports.administration.revocations import RevocationAdministration
from gateway.ports.administration.sessions import SessionAdministration
from gateway.ports.administration.topics import TopicAdministration


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingView:
    """A setting as an administrator sees it.

    Attributes:
        name: of the setting.
        group: to which it belongs.
        value: for people; secrets are masked.
        changed: whether it differs from the default.
        meaning: one sentence.
    """

    name: str
    group: str
    value: str
    changed: bool
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Administration:
    """All use cases of administrators.

    Attributes:
        node: the name of this node.
        nodes: the nodes of the cluster.
        sessions: the sessions of the cluster.
        topics: the topics of the cluster.
        revocations: who is locked out.
        configuration: what this node runs with.
    """

    node: str
    nodes: NodeAdministration
    sessions: SessionAdministration
    topics: TopicAdministration
    revocations: RevocationAdministration
    configuration: tuple[SettingView, ...] = ()
