"""The runtime socket against a stand-in that says what HAProxy 2.6.12 said, or misbehaves."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from lb.errors import CommandRefused, NodeUnknown, RuntimeSocketError, SocketUnreachable
from lb.runtime import RuntimeSocket, Takes, Wanted
from tests.support.haproxy import LOOPBACK

STAT_HEAD = "# pxname,svname,scur,stot,status,weight,lastchg,check_status,last_chk,agent_status,last_agt,addr,desc,\n"
STATE_HEAD = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight\n"


def stat(name: str, *, status: str = "UP", check: str = "L7OK", agent: str = "L7OK") -> str:
    return f'gateway,{name},3,17,{status},100,61,{check},"said, ok",{agent},via agent : up,127.0.0.1:8101,,\n'


def state(name: str, *, op: int = 2, admin: int = 0, weight: int = 100) -> str:
    return f"3 gateway 1 {name} 127.0.0.1 {op} {admin} {weight} 100\n"


@contextmanager
def speaking(answer: Callable[[str], str]) -> Iterator[tuple[str, list[str]]]:
    """Answer commands at a TCP port of the loopback; yields its address and the commands that came."""
    asked: list[str] = []
    with socket.create_server((LOOPBACK, 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    command = connection.makefile("r").readline().strip()
                    if command == "stop":
                        return
                    asked.append(command)
                    connection.sendall(answer(command).encode())

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{LOOPBACK}:{server.getsockname()[1]}", asked
        finally:
            with socket.create_connection(server.getsockname()) as last:
                last.sendall(b"stop\n")
                thread.join(5)


def saying(answers: Mapping[str, str]) -> Callable[[str], str]:
    return lambda command: next((text for start, text in answers.items() if command.startswith(start)), "")


def one_node(stat_row: str, state_row: str) -> Callable[[str], str]:
    return saying({"show stat": STAT_HEAD + stat_row + "\n", "show servers state": STATE_HEAD + state_row + "\n"})


@pytest.mark.parametrize(
    ("stat_row", "state_row", "alive", "ready", "wanted", "takes"),
    [
        (stat("n1"), state("n1"), True, True, Wanted.READY, Takes.ALL),
        (stat("n1"), state("n1", weight=0), True, False, Wanted.READY, Takes.RETURNING),
        (stat("n1", status="DRAIN (agent)"), state("n1", admin=0x08), True, True, Wanted.DRAIN, Takes.RETURNING),
        (stat("n1", status="MAINT"), state("n1", op=0, admin=0x01), False, True, Wanted.MAINT, Takes.NONE),
        (stat("n1", status="MAINT"), state("n1", op=0, admin=0x09), False, True, Wanted.MAINT, Takes.NONE),
        (stat("n1", status="MAINT (resolution)"), state("n1", op=0, admin=0x20), False, True, Wanted.MAINT, Takes.NONE),
        (stat("n1", status="DOWN"), state("n1", op=0), False, True, Wanted.READY, Takes.NONE),
        (stat("n1", status="DOWN"), state("n1", op=0, admin=0x08), False, True, Wanted.DRAIN, Takes.NONE),
    ],
)
def test_the_three_questions_are_kept_apart(
    *, stat_row: str, state_row: str, alive: bool, ready: bool, wanted: Wanted, takes: Takes
) -> None:
    with speaking(one_node(stat_row, state_row)) as (address, asked):
        (node,) = RuntimeSocket(address).nodes()

    assert (node.alive, node.ready, node.wanted, node.takes) == (alive, ready, wanted, takes)
    assert asked == ["show stat gateway 4 -1", "show servers state gateway"]


def test_the_rest_of_a_node() -> None:
    with speaking(one_node(stat("n1", check="* L7OK", agent="INI"), state("n1"))) as (address, _):
        node = RuntimeSocket(address).node("n1")

    assert (node.node, node.address, node.sessions, node.sessions_total) == ("n1", "127.0.0.1:8101", 3, 17)
    assert (node.status, node.status_seconds) == ("UP", 61)
    assert (node.check.status, node.check.text) == ("L7OK", "said, ok")
    assert (node.agent.status, node.agent.text) == ("", "")


def test_node_that_only_one_answer_knows_is_left_out() -> None:
    with speaking(one_node(stat("n1") + stat("n2"), state("n2") + state("n3"))) as (address, _):
        assert [status.node for status in RuntimeSocket(address).nodes()] == ["n2"]


@pytest.mark.parametrize("wanted", Wanted)
def test_what_is_said_to_haproxy(wanted: Wanted) -> None:
    with speaking(lambda _: "\n") as (address, asked):
        RuntimeSocket(address).set_wanted("n1", wanted)
        RuntimeSocket(address).cut("n1")

    assert asked == [f"set server gateway/n1 state {wanted}", "shutdown sessions server gateway/n1"]


def test_refusal_is_passed_on() -> None:
    with (
        speaking(lambda _: "Permission denied\n") as (address, _),
        pytest.raises(CommandRefused, match="Permission denied"),
    ):
        RuntimeSocket(address).set_wanted("n1", Wanted.DRAIN)


def test_unknown_node_lists_those_there_are() -> None:
    answers = {
        "set": "No such server.\n",
        "show stat": STAT_HEAD + stat("n1") + stat("n2"),
        "show servers": STATE_HEAD + state("n1") + state("n2"),
    }
    with speaking(saying(answers)) as (address, _), pytest.raises(NodeUnknown, match="there are: n1, n2"):
        RuntimeSocket(address).set_wanted("n3", Wanted.READY)


@pytest.mark.parametrize("name", ["", "n1;show info", "n1 state maint", "n1\n", "../n1", "gateway/n1"])
def test_no_name_can_smuggle_a_command(name: str) -> None:
    with speaking(lambda _: "\n") as (address, asked):
        with pytest.raises(NodeUnknown, match="cannot be the name"):
            RuntimeSocket(address).cut(name)
        assert asked == []


@pytest.mark.parametrize(
    "answers", [{"show stat": "Unknown command\n"}, {"show stat": STAT_HEAD, "show servers": "Can't find backend.\n"}]
)
def test_other_answers_than_expected(answers: dict[str, str]) -> None:
    with speaking(saying(answers)) as (address, _), pytest.raises(CommandRefused, match="did not show"):
        RuntimeSocket(address).nodes()


def test_an_old_haproxy_is_told_apart() -> None:
    answers = {
        "show stat": "# pxname,svname,scur,stot,status,weight,lastchg,check_status,\ngateway,n1,0,0,UP,1,1,L7OK,\n",
        "show servers": STATE_HEAD + state("n1"),
    }
    with (
        speaking(saying(answers)) as (address, _),
        pytest.raises(RuntimeSocketError, match=r"does not tell '\w+'; 2\.6"),
    ):
        RuntimeSocket(address).nodes()


def test_process_facts() -> None:
    with speaking(lambda _: "Name: HAProxy\nVersion: 2.6.12\nDescription: \n\n") as (address, _):
        assert RuntimeSocket(address).process() == {"Name": "HAProxy", "Version": "2.6.12", "Description": ""}


def test_silence_ends_after_the_timeout() -> None:
    with socket.create_server((LOOPBACK, 0)) as mute:
        runtime = RuntimeSocket(f"{LOOPBACK}:{mute.getsockname()[1]}", timeout=0.1)
        with pytest.raises(SocketUnreachable, match=r"did not answer at .* within 0\.1 s"):
            runtime.nodes()


def test_an_answer_that_never_ends_is_cut_off() -> None:
    """The timeout is for the whole answer and not for each piece."""
    with socket.create_server((LOOPBACK, 0)) as server:

        def dribble() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    while True:
                        connection.sendall(b"x" * 65_536)
                except OSError:
                    return

        thread = threading.Thread(target=dribble)
        thread.start()
        with pytest.raises(SocketUnreachable, match="did not answer"):
            RuntimeSocket(f"{LOOPBACK}:{server.getsockname()[1]}", timeout=0.1).nodes()
        thread.join(5)


def test_who_is_not_there_is_explained(tmp_path: Path) -> None:
    with pytest.raises(SocketUnreachable, match="is HAProxy running, and is this the path"):
        RuntimeSocket(str(tmp_path / "absent")).nodes()
    with socket.create_server((LOOPBACK, 0)) as server:
        address = f"{LOOPBACK}:{server.getsockname()[1]}"
    with pytest.raises(SocketUnreachable, match="nobody listens there"):
        RuntimeSocket(address).nodes()
    with pytest.raises(SocketUnreachable, match="path too long"):
        RuntimeSocket("/" + "x" * 200).nodes()
