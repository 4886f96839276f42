"""Packets get their ids at one place, which tells what it numbered where somebody keeps a copy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.mirror.recording import RecordingBuffer, RecordingOutbox
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.messages import SharedFrame
from gateway.core.stream.runs import Outgoing, Run, packets_of
from gateway.core.stream.transitions import State
from gateway.core.types import PacketId
from tests.support.machines import PARAMETERS, PLENTY, ids, opened
from tests.support.machines import update as named_update


def update(name: str) -> Outgoing:
    return named_update(f"topic-{name}", name)


TWO = replace(PARAMETERS, resend_packets=2)


class Listener:
    """Writes down what a machine numbers."""

    def __init__(self, machine: SessionMachine) -> None:
        self.told: list[tuple[int, Run]] = []
        self._machine = machine
        machine.tap(RecordingBuffer(self), RecordingOutbox(self))

    def numbered(self, run: Run) -> None:
        self.told.append((self._machine.last_numbered - run.count + 1, run))

    def pushed(self, run: Run) -> None: ...

    def took(self, packets: int) -> None: ...

    def folded(self) -> None: ...

    def acknowledged(self) -> None: ...

    def rewrote(self) -> None: ...

    def packets(self) -> list[tuple[int, Outgoing]]:
        return [(first + at, each) for first, run in self.told for at, each in enumerate(run.packets)]


def test_what_waited_is_told_when_it_is_numbered_and_not_before() -> None:
    machine = opened()
    listener = Listener(machine)
    shared, lone = Run.of(update("a"), update("b")), Run.of(update("c"))
    machine.submit_run(shared)
    machine.submit_run(lone)
    assert not listener.told

    messages = machine.flush(PLENTY)

    assert [(first, run is expected) for (first, run), expected in zip(listener.told, (shared, lone), strict=True)] == [
        (1, True),
        (3, True),
    ]
    assert ids(messages) == [1, 2, 3]


def test_what_is_sent_at_once_is_told_too() -> None:
    machine = opened()
    listener = Listener(machine)
    run = Run.of(update("a"))

    assert machine.send_now(SharedFrame(run), PLENTY) is not None
    assert listener.told == [(1, run)]


def test_who_sends_to_many_at_once_tells_of_them_itself() -> None:
    machine = opened()
    listener = Listener(machine)
    run = Run.of(update("a"))

    assert machine.send_now(SharedFrame(run, is_told=True), PLENTY) is not None
    assert (listener.told, machine.last_numbered) == ([], 1)


def test_what_is_numbered_for_an_absent_peer_is_told_at_once() -> None:
    machine = opened()
    listener = Listener(machine)
    machine.submit(update("waits"))
    machine.detach()
    machine.submit(update("comes later"))

    assert listener.packets() == [(1, update("waits")), (2, update("comes later"))]


def test_a_cut_run_is_told_as_far_as_it_was_numbered() -> None:
    machine = opened(parameters=TWO)
    listener = Listener(machine)
    machine.submit_run(Run.of(update("a"), update("b"), update("c")))
    machine.flush(PLENTY)
    assert listener.packets() == [(1, update("a")), (2, update("b"))]

    machine.receive_ack(PacketId(2), 0.0)
    machine.flush(PLENTY)
    assert listener.packets()[2:] == [(3, update("c"))]


def test_what_is_sent_again_is_not_numbered_again() -> None:
    machine = opened()
    machine.submit(update("a"))
    machine.flush(PLENTY)
    listener = Listener(machine)
    machine.detach()
    machine.resume()
    machine.reattach(received=PacketId(0), now=0.0)

    assert ids(machine.flush(PLENTY)) == [1]
    assert not listener.told


def test_the_listener_hears_of_a_new_numbering_from_its_begin() -> None:
    machine = opened()
    listener = Listener(machine)
    machine.submit(update("a"))
    machine.flush(PLENTY)
    machine.detach()
    machine.resume()
    machine.restart(0.0)
    machine.submit(update("b"))
    machine.flush(PLENTY)

    assert listener.packets() == [(1, update("a")), (1, update("b"))]


@pytest.mark.parametrize("size", [2, 5])
def test_what_does_not_fit_for_an_absent_peer_is_counted_and_the_rest_told(size: int) -> None:
    machine = opened(parameters=TWO)
    listener = Listener(machine)
    machine.detach()
    machine.submit_run(Run.of(*[update(str(number)) for number in range(size)]))

    told = packets_of(run for _, run in listener.told)
    assert told == [update("0"), update("1")]
    assert machine.state is (State.DETACHED if size == 2 else State.GAP)
    assert machine.discarded == size - 2
