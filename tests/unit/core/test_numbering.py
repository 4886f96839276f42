"""Packets get their ids at one place, which tells what it numbered where somebody keeps a copy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.mirror.recording import RecordingBuffer, RecordingOutbox
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.messages import SharedFrame
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.stream.transitions import State
from gateway.core.types import PacketId
from tests.support.machines import PARAMETERS, PLENTY, ids, opened
from tests.support.machines import update as named_update


def update(name: str) -> Outgoing:
    return named_update(f"topic-{name}", name)


TWO = replace(PARAMETERS, resend_packets=2)


class Listener:
    """Writes down what it hears of the packets of a machine."""

    def __init__(self, machine: SessionMachine) -> None:
        self.told: list[tuple[str, Run | int]] = []
        machine.tap(RecordingBuffer(self), RecordingOutbox(self))

    def numbered(self, run: Run) -> None:
        self.told.append(("number", run))

    def pushed(self, run: Run) -> None:
        self.told.append(("push", run))

    def took(self, packets: int) -> None:
        self.told.append(("take", packets))

    def folded(self) -> None:
        self.told.append(("fold", 0))

    def touch(self) -> None:
        self.told.append(("touch", 0))

    def acknowledged(self) -> None:
        self.told.append(("acknowledge", 0))

    def rewrote(self) -> None:
        self.told.append(("rewrite", 0))


def test_what_waits_is_told_and_how_much_of_it_was_numbered() -> None:
    machine = opened()
    listener = Listener(machine)
    shared, lone = Run.of(update("a"), update("b")), Run.of(update("c"))
    machine.submit_run(shared)
    machine.submit_run(lone)
    assert listener.told == [("push", shared), ("push", lone)]
    assert listener.told[0][1] is shared

    assert ids(machine.flush(PLENTY)) == [1, 2, 3]
    assert listener.told[2:] == [("take", 3)]


def test_what_is_sent_at_once_is_told_too() -> None:
    machine = opened()
    listener = Listener(machine)
    run = Run.of(update("a"))

    assert machine.send_now(SharedFrame(run), PLENTY) is not None
    assert listener.told == [("number", run)]


def test_who_sends_to_many_at_once_tells_of_them_itself() -> None:
    machine = opened()
    listener = Listener(machine)
    run = Run.of(update("a"))

    assert machine.send_now(SharedFrame(run, is_told=True), PLENTY) is not None
    assert (listener.told, machine.last_numbered) == ([], 1)


def test_what_is_numbered_for_an_absent_peer_is_told_at_once() -> None:
    machine = opened()
    listener = Listener(machine)
    waits, later = Run.of(update("waits")), Run.of(update("comes later"))
    machine.submit_run(waits)
    machine.detach()
    machine.submit_run(later)

    assert listener.told == [("push", waits), ("take", 1), ("number", later)]


def test_of_a_cut_run_it_is_told_how_far_it_was_numbered() -> None:
    machine = opened(parameters=TWO)
    listener = Listener(machine)
    machine.submit_run(Run.of(update("a"), update("b"), update("c")))
    machine.flush(PLENTY)
    assert listener.told[1:] == [("take", 2)]

    machine.receive_ack(PacketId(2), 0.0)
    machine.flush(PLENTY)
    assert listener.told[2:] == [("acknowledge", 0), ("take", 1)]


def test_what_is_sent_again_is_not_numbered_again() -> None:
    machine = opened()
    machine.submit(update("a"))
    machine.flush(PLENTY)
    listener = Listener(machine)
    machine.detach()
    machine.resume()
    machine.reattach(received=PacketId(0), now=0.0)

    assert ids(machine.flush(PLENTY)) == [1]
    assert listener.told == [("acknowledge", 0)]


def test_a_new_numbering_replaces_what_was_told_before() -> None:
    machine = opened()
    listener = Listener(machine)
    machine.submit(update("a"))
    machine.flush(PLENTY)
    machine.detach()
    machine.resume()
    machine.restart(0.0)
    assert ("rewrite", 0) in listener.told
    told = len(listener.told)
    machine.submit(update("b"))
    machine.flush(PLENTY)

    assert listener.told[told:] == [("push", Run.of(update("b"))), ("take", 1)]


@pytest.mark.parametrize("size", [2, 5])
def test_what_does_not_fit_for_an_absent_peer_is_counted_and_the_rest_told(size: int) -> None:
    machine = opened(parameters=TWO)
    listener = Listener(machine)
    machine.detach()
    run = Run.of(*[update(str(number)) for number in range(size)])
    machine.submit_run(run)

    fits = [("number", run)]
    assert listener.told[:2] == (fits if size == 2 else [("push", run), ("take", 2)])
    assert (("rewrite", 0) in listener.told) is (size > 2)
    assert machine.state is (State.DETACHED if size == 2 else State.GAP)
    assert machine.discarded == size - 2


def test_whatever_changes_how_what_waits_is_folded_is_told() -> None:
    machine = opened()
    listener = Listener(machine)
    machine.submit_replay([Run.of(update("a")), Run.of(update("a"))])
    assert listener.told[2:] == [("touch", 0)]
    machine.conflate()
    assert listener.told[3:] == [("fold", 0), ("touch", 0)]
    machine.submit(update("a"))
    assert listener.told[6:] == [("touch", 0)]
    machine.flush(PLENTY)
    assert listener.told[7:] == [("take", 1)]
