"""Zones, members and joins, by the admin API and the command line (003-19 to 003-25)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.core.zones.records import Member, ZoneUid
from gateway.core.zones.routes import ClusterId
from gateway.ports import ZoneLinkReport
from gateway.ports.zone_administration import Introduction, NotIntroduced
from tests.integration.admin.support import Answer, Pair
from tests.integration.admin.test_cli import Terminal, terminal
from tests.support.nodes import eventually

__all__ = ["terminal"]

SECRET = "a secret of the zone"
FINGERPRINT = "AB:" * 31 + "AB"
JOIN: dict[str, Any] = {
    "direction": "out",
    "selectors": ["prices/**", "news/*"],
    "urls": ["wss://south.example:8300"],
    "fingerprints": [FINGERPRINT],
    "secret": SECRET,
}


async def ask(pair: Pair, method: str, path: str, role: str = "administrator", /, **body: Any) -> Answer:
    arguments: dict[str, Any] = {"json": body} if body else {}
    return await pair.asker.ask(pair.n1, method, path, role=role, **arguments)


async def made(pair: Pair, name: str = "north") -> str:
    answer = await ask(pair, "POST", "/v1/zones", name=name, secret=SECRET)
    assert answer.status == 201, answer.body
    return str(answer.body["uid"])


def place_of(number: int) -> tuple[str, str]:
    """Make up where a node takes links."""
    return f"wss://{number}.example:8300", f"{number}{number}" * 32


async def test_a_zone_is_made_joined_shown_and_left(pair: Pair) -> None:
    uid = await made(pair)
    (found,) = (await ask(pair, "GET", "/v1/zones")).body["items"]
    assert (found["uid"], found["active"], found["current"], found["members"]) == (uid, False, False, 0)
    assert (await ask(pair, "GET", "/v1/zone")).kind == "zone-unknown"
    joined = await ask(pair, "PUT", "/v1/zone", zone=uid)
    assert (joined.status, joined.body["uid"], joined.body["active"], joined.body["members"]) == (200, uid, True, 1)
    shown = await pair.asker.ask(pair.n2, "GET", "/v1/zone")
    assert shown.body == joined.body, "every node of the cluster tells the same"
    (member,) = (await ask(pair, "GET", "/v1/zone/members")).body["items"]
    assert member["here"]
    assert member["links"] == []
    here = (await ask(pair, "GET", "/v1/zones")).body["here"]
    assert here["cluster"] == member["cluster"]
    assert (await ask(pair, "DELETE", "/v1/zone")).status == 204
    assert (await ask(pair, "DELETE", "/v1/zone")).kind == "zone-unknown"
    (left,) = (await ask(pair, "GET", "/v1/zones")).body["items"]
    assert (left["uid"], left["active"], left["members"]) == (uid, False, 0), "the zone stays, and is not active"
    again = await ask(pair, "PUT", "/v1/zone", zone="north")
    assert (again.status, again.body["active"]) == (200, True), "its secret is known still"


async def test_joining_a_name_that_nobody_knows_makes_the_zone(pair: Pair) -> None:
    assert (await ask(pair, "PUT", "/v1/zone", zone="north")).status == 400, "without a secret nobody could join it"
    joined = await ask(pair, "PUT", "/v1/zone", zone="north", secret=SECRET)
    assert (joined.status, joined.body["name"], joined.body["current"]) == (200, "north", True)


async def test_two_zones_of_one_name_stand_side_by_side_and_are_joined_by_uid(pair: Pair) -> None:
    uids = {await made(pair), await made(pair)}
    assert len(uids) == 2
    ambiguous = await ask(pair, "PUT", "/v1/zone", zone="north")
    assert ambiguous.status == 409
    assert all(uid in ambiguous.body["detail"] for uid in uids)
    assert (await ask(pair, "PUT", "/v1/zone", zone=min(uids))).body["uid"] == min(uids)


async def test_a_cluster_in_two_zones_is_refused(pair: Pair) -> None:
    first, second = await made(pair, "north"), await made(pair, "south")
    assert (await ask(pair, "PUT", "/v1/zone", zone=first)).status == 200
    refused = await ask(pair, "PUT", "/v1/zone", zone=second)
    assert refused.status == 409
    assert first in refused.body["detail"]
    assert (await ask(pair, "PUT", "/v1/zone", zone=first)).status == 200, "the same again is no second one"


class Introducer:
    """A member of a zone that can be asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], str]] = []

    async def introduce(self, urls: Any, *, reference: str, key: str) -> Introduction:
        self.asked.append((tuple(urls), reference))
        if reference == "strange":
            raise NotIntroduced("wss://a.example:8300 knows no zone 'strange'")
        assert len(key) == 64
        return Introduction(ZoneUid("zone-of-others"), "north", ClusterId("there"))


async def test_a_zone_that_others_are_in_is_asked_for_at_their_urls(pair: Pair) -> None:
    urls = ["wss://a.example:8300"]
    unable = await ask(pair, "PUT", "/v1/zone", zone="north", urls=urls, secret=SECRET)
    assert (unable.status, "zone_listen" in unable.body["detail"]) == (409, True)
    introducer = pair.n1.gateway.node.administration.zones.introducer = Introducer()  # type: ignore[attr-defined]
    refused = await ask(pair, "PUT", "/v1/zone", zone="strange", urls=urls, secret=SECRET)
    assert (refused.status, "knows no zone" in refused.body["detail"]) == (409, True)
    await made(pair)
    joined = await ask(pair, "PUT", "/v1/zone", zone="north", urls=urls, secret=SECRET)
    assert joined.body["uid"] == "zone-of-others", "the one that they are in, not the one of that name here"
    assert introducer.asked[-1] == (tuple(urls), "north")
    table = pair.n1.gateway.node.zones.knowledge.table
    assert table.zone is not None
    assert table.zone.seeds == tuple(urls)


async def test_members_are_listed_with_their_links(pair: Pair) -> None:
    uid = await made(pair)
    await ask(pair, "PUT", "/v1/zone", zone=uid)
    node = pair.n1.gateway.node
    there = Member(zone=ZoneUid(uid), cluster=ClusterId("there"), name="south", urls=("wss://b.example:8300",))
    await node._context.grid.zones.merge([there], own=ClusterId("x"))
    link = ZoneLinkReport(name="there/0", remote="there", direction="out", state="up", events=7, behind=3)
    node.presence.zone_links = lambda: (link,)
    node.presence.zone_place = lambda: ("wss://a.example:8300", "ab" * 32)
    await node.presence.tell()
    found = {each["cluster"]: each for each in (await ask(pair, "GET", "/v1/zone/members")).body["items"]}
    assert len(found) == 2
    assert found["there"]["name"] == "south"
    (told,) = found["there"]["links"]
    assert (told["node"], told["state"], told["events"], told["behind"]) == ("n1", "up", 7, 3)
    here = (await ask(pair, "GET", "/v1/zones")).body["here"]
    assert (here["urls"], here["fingerprints"]) == (["wss://a.example:8300"], ["ab" * 32])


async def test_the_master_tells_others_where_the_nodes_are(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, each in enumerate((pair.n1, pair.n2)):
        monkeypatch.setattr(each.gateway.node.zones._own_member, "_every", 0.05)
        each.gateway.node.presence.zone_place = partial(place_of, number)
        await each.gateway.node.presence.tell()
    await ask(pair, "PUT", "/v1/zone", zone="north", secret=SECRET)

    def told() -> set[str]:
        return {url for each in pair.n2.gateway.node.zones.knowledge.table.members.values() for url in each.urls}

    await eventually(lambda: told() == {"wss://0.example:8300", "wss://1.example:8300"})
    pair.n2.gateway.node.presence.zone_place = lambda: ("wss://moved.example:8300", "cd" * 32)
    await pair.n2.gateway.node.presence.tell()
    await eventually(lambda: told() == {"wss://0.example:8300", "wss://moved.example:8300"})


async def test_joins_are_made_changed_listed_and_removed(pair: Pair) -> None:
    made = await ask(pair, "PUT", "/v1/joins/to-south", **JOIN)
    assert made.status == 200, made.body
    assert made.body["fingerprints"] == ["ab" * 32]
    assert made.body["most_hops"] == 4
    assert "secret" not in made.body
    kept = {name: value for name, value in JOIN.items() if name != "secret"} | {"selectors": ["prices/*"]}
    changed = await ask(pair, "PUT", "/v1/joins/to-south", **kept)
    assert changed.body["selectors"] == ["prices/*"]
    incoming = {"direction": "in", "selectors": ["**"], "fingerprints": [FINGERPRINT], "secret": SECRET}
    assert (await ask(pair, "PUT", "/v1/joins/from-east", **incoming)).status == 200
    listed = (await pair.asker.ask(pair.n2, "GET", "/v1/joins")).body["items"]
    assert [(each["name"], each["direction"]) for each in listed] == [("from-east", "in"), ("to-south", "out")]
    assert (await ask(pair, "GET", "/v1/joins/to-south")).body == changed.body
    assert (await ask(pair, "DELETE", "/v1/joins/to-south")).status == 204
    for method in ("GET", "DELETE"):
        assert (await ask(pair, method, "/v1/joins/to-south")).kind == "join-unknown"


@pytest.mark.parametrize(
    "changes",
    [
        {"secret": "too short"},
        {"secret": None},
        {"urls": ["ws://south.example:8300"]},
        {"urls": ["wss://user:password@south.example:8300"]},
        {"urls": []},
        {"direction": "in"},
        {"fingerprints": []},
        {"fingerprints": ["ab"]},
        {"selectors": ["$gateway/**"]},
        {"selectors": ["a//b"]},
        {"selectors": []},
        {"most_hops": 5},
    ],
)
async def test_a_join_that_cannot_be_is_refused(pair: Pair, changes: dict[str, Any]) -> None:
    answer = await ask(pair, "PUT", "/v1/joins/to-south", **JOIN | changes)
    assert answer.status == 400, answer.body
    assert "password@" not in str(answer.body)
    assert (await ask(pair, "GET", "/v1/joins")).body["items"] == []


async def test_only_administrators_change_zones(pair: Pair) -> None:
    for role in ("viewer", "operator"):
        assert (await ask(pair, "GET", "/v1/zones", role)).status == 200
        assert (await ask(pair, "POST", "/v1/zones", role, name="a", secret=SECRET)).status == 403
        assert (await ask(pair, "DELETE", "/v1/zone", role)).status == 403
        assert (await ask(pair, "PUT", "/v1/joins/a", role, **JOIN)).status == 403


async def test_secrets_are_in_no_answer_and_in_no_log(pair: Pair) -> None:
    answers = [
        await ask(pair, "PUT", "/v1/zone", zone="north", secret=SECRET),
        await ask(pair, "PUT", "/v1/joins/to-south", **JOIN),
        await ask(pair, "GET", "/v1/zones"),
        await ask(pair, "GET", "/v1/joins"),
    ]
    key = next(iter(pair.n1.gateway.node.zones.knowledge.table.zones.values())).key
    said = f"{[each.body for each in answers]} {list(pair.n1.log.events)}"
    assert "to-south" in said, "the audit log tells which join"
    assert SECRET not in said
    assert key not in said


async def test_the_command_line_does_the_same(pair: Pair, terminal: Terminal, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    given = ("--secret-file", str(secret))
    assert "knows no zone" in "".join((await terminal.type("zone", "list"))[1:])
    code, out, _ = await terminal.type("zone", "create", "north", *given)
    assert (code, out.startswith("zone north is made: ")) == (0, True)
    (found,) = await terminal.lines("zone", "list")
    code, out, _ = await terminal.type("zone", "join", str(found["uid"]))
    assert (code, out) == (0, f"this cluster is in zone north ({found['uid']})\n")
    assert (await terminal.type("zone", "show"))[1] == f"zone north ({found['uid']}), 1 member\n"
    assert "(here)" in (await terminal.type("zone", "members"))[1]
    assert "cluster" in (await terminal.type("zone", "here"))[1]
    code, _, err = await terminal.type("zone", "join", "south", *given)
    assert code != 0
    assert "one zone at most" in err
    words = ("--selector", "prices/**", "--link-url", "wss://south.example:8300", "--fingerprint", FINGERPRINT)
    code, out, err = await terminal.type("join", "add", "to-south", *words, *given)
    assert (code, out) == (0, "what matches prices/** goes out over to-south\n"), err
    (join,) = await terminal.lines("join", "list")
    assert join["urls"] == ["wss://south.example:8300"]
    assert "to-south" in (await terminal.type("join", "list"))[1]
    assert (await terminal.type("join", "remove", "to-south", "--yes"))[0] == 0
    assert (await terminal.type("zone", "leave", "--yes"))[0] == 0
    code, _, err = await terminal.type("zone", "create", "north")
    assert code != 0
    assert "--secret-file" in err
