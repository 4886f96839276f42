"""What the admin API gives and takes about nodes, and about takeovers from those that failed."""

from __future__ import annotations

from pydantic import Field

from gateway.adapters.admin.models.base import Given, Told
from gateway.ports.administration import NodeState


class Node(Told):
    """A node of the cluster. What it reports is as old as the last renewal of its lease."""

    node: str = Field(description="Name of the node.")
    incarnation: str = Field(description="Identifies this run of the node.")
    state: NodeState = Field(
        description="`ready`: accepts new sessions. `not_ready`: keeps its own, see `reasons`. `draining`: its "
        "sessions are moved to other nodes, or have been. `expired`: its lease has expired. `lost`: it died within the "
        "last hour, others have taken its sessions over, and no node of its name is there. `unknown`: it has not "
        "reported yet."
    )
    reasons: list[str] = Field(description="Why it accepts no new sessions, for people.")
    listen: str | None = Field(description="Where its clients connect.")
    admin: str | None = Field(description="Where other nodes reach its admin port: a URL without a path.")
    version: str | None = Field(description="Version of the gateway that the node runs.")
    started: float | None = Field(description="When it started, in seconds since 1970.")
    connected: int | None = Field(description="Sessions with a client.")
    disconnected: int | None = Field(description="Sessions without a client whose windows have not ended.")
    lag: float | None = Field(description="Seconds by which its event loop was late when it last looked.")
    lost: float | None = Field(description="Seconds since the lease of a lost node ended; null for the others.")
    link: str | None = Field(description="Where other nodes have a link to it.")
    linked: bool | None = Field(
        description="Whether the node that answers has a link to it; null if one of the two has the setting `link` not."
    )
    heard: float | None = Field(
        description="Seconds since the node that answers heard of it over their link; null without one."
    )
    backup: str | None = Field(
        description="The node that keeps copies of its sessions, or kept them when it died; null if none does."
    )
    mirror: str | None = Field(
        description="What it waits for before packets leave: `async` for nothing, `sync` or `strict` for the backup."
    )
    copied: int | None = Field(description="Sessions of which the backup has a whole copy.")
    to_copy: int | None = Field(description="Sessions of which it is to have one.")
    suspected_by: list[str] = Field(
        description="Names of the nodes that do not hear it any more over their links, though its lease holds: it "
        "hangs, has just died, or the network between them is cut. Only in lists."
    )
    master: bool = Field(description="Whether it is the master of the cluster, as the node that answers last saw it.")
    here: bool = Field(description="Whether it is the node that answers.")


class Takeover(Told):
    """What the others do for a node that has failed."""

    node: str = Field(description="Name of the node that has failed.")
    incarnation: str = Field(description="Identifies the run of it that has failed.")
    by: str | None = Field(
        description="Name of the node that takes over, or cleans up; null if all is taken over, and what is transient "
        "of the node is left alone for the time of `transient_wait`."
    )
    stage: str | None = Field(
        description="The stage that is under way: `sessions`, `done`, `reports`; null if none is."
    )
    step: int = Field(description="The first step of that stage that is not done for certain.")
    sessions: int = Field(description="Sessions whose windows have begun, so far.")
    left: float = Field(
        description="Seconds until another node may go on in its place, or until what is transient may be cleaned up."
    )


class Takeovers(Told):
    """All takeovers that are under way, and those after which something is to be cleaned up."""

    items: list[Takeover]


class Nodes(Told):
    """All nodes that hold a lease, those whose sessions other nodes have yet to take over, and lost ones."""

    items: list[Node]


class NodePath(Given):
    """Which node."""

    node: str = Field(min_length=1, max_length=63, description="Name of the node.", examples=["n1"])
